# SPDX-License-Identifier: BSD-3-Clause
"""Random operations on memory: messages, windows, new buffers and pages, also while they are in use
where a parameter allows that. (mutants/ shows that they find what is wrong.)"""
from pathlib import Path

import pytest

from launch import Mpi
from skips import pages_cannot_be_moved
from ways import WAYS

OPERATIONS, ALL_OPERATIONS = 4_000, 200_000  # without and with --full


@pytest.mark.parametrize("way", WAYS)
def test_random_operations_are_right(mpi: Mpi, tmp_path: Path, way: str, seed: int,
                                     full: bool) -> None:
    if way == "remap" and pages_cannot_be_moved():
        pytest.skip("no UFFDIO_MOVE here")
    operations = ALL_OPERATIONS if full else OPERATIONS
    job = WAYS[way].run(mpi, seed, operations, tmp_path, timeout=120).checked(WAYS[way].ranks)
    for counter in WAYS[way].used:
        assert job.total(counter) > 0, f"no {counter}\n{job}"
