# SPDX-License-Identifier: BSD-3-Clause
"""regx-check with one thing wrong in its search for what is offered to peers: a use of the program of
test_check.py finds each. A crash is not a find."""
import shutil
from pathlib import Path

import pytest

from launch import Build
from mutant import Mutant
from test_check import DIFFERENT, Check

pytestmark = [pytest.mark.full, pytest.mark.alone]  # tests of tests, each of which is built anew
RANGES = "check/ranges.c"
ALIGNED = ("message->bytes + at, sizeof(address)", "message->bytes + (at & ~UINT64_C(7)), sizeof(address)")
MISSED: list[str] = []

# What is planted, what the program does, and what is then found.
MUTANTS = [
    (Mutant("addresses are looked for at multiples of eight alone", RANGES, *ALIGNED), "munmap offer", MISSED),
    (Mutant("of what is offered the page at its address alone is judged", RANGES, "return word;", "return page;"),
     "beside offer-of-pages", MISSED),
    (Mutant("what is posted inline is not looked at", "check/interpose.c", "if (!reads(at, false)) {",
            "if (!reads(at, false) && (at->send_flags & IBV_SEND_INLINE) == 0) {"), "munmap offer", MISSED),
    (Mutant("of memory that is not watched nothing is open to peers", RANGES, " || range->is_unsure);", ");"),
     "deny munmap offer", MISSED),
    (Mutant("what peers name is taken for an address of the program", RANGES,
            "regx_within(address - range->iova, 1,", "regx_within(address - range->base, 1,"), "munmap offer-iova", MISSED),
    (Mutant("an address without the key is an offer", RANGES,
            "memcpy(&key, message.bytes + at, sizeof(key));", "key = ranges[touched - 1].keys[1];"),
     "munmap offer-without-key", [DIFFERENT]),
]


@pytest.mark.parametrize(("mutant", "words", "found"), [pytest.param(*row, id=row[0].name) for row in MUTANTS])
def test_each_mutant_is_found(mutant: Mutant, words: str, found: list[str], build: Build, tmp_path: Path) -> None:
    check = Check(build, tmp_path, fake=True)
    deny = [check.built.parent / "mpi/deny", "userfaultfd"] if "deny" in words else []
    command = [*deny, check.built / "stale", *words.split()[-2:]]
    right = check.run(*command)
    if "bytes are not compared: " in right.stderr or (not deny and "changes of memory are not reported, " in right.stderr):
        pytest.skip(right.stderr.splitlines()[0].replace("regx-check", "registering"))
    assert [fault["verdict"] for fault in check.faults()] == ([] if found else [DIFFERENT]), right.stderr
    shutil.copy(check.command, tmp_path)
    check.command = tmp_path / "regx-check"
    shutil.move(mutant.make(build, tmp_path, "libregx-check.so"), tmp_path / "libregx-check.so")
    done = check.run(*command)
    assert done.returncode == (3 if found else 0), done.stderr
    assert [fault["verdict"] for fault in check.faults()] == found, done.stderr
