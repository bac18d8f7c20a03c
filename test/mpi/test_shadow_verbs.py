# SPDX-License-Identifier: BSD-3-Clause
"""Random operations (test_shadow.py) over an RDMA device, also while its queue pairs fail and are
replaced."""
import random
from pathlib import Path

import pytest

import device
from launch import Mpi
from ways import CHUNKS, Way

OPERATIONS, ALL_OPERATIONS = 300, 20_000  # without and with --full
POSTS = 200  # of which one fails; each rank makes more
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
    assert job.total("onesided_puts") > 0 < job.total("onesided_atomics"), str(job)


def test_messages_are_right_where_queue_pairs_fail(mpi: Mpi, tmp_path: Path, strategy: str,
                                                   seed: int, full: bool) -> None:
    """Of each rank one, after any of its first requests. (One-sided operations are not repeated.)"""
    layer = mpi.build.programs.parent / "verbs/.libs/layer.so"
    rng = random.Random(f"{seed} {strategy}")
    way = Way({"transport": "verbs", "rendezvous": strategy, "verbs_restart_limit": 60, **CHUNKS},
              ("messages",))
    for _ in range(20 if full else 1):
        within = ["env", f"LD_PRELOAD={layer}", f"REGX_LAYER_ERROR={rng.randint(1, POSTS)}"]
        job = way.run(mpi, rng.randrange(1 << 30), OPERATIONS, tmp_path, timeout=TIMEOUT,
                      around=["chrt", "-i", "0"], within=within).checked(ranks=2).over("verbs")
        assert all(report["restarts"] > 0 for report in job.reports), str(job)
