# SPDX-License-Identifier: BSD-3-Clause
"""MPI_Finalize with messages under way: what was sent arrives, and the end comes."""
import pytest

from launch import Mpi

LARGEST = 32768  # that is eager in each version


@pytest.mark.parametrize("size,count", [(8, 600), (LARGEST, 100)])
def test_child_that_ends_first(mpi: Mpi, size: int, count: int) -> None:
    """More than a mailbox or the lent slots hold, from a process that does
    not disconnect, to one that is outside MPI until all has been sent."""
    job = mpi("finalize", "child", size, count, ranks=1).checked(ranks=2)
    job.over("shm")
    assert job.stdout == f"checked {size * count} bytes\n", str(job)
    assert job.total("bytes_eager") >= size * count, str(job)


@pytest.mark.parametrize("who", ["child", "parent"])
@pytest.mark.parametrize("size", [8, 1_000_000])
def test_who_has_disconnected_waits_for_nobody(mpi: Mpi, who: str, size: int) -> None:
    """One of the two ends MPI while the other, outside MPI, waits for its end: both wait for ever if that
    needs the other's progress."""
    mpi("finalize", "apart", size, 10, who, ranks=1).checked(ranks=2).over("shm")


def test_nobody_receives(mpi: Mpi) -> None:
    """Two ranks hold slots that they lent to a third, which ends without having looked."""
    job = mpi("finalize", "unread", LARGEST, 40, ranks=3).ended_well().over("shm")
    assert len(job.reports) == 3 and job.stdout == "", str(job)
    for rank in (0, 1):
        assert job.rank(rank)["bytes_eager"] >= LARGEST, f"nothing was sent\n{job}"


@pytest.mark.parametrize("strategy", ["read", "bounce"])
def test_receives_may_be_freed_before_they_are_complete(mpi: Mpi, strategy: str) -> None:
    """Neither another receive nor the end of the job stumbles over it."""
    mpi("finalize", "freed", 1_000_000, 9, regx={"rendezvous": strategy}).checked(ranks=2).carried(strategy)
