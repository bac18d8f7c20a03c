# SPDX-License-Identifier: BSD-3-Clause
"""Windows between hosts: there osc/rdma keeps its locks by the BTL's atomic operations, too.

Not dynamic ones: osc/rdma of Open MPI 4.1.2 to 4.1.4 then waits for a lock that it has itself
(mca-params/limits.md)."""
from pathlib import Path

import pytest

from launch import Mpi
from namespace import two_hosts

CASES = ["fence", "pscw", "lock", "requests", "flood", "derived", "accumulate", "fetch", "swap"]


@pytest.mark.parametrize("flavour", ["create", "allocate"])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("btl", ["regx", "regx,self"])
def test_every_operation_between_two_hosts(mpi: Mpi, tmp_path: Path, flavour: str, ranks: int,
                                           btl: str) -> None:
    with two_hosts(tmp_path) as (around, options):
        job = mpi("window", flavour, 1000, *CASES, ranks=ranks, btl=btl, around=around,
                  options=options).checked(ranks)
    assert len({report["host"] for report in job.reports}) == 2, str(job)
    assert job.total("onesided_messages") > 0 and job.total("malformed") == 0, str(job)
