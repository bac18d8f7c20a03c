# SPDX-License-Identifier: BSD-3-Clause
"""Grants that are revoked (btl_regx_grant=revocable): the receiver's memory is replaced while it is being
written, and all has arrived in the pages that are there at the end."""
from pathlib import Path

import pytest

from job import Job
from launch import Mpi

SIZE = 8 << 20
HOWS = 5  # "all" goes through them, one each message
CHANGES = 3  # of each message
# A change by a thread that is told of while another is being made good is not one more.
LEAST = {"self": HOWS * CHANGES, "thread": HOWS}


def run(mpi: Mpi, folder: Path, how: str, who: str, full: bool, once: bool = False, **regx: str) -> Job:
    """once: one change of one message."""
    rounds, changes = (1, 1) if once else (20 * HOWS if full else HOWS, CHANGES)
    return mpi("grant", how, who, SIZE, rounds, changes, folder / "shared",
               environment={"MALLOC_ARENA_MAX": "1"}, regx={
                   "rendezvous": "pipeline", "backend": "notifier", "grant": "revocable",
                   "chunk_size": "32K", "inuse": "ignore", **regx})


def revoked(job: Job, times: int) -> Job:
    """At least so often, and by the receiver alone; it came to nothing else."""
    receiver = job.rank(1)
    assert job.total("regrants") == receiver["regrants"] >= times, str(job)
    assert job.total("malformed") == 0, str(job)
    assert not any(reason.startswith("grant:") for report in job.reports for reason in report["fallbacks"]), \
        str(job)
    return job


@pytest.mark.parametrize("who", ["thread", "self"])
def test_what_was_sent_arrives_in_the_pages_that_replace_granted_ones(
        mpi: Mpi, tmp_path: Path, full: bool, who: str) -> None:
    """The receiver replaces them between two calls of MPI, or a thread while it makes progress."""
    revoked(run(mpi, tmp_path, "all", who, full).checked(ranks=2), LEAST[who]).over("shm")


@pytest.mark.parametrize("hooks", ["hooks+notifier", "hooks"])
def test_changes_that_are_told_before_they_are_made_are_made_good(
        mpi: Mpi, tmp_path: Path, full: bool, hooks: str) -> None:
    how = "munmap" if hooks == "hooks" else "all"
    job = run(mpi, tmp_path, how, "thread", full, backend=hooks).checked(ranks=2)
    revoked(job, LEAST["thread"])


def test_without_revocation_what_was_written_before_is_lost(mpi: Mpi, tmp_path: Path) -> None:
    """Which the tests above would notice."""
    job = run(mpi, tmp_path, "munmap", "self", False, once=True, grant="final")
    assert job.status != 0 and "wrong on rank 1: munmap: byte 0 " in job.stderr, str(job)


def test_direct_goes_back_as_well_and_says_so(mpi: Mpi, tmp_path: Path, full: bool) -> None:
    """Changes during one write are one. By btl_regx_inuse as it is by default, which calls it an error
    where grants are final."""
    job = run(mpi, tmp_path, "all", "self", full, rendezvous="direct", inuse="warn")
    revoked(job.warned("rank 1", "is sent once more").checked(ranks=2), HOWS)


def test_where_nothing_is_told_of_the_new_memory_it_goes_by_slots(mpi: Mpi, tmp_path: Path) -> None:
    job = run(mpi, tmp_path, "shared", "self", False, once=True).checked(ranks=2)
    receiver = job.rank(1)
    assert receiver["regrants"] in (1, 2) and receiver["slots_high"] > 0, str(job)
    assert receiver["fallbacks"]["grant: changes of the new memory are not reported"] == 1, \
        str(job)


def test_without_a_change_nothing_is_sent_again(mpi: Mpi, tmp_path: Path, full: bool) -> None:
    job = run(mpi, tmp_path, "nothing", "self", full).checked(ranks=2).carried("pipeline")
    assert job.total("regrants") == 0, str(job)
