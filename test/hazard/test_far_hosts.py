# SPDX-License-Identifier: BSD-3-Clause
"""Three hosts that are far from each other: frames come late, and some never."""
from pathlib import Path

import pytest

from far import far_hosts
from launch import Mpi

DELAY = 1  # millisecond, each way
EVERY = 200  # frames, of which one is lost


@pytest.mark.parametrize("strategy", ["bounce", "pipeline"])
def test_three_far_hosts_lose_nothing(mpi: Mpi, tmp_path: Path, full: bool, strategy: str) -> None:
    """What the network loses the wire sends again: every byte is right, and once."""
    sizes = "1,5000,70001,1000001" if full else "1,70001,300001"
    with far_hosts(tmp_path, 3, DELAY, EVERY) as network:
        job = mpi("collective", "--roots", 1, "--sizes", sizes, "alltoall", "bcast", ranks=3,
                  around=network.around, options=network.options, regx={"rendezvous": strategy},
                  timeout=600).checked(ranks=3)
    assert len({report["host"] for report in job.reports}) == 3, str(job)
    job.over("tcp")
    job.carried(strategy)
    assert network.dropped > 0, f"{network.passed} frames, and none was lost\n{job}"
    print(f"{network.passed} frames, {network.dropped} lost")
