# SPDX-License-Identifier: BSD-3-Clause
"""Random operations on memory: messages, windows, new buffers and pages, also while they are in use
where a parameter allows that. (mutants/ shows that they find what is wrong.)"""
from pathlib import Path

import pytest

import device
from launch import Mpi
from skips import pages_cannot_be_moved
from ways import CHUNKS, WAYS, Way

OPERATIONS, ALL_OPERATIONS = 2_000, 50_000  # without and with --full
ATTEMPTS = 8


@pytest.mark.parametrize("way", WAYS)
def test_random_operations_are_right(mpi: Mpi, tmp_path: Path, way: str, seed: int, full: bool) -> None:
    if way == "remap" and pages_cannot_be_moved():
        pytest.skip("no UFFDIO_MOVE here")
    operations = ALL_OPERATIONS if full else OPERATIONS
    missing = {counter for counter in WAYS[way].used if counter != "onesided" or mpi.build.osc_asks}
    for attempt in range(ATTEMPTS):  # whether a change falls into a transfer is up to the scheduler
        folder = tmp_path / str(attempt)
        folder.mkdir()
        job = WAYS[way].run(mpi, seed + attempt, operations, folder).checked(WAYS[way].ranks)
        missing -= {counter for counter in missing if job.total(counter) > 0}
        if not missing:
            return
    pytest.fail(f"no {missing} in {ATTEMPTS * operations} operations\n{job}")


@device.needed
@pytest.mark.parametrize("strategy", [pytest.param("pipeline", marks=pytest.mark.core), "bounce", "direct", "read"])
def test_random_operations_are_right_over_verbs(mpi: Mpi, tmp_path: Path, strategy: str, seed: int,
                                                full: bool) -> None:
    way = Way({"transport": "verbs", "rendezvous": strategy, **CHUNKS})
    job = way.run(mpi, seed, 5_000 if full else 300, tmp_path,
                  around=["chrt", "-i", "0"]).checked(ranks=2).over("verbs")
    assert (job.total("onesided") > 0) == mpi.build.osc_asks, str(job)
