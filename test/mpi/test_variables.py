# SPDX-License-Identifier: BSD-3-Clause
"""MPI_T: each counter is a performance variable by the report's name."""
from pathlib import Path

import pytest

from launch import Mpi
from tables import keys

NOT_COUNTED = {"rank", "eager_limit", "peers"}  # what the report says of the process itself


def values(file: Path) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in file.read_text().splitlines())}


@pytest.mark.parametrize("strategy,backend", [("read", "none"), ("direct", "notifier")])
def test_variables_have_the_reports_values(mpi: Mpi, tmp_path: Path, strategy: str, backend: str) -> None:
    """Hits too, which the caches count for themselves, and are asked for when the variable is read."""
    job = mpi("tools", 1, 3_000_000, tmp_path / "values",
              regx={"rendezvous": strategy, "backend": backend})
    counters = {key for key in keys("number") if key not in NOT_COUNTED}
    for report in job.checked(ranks=2).reports:
        found = values(tmp_path / f"values.{report['rank']}")
        assert set(found) == counters
        if report["rank"] == int(strategy == "read"):  # who counts it
            assert found[f"messages_{strategy}"] == 10, found
        assert (found["hits"] > 0) == (backend != "none"), found
        for name, value in found.items():  # what MPI_Finalize does counts in the report alone
            assert value <= report[name] or name == "registered_bytes", name  # which has ended with it
        for name in (f"messages_{strategy}", f"bytes_{strategy}", "pool_bytes", "hits"):
            assert found[name] == report[name], name


def test_a_job_without_regx_has_no_variables(mpi: Mpi, tmp_path: Path) -> None:
    mpi("tools", 0, 100, tmp_path / "values", btl="vader,self").ended_well()
    assert values(tmp_path / "values.0") == {}
