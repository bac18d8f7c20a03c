# SPDX-License-Identifier: BSD-3-Clause
"""Programs whose standard streams are closed (daemons, detached jobs), or put onto something else: what they print
is not written over messages, and descriptors of regx's are not theirs."""
from pathlib import Path

import pytest

from launch import Mpi
from tables import strategies

CLOSED = ("0", "1", "2", "0 1", "1 2", "0 1 2")


def run(mpi: Mpi, folder: Path, when: str, closed: str = "", **how: object) -> None:
    """The verdict is in a file: nobody reads what is printed."""
    streams = " ".join({"0": "0<&-", "1": ">&-", "2": "2>&-"}[stream] for stream in closed.split())
    within = ["sh", "-c", f'exec "$@" {streams}', "sh"] if closed else []
    verdict = folder / "verdict"
    job = mpi("streams", verdict, when, ranks=3, within=within, timeout=60, **how)
    assert job.status == 0, str(job)
    assert verdict.exists() and verdict.read_text().startswith("checked "), str(job)
    assert len(job.reports) == 3 and job.total("malformed") == 0, str(job)


@pytest.mark.parametrize("strategy", [*strategies(), "auto"])
@pytest.mark.parametrize("closed", CLOSED)
def test_streams_closed_before_the_start(mpi: Mpi, tmp_path: Path, closed: str, strategy: str) -> None:
    run(mpi, tmp_path, "before", closed, regx={"rendezvous": strategy})


@pytest.mark.parametrize("backend", ["notifier", "hooks"], indirect=True)
def test_so_with_each_backend(mpi: Mpi, tmp_path: Path, backend: str) -> None:
    run(mpi, tmp_path, "before", "0 1 2", regx={"rendezvous": "direct", "backend": backend})


@pytest.mark.parametrize("when", ["after", "0", "1", "2", "onto"])
def test_so_over_pinned(mpi: Mpi, tmp_path: Path, when: str) -> None:
    """Its files in memory are made at the first transfer to a neighbour."""
    run(mpi, tmp_path, when, regx={"transport": "pinned", "rendezvous": "direct"})


@pytest.mark.parametrize("strategy", ["read", "pipeline", "bounce", "auto"])
@pytest.mark.parametrize("when", ["after", "0", "1", "2", "onto", "never"])
def test_streams_closed_or_replaced_after_init(mpi: Mpi, tmp_path: Path, when: str, strategy: str) -> None:
    run(mpi, tmp_path, when, regx={"rendezvous": strategy})
