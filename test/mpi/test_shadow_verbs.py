# SPDX-License-Identifier: BSD-3-Clause
"""Random operations (test_shadow.py) over an RDMA device."""
from pathlib import Path

import pytest

import device
from launch import Mpi
from ways import CHUNKS, Way

OPERATIONS, ALL_OPERATIONS = 300, 20_000  # without and with --full
TIMEOUT = 600

pytestmark = device.needed


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    full = metafunc.config.getoption("--full")
    metafunc.parametrize("strategy", ["bounce", "direct", "read"] * full + ["pipeline"])


@pytest.mark.core
def test_random_operations_are_right_over_verbs(mpi: Mpi, tmp_path: Path, strategy: str, seed: int,
                                                full: bool) -> None:
    way = Way({"transport": "verbs", "rendezvous": strategy, **CHUNKS})
    job = way.run(mpi, seed, ALL_OPERATIONS if full else OPERATIONS, tmp_path, timeout=TIMEOUT,
                  around=["chrt", "-i", "0"]).checked(ranks=2).over("verbs")
    assert job.total("onesided") > 0, str(job)
