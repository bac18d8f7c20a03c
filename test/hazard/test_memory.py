# SPDX-License-Identifier: BSD-3-Clause
"""Hazard 20, and the kinds of memory of hazard 13: read-only, mapped, never touched, stack."""
import itertools
from pathlib import Path

import pytest

from launch import Mpi


@pytest.mark.parametrize("strategy,wire", [
    *itertools.product(["bounce", "pipeline", "direct", "auto"], ["posix", "tcp"]),
    ("together", "posix")])
def test_every_kind_of_memory(mpi: Mpi, tmp_path: Path, strategy: str, wire: str) -> None:
    job = mpi("memory", tmp_path, 100, 65_537, 4_000_000, timeout=120,
              regx={"rendezvous": strategy, "uct_tls": wire}).checked(ranks=2)
    job.carried(strategy).over("tcp" if wire == "tcp" else "shm")
