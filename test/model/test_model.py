# SPDX-License-Identifier: BSD-3-Clause
"""The registration cache's protocol (cache.pml), that of the log which tells it of changes
(inval_log.pml), and how the caches' threads sleep on that log and are woken (sleep.pml), in every
interleaving, by the model checker Spin.

Each model is small, so that it is gone through whole; together they have all parts of the protocol.
A rule that is broken must be found out in one of them, or the model would not show that it is
needed, and perhaps shows nothing at all.
"""
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

MODEL = Path(__file__).parent / "cache.pml"
LOG_MODEL = Path(__file__).parent / "inval_log.pml"
SLEEP_MODEL = Path(__file__).parent / "sleep.pml"
MEMORY_MIB = 4000
DEPTH = 100_000
SECONDS = 900  # of the watchdog

# How counts of uses reach other threads is in the models "uses" and "records" alone.
AT_ONCE = ("RETIRE_AT_ONCE", "FENCE")

MODELS = {
    # madvise and munmap while two threads transfer
    "notifier": ("NOTIFIER", *AT_ONCE, "MADVISE", "ROUNDS=2", "OTHERS=2"),
    # a second change: of what is no longer watched, or of which nobody was told
    "notifier-again": ("NOTIFIER", *AT_ONCE, "MADVISE", "CHANGES=2", "ROUNDS=3", "OTHERS=0"),
    # two threads change memory at once
    "changers": ("NOTIFIER", *AT_ONCE, "CHANGERS=2", "ROUNDS=2", "OTHERS=0"),
    "hooks": ("HOOKS", *AT_ONCE, "CHANGES=2", "RING=1", "RANGES=2", "ROUNDS=2", "OTHERS=1"),
    # two regions end, not at once
    "parts": ("HOOKS", *AT_ONCE, "CHANGES=2", "RING=1", "RANGES=2", "REGIONS=2", "ROUNDS=3",
              "OTHERS=0"),
    "hooks+notifier": ("HOOKS", "NOTIFIER", *AT_ONCE, "ROUNDS=2", "OTHERS=1"),
    "hooks+notifier-never": ("HOOKS", "NOTIFIER", "NEVER", *AT_ONCE, "ROUNDS=2", "OTHERS=1"),
    "scan": ("SCAN", *AT_ONCE, "ROUNDS=1", "OTHERS=1"),
    "scan-again": ("SCAN", *AT_ONCE, "RANGES=2", "ROUNDS=3", "OTHERS=0"),
    # who uses, gives up, releases elsewhere and retires, with counts that others see late
    "uses": ("HOOKS", "PASS", "EVICTIONS=1", "ROUNDS=2", "OTHERS=1"),
    "records": ("HOOKS", "PASS", "EVICTIONS=1", "CHANGERS=0", "REGIONS=2", "RANGES=2"),
    "retirers": ("HOOKS", "PASS", "EVICTIONS=2", "CHANGERS=0", "RETIRERS", "ROUNDS=1", "OTHERS=1"),
    # membarrier refused: counting is a full barrier itself
    "fences": ("HOOKS", "PASS", "EVICTIONS=1", "FENCE", "BREAK_MEMBARRIER"),
}

LARGE_MODELS = {
    "notifier-large": ("NOTIFIER", *AT_ONCE, "CHANGES=2", "ROUNDS=2", "OTHERS=1"),
    "scan-ranges": ("SCAN", *AT_ONCE, "RANGES=2", "ROUNDS=1", "OTHERS=1"),
    "scan-large": ("SCAN", *AT_ONCE, "ROUNDS=2", "OTHERS=1"),
}

STALE = "pinned[r]>=start"
GONE = "registered[r]"
IN_USE = "holders"
LEFT = "state[r]!="

# rule: (what breaking it does, model, the assertion that fails)
RULES = {
    "NO_QUERY": ("the look-up does not ask the kernel", "notifier", STALE),
    "QUERY_LATE": ("the query comes after sequence and head", "notifier", STALE),
    "NO_SEQUENCE": ("the look-up does not look at sequence", "notifier", STALE),
    "EVEN_EARLY": ("sequence is even again before the log is written", "notifier", STALE),
    "INSERT": ("a new region is not checked against the log", "notifier", STALE),
    "APPLY_ORDER": ("applied moves before the regions are dead", "notifier", STALE),
    "PART": ("applied moves on though not all regions have ended", "parts", STALE),
    "PENDING": ("what is alive is used though it may be about to end", "notifier", STALE),
    "SINCE": ("the head is read after arming", "notifier-again", STALE),
    "INTEREST": ("interest is declared after arming", "notifier-again", STALE),
    "LAP": ("what the ring has lost is passed over", "hooks", STALE),
    "REARM": ("what is found unwatched is not logged", "scan-again", STALE),
    "ARM_ALWAYS": ("what was found watched is armed again", "scan-again", STALE),
    "ALIVE": ("the look-up does not look at the region's state", "uses", GONE),
    "COVERS_FIRST": ("the region's range is read before its state", "records", "range_of[r]==x"),
    "MEMBARRIER": ("no barrier before the counts are summed", "uses", IN_USE),
    "BATCH": ("what dies after the barrier is retired along", "uses", ""),
    "RELEASE": ("a release does not look at the state", "uses", LEFT),
    "BACK_OUT": ("a look-up that takes its count back does not look again", "uses", LEFT),
    "FLAG_LATE": ("the flag of retiring is taken down after it", "uses", LEFT),
    "FLAG_AFTER": ("the flag of releases is, after the busy were taken", "uses", LEFT),
}

LOG_MODELS = {
    "lapped": ("RING=1",),
    "slots": ("RING=2", "CHANGES=3"),
    "writers": ("RING=1", "WRITERS=3", "CHANGES=1"),
}

WRONG = "result!=3"  # READ
LATER = "result!=2"

LOG_RULES = {
    "MARK": ("an entry is written before it is marked", "lapped", WRONG),
    "WHOLE_EARLY": ("it is marked whole before it is", "lapped", WRONG),
    "READ_EARLY": ("it is read before the first look at its stamp", "lapped", WRONG),
    "LOOK_EARLY": ("the second look at its stamp comes before it is read", "lapped", WRONG),
    "OVERTAKEN": ("a writer that is late writes all the same", "lapped", WRONG),
    "BUSY": ("so does one that finds another writing", "slots", WRONG),
    "LOSE": ("who gives up its entry does not say so", "slots", LATER),
    "LOST_FALLS": ("of two that give up, the older one has the last word", "writers", LATER),
    "PAST": ("that the ring has gone past an entry is not looked at", "slots", LATER),
}


# Two caches' threads on one log; its caches are closed at any time, or once all is acted on.
SLEEP_MODELS = {
    "closed-at-any-time": ("CHANGES=3",),
    "closed-in-the-end": ("CHANGES=3", "ACTED_ON"),
}

SLEEPS_FOR_EVER = "invalid end state"

SLEEP_RULES = {
    "ONE_FLAG": ("who is woken waits on the flag, which another sets again", "closed-at-any-time"),
    "STOP_COUNTED": ("who stops a thread does not count that it wakes", "closed-at-any-time"),
    "SEEN_LATE": ("the count is read after the last look", "closed-at-any-time"),
    "WAKES_COUNTED": ("who logs does not count that it wakes", "closed-in-the-end"),
    "LOGGED_FIRST": ("who logs wakes before the change counts", "closed-in-the-end"),
    "ASLEEP_LATE": ("the flag is raised after the last look", "closed-in-the-end"),
}


@dataclass(frozen=True)
class Result:
    violated: str | None  # the assertion
    output: str


def check(folder: Path, options: tuple[str, ...], model: Path = MODEL) -> Result:
    """Goes through all states of the model, or up to the first error."""
    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stdout
        return done.stdout

    run("spin", "-a", *(f"-D{option}" for option in options), str(model))
    run("cc", "-w", "-O1", "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={MEMORY_MIB}", "-o", "pan", "pan.c")
    output = run("./pan", f"-m{DEPTH}")
    errors = re.search(r"errors: (\d+)", output)
    assert errors and "max search depth too small" not in output, output
    if int(errors[1]) == 0:
        assert "Search not completed" not in output, output
        return Result(None, output)
    violated = re.search(r"pan:1: (.*) \(at depth", output)
    assert violated, output
    return Result(violated[1], output)


@pytest.mark.parametrize("name", MODELS)
def test_the_cache_model_holds(name: str, tmp_path: Path) -> None:
    result = check(tmp_path, MODELS[name])
    assert result.violated is None, result.output


@pytest.mark.parametrize("name", LARGE_MODELS)
def test_the_cache_model_holds_at_length(name: str, full: bool, tmp_path: Path) -> None:
    if not full:
        pytest.skip("some minutes; with --full")
    result = check(tmp_path, LARGE_MODELS[name])
    assert result.violated is None, result.output


def found_out(result: Result, what: str, assertion: str) -> None:
    assert result.violated, f"not found out: {what}"
    assert result.violated.startswith("assertion violated") and assertion in result.violated


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_needed(rule: str, tmp_path: Path) -> None:
    what, model, assertion = RULES[rule]
    found_out(check(tmp_path, (*MODELS[model], f"BREAK_{rule}")), what, assertion)


@pytest.mark.parametrize("name", LOG_MODELS)
def test_the_invalidation_log_model_holds(name: str, tmp_path: Path) -> None:
    result = check(tmp_path, LOG_MODELS[name], LOG_MODEL)
    assert result.violated is None, result.output


@pytest.mark.parametrize("rule", LOG_RULES)
def test_every_rule_of_the_log_is_needed(rule: str, tmp_path: Path) -> None:
    what, model, assertion = LOG_RULES[rule]
    found_out(check(tmp_path, (*LOG_MODELS[model], f"BREAK_{rule}"), LOG_MODEL), what, assertion)


@pytest.mark.parametrize("name", SLEEP_MODELS)
def test_no_cache_sleeps_for_ever(name: str, tmp_path: Path) -> None:
    result = check(tmp_path, SLEEP_MODELS[name], SLEEP_MODEL)
    assert result.violated is None, result.output


@pytest.mark.parametrize("rule", SLEEP_RULES)
def test_every_rule_of_sleeping_is_needed(rule: str, tmp_path: Path) -> None:
    what, model = SLEEP_RULES[rule]
    result = check(tmp_path, (*SLEEP_MODELS[model], f"BREAK_{rule}"), SLEEP_MODEL)
    assert result.violated == SLEEPS_FOR_EVER, f"not found out: {what}"


@pytest.mark.parametrize(("model", "rules"), [(MODEL, RULES), (LOG_MODEL, LOG_RULES),
                                              (SLEEP_MODEL, SLEEP_RULES)],
                         ids=lambda value: value.stem if isinstance(value, Path) else "")
def test_every_rule_of_the_model_is_broken_once(model: Path,
                                                rules: dict[str, tuple[str, ...]]) -> None:
    assert set(re.findall(r"BREAK_(\w+)", model.read_text())) == set(rules)
