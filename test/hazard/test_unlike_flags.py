# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that differ in btl_regx_flags: ob1 would put to or get from one that cannot."""
import pytest

from launch import Mpi


def unlike(flags: str) -> list[str]:
    """Rank 0 has these."""
    return ["sh", "-c", '[ "$OMPI_COMM_WORLD_RANK" != 0 ] || '
            f'export OMPI_MCA_btl_regx_flags={flags}; exec "$@"', "sh"]


@pytest.mark.parametrize("flags", ["send", "send,put", "send,get"])
def test_ranks_with_unlike_flags_use_another_btl(mpi: Mpi, flags: str) -> None:
    """Each side says so once, with both values."""
    job = mpi("collective", "--sizes", "10,300000", "bcast", "alltoall", btl="regx,vader,self",
              within=unlike(flags))
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    assert 1 <= len(job.complaints) <= 2, str(job)
    for line in job.complaints:
        assert "btl_regx_flags" in line and f"({flags})" in line, str(job)
        assert "(send,put,get)" in line, str(job)
    assert job.total("bytes_shm") == 0, str(job)


def test_alone_the_job_ends_with_a_line(mpi: Mpi) -> None:
    job = mpi("collective", "--sizes", "10,300000", "bcast", within=unlike("send"))
    assert job.status != 0 and job.stdout == "", str(job)
    assert 1 <= len(job.complaints) <= 2, str(job)
    assert all("btl_regx_flags" in line for line in job.complaints), str(job)
