# SPDX-License-Identifier: BSD-3-Clause
"""One-sided operations, which Open MPI emulates over a BTL that only puts."""
import pytest

from launch import Build, Mpi


@pytest.mark.parametrize("strategy", ["pipeline", "together"])
def test_put_get_and_accumulate_are_right(mpi: Mpi, build: Build, strategy: str) -> None:
    """MPI_Win_create, since MPI_Win_allocate on a node goes by osc/sm. 5.0 has osc/rdma alone, whose
    atomic operations are not right (mca-params/limits.md)."""
    osc: dict[str, object] = {"osc": "pt2pt,sm"} if build.series == (4, 1) else \
        {"osc": "^ucx", **build.osc}
    job = mpi("onesided", 8, 1000, 100_000, 4 << 20, ranks=4, mca=osc,
              regx={"rendezvous": strategy}).checked(ranks=4)
    assert job.total("bytes_eager") + job.total("bytes_frag") + job.total(f"bytes_{strategy}") \
        > 4 * (4 << 20), str(job)
