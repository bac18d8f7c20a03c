# SPDX-License-Identifier: BSD-3-Clause
"""MPI_Finalize with messages under way: what was sent arrives, and the end comes."""
import pytest

from launch import Mpi

WIRES = {"shm": {}, "tcp": {"uct_tls": "tcp"}}
LARGEST = 16384 - 16  # that is eager in each version: 5.0 counts 80 bytes of headers, 4.1 fewer


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("size,count", [(8, 600), (4000, 600), (LARGEST, 100)])
def test_child_that_ends_first(mpi: Mpi, size: int, count: int, wire: str) -> None:
    """More than a mailbox, the lent slots or the kernel's buffers hold, from a process that does
    not disconnect, to one that is outside MPI until all has been sent."""
    job = mpi("finalize", "child", size, count, ranks=1, regx=WIRES[wire]).checked(ranks=2)
    job.over(wire)
    assert job.stdout == f"checked {size * count} bytes\n", str(job)
    assert job.total("bytes_eager") >= size * count, str(job)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("size", [4000, LARGEST])
def test_nobody_receives(mpi: Mpi, size: int, wire: str) -> None:
    """Two ranks hold slots that they lent to a third, which ends without having looked."""
    job = mpi("finalize", "unread", size, 40, ranks=3, regx=WIRES[wire]).ended_well().over(wire)
    assert len(job.reports) == 3 and job.stdout == "", str(job)
    for rank in (0, 1):
        assert job.rank(rank)["bytes_eager"] >= size, f"nothing was sent\n{job}"


@pytest.mark.parametrize("strategy", ["read", "together", "bounce"])
def test_receives_may_be_freed_before_they_are_complete(mpi: Mpi, strategy: str) -> None:
    """Open MPI 4.1 keeps the handle of such a receive, if it was by get, until the end or for good:
    neither its use for another receive nor the end of the job stumbles over it."""
    mpi("freed", 1_000_000, 9, regx={"rendezvous": strategy}).checked(ranks=2).carried(strategy)
