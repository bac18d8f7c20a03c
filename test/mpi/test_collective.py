# SPDX-License-Identifier: BSD-3-Clause
"""Collectives over regx alone."""
from launch import Mpi


def test_collectives_are_right(mpi: Mpi, seed: int) -> None:
    job = mpi("collective", "--seed", seed, "--sizes", "1,999,20000,40000,300001", "bcast", "scatter", "alltoall",
              ranks=5, regx={"rendezvous": "together"}).checked(5).carried("together")
    assert job.total("verified") == 0, str(job)  # it was not asked for


def test_scatter_to_many_ranks_is_right(mpi: Mpi, seed: int, full: bool) -> None:
    """Hazard 21: one rank's many peers at once."""
    ranks = 81 if full else 24
    job = mpi("collective", "--seed", seed, "--roots", 1, "--sizes", "8,100000", "scatter", ranks=ranks)
    job.checked(ranks).carried("auto", range((ranks - 1) * 100_000, ranks * ranks * 100_000)).over("shm")
