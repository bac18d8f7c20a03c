# SPDX-License-Identifier: BSD-3-Clause
"""The report: scripts rely on its keys, and on its being the only thing that regx writes."""
import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

import sample
from launch import Mpi
from tables import keys, tables

# test/hazard/test_verbs.py knows which of them.
WHY_NOT_VERBS = ["built without rdma-core", "no RDMA device here", "at the start all processes were on this node"]
TRAFFIC = ["collective", "--sizes", "10,300000", "alltoall"]


def test_report_has_the_keys_of_the_table(mpi: Mpi, tmp_path: Path) -> None:
    """Those of the table, each of its type, in its order, and no others; one line per rank. Its file's
    name expands %h, %r and %p: host, rank and process."""
    mpi(*TRAFFIC, ranks=3, regx={"report": tmp_path / "of-%h-%r-%p"}).ended_well()
    files = sorted(tmp_path.glob("of-*"))
    assert len(files) == 3
    for rank, file in enumerate(files):
        report = json.loads(file.read_text())
        host, number, process = file.name.removeprefix("of-").rsplit("-", 2)
        assert (host, int(number)) == (socket.gethostname(), rank) and int(process) > 1
        assert list(report) == list(tables()["report"])
        assert all(isinstance(report[key], str) and report[key] for key in keys("text")), report
        assert all(isinstance(report[key], int) and report[key] >= 0 for key in keys("number")), report
        assert all(isinstance(report[key], dict) for key in keys("object")), report
        assert report["peers"] in (2, 3), report  # itself, or not
        assert report["openmpi"].split(".")[:1] in (["4"], ["5"], ["6"]), report
        assert (report["rank"], report["host"]) == (rank, host), report
        assert report["transport"] == "shm", report
        assert report["transport_reason"] in WHY_NOT_VERBS, report
        assert (report["backend"], report["backend_reason"]) == ("none", "not needed"), report


def test_table_on_stderr(mpi: Mpi) -> None:
    """Of rank 0 alone, for people; stdout is the program's."""
    job = mpi(*TRAFFIC, regx={"report": "stderr", "rendezvous": "bounce"})
    said = job.stdout.count("\n"), job.stderr.count("bytes_bounce"), job.stderr.count("rank 0")
    assert job.status == 0 and said == (1, 1, 1), str(job)


@pytest.mark.parametrize("strategy,backend", [
    ("bounce", "none"), ("pipeline", "notifier"), ("direct", "hooks"), ("read", "hooks"), ("together", "none"),
    ("staged", "none")])
def test_it_is_explained_which_way_messages_went(mpi: Mpi, tmp_path: Path, strategy: str, backend: str) -> None:
    """By size, neighbours in one row; printed as reported. (That sums are right: Job.ways, in all tests.)"""
    cases = [sample.Case(size, pattern="both", window=3) for size in (70_000, 1 << 20, 3 << 20)]
    job = mpi("transfer", "--iterations", 2, sample.write(cases, tmp_path),
              regx={"rendezvous": strategy, "backend": backend, "explain": 1, "rndv_eager_limit": 0})
    lines, rows = job.complaints[2:], job.rank(0)["explain"]
    assert len(lines) == len(rows) and all(
        str(row[key]) in line for row, line in zip(rows, lines) for key in row if key != "MB/s"), str(job)
    replace(job, stderr="").checked(ranks=2).carried(strategy).over("shm")
    found = [(row["from"], row["to"], row["backend"], row["messages"])
             for report in job.reports for row in report["explain"] if row["way"] == strategy]
    kept = "none" if strategy == "read" else backend  # what is read on a node is not registered
    assert found == [(65536, 131071, kept, 6), (1 << 20, (4 << 20) - 1, kept, 12)] * 2, str(job)
