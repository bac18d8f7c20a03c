# SPDX-License-Identifier: BSD-3-Clause
"""What goes wrong in a comparison is said, and not taken for a result."""

import csv
import os
import re
import subprocess
from pathlib import Path

import pytest
from standins import ROWS, WATCHDOG, Tree, is_alive, runs_of

from comparing import osu


def test_wrong_data_is_loud_and_not_timed(tree: Tree) -> None:
    done, document = tree.compare(ROWS.replace("MBS=2000", "ACT=wrong"))
    assert done.returncode == 1
    assert "WRONG DATA: vader osu_bw: companion_bw -c received other bytes than were sent" in done.stdout
    assert "WRONG DATA: vader" in done.stderr
    assert runs_of(document, "vader") == [] and len(runs_of(document, "bounce")) == 3


def test_an_old_osu_without_validation_is_checked_by_the_companion(tree: Tree) -> None:
    rows = ROWS.replace("MBS=2000", "ACT=old").replace("osu_bw", "osu_latency")
    done, document = tree.compare(rows)
    assert done.returncode == 0
    assert "Content checked: 2 of 2 rows, by companion_latency, osu_latency -c." in done.stdout
    assert len(runs_of(document, "vader")) == 3


def test_what_came_before_a_failure_is_not_proven(tree: Tree) -> None:
    """The report of a rank that did not end well is missing."""
    done, document = tree.compare(ROWS.replace("MBS=3000", "ACT=end-badly"))
    assert done.returncode == 1
    (run,) = runs_of(document, "bounce")
    assert run["values"] and "path not proven" in run["problem"]
    assert "1000 0.50x ?" in done.stdout
    assert "Path: bounce osu_bw (?): path not proven, for the run did not end well" in done.stdout
    assert "regx's report proves the path" not in done.stdout


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("benchmark = osu_bw", "benchmark = osu_bw companion_bw"),
        ("benchmark = osu_bw", "benchmark = osu_bw osu_bw"),
        ("benchmark = osu_bw", "benchmark = osu_bw\nbuffers = fresh fresh"),
    ],
)
def test_runs_that_could_not_be_told_apart_are_refused(tree: Tree, before: str, after: str) -> None:
    """Without OSU, osu_bw is companion_bw."""
    file = tree.write("rows.conf", ROWS.replace(before, after))
    done = tree.run("-f", file)
    assert done.returncode == 2 and done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert re.match(rf"compare: {re.escape(str(file))}:\d+: bounce \w+(_bw|buffers\)).* twice: ", last)
    assert not (tree.path / "calls").exists()


@pytest.mark.parametrize("threads", [1, 2])
def test_ranks_are_not_bound_to_threads_of_one_core(tree: Tree, threads: int) -> None:
    """mpirun binds to cores, and has one slot for all threads of one."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        pytest.skip("needs two processors")
    for cpu in cpus:
        siblings = ",".join(map(str, cpus)) if threads == 2 else str(cpu)
        tree.write(f"cpu/cpu{cpu}/topology/thread_siblings_list", f"{siblings}\n")
    code = tree.path / "osu-configs/comparing/launch.py"
    code.write_text(code.read_text().replace("/sys/devices/system/cpu", f"{tree.path}/cpu"))
    file = tree.write("rows.conf", ROWS)
    done = subprocess.run(["taskset", "-c", ",".join(map(str, cpus)),
                           *tree.command("--dry-run", "-f", file, "--osu", tree.path / "osu")],
                          env=tree.environment, capture_output=True, text=True, timeout=WATCHDOG,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert ("--bind-to core" in done.stdout) == (threads == 1)
    assert ("--oversubscribe" in done.stdout) == (threads == 2)


def test_a_failure_is_said_once_and_not_waited_for_again(tree: Tree) -> None:
    done, document = tree.compare(ROWS.replace("MBS=3000", "ACT=fail"))
    assert done.returncode == 1
    reason = "bounce osu_bw: failed with status 3: No such thing as this BTL was found."
    assert f"FAILED: {reason}" in done.stdout
    assert done.stderr.count(reason) == 1
    assert runs_of(document, "bounce") == [] and len(runs_of(document, "vader")) == 3


def test_regx_complaint_is_the_reason_of_a_failed_row(tree: Tree) -> None:
    done, _ = tree.compare(ROWS.replace("MBS=3000", "ACT=refuse"))
    assert done.returncode == 1
    reason = "failed with status 1: regx: btl_regx_chunk_size=4M is above the cap\n"
    assert f"FAILED: bounce osu_bw: {reason}" in done.stdout


def test_the_watchdog_ends_what_hangs(tree: Tree) -> None:
    done, _ = tree.compare(ROWS.replace("MBS=3000", "ACT=hang\ntimeout = 1"))
    assert done.returncode == 1
    assert "FAILED: bounce osu_bw: no end within " in done.stdout
    assert not is_alive(int((tree.path / "hanging").read_text()))


@pytest.mark.parametrize(
    ("act", "complaint"),
    [
        ("PATH_TAKEN=direct", "bounce carried 0 B, but also direct 1.9 GiB"),
        ("PATH_TAKEN=eager", "bounce carried only 0 B; eager 1.9 GiB, frag 0 B"),
        ("ACT=fallback", "6 messages (600 B) fell back: no slots 6"),
        ("ACT=no-report", "regx reported for 0 of 2 ranks"),
    ],
)
def test_a_path_that_is_not_proven_is_said_once_and_fails(tree: Tree, act: str,
                                                          complaint: str) -> None:
    done, document = tree.compare(ROWS.replace("MBS=3000", act))
    assert done.returncode == 1
    note = f"Path: bounce osu_bw (?): path not proven: {complaint}\n"
    assert done.stdout.count(note) == 1
    runs = runs_of(document, "bounce")
    assert len(runs) == 3 and all(run["problem"] for run in runs)
    assert "in all" not in done.stdout


def test_a_run_across_a_flip_is_repeated(tree: Tree) -> None:
    tree.write("mailbox", "0.05 0.25")
    done, document = tree.compare(ROWS)
    assert done.returncode == 0
    first = runs_of(document, "bounce")[0]
    assert first["attempts"] == 2 and first["mailbox"] == [0.25, 0.25] and first["phase"] == "far"
    assert len(tree.calls()) == 2 + 6 + 1
    assert [run["attempts"] for run in runs_of(document, "reference")] == [2, 1, 1, 1, 1, 1]
    rows = list(csv.DictReader((tree.path / "output/results.csv").read_text().splitlines()))
    assert [row["attempt"] for row in rows if row["strategy"] == "bounce"] == ["2"] * 3 + ["1"] * 6


def test_a_run_is_repeated_three_times_at_most_and_then_marked(tree: Tree) -> None:
    tree.write("mailbox", "0.05 0.25 0.05 0.25 0.05 0.25")
    done, document = tree.compare(ROWS)
    first = runs_of(document, "bounce")[0]
    assert first["attempts"] == 4 and first["phase"] == "mixed"
    assert "Phase: bounce osu_bw, run 1: the mailbox moved from 0.25 to 0.05 us" in done.stdout
    assert "the phase changed during these runs: no ratios" in done.stdout
    assert runs_of(document, "vader")[0]["attempts"] == 2  # it flips once more, then stays


def test_without_osu_the_companion_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(osu, "USUAL_PLACES", ())
    program = osu.Suite(None, Path("/c"), {"PATH": "/nowhere"}).program("osu_bibw", "same")
    assert program == osu.Program(Path("/c"), ("bibw", "--buffers", "same"), "companion_bibw")


def test_buffers_other_than_osus_are_left_to_the_companion(tree: Tree) -> None:
    done, document = tree.compare(ROWS.replace("[bounce]", "buffers = same rotate:3\n[bounce]"))
    assert done.returncode == 0
    assert "companion_bw, MB/s, higher is better (rotate:3 buffers, options -i 5 -x 1, far phase" in done.stdout
    assert any("companion bw --buffers rotate:3 -m 65536:262144" in call for call in tree.calls())
