# SPDX-License-Identifier: BSD-3-Clause
"""Regx with one thing wrong in its protocol: random changes find each."""
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from launch import TOP, Build
from random_runs import UNAVAILABLE, run

ENOUGH = 10_000_000  # operations; a few thousand mostly do


@dataclass(frozen=True)
class Mutant:
    name: str
    source: str  # below component/registration
    right: str
    wrong: str
    program: str  # that finds it
    arguments: tuple[str, ...] = ()
    found: str = "stale: "  # how what it prints then begins
    marks: tuple[pytest.MarkDecorator, ...] = ()

    def text(self) -> str:
        text = (TOP / "component/registration" / self.source).read_text()
        assert text.count(self.right) == 1, f"{self.source} has changed: {self.right}"
        return text.replace(self.right, self.wrong)


# One of each kind: what is told, what is asked, in which order, and what is used. How changes are
# seen is also broken rule by rule in the model (test/model).
MUTANTS = [
    Mutant("one event in a hundred is dropped", "monitor/notifier.c",
           "        regx_inval_log_write(notifier->super.log, changes[i].start, changes[i].end);\n",
           "        static unsigned number;\n        if (++number % 100 != 0)\n"
           "            regx_inval_log_write(notifier->super.log, changes[i].start, changes[i].end);\n",
           "property"),
    Mutant("the query is not asked", "monitor/notifier.c",
           ".valid = valid,\n                  .query = &notifier->uffd,", ".valid = NULL,", "storm"),
    Mutant("a new region is not checked", "miss.c",
           "!is_true_since(cache, request, entry.start, entry.end, request->since) ||", "",
           "storm", ("glance",), marks=(pytest.mark.full,)),  # found after 2 to 8 s
    Mutant("the log counts as read before its regions are ended", "retire.c",
           "    while (applied != head && left > 0) {\n",
           "    atomic_store(&cache->applied, head);\n    usleep(30);\n"
           "    while (applied != head && left > 0) {\n", "storm", ("glance",)),
    Mutant("a region in use is deregistered", "retire.c",
           "return !cache->limbo.closing && uses != 0;", "return false;", "storm", ("glance",), found="oracle: "),
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
    return Path(shutil.move(top / target, folder / mutant.program))  # perhaps to another file system


@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.name, marks=mutant.marks) for mutant in MUTANTS])
def test_each_mutant_is_found(mutant: Mutant, build: Build, oracle: None, seed: int, tmp_path: Path) -> None:
    done = run(built(build, mutant, tmp_path), "notifier", seed, ENOUGH, *mutant.arguments)
    assert re.search(f"^{mutant.found}", done.output, re.MULTILINE), f"not found\n{done}"
