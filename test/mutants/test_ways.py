# SPDX-License-Identifier: BSD-3-Clause
"""The component with one thing wrong in what its parameters allow: each is found within a minute, by
random operations (mpi/shadow.c) or by the unit test that plays the failure at every moment."""
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
PATIENCE = 60  # seconds
TIMED_OUT = 124  # of timeout

REMAP = "rendezvous/landing.c"
OPTIMISTIC = "rendezvous/optimistic.c"
BY_SHADOW = [
    ("remap", Mutant("the rest of a first page is not copied", REMAP,
                     "        memcpy(to, from, head);\n", "")),
    ("remap", Mutant("the rest of a last page is not copied", REMAP,
                     "from + head + part.in, length - head - part.in)",
                     "from + head + part.in, part.length - part.in)")),
    ("remap", Mutant("a last page that others share is moved", REMAP,
                     "*end = ((uintptr_t)base + length) & ~mask;",
                     "*end = ((uintptr_t)base + length + mask) & ~mask;")),
    ("synchronous", Mutant("what had landed is not revoked", "rendezvous/revoke.c",
                           "regx_min(changed, landed_until(rndv, recv))",
                           "regx_max(changed, landed_until(rndv, recv))")),
    ("drain", Mutant("a call does not wait", "registration/monitor/drain.c",
                     "    bool held = true;\n", "    bool held = false;\n")),
    ("drain", Mutant("what is received into is not waited for", "rendezvous/recv.c",
                     "recv->drain = regx_registry_hold(rndv->registry, base, length);",
                     "recv->drain = 0;")),
    ("alloc_mem", Mutant("peers keep a mapping of what was freed", "transport/shm/owned.c",
                         "        block->used = false;\n",
                         "        block->used = false;\n        mmap(block->base, block->length, "
                         "PROT_READ | PROT_WRITE,\n             MAP_PRIVATE | MAP_ANONYMOUS | "
                         "MAP_FIXED, -1, 0);\n")),
    ("alloc_mem", Mutant("a free block's rest begins too early", "transport/shm/owned.c",
                         "        rest->base += length;\n",
                         "        rest->base += length - regx_page_size();\n")),
    ("windows", Mutant("the new number is fetched", "onesided/atomic.c",
                       "static uint64_t fetch_8(uint64_t *at, regx_atomic_op_t op, "
                       "uint64_t operand)\n{\n    switch (op) {\n    case REGX_ATOMIC_ADD:\n"
                       "        return __atomic_fetch_add(",
                       "static uint64_t fetch_8(uint64_t *at, regx_atomic_op_t op, "
                       "uint64_t operand)\n{\n    switch (op) {\n    case REGX_ATOMIC_ADD:\n"
                       "        return __atomic_add_fetch(")),
]

# The test that is to find it.
BY_UNIT_TEST = [
    ("caches_are_told_before_and_after", Mutant(
        "the cache is not told that pages move", REMAP,
        "    if (landings->config.changes != NULL) {", "    if (landings->page == 0) {")),
    ("nothing_is_lost_or_doubled_whatever_request_fails", Mutant(
        "a restart begins behind what was lost", "transport/verbs/tx.c",
        "    for (uint64_t i = ep->done; i != ep->posted && error == 0; i++) {",
        "    for (uint64_t i = ep->done + 1; i < ep->posted && error == 0; i++) {")),
    ("nothing_is_lost_or_doubled_whatever_answer_is_lost", Mutant(
        "a restart repeats what was heard", "transport/verbs/tx.c",
        "        end = i + 1;\n", "        end = i;\n")),
    ("what_is_revoked_and_not_yet_begun_is_not_written", Mutant(
        "what waits for room is written after it was revoked", "rendezvous/put.c",
        "    if (send->agreement != REGX_AGREEMENT_REVOKED) {",
        "    if (send->agreement != REGX_AGREEMENT_REVOKED || send->held != NULL) {")),
    ("what_is_replaced_at_any_moment_is_sent_again", Mutant(
        "a grant is written after it was revoked", "rendezvous/put.c",
        "    return regx_put_drop_locked(rndv, send, work) ? REGX_OK : "
        "regx_revoke_answer_locked(rndv, send);",
        "    return regx_revoke_answer_locked(rndv, send);")),
    ("what_is_replaced_at_any_moment_is_sent_again", Mutant(
        "a revocation is answered while something is in flight", "rendezvous/agreement.c",
        "    if (send->in_flight > 0) {\n        return REGX_PENDING;\n    }\n", "")),
    ("a_write_that_ends_in_an_error_is_granted_again", Mutant(
        "a transfer resumes one chunk too far", OPTIMISTIC,
        "    const uint64_t resume = lost - lost % rndv->config.chunk_size;\n",
        "    const uint64_t resume = regx_min(recv->granted, lost - lost % rndv->config.chunk_size "
        "+\n        rndv->config.chunk_size);\n")),
    ("what_is_replaced_at_any_moment_is_sent_again", Mutant(
        "what is granted for good is not looked at again", "rendezvous/revoke.c",
        "        if (changed) {\n", "        if (changed && !revoke->optimistic) {\n")),
    ("what_is_replaced_at_any_moment_is_sent_again", Mutant(
        "a transfer goes back while something is in flight", OPTIMISTIC,
        "    return recv->chunks_out == 0 && recv->slots_out == 0 && ", "    return ")),
    ("a_send_does_not_end_before_the_receiver_has_all", Mutant(
        "a sender ends when it has sent", "rendezvous/send.c",
        "(send->sent == all && agreed)", "(send->sent == all && (agreed || send->optimistic))")),
    ("no_more_is_sent_again_than_was_under_way", Mutant(
        "more is granted before news is looked at", "rendezvous/put.c",
        "    if (regx_goes_back(recv) && ", "    if (recv->length == 0 && ")),
]


def ids(value: object) -> str:
    return value.name if isinstance(value, Mutant) else str(value)


def skip_what_is_not_there(mutant: Mutant, build: Build) -> None:
    if mutant.source == REMAP and pages_cannot_be_moved():
        pytest.skip("no UFFDIO_MOVE here")
    if mutant.source.startswith("transport/verbs/") and \
            not (build.component / "regx_transport_verbs.so").exists():
        pytest.skip("built without rdma-core")


@pytest.mark.parametrize("source", ["rendezvous/put.c", "transport/shm/owned.c"])
def test_without_a_mutation_nothing_is_found(source: str, build: Build, mpi: Mpi, seed: int,
                                             tmp_path: Path) -> None:
    """By plugins that are built the same way."""
    same = '#include "base/util.h"'
    plugins = Mutant("none", source, same, same).plugins(build, tmp_path)
    WAYS["alloc_mem"].run(mpi, seed, 500, tmp_path, build.path(plugins)).checked(ranks=2)


@pytest.mark.parametrize(("way", "mutant"), BY_SHADOW, ids=ids)
def test_random_operations_find_it(way: str, mutant: Mutant, build: Build, mpi: Mpi, seed: int,
                                   tmp_path: Path) -> None:
    """By what is wrong in memory, mostly; some crash first, or are told that a message is lost."""
    skip_what_is_not_there(mutant, build)
    plugins = mutant.plugins(build, tmp_path)
    job = WAYS[way].run(mpi, seed, OPERATIONS, tmp_path, build.path(plugins), PATIENCE)
    assert job.status != 0, f"not found\n{job}"


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
        status = process.wait()
    assert status != TIMED_OUT, f"not found within {PATIENCE} s\n{said}"
    assert status != 0, f"not tried\n{said}"
    return f"not ok: status {status}"


@pytest.mark.parametrize(("test", "mutant"), BY_UNIT_TEST, ids=ids)
def test_a_unit_test_finds_it(test: str, mutant: Mutant, build: Build, tmp_path: Path) -> None:
    skip_what_is_not_there(mutant, build)
    said = verdict(mutant.program(build, tmp_path, test), test)
    assert said.startswith("not ok"), f"not found: {said}"
