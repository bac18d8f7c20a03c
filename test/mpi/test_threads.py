# SPDX-License-Identifier: BSD-3-Clause
"""MPI_THREAD_MULTIPLE."""
import pytest

from launch import Mpi


@pytest.mark.parametrize("strategy,shared", [("pipeline", ["--shared"]), ("together", []), ("auto", ["--shared"])])
@pytest.mark.whole
def test_several_threads_exchange_messages(mpi: Mpi, full: bool, seed: int, strategy: str,
                                           shared: list[str]) -> None:
    """Mixed sizes in several threads of each rank, to itself too."""
    mpi("threads", "--seed", seed, "--rounds", 600 if full else 60, *shared, ranks=3,
        regx={"rendezvous": strategy}).checked(ranks=3).carried(strategy)


def test_several_threads_share_two_slots(mpi: Mpi, seed: int) -> None:
    job = mpi("threads", "--seed", seed, "--threads", 6, ranks=2,
              regx={"rendezvous": "bounce", "slot_size": "64K", "pool_size": "128K"})
    job.checked(ranks=2).carried("bounce")
    assert job.most("slots_high") <= 2, str(job)
