# SPDX-License-Identifier: BSD-3-Clause
"""The component with one thing wrong in what its parameters allow: each is found by what random
operations (mpi/shadow.c) find wrong in memory, or by the unit test that is named. A crash, a hang or
a plugin that does not load is not a find."""
import os
import re
import subprocess
from pathlib import Path

import pytest

from launch import Build, Mpi
from mutant import Mutant
from skips import pages_cannot_be_moved
from ways import WAYS

OPERATIONS = 20_000
PATIENCE = 600  # seconds, for a hang
FOUND = re.compile(r"^wrong on rank \d+: seed \d+, operation \d+: .* byte ", re.MULTILINE)

REMAP = "rendezvous/landing.c"
# One of each kind: bytes that are moved, grants, calls that wait, memory that peers map.
BY_SHADOW = [
    ("remap", Mutant("the rest of a first page is not copied", REMAP,
                     "        memcpy(to, from, head);\n", "")),
    ("synchronous", Mutant("what had landed is not revoked", "rendezvous/revoke.c",
                           "regx_min(revoke->from, recv->granted)",
                           "regx_max(revoke->from, recv->granted)")),
    ("drain", Mutant("what is received into is not waited for", "rendezvous/recv.c",
                     "recv->drain = regx_registry_hold(rndv->registry, base, length);",
                     "recv->drain = 0;")),
    ("alloc_mem", Mutant("peers keep a mapping of what was freed", "transport/shm/owned.c",
                         "        block->used = false;\n",
                         "        block->used = false;\n        mmap(block->base, block->length, "
                         "PROT_READ | PROT_WRITE,\n             MAP_PRIVATE | MAP_ANONYMOUS | "
                         "MAP_FIXED, -1, 0);\n")),
]

# The test that is to find it.
BY_UNIT_TEST = [
    ("caches_are_told_before_and_after", Mutant(
        "the cache is not told that pages move", REMAP,
        "    if (landings->config.changes != NULL) {", "    if (landings->page == 0) {")),
]


def ids(value: object) -> str:
    return value.name if isinstance(value, Mutant) else str(value)


def skip_what_is_not_there(mutant: Mutant) -> None:
    if mutant.source == REMAP and pages_cannot_be_moved():
        pytest.skip("no UFFDIO_MOVE here")


@pytest.mark.parametrize(("way", "mutant"), BY_SHADOW, ids=ids)
def test_random_operations_find_it(way: str, mutant: Mutant, build: Build, mpi: Mpi, seed: int,
                                   tmp_path: Path) -> None:
    skip_what_is_not_there(mutant)
    plugins = mutant.plugins(build, tmp_path)
    job = WAYS[way].run(mpi, seed, OPERATIONS, tmp_path, build.path(plugins), PATIENCE)
    assert FOUND.search(job.stderr), f"not found\n{job}"


def verdict(program: Path, test: str) -> str:
    """What the program says of that test. It is not run to its end: what comes behind a test that
    failed may hang."""
    said = ""
    with subprocess.Popen(["timeout", str(PATIENCE), "stdbuf", "-oL", program],
                          env={**os.environ, "CMOCKA_MESSAGE_OUTPUT": "TAP", "UCX_MEM_EVENTS": "n"},
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said += line
            if re.fullmatch(rf"(not )?ok \d+ - {test}\n", line):
                process.terminate()
                return line
    pytest.fail(f"it ended with {process.wait()} before that test had an end\n{said}")


@pytest.mark.parametrize(("test", "mutant"), BY_UNIT_TEST, ids=ids)
def test_a_unit_test_finds_it(test: str, mutant: Mutant, build: Build, tmp_path: Path) -> None:
    skip_what_is_not_there(mutant)
    said = verdict(mutant.program(build, tmp_path, test), test)
    assert said.startswith("not ok"), f"not found: {said}"
