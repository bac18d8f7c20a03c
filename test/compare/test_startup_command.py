# SPDX-License-Identifier: BSD-3-Clause
"""osu-configs/startup: with stand-ins for what it starts, and once for real."""

import csv
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from standins import Tree, built

from comparing.configuration import read
from comparing.launch import Launcher, Runner
from comparing.phase import Mailbox
from starting.measure import Meter, Start

ROWS = """\
[defaults]
benchmark = companion_sendrecv
sizes = 8:8
ranks = 2 3
[auto]
mca = --mca pml ob1 --mca btl regx
[vader]
mca = --mca pml ob1 --mca btl vader,self
[later]
openmpi = 6
mca = --mca pml ob1 --mca btl sm,self
"""


def test_jobs_are_interleaved_and_medians_shown(tree: Tree) -> None:
    output = tree.path / "output"
    done = tree.run_rows("startup", ROWS, "-n", 3, "--output", output)
    assert done.returncode == 0, done.stderr
    calls = [shlex.split(call) for call in tree.calls()]
    ranks = [int(call[call.index("-n") + 1]) for call in calls]
    assert ranks == [2, 2, 3, 3] * 4  # one round for the proof, three that are timed
    assert all(("btl_regx_report" in call) == (at in (0, 2)) for at, call in enumerate(calls))
    rows = list(csv.DictReader((output / "results.csv").open()))
    assert len(rows) == 4 * 3
    first = [row for row in rows if (row["arm"], row["ranks"]) == ("auto", "2")]
    # The stand-in's n-th call takes n ms and a microsecond more in rank 1; the end, half a ms.
    assert [float(row["init_ms"]) for row in first] == [5.001, 9.001, 13.001]
    assert [float(row["both_ms"]) for row in first] == [5.501, 9.501, 13.501]
    assert {float(row["finalize_ms"]) for row in rows} == {0.5}
    assert {float(row["pss_mib"]) for row in rows} == {2.0}
    assert (output / "table.txt").read_text() == done.stdout
    assert "9.50 (5.50-13.5)" in done.stdout and "Open MPI 4.1.4" in done.stdout


def test_a_failure_and_a_path_that_is_not_proven_are_said(tree: Tree) -> None:
    rows = ROWS.replace("[vader]", "[vader]\nenvironment = ACT=fail")
    rows = rows.replace("[auto]", "[auto]\nenvironment = ACT=no-report")
    done = tree.run_rows("startup", rows, "-n", 1, "--output", tree.path / "output")
    assert done.returncode == 1
    assert "FAILED: vader, 2 ranks: failed with status 3: No such thing as this BTL" in done.stdout
    assert "Path (?): auto, 2 ranks: path not proven: regx reported for 0 of 2 ranks" in done.stdout
    assert len(tree.calls()) == 4 + 2  # what failed is not tried again


def test_a_rank_that_does_not_tell_fails_the_job(tree: Tree) -> None:
    rows = ROWS.replace("[vader]", "[vader]\nenvironment = 'ACT=silent rank'")
    done = tree.run_rows("startup", rows, "-n", 1, "--output", tree.path / "output")
    assert done.returncode == 1
    assert "FAILED: vader, 3 ranks: 2 of 3 ranks told of themselves" in done.stdout


def test_dry_run_prints_every_line_and_runs_nothing(tree: Tree) -> None:
    subprocess.run([tree.path / "component/config/setup"], check=True, stderr=subprocess.DEVNULL)
    done = tree.run_rows("startup", ROWS, "--dry-run")
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert done.returncode == 0 and len(lines) == 4, done.stderr
    assert all(line.endswith("/starting/ranks") for line in lines)
    assert not (tree.path / "calls").exists()


@pytest.mark.parametrize("number", ["0", "1000"])
def test_a_number_of_jobs_that_is_not_allowed_is_refused(tree: Tree, number: str) -> None:
    done = tree.run_rows("startup", ROWS, "-n", number)
    assert done.returncode == 2
    assert done.stderr == f"startup: -n {number}: allowed: 1 to 999\n"


def test_ranks_tell_their_times_and_memory(tmp_path: Path) -> None:
    """For real, and of a peer, so that it does not depend on what regx is like at the moment."""
    if not all(map(shutil.which, ("mpicc", "mpirun"))):
        pytest.skip("needs mpicc and mpirun in PATH")
    found = built(tmp_path, "starting/ranks")
    conf = tmp_path / "rows.conf"
    conf.write_text("[peer]\nbenchmark = companion_sendrecv\nsizes = 8:8\nranks = 3\n"
                    "mca = --mca pml ob1 --mca btl vader,self\n")  # fmt: skip
    (row,) = read([conf], False)
    start = Start("peer", 3)
    runner = Runner()
    mailbox = Mailbox(found, runner, usable=False)
    Meter(Launcher(found), runner, tmp_path, mailbox).measure(row, start)
    assert not start.failed and len(start.jobs) == 1, start
    job = start.jobs[0].values
    assert job["init_ms"] > 0 and 1 < job["pss_mib"] < 200
    assert max(job["init_ms"], job["finalize_ms"]) <= job["both_ms"]
    assert job["both_ms"] < job["init_ms"] + job["finalize_ms"] + 0.0005  # times are whole µs
