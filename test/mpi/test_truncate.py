# SPDX-License-Identifier: BSD-3-Clause
"""Messages longer than their receive."""
import pytest

from launch import Mpi

PAIRS = [100, 50, 3000, 1, 50_000, 49_999, 1 << 20, 100_000, (9 << 20) + 1, 9 << 20]


@pytest.mark.parametrize("strategy", ["bounce", "pipeline", "direct", "auto", "together"])
def test_a_truncated_message_is_an_error_and_the_next_is_right(mpi: Mpi, strategy: str) -> None:
    """MPI_ERR_TRUNCATE, nothing written beyond the message, and the next message is right."""
    mpi("truncate", *PAIRS, regx={"rendezvous": strategy}).checked(ranks=2).carried(strategy).over("shm")
