# SPDX-License-Identifier: BSD-3-Clause
"""The component with one thing wrong: the tests of a default run that are named find it, by what is wrong.
A crash, a hang or a plugin that does not load is not a find."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import results
from launch import TOP, Build
from mutant import Mutant
from skips import pages_cannot_be_moved

pytestmark = [pytest.mark.full, pytest.mark.alone]  # tests of tests, each of which is built anew

WRONG_BYTE = r"wrong on rank \d+: .*byte "
SIZES = "test/mpi/test_transfer.py::test_messages_of_every_size_and_kind_are_right"
SHADOW = "test/mpi/test_shadow.py::test_random_operations_are_right"
COPY = """#include "base/copy.h"
#include <string.h>
#define regx_copy(to, from, length) (regx_copy(to, from, length), (void)(*(char *)(to) ^= 1))
#define regx_copy_taking(to, from, length) (regx_copy_taking(to, from, length), (void)(*(char *)(to) ^= 1))
#define memcpy(to, from, length) (memcpy(to, from, length), (void)(*(char *)(to) ^= 1))
"""
UNCOUNTED = """#include "base/counters.h"
#define regx_count_part(flow, path, why, length, messages, bytes) \\
    regx_count_part(flow, path, REGX_WHY_asked, length, messages, bytes)
"""
VM, LANDING, PINNED = "transport/shm/vm.c", "rendezvous/landing.c", "transport/pinned"

# What is planted, the tests that find it, and what they say of it.
BY_TEST = [
    # One byte wrong in each strategy's copy.
    (Mutant("slot", "rendezvous/bounce.c", before=COPY), [f"{SIZES}[bounce]"], WRONG_BYTE),
    (Mutant("edge of a page", LANDING, before=COPY),
     ["test/mpi/test_remap.py::test_whole_pages_are_moved_and_edges_copied"], WRONG_BYTE),
    (Mutant("kernel writes", VM, "const struct iovec here =",
            "*(char *)local ^= direction == REGX_COPY_TO_PEER; const struct iovec here ="),
     [f"{SIZES}[pipeline]", f"{SIZES}[direct]"], WRONG_BYTE),
    (Mutant("kernel reads", VM, "*copied = (size_t)n;",
            "*copied = (size_t)n; *(char *)local ^= direction == REGX_COPY_FROM_PEER;"),
     [f"{SIZES}[read]", f"{SIZES}[together]"], WRONG_BYTE),
    # An uncounted fall-back.
    (Mutant("fall-back", "rendezvous/send.c", before=UNCOUNTED),
     ["test/hazard/test_refusal.py::test_without_process_vm_messages_bounce[pipeline]"],
     r"assert 0 > 0"),
    # What the newer parameters do.
    (Mutant("what had landed is not revoked", "rendezvous/revoke.c",
            "regx_min(offset, regx_min(recv->granted,", "regx_max(offset, regx_min(recv->granted,"),
     [f"{SHADOW}[revocable]"], WRONG_BYTE),
    (Mutant("what is received into is not waited for", "rendezvous/recv.c",
            "recv->drain = regx_drain_hold(rndv->registry->drain, base, length);", "recv->drain = 0;"),
     [f"{SHADOW}[drain]"], WRONG_BYTE),
    (Mutant("peers keep a mapping of what was freed", "transport/shm/alloc_mem_segment.c",
            "        block->used = false;\n",
            "        block->used = false;\n        mmap(block->base, block->length, PROT_READ | "
            "PROT_WRITE,\n             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);\n"),
     [f"{SHADOW}[alloc_mem]"], WRONG_BYTE),
]
BY_UNIT_TEST = [
    # A stale hit let through. In a job progress nearly always acts on a change before the next look-up.
    (Mutant("changes that are not applied", "registration/cache.c",
            "head = atomic_load_explicit(&log->head, memory_order_acquire);", "head = 0;"),
     "test/unit/registration/test_stale", "not ok .*exactly_what_changed_misses"),
    # A lost completion.
    (Mutant("end of a send", "rendezvous/send.c", "step.done(step.context, step.status);", "(void)step;"),
     "test/unit/rendezvous/test_sim", "not ok "),
    (Mutant("the cache is not told that pages move", LANDING,
            "    if (config->changes != NULL) {", "    if (landings->page == 0) {"),
     "test/unit/rendezvous/test_landing", "not ok .*caches_are_told_before_and_after"),
    (Mutant("a transfer is resumed a chunk too far", "rendezvous/revoke.c", ".offset = resume_of(rndv, revoke)};",
            ".offset = resume_of(rndv, revoke) +\n(resume_of(rndv, revoke) + rndv->config.chunk_size < "
            "recv->granted ? rndv->config.chunk_size : 0)};"),
     "test/unit/rendezvous/test_sim", r"ERROR: message \d+: byte \d+ of \d+ is wrong"),
    (Mutant("what was registered for one message serves another", "rendezvous/early.c",
            "start < (uintptr_t)write->put.local + write->put.length)", "start + length == 0)"),
     "test/unit/rendezvous/test_engine", "not ok .*for_one_message_does_not_serve_another"),
    (Mutant("the kernel copies what the sender is about to fill", "transport/shm/cico.c",
            "seen != pack(number, REGX_CICO_SENDER)", "true"),
     "test/unit/transport/shm/test_cico", "not ok .*the_kernel_copies_nothing_while_the_sender_does"),
    # Of the device in software that pins.
    (Mutant("a cell is written before it was read", f"{PINNED}/regions.c", "(number % REGX_PINNED_CELLS)",
            "(number % 2)"),
     f"test/unit/{PINNED}/test_conformance", "not ok .*gets_of_each_length_bring_their_bytes_alone"),
    (Mutant("a piece is read before it was written", f"{PINNED}/transfers.c",
            "answer >> 32 != (uint32_t)(number + 1)", "answer == 0"),
     f"test/unit/{PINNED}/test_conformance", "not ok .*gets_of_each_length_bring_their_bytes_alone"),
    (Mutant("a stale key is served", f"{PINNED}/regions.c", "regx_handle_table_find(&pinned->names, name)",
            "regx_handle_table_at(&pinned->names, name.id)"),
     f"test/unit/{PINNED}/test_pinned", "not ok .*a_key_that_was_given_up_is_refused"),
]


def named(rows: list) -> list:
    return [pytest.param(*row, id=row[0].name) for row in rows]


def skip_what_is_not_there(mutant: Mutant) -> None:
    if mutant.source == LANDING and pages_cannot_be_moved():
        pytest.skip("no UFFDIO_MOVE here")


@pytest.mark.parametrize(("mutant", "tests", "says"), named(BY_TEST))
def test_the_test_that_is_named_finds_it(mutant: Mutant, tests: list[str], says: str, build: Build,
                                         tmp_path: Path) -> None:
    skip_what_is_not_there(mutant)
    plugins = mutant.plugins(build, tmp_path)
    for test in tests:
        file = tmp_path / "found.xml"
        run = subprocess.run(
            [sys.executable, "-B", "-m", "pytest", "-p", "no:cacheprovider", "-q", f"--rootdir={TOP}",
             "-o", "junit_family=xunit1", f"--junitxml={file}", TOP / test], cwd=TOP, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
            env={**os.environ, "REGX_COMPONENT_DIR": str(plugins)})
        found = results.of(file, run.returncode, "")
        assert [(its.outcome, its.test) for its in found] == [("failed", test)], run.stdout
        assert re.search(says, run.stdout), f"not found by {test}:\n{run.stdout}"
        assert not re.search("watchdog|received signal", run.stdout), run.stdout


@pytest.mark.parametrize(("mutant", "test", "says"), named(BY_UNIT_TEST))
def test_the_unit_test_that_is_named_finds_it(mutant: Mutant, test: str, says: str, build: Build,
                                              tmp_path: Path) -> None:
    skip_what_is_not_there(mutant)
    program = mutant.program(build, tmp_path, test)
    # Not run to its end: what comes behind a test that failed may hang.
    with subprocess.Popen(["timeout", "600", "stdbuf", "-oL", program], text=True,
                          env={**os.environ, "CMOCKA_MESSAGE_OUTPUT": "TAP", "UCX_MEM_EVENTS": "n"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if re.match(says, line):
                process.terminate()
                return
    pytest.fail(f"it ended with {process.wait()} and found nothing\n{''.join(said)}")
