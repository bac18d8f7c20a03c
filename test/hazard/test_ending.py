# SPDX-License-Identifier: BSD-3-Clause
"""However a job ends, nothing is left behind: no shared memory, no process."""
from pathlib import Path

from launch import AT_ONCE, Mpi
from namespace import SharedMemory


def test_an_aborted_job_leaves_nothing(mpi: Mpi, tmp_path: Path) -> None:
    """MPI_Abort of one of four ranks when the first of its large messages has ended. (Killed: test_killed.py.)"""
    memory = SharedMemory(tmp_path)
    job = mpi("ending", "abort", ranks=4, around=memory.around, mca=AT_ONCE)
    assert job.status == 7, str(job)
    memory.must_be_empty(job)
    assert job.stdout == "", str(job)


def test_a_job_takes_nothing_of_a_small_dev_shm_and_leaves_nothing(mpi: Mpi, tmp_path: Path) -> None:
    """Its memory is of System V."""
    memory = SharedMemory(tmp_path, size="64K")
    job = mpi("collective", "--sizes", "100,300000", "alltoall", ranks=4,
              around=memory.around).checked(ranks=4).over("shm")
    assert not job.reasons("fallbacks"), str(job)
    memory.must_be_empty(job)


ATTACHES = """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat(libc.shmget(0, 4096, 0o1600), None, 0)
"""


def test_the_listing_sees_what_is_left(mpi: Mpi, tmp_path: Path) -> None:
    """The same look, at a job that does leave something there."""
    memory = SharedMemory(tmp_path, patience=0)
    job = mpi("collective", "--sizes", "1", "bcast", around=memory.around, within=[
        "sh", "-c", 'touch /dev/shm/forgotten; [ "$OMPI_COMM_WORLD_RANK" = 1 ] || python3 -c "$0"; exec "$@"',
        ATTACHES]).ended_well()
    name, *segments = memory.left().splitlines()
    assert name == "forgotten" and len(segments) == 1, f"{memory.left()}\n{job}"
