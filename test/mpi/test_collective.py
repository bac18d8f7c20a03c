# SPDX-License-Identifier: BSD-3-Clause
"""Collectives over regx alone."""
import pytest

from launch import Mpi

ALL = ["barrier", "bcast", "scatter", "gather", "allgather", "alltoall", "alltoallv", "allreduce"]


@pytest.mark.parametrize("ranks", [2, 5, 8])
@pytest.mark.parametrize("strategy", ["bounce", "pipeline", "direct", "together", "auto"])
def test_collectives_are_right(mpi: Mpi, seed: int, strategy: str, ranks: int) -> None:
    job = mpi("collective", "--seed", seed, "--sizes", "1,999,20000,300001", *ALL, ranks=ranks,
              regx={"rendezvous": strategy}, timeout=240).checked(ranks)
    job.carried(strategy)


def test_collectives_over_tcp_are_right(mpi: Mpi, seed: int) -> None:
    job = mpi("collective", "--seed", seed, "--sizes", "1,20000,300001", *ALL, ranks=5,
              regx={"uct_tls": "tcp"}, timeout=240).checked(5)
    job.over("tcp")


def test_scatter_to_81_ranks_is_right(mpi: Mpi, seed: int) -> None:
    """Hazard 21: one rank's many peers at once."""
    job = mpi("collective", "--seed", seed, "--roots", 1, "--sizes", "8,100000", "scatter",
              ranks=81, timeout=240)
    job.checked(81).carried("auto", range(80 * 100_000, 81 * 81 * 100_000)).over("shm")
