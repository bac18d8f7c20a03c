# SPDX-License-Identifier: BSD-3-Clause
"""One-sided operations, which Open MPI emulates over a BTL that only puts."""
import pytest

from launch import Mpi


@pytest.mark.parametrize("strategy", ["bounce", "pipeline", "direct", "together"])
def test_put_get_and_accumulate_are_right(mpi: Mpi, strategy: str) -> None:
    """MPI_Win_create, since MPI_Win_allocate on a node goes by osc/sm."""
    job = mpi("onesided", 8, 1000, 100_000, 4 << 20, ranks=4, mca={"osc": "pt2pt,sm"},
              regx={"rendezvous": strategy}).checked(ranks=4)
    assert job.total("bytes_eager") + job.total("bytes_frag") + job.total(f"bytes_{strategy}") \
        > 4 * (4 << 20), str(job)
