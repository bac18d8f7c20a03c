# SPDX-License-Identifier: BSD-3-Clause
"""btl_regx_rendezvous remap: pages that were written are moved under the receiver's address."""
import random
from pathlib import Path

import pytest

import sample
from launch import Build, Mpi, at_ranks
from sample import MIB, PAGE, Case
from skips import pages_cannot_be_moved

REFUSED = "remap: userfaultfd is refused here"
needs_move = pytest.mark.skipif(pages_cannot_be_moved(), reason="no UFFDIO_MOVE here")
ALL = {"rendezvous": "remap", "rndv_eager_limit": 0}


@needs_move
def test_whole_pages_are_moved_and_edges_copied(mpi: Mpi, tmp_path: Path) -> None:
    """Of each message so many as lie within it. (Each rank is the receiver in turn.)"""
    size, count, offset = 3 * MIB + 5000, 5, 200
    file = sample.write([Case(size, 100, offset, pattern="fan")], tmp_path)
    job = mpi("transfer", "--iterations", count, file, regx=ALL).checked(ranks=2)
    job.carried("remap", range(count * size, count * size + 1)).over("shm")
    pages = (offset + size) // PAGE - -(-offset // PAGE)
    assert job.total("remap_pages") == count * pages, str(job)
    assert job.total("remap_copied_bytes") == count * (size - pages * PAGE), str(job)
    assert job.total("puts") == 4 * count and job.most("slots_high") == 0, str(job)


@needs_move
def test_messages_of_all_kinds_are_right(mpi: Mpi, tmp_path: Path, seed: int) -> None:
    """Among three ranks, several at once, with checksums."""
    rng = random.Random(seed)
    cases = [Case(size, rng.randrange(PAGE), rng.randrange(PAGE), pattern=pattern, send=send,
                  receive=receive, window=3)
             for size in (2 * PAGE, 70_000, 2 * MIB + 3) for pattern in ("fan", "self")
             for send, receive in (("isend", "irecv"), ("isend", "late"))]
    job = mpi("transfer", "--seed", seed, "--iterations", 2, sample.write(cases, tmp_path),
              ranks=3, regx=ALL | {"verify": 1}).checked(ranks=3)
    assert job.total("remap_pages") > 0, str(job)
    assert job.total("verified") > 0, str(job)


@needs_move
def test_more_at_once_than_there_are_landing_pages_bounces(mpi: Mpi, tmp_path: Path) -> None:
    """By slots, and counted."""
    file = sample.write([Case(2 * MIB + 1, 1, 2, pattern="both", receive="late", window=12)], tmp_path)
    job = mpi("transfer", "--iterations", 2, file, regx=ALL | {"chunk_depth": 1}).checked(ranks=2)
    assert job.total("bytes_remap") > 0 < job.total("bytes_bounce"), str(job)
    assert set(job.reasons("fallbacks")) == {"remap: all landing pages are in use"}, str(job)


def test_where_userfaultfd_is_refused_messages_bounce(mpi: Mpi, build: Build,
                                                      tmp_path: Path) -> None:
    file = sample.write([Case(MIB, 100, 200, pattern="fan")], tmp_path)
    job = mpi("transfer", "--iterations", 3, file, regx=ALL,
              within=[build.programs / "deny", "userfaultfd"]).checked(ranks=2)
    assert job.total("messages_bounce") == job.total("messages_fallback") == 3, str(job)
    assert job.reasons("fallbacks") == {REFUSED: 3}, str(job)


def test_with_verbs_it_is_refused_by_name(mpi: Mpi) -> None:
    """One line, and what is allowed."""
    job = mpi("collective", "--sizes", "100", "bcast", btl="regx,vader,self",
              regx={"rendezvous": "remap", "transport": "verbs"})
    job.left_out("btl_regx_rendezvous=remap: over transport verbs")


@needs_move
def test_several_threads_exchange_messages(mpi: Mpi, seed: int) -> None:
    """Whose buffers may lie in one page."""
    job = mpi("threads", "--seed", seed, "--rounds", 40, "--largest", 200_000, ranks=2,
              regx={"rendezvous": "remap"}).checked(ranks=2)
    assert job.total("remap_pages") > 0, str(job)


@needs_move
def test_every_kind_of_memory_is_received_right(mpi: Mpi, tmp_path: Path) -> None:
    """What is not private and anonymous goes by bounce, and is counted."""
    job = mpi("memory", tmp_path, 100, 65_537, 1_000_000, regx=ALL).checked(ranks=2)
    reasons = set(job.reasons("fallbacks"))
    assert {"remap: shared memory", "remap: a mapping of a file"} <= reasons, str(job)
    assert job.total("remap_pages") > 0, str(job)


@needs_move
def test_the_cache_is_told_of_moved_pages(mpi: Mpi) -> None:
    """Rank 1 sends what it has received: each time its registration is of pages that are elsewhere
    by now."""
    rounds, size = 50, 1 << 20
    job = mpi("stale", "back", "send", rounds, size, within=at_ranks({
        "0": {"rendezvous": "direct", "backend": "hooks"}, "1": {"rendezvous": "remap", "backend": "hooks"}}))
    job.checked(ranks=2)
    mover, other = job.rank(1), job.rank(0)
    assert mover["remap_pages"] > 0 == other["remap_pages"], str(job)
    assert mover["invalidations"] >= rounds - 1 and mover["misses"] >= rounds, str(job)
    assert other["invalidations"] == 0 and other["hits"] >= rounds, f"the control\n{job}"
