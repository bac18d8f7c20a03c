# SPDX-License-Identifier: BSD-3-Clause
"""btl_regx_verify: checksums by chunk and slot, at both ends."""
from pathlib import Path

import pytest

from launch import Mpi, at_ranks


@pytest.mark.parametrize("strategy", ["bounce", "pipeline", "direct", "read", "together", "staged"])
def test_every_grant_is_compared(mpi: Mpi, strategy: str) -> None:
    """One comparison for each grant that was written, or read."""
    job = mpi("collective", "--sizes", "100,40000,300001,3000000", "alltoall", "bcast", ranks=3,
              regx={"rendezvous": strategy, "verify": 1}).checked(ranks=3)
    job.carried(strategy).over("shm")
    assert job.total("verified") == job.total("puts") + job.total("gets") > 0, str(job)


@pytest.mark.parametrize("rank", [0, 1])
def test_either_side_may_ask_for_comparison(mpi: Mpi, tmp_path: Path, rank: int) -> None:
    """Rank 0 alone sends large messages; the setting is that of one rank."""
    job = mpi("inuse", "neither", "part", 4 << 20, tmp_path / "shared", regx={"rendezvous": "pipeline"},
              within=at_ranks({str(rank): {"verify": 1}})).checked(ranks=2)
    assert job.rank(1)["verified"] == job.rank(0)["puts"] > 0, str(job)


@pytest.mark.parametrize("verify", [0, 1])
def test_a_changed_byte_ends_the_job(mpi: Mpi, tmp_path: Path, verify: int) -> None:
    """The sender changes a byte of what is being sent: with verify that is one line and the end,
    and without it the wrong byte arrives."""
    job = mpi("inuse", "send", "byte", 64 << 20, tmp_path / "shared",
              regx={"rendezvous": "direct", "verify": verify})
    assert job.status != 0, str(job)
    assert ("wrong on rank 1" in job.stderr) == (verify == 0), str(job)
    told = [line for line in job.complaints if "verify" in line]
    assert len(told) == verify, str(job)
    for line in told:
        assert "rank 0" in line and "direct" in line and f"of {64 << 20} " in line, str(job)
