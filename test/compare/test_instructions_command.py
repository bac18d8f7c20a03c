# SPDX-License-Identifier: BSD-3-Clause
"""osu-configs/instructions: with stand-ins for what it starts, and for real that it has no noise."""

import csv
import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from standins import Tree, built

from comparing.configuration import read
from comparing.launch import Launcher, Runner
from profiling.count import METRICS, Counter, total

ROWS = """\
[defaults]
benchmark = companion_latency
sizes = 8:8
[auto]
mca = --mca pml ob1 --mca btl regx
[vader]
mca = --mca pml ob1 --mca btl vader,self
[later]
openmpi = 6
mca = --mca pml ob1 --mca btl sm,self
"""


def test_the_lowest_batch_and_the_mean_are_shown(tree: Tree) -> None:
    output = tree.path / "output"
    done = tree.run_rows("instructions", ROWS, "--output", output)
    assert done.returncode == 0, done.stderr
    assert "setup was called with instructions\n" in done.stderr
    rows = list(csv.DictReader((output / "results.csv").open()))
    assert [(row["arm"], row["metric"]) for row in rows] == [
        (arm, metric) for metric in ("isend", "receive", "idle") for arm in ("auto", "vader")
    ]
    # A batch is 16 messages or calls; 13 of 64 have one instruction more for each.
    for row in rows:
        assert float(row["lowest"]) == 99 and int(row["batches"]) == 64
        assert float(row["mean"]) == pytest.approx(99 + 13 / 64, abs=0.001)
        assert row["openmpi"] == "4.1.4" and "regx_commit" in row and "valgrind" in row
    document = json.loads((output / "results.json").read_text())
    assert len(document["counts"]) == 6 and document["environment"]["openmpi"] == "4.1.4"
    assert (output / "table.txt").read_text() == done.stdout
    assert "Open MPI 4.1.4" in done.stdout and "99.0" in done.stdout
    assert not list((output / "reports").glob("*.[01]*"))  # what callgrind wrote is large


def test_instructions_are_counted_by_arm_and_metric(tree: Tree) -> None:
    tree.run_rows("instructions", ROWS, "--output", tree.path / "output")
    calls = [shlex.split(call) for call in tree.calls()]
    modes = {"send": ["PMPI_Isend"], "receive": ["PMPI_Irecv", "PMPI_Waitall"],
             "idle": ["opal_progress", "*event_base_loop"]}  # fmt: skip
    for call in calls:
        mode = call[-2]
        toggles = [w.partition("=")[2] for w in call if w.startswith("--toggle-collect=")]
        assert toggles == modes[mode] and "--dump-before=batch_begins" in call
    assert len(calls) == 6


def test_batches_that_are_missing_fail_the_count(tree: Tree) -> None:
    done = tree.run_rows("instructions", ROWS.replace("[vader]", "[vader]\nenvironment = PARTS=9"),
                         "--output", tree.path / "output")  # fmt: skip
    assert done.returncode == 1
    assert "FAILED: vader, isend: callgrind did not count PMPI_Isend in each of 64 batches" in done.stdout
    assert "failed" in done.stdout


def test_a_failure_and_a_path_that_is_not_proven_are_said(tree: Tree) -> None:
    rows = ROWS.replace("[vader]", "[vader]\nenvironment = ACT=fail")
    rows = rows.replace("[auto]", "[auto]\nenvironment = ACT=no-report")
    done = tree.run_rows("instructions", rows, "--output", tree.path / "output")
    assert done.returncode == 1
    assert "FAILED: vader, isend: failed with status 3: No such thing as this BTL" in done.stdout
    assert "Path (?): auto, isend: path not proven: regx reported for 0 of 2 ranks" in done.stdout
    assert "99.0 ?" in done.stdout


def test_dry_run_prints_every_line_and_runs_nothing(tree: Tree) -> None:
    subprocess.run([tree.path / "component/config/setup"], check=True, stderr=subprocess.DEVNULL)
    done = tree.run_rows("instructions", ROWS, "--dry-run")
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert done.returncode == 0 and len(lines) == 6, done.stderr
    assert all("--callgrind-out-file=" in line and "valgrind" in line for line in lines)
    assert not (tree.path / "calls").exists()


def test_the_total_of_a_callgrind_file_is_its_summary() -> None:
    """As valgrind 3.19 writes it."""
    text = """\
# callgrind format
version: 1
desc: Trigger: --dump-before=batch_begins
positions: line
events: Ir
summary: 9136

fn=(1) PMPI_Isend
0 9136
"""
    assert total(text) == 9136 and total("nothing of this kind\n") == 0


def test_two_counts_give_the_same_numbers(tmp_path: Path) -> None:
    """For real, and of a peer, so that it does not depend on what regx is like at the moment."""
    if not all(map(shutil.which, ("valgrind", "mpicc", "mpirun"))):
        pytest.skip("needs valgrind, mpicc and mpirun in PATH")
    found = built(tmp_path, "profiling/messages")
    conf = tmp_path / "rows.conf"
    conf.write_text("[peer]\nbenchmark = osu_latency\nsizes = 8:8\n"
                    "mca = --mca pml ob1 --mca btl vader,self\n")  # fmt: skip
    (row,) = read([conf], False)
    counter = Counter(Launcher(found), Runner(), tmp_path)
    for metric in METRICS[:2]:
        counts = [counter.count(row, metric) for _ in range(2)]
        assert not any(count.failed for count in counts), counts
        assert counts[0].lowest == counts[1].lowest > 20
