# SPDX-License-Identifier: BSD-3-Clause
"""Grants that are revoked over a device: it writes to the pages that it was given, also when they
are no longer the buffer's."""
from pathlib import Path

import pytest

import device
from job import Job
from launch import Mpi

pytestmark = device.needed

SIZE = 1 << 20
HOWS = 5  # "all" goes through them, one each message


def run(mpi: Mpi, folder: Path, how: str, rounds: int, grant: str = "revocable") -> Job:
    return mpi("grant", how, "thread", SIZE, rounds, 1, folder / "shared",
               around=["chrt", "-i", "0"], options=["--bind-to", "none"],
               environment={"MALLOC_ARENA_MAX": "1"}, regx={
                   "transport": "verbs", "rendezvous": "pipeline", "backend": "notifier",
                   "grant": grant, "chunk_size": "16K", "inuse": "ignore"})


@pytest.mark.core
def test_what_was_sent_arrives_in_the_pages_that_replace_granted_ones(mpi: Mpi, tmp_path: Path, full: bool) -> None:
    """And with grants that are final it is seen not to."""
    rounds = 20 * HOWS if full else HOWS
    job = run(mpi, tmp_path, "all", rounds).checked(ranks=2).over("verbs")
    assert job.rank(1)["regrants"] >= rounds, str(job)
    assert job.total("malformed") == 0, str(job)
    assert not any(reason.startswith("grant:") for reason in job.rank(1)["fallbacks"]), str(job)
    if full:
        job = run(mpi, tmp_path, "munmap", 1, "final")
        assert job.status != 0 and "wrong on rank 1: munmap: byte 0 " in job.stderr, str(job)
