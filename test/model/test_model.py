# SPDX-License-Identifier: BSD-3-Clause
"""How a look-up in the registration cache learns of changes (cache.pml), and the log which tells it of
them (inval_log.pml), in every interleaving, by the model checker Spin.

Each model is small, so that it is gone through whole. A rule that is broken must be found out in one of
them, or the model would not show that it is needed, and perhaps shows nothing at all.
"""
import re
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
MEMORY_MIB = 1000
DEPTH = 10_000
TABLE = 20  # its size, as a power of two: to touch a larger one costs more than most models
SECONDS = 600  # of the watchdog

MODELS = {
    "cache": {
        # a second change: of what is no longer watched
        "again": ("CHANGES=2", "ROUNDS=3"),
        "threads": ("THREADS=2", "ROUNDS=1"),
        "threads, used twice": ("THREADS=2",),
        "changers": ("CHANGERS=2", "ROUNDS=3"),
    },
    "kernel": {
        "again": ("CHANGES=2", "ROUNDS=3"),
        "threads": ("THREADS=2", "CHANGES=1"),
        "changers": ("CHANGERS=2", "ROUNDS=2"),
    },
    "inval_log": {
        "lapped": ("RING=1",),
        "slots": ("RING=2", "CHANGES=3"),
        "writers": ("RING=1", "WRITERS=3", "CHANGES=1"),
    },
}

STALE = "(pinned[n]>=start)"
NOTED = "(pinned>=start)"
GONE = "(state[n]=="  # neither alive nor dead
WRONG, LATER = "result!=3", "result!=2"  # READ, LATER

# rule: (what breaking it does, model, the assertion that fails)
RULES = {
    "cache": {
        "NO_QUERY": ("the look-up does not ask the kernel", "again", STALE),
        "QUERY_LATE": ("the query comes after sequence and head", "again", STALE),
        "NO_SEQUENCE": ("the look-up does not look at sequence", "again", STALE),
        "EVEN_EARLY": ("sequence is even again before the log is written", "again", STALE),
        "INSERT": ("a new region is not checked against the log", "again", STALE),
        "HEAD_EARLY": ("the head is read before query and sequence", "again", STALE),
        "PASSED": ("applied moves past changes whose regions still live", "again", STALE),
        "USES": ("a region is deregistered though it has users", "again", GONE),
        "PENDING": ("what is alive is used though it may be about to end", "again", STALE),
        "SINCE": ("the head is read after arming", "again", STALE),
        "INTEREST": ("interest is declared after arming", "again", STALE),
    },
    "kernel": {
        "NO_WAIT": ("a watch does not wait for the changes that are under way", "again", NOTED),
        "TOLD_LATE": ("a change is told when it has been made", "again", NOTED),
        "NO_LOOK": ("the look-up does not look at told", "again", NOTED),
        "PIN_FIRST": ("pages are pinned before they are watched", "again", NOTED),
        "SINCE": ("the head is read after watching began", "again", NOTED),
        "READ_EARLY": ("what was read is counted before it is logged", "threads", NOTED),
        "INSERT": ("a new region is not checked against the log", "again", NOTED),
    },
    "inval_log": {
        "MARK": ("an entry is written before it is marked", "lapped", WRONG),
        "WHOLE_EARLY": ("it is marked whole before it is", "lapped", WRONG),
        "READ_EARLY": ("it is read before the first look at its stamp", "lapped", WRONG),
        "LOOK_EARLY": ("the second look at its stamp comes before it is read", "lapped", WRONG),
        "OVERTAKEN": ("a writer that is late writes all the same", "lapped", WRONG),
        "BUSY": ("so does one that finds another writing", "slots", WRONG),
        "LOSE": ("who gives up its entry does not say so", "slots", LATER),
        "LOST_FALLS": ("of two that give up, the older one has the last word", "writers", LATER),
        "PAST": ("that the ring has gone past an entry is not looked at", "slots", LATER),
    },
}


def violated(folder: Path, model: str, options: tuple[str, ...], optimise: str) -> str | None:
    """The assertion that fails first, when all states of the model are gone through."""
    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stdout
        return done.stdout

    run("spin", "-a", *(f"-D{option}" for option in options), str(FOLDER / f"{model}.pml"))
    run("cc", "-w", optimise, "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={MEMORY_MIB}", "-o", "pan", "pan.c")
    output = run("./pan", f"-m{DEPTH}", f"-w{TABLE}")
    errors = re.search(r"errors: (\d+)", output)
    assert errors and "max search depth too small" not in output, output
    if int(errors[1]) == 0:
        assert "Search not completed" not in output, output
        return None
    found = re.search(r"pan:1: (.*) \(at depth", output)
    assert found, output
    return found[1]


LONG = "threads, used twice"  # a minute


@pytest.mark.parametrize(("model", "name"), [
    pytest.param(model, name, marks=[pytest.mark.full] * (name == LONG))
    for model in MODELS for name in MODELS[model]])
def test_the_model_holds(model: str, name: str, tmp_path: Path) -> None:
    assert violated(tmp_path, model, MODELS[model][name], "-O1") is None


# The first of each model in every run; the others with --full: they change with the models alone.
@pytest.mark.parametrize(("model", "rule"), [
    pytest.param(model, rule, marks=[pytest.mark.full] * (rule != next(iter(RULES[model]))))
    for model in RULES for rule in RULES[model]])
def test_every_rule_is_needed(model: str, rule: str, tmp_path: Path) -> None:
    what, name, assertion = RULES[model][rule]
    found = violated(tmp_path, model, (*MODELS[model][name], f"BREAK_{rule}"), "-O0")
    assert found and found.startswith("assertion violated") and assertion in found, \
        f"not found out, but {found}: {what}"


@pytest.mark.parametrize("model", RULES)
def test_every_rule_of_the_model_is_broken_once(model: str) -> None:
    text = (FOLDER / f"{model}.pml").read_text()
    assert set(re.findall(r"BREAK_(\w+)", text)) == set(RULES[model])
