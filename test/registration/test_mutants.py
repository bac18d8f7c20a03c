# SPDX-License-Identifier: BSD-3-Clause
"""Regx with one thing wrong in its protocol: random changes find each."""
import re
from pathlib import Path
from typing import Any

import pytest

from launch import Build
from mutant import Mutant
from random_runs import UNAVAILABLE, run

ENOUGH = 10_000_000  # operations; a few thousand mostly do


def planted(name: str, source: str, right: str, wrong: str, *words: str, found: str = "stale: ", **more: Any):
    """words: the program that finds it, and its options; found: how what it prints then begins."""
    mutant = Mutant(name, f"registration/{source}", right, wrong, before="#include <unistd.h>\n")
    return pytest.param(mutant, words, found, id=name, **more)


# One of each kind: what is told, what is asked, in which order, and what is used. How changes are
# seen is also broken rule by rule in the model (test/model).
MUTANTS = [
    planted("one event in a hundred is dropped", "monitor/notifier.c",
            "        regx_inval_log_write(notifier->super.log, changes[i].start, changes[i].end);\n",
            "        static unsigned number;\n        if (++number % 100 != 0)\n"
            "            regx_inval_log_write(notifier->super.log, changes[i].start, changes[i].end);\n",
            "property"),
    planted("the query is not asked", "cache.c",
            "settled = regx_monitor_is_settled(cache->monitor);", "settled = true;", "storm"),
    planted("a new region is not checked", "miss.c",
            "!regx_inval_log_touched(cache->log, asked->since, entry.start, entry.end, true) &&", "",
            "storm", "glance", marks=pytest.mark.full),  # found after 2 to 8 s
    planted("the head is read before the query", "cache.c",
            "    const bool settled = regx_monitor_is_settled(cache->monitor);\n"
            "    const uint64_t head = atomic_load_explicit(&log->head, memory_order_acquire);\n",
            "    const uint64_t head = atomic_load_explicit(&log->head, memory_order_acquire);\n    usleep(30);\n"
            "    const bool settled = regx_monitor_is_settled(cache->monitor);\n", "storm"),
    planted("a region in use is deregistered", "cache.c",
            "    if (record->uses == 0) {\n        bury_locked(cache, number);\n",
            "    {\n        bury_locked(cache, number);\n", "storm", "glance", found="oracle: |.*Assertion"),
]


@pytest.fixture(scope="module")
def oracle(build: Build) -> None:
    """There is one, and a notifier."""
    done = run(build.programs.parent / "registration/property", "notifier", 1, 1)
    if done.status == UNAVAILABLE:
        pytest.skip(done.output.strip())


@pytest.mark.parametrize(("mutant", "words", "found"), MUTANTS)
def test_each_mutant_is_found(mutant: Mutant, words: tuple[str, ...], found: str, build: Build, oracle: None,
                              seed: int, tmp_path: Path) -> None:
    program, *options = words
    made = mutant.program(build, tmp_path, f"test/registration/{program}")
    done = run(made, "notifier", seed, ENOUGH, *options)
    assert re.search(f"^{found}", done.output, re.MULTILINE), f"not found\n{done}"
