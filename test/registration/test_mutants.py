# SPDX-License-Identifier: BSD-3-Clause
"""Regx with one thing wrong in its protocol: random changes find each within a minute."""
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from launch import TOP, Build
from random_runs import UNAVAILABLE, run

ENOUGH = 10_000_000  # operations
PATIENCE = 60  # seconds


@dataclass(frozen=True)
class Mutant:
    name: str
    source: str  # below component/registration
    right: str
    wrong: str
    program: str  # that finds it
    arguments: tuple[str, ...] = ()
    found: str = "stale: "  # how what it prints then begins

    def text(self) -> str:
        text = (TOP / "component/registration" / self.source).read_text()
        assert text.count(self.right) == 1, f"{self.source} has changed: {self.right}"
        return text.replace(self.right, self.wrong)


SELF_TEST = "cannot be used: self-test: "
SLOWLY = "(usleep(30), true)"  # between two steps, so that the wrong order shows within a minute
RIGHT_CHECKS = """    request->busy = !is_still(cache, request);
    return !request->busy && !regx_inval_log_touched(cache->log, since, start, end);"""
WRONG_CHECKS = f"""    request->busy =
        atomic_load_explicit(&cache->log->sequence, memory_order_acquire) % 2 != 0;
    if (request->busy || regx_inval_log_touched(cache->log, since, start, end)) {{
        return false;
    }}
    return {SLOWLY} && (request->busy = !is_still(cache, request), !request->busy);"""
RIGHT_READS = """    const uint64_t sequence = atomic_load_explicit(&log->sequence, memory_order_acquire);
    const uint64_t head = atomic_load_explicit(&log->head, memory_order_acquire);
"""
WRONG_READS = """    const uint64_t head = atomic_load_explicit(&log->head, memory_order_acquire);
    sched_yield();
    const uint64_t sequence = atomic_load_explicit(&log->sequence, memory_order_acquire);
"""

MUTANTS = [
    Mutant("one event in a thousand is dropped", "monitor/notifier.c",
           "    regx_inval_log_write(notifier->super.log, event->start, event->end);\n",
           "    static unsigned number;\n    if (++number % 1000 != 0)\n"
           "        regx_inval_log_write(notifier->super.log, event->start, event->end);\n",
           "property"),
    Mutant("REMAP is ignored", "monitor/uffd.c", "message->event == UFFD_EVENT_REMAP)",
           "message->event == UFFD_EVENT_REMAP && message->event == 0)", "property"),
    Mutant("REMOVE is ignored", "monitor/uffd.c", " || message->event == UFFD_EVENT_REMOVE)", ")",
           "property", found=SELF_TEST),
    Mutant("the query is not asked", "monitor/notifier.c",
           "switch (config->check) {", "switch (REGX_CHECK_NEVER) {", "storm"),
    # With the lock. Without it the window is there too, but hardly ever does a thread find what it
    # has used before and another has just given back: for that, test_query and the model.
    Mutant("the query is asked last", "miss.c", RIGHT_CHECKS, WRONG_CHECKS, "storm"),
    Mutant("the sequence is not looked at", "cache.c",
           "return sequence % 2 == 0 && head ==", "return sequence != 1 && head ==", "property"),
    Mutant("the sequence is read after the head", "cache.c", RIGHT_READS, WRONG_READS, "property"),
    Mutant("a new region is not checked", "miss.c",
           "!is_true_since(cache, request, entry.start, entry.end, since) ||", "",
           "storm", ("glance",)),
    Mutant("a new region is checked from the end of its pinning", "miss.c",
           "!is_true_since(cache, request, entry.start, entry.end, since) ||",
           "!is_true_since(cache, request, entry.start, entry.end, "
           "atomic_load(&cache->log->head)) ||",
           "storm", ("glance",)),
    Mutant("the log counts as read before its regions are ended", "retire.c",
           "    while (applied != head && left > 0) {\n",
           "    atomic_store(&cache->applied, head);\n    usleep(30);\n"
           "    while (applied != head && left > 0) {\n", "storm", ("glance",)),
    Mutant("a change of which not all regions have ended counts as acted on", "retire.c",
           "&left, end_regions, &cut)) {\n            break;\n        }",
           "&left, end_regions, &cut)) {\n        }", "storm", ("parts",)),
    Mutant("what is alive is used though it may be about to end", "miss.c",
           "record->start + record->size, applied)) {",
           "record->start + record->size, "
           "applied > 0 ? atomic_load(&cache->log->head) : 0)) {", "storm", ("parts",)),
    Mutant("a region in use is deregistered", "retire.c",
           "!cache->closing && (uint32_t)regx_thread_states_uses(cache->states, number) != 0",
           "number == 0", "storm", ("glance",), found="oracle: "),
]


@pytest.fixture(scope="module")
def oracle(build: Build) -> None:
    """There is one, and a notifier."""
    done = run(build.programs.parent / "registration/property", "notifier", 1, 1)
    if done.status == UNAVAILABLE:
        pytest.skip(done.output.strip())


def built(build: Build, mutant: Mutant, folder: Path) -> Path:
    source = folder / Path(mutant.source).name
    source.write_text("#include <sched.h>\n#include <unistd.h>\n" + mutant.text())
    target = f"test/registration/{mutant.program}_mutant"
    top = build.programs.parents[1]
    for old in (top / target, top / "test/registration/mutant.o"):
        old.unlink(missing_ok=True)
    subprocess.run(["make", "-s", "-C", top, target, f"MUTANT={source}"], check=True, timeout=300,
                   stdin=subprocess.DEVNULL)
    return (top / target).rename(folder / mutant.program)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mutant_is_found(mutant: Mutant, build: Build, oracle: None, seed: int, tmp_path: Path) -> None:
    program = built(build, mutant, tmp_path)
    start = time.monotonic()
    try:
        done = run(program, "notifier", seed, ENOUGH, *mutant.arguments, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        pytest.fail(f"not found within {PATIENCE} s")
    assert done.status != 0, str(done)
    assert re.search(f"^{mutant.found}", done.output, re.MULTILINE), str(done)
    print(f"{time.monotonic() - start:.1f} s: {done}")
