# SPDX-License-Identifier: BSD-3-Clause
"""osu-configs/counts, with stand-ins for what it starts."""

import csv
import json
import subprocess

import pytest
from standins import WATCHDOG, Tree

from counting.message import TRIPS, system_calls

ROWS = """\
[defaults]
benchmark = companion_latency
sizes = 8:64K
[auto]
mca = --mca pml ob1 --mca btl regx --mca btl_regx_transport verbs
[ucx]
mca = --mca pml ucx
"""


def test_rows_for_another_open_mpi_alone_are_refused(tree: Tree) -> None:
    tree.has_device()
    rows = ROWS.replace("[auto]", "openmpi = 6\n[auto]", 1)
    done = tree.run_rows("counts", rows, "--output", tree.path / "output")
    assert done.returncode != 0 and done.stdout == "", done.stdout
    assert "counts: no row is for Open MPI 4\n" in done.stderr, done.stderr


def test_the_difference_of_two_runs_by_messages(tree: Tree) -> None:
    tree.has_device()
    done = tree.run_rows("counts", ROWS, "--output", tree.path / "output")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tree.path / "output/results.csv").open()))
    assert {row["size"] for row in rows} == {"8", "8192", "65536"}
    # A round trip is two messages; 3 requests of each rank, and 4 packets.
    wanted = {"packets": "2.0", "sends": "3.0", "send_calls": "1.0", "receives": "0.0",
              "receive_calls": "0.0", "registrations": "0.0"}  # fmt: skip
    for row in rows:
        assert row["value"] == wanted[row["count"]], row
    document = json.loads((tree.path / "output/results.json").read_text())
    assert document["environment"]["openmpi"] == "4.1.4" and len(document["messages"]) == 6
    assert (tree.path / "output/table.txt").read_text() == done.stdout
    calls = tree.calls()
    assert len(calls) == 2 * 6 and all("-x 0" in call for call in calls)
    assert all(f"LD_PRELOAD={tree.path}/bin/counting/.libs/layer.so" in call for call in calls)


def test_leftovers_of_an_interrupted_count_are_ignored(tree: Tree) -> None:
    tree.has_device()
    left = {"sends": 1000, "send_calls": 1000, "receives": 0, "receive_calls": 0,
            "registrations": 0}  # fmt: skip
    tree.write(f"output/reports/auto-8-{TRIPS[0]}", json.dumps(left) + "\n")
    done = tree.run_rows("counts", ROWS, "--output", tree.path / "output")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tree.path / "output/results.csv").open()))
    assert {row["value"] for row in rows if row["count"] == "sends"} == {"3.0"}


def test_files_of_several_options_are_all_read(tree: Tree) -> None:
    tree.has_device()
    more = tree.write("more.conf", ROWS.replace("ucx", "cm").replace("auto", "again"))
    (tree.path / ".build").mkdir()
    subprocess.run([tree.path / "component/config/setup"], check=True, timeout=WATCHDOG)
    done = tree.run_rows("counts", ROWS, "-f", more, "--dry-run")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for pml, count in (("ob1", 2), ("ucx", 1), ("cm", 1)):  # of 3 sizes, each in two runs
        assert sum(f"--mca pml {pml} " in line for line in lines) == count * 3 * 2, done.stdout


def test_a_job_over_another_wire_is_an_error(tree: Tree) -> None:
    tree.has_device()
    done = tree.run_rows("counts", ROWS.replace("[ucx]", "environment = WIRE=tcp\n[ucx]"))
    assert done.returncode == 1
    assert "Path (?): auto, 8 B: path not proven: " in done.stdout
    assert "to go over verbs; the wires carried shm 0 B, tcp " in done.stdout


def test_a_failure_is_said_and_not_waited_for_again(tree: Tree) -> None:
    tree.has_device()
    done = tree.run_rows("counts", ROWS + "environment = ACT=fail\n")
    assert done.returncode == 1
    assert done.stdout.count("FAILED: ucx") == 1
    assert "FAILED: ucx, 8 B: failed with status 3: No such thing as this BTL" in done.stdout


def test_without_a_device_it_runs_in_the_machine(tree: Tree) -> None:
    tree.write("infiniband/mlx5_0/ports/1/hw_counters/sent_pkts", "77\n")
    done = tree.run_rows("counts", ROWS, "--rdma", "--output", tree.path / "output")
    assert done.returncode == 0, done.stderr
    (call,) = (call for call in tree.calls() if call.startswith("machine "))
    assert f" REGX_COMMIT= {tree.path}/osu-configs/counts " in call  # the tree is not in git
    assert (tree.path / "output/table.txt").read_text() == done.stdout
    assert "setup was called with machine" in done.stderr


def test_without_rdma_and_device_one_line_says_so(tree: Tree) -> None:
    done = tree.run_rows("counts", ROWS)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines()[-1] == (
        "counts: no RDMA device here; --rdma counts in an emulated machine that has one"
    )


@pytest.mark.parametrize("here", [False, True])
def test_a_dry_run_counts_nothing(tree: Tree, here: bool) -> None:
    subprocess.run([tree.path / "component/config/setup"], check=True, stderr=subprocess.DEVNULL)
    if here:
        tree.has_device()
    done = tree.run_rows("counts", ROWS, "--dry-run", "--rdma")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 2 * 6, done.stderr
    machine = f"{tree.path}/test/machine/run -- chrt -i 0 "
    assert all(line.startswith(machine) != here for line in lines)
    assert not (tree.path / "calls").exists()


def test_the_summary_of_strace() -> None:
    """As strace 6.1 prints it."""
    text = """\
    calls    errors syscall
--------- --------- ----------------
      240       240 ioctl
       12           write
      100        90 read
--------- --------- ----------------
      352       330 total
"""
    assert system_calls(text) == 240 + 12 + (100 - 90)
