# SPDX-License-Identifier: BSD-3-Clause
"""osu-configs/registration as a whole, with stand-ins for the programs that measure; and these."""

import csv
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from standins import WATCHDOG, Tree, stopped

from registering.command import parse
from registering.metrics import GROUPS, METRICS, SUBJECTS


def run(tree: Tree, *arguments: object) -> subprocess.CompletedProcess[str]:
    return tree.run("--output", tree.path / "output", *arguments, tool="registration")


def test_every_subject_and_metric_is_measured(tree: Tree) -> None:
    done = run(tree, "-n", 3)
    assert done.returncode == 0, done.stderr
    calls = tree.calls()
    assert len(calls) == 3 * len(SUBJECTS)
    assert calls[0] == "regx none" and "grdma grdma" in calls and "ucx ucs_rcache" in calls
    # Each round begins with another.
    assert [calls[i * len(SUBJECTS)].split()[1] for i in range(3)] == list(SUBJECTS)[:3]

    text = done.stdout
    assert (tree.path / "output/table.txt").read_text().splitlines()[0] == text.splitlines()[0]
    assert "40.0 *" in text and "50.0 1.25x" in text  # the peers' hits
    assert "10.0 0.25x" in text  # hooks, of that
    assert "1100 1.10x" in text  # the notifier's munmap, of its own without regions
    assert "9.00 1.50x" in text  # of none's
    assert "notifier: the query in a hit costs as much as 1.80 null system calls" in text

    rows = list(csv.DictReader((tree.path / "output/results.csv").read_text().splitlines()))
    wanted = {"subject": "none", "metric": "hit_1", "unit": "ns", "repetition": "1", "value": "12.0",
              "phase": "far", "mailbox_before": "0.250", "attempt": "1"}  # fmt: skip
    assert rows[0] == rows[0] | wanted
    assert {row["repetition"] for row in rows} == {"1", "2", "3"}
    document = json.loads((tree.path / "output/results.json").read_text())
    assert document["environment"]["openmpi"] == "4.1.4" and not document["interrupted"]


def test_named_subjects_and_metrics_alone_are_measured(tree: Tree) -> None:
    done = run(tree, "-n", 1, "--subjects", "hooks", "grdma", "--metrics", "hit_1", "null_call")
    assert done.returncode == 0, done.stderr
    assert tree.calls() == ["regx hooks hit_1 null_call", "grdma grdma hit_1 null_call"]


def test_a_subject_that_is_not_there(tree: Tree) -> None:
    tree.write("cannot-ucs_rcache", "")
    done = run(tree, "-n", 2)
    assert done.returncode == 0, done.stderr
    assert "ucs_rcache: cannot be had here: it is not there" in done.stdout
    assert tree.calls().count("ucx ucs_rcache") == 1
    assert "x" not in done.stdout.splitlines()[2] and "50.0" in done.stdout


def test_a_subject_that_fails(tree: Tree) -> None:
    tree.write("breaks-hooks", "")
    done = run(tree, "-n", 2)
    assert done.returncode == 1
    why = "FAILED: hooks: ended with status 1: hit_1: 3 were not hits"
    assert why in done.stdout and tree.calls().count("regx hooks") == 1


def test_a_dry_run_prints_the_programs(tree: Tree) -> None:
    subprocess.run([tree.path / "component/config/setup"], check=True, capture_output=True)
    done = run(tree, "--dry-run", "--subjects", "notifier")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tree.path}/bin/registering/regx notifier\n"
    done = run(tree, "--dry-run", "--subjects", "notifier", "--subjects", "none", "ucs_rcache",
               "--metrics", "hit_1", "--metrics", "null_call")  # fmt: skip
    asked = [("regx", "notifier"), ("regx", "none"), ("ucx", "ucs_rcache")]
    assert done.stdout.splitlines() == [
        f"{tree.path}/bin/registering/{program} {subject} hit_1 null_call"
        for program, subject in asked
    ]
    assert not (tree.path / "calls").exists() and not (tree.path / "output").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-n", "0"], "-n 0: allowed: 1 to 1000"),
        (["-n", "many"], "invalid int value: 'many'"),
        (["--subjects", "odp"], "invalid choice: 'odp' (choose from 'none', 'hooks'"),
        (["--metrics", "speed"], "invalid choice: 'speed' (choose from"),
    ],
)
def test_wrong_arguments_get_one_line(tree: Tree, arguments: list[str], complaint: str) -> None:
    done = run(tree, *arguments)
    assert done.returncode == 2 and done.stdout == "" and complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_results_are_not_written_over(tree: Tree) -> None:
    assert run(tree, "-n", 1, "--subjects", "none").returncode == 0
    done = run(tree, "-n", 1, "--subjects", "none")
    assert done.returncode == 2 and "holds results already" in done.stderr


def test_stopping_leaves_complete_files(tree: Tree) -> None:
    assert run(tree, "-n", 1, "--subjects", "none", "--output", tree.path / "first").returncode == 0
    tree.write("hangs", "")
    command = tree.command("--output", tree.path / "output", tool="registration")
    done = stopped(tree, command, signal.SIGINT)
    assert done.returncode == 130, done.stderr
    assert "INTERRUPTED: 0 runs were complete." in done.stdout
    assert json.loads((tree.path / "output/results.json").read_text())["interrupted"]


def test_every_metric_is_in_one_group() -> None:
    assert sum(len(group.metrics) for group in GROUPS) == len(METRICS)


# ---- the programs


@pytest.fixture(scope="module")
def programs() -> Path:
    folder = os.environ.get("REGX_BUILD_DIR")
    if not folder:
        pytest.skip("needs the build: REGX_BUILD_DIR")
    return Path(folder) / "osu-configs/registering"


def measure(
    programs: Path, program: str, *words: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run([programs / program, *words], env={**os.environ, **environment},
                          capture_output=True, text=True, timeout=WATCHDOG, check=False)


# Cheap ones, each of another kind. That hits are hits and misses are misses, they check themselves.
SOME = ("region_bytes", "null_call", "hit_1", "hit_100", "miss_apart", "many_settled", "fork_full")


@pytest.mark.parametrize("subject", SUBJECTS)
def test_each_program_prints_what_was_asked(programs: Path, subject: str) -> None:
    if not (programs / SUBJECTS[subject].program).exists():
        pytest.skip("not built for this Open MPI")
    done = measure(programs, SUBJECTS[subject].program, subject, *SOME)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    values = parse(done.stdout)
    wanted = set(SOME)
    if subject == "none":
        wanted -= {"hit_1", "hit_100"}
    if subject == "retain":
        wanted -= {"many_settled"}
    assert set(values) == wanted
    assert all(values[name] > 0 for name in wanted - {"region_bytes"})


def test_another_ucx_is_refused(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "ucp.c").write_text(
        "void ucp_get_version(unsigned *a, unsigned *b, unsigned *c) { *a = 1, *b = 15, *c = 0; }"
    )
    command = ["cc", "-shared", "-fPIC", tmp_path / "ucp.c", "-o", tmp_path / "libucp.so.0"]
    subprocess.run(command, check=True, timeout=WATCHDOG)
    done = measure(programs, "ucx", "ucs_rcache", LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 3 and done.stdout == ""
    assert done.stderr == (
        "registration: ucs_rcache: this is UCX 1.15; its cache is known here as it is in 1.13\n"
    )


def test_every_metric_has_its_program(programs: Path) -> None:
    for metric in METRICS:
        assert measure(programs, "regx", "no-backend", metric).returncode == 3  # known, not reached
    done = measure(programs, "regx", "no-backend", "speed")
    assert done.returncode == 1 and done.stderr == 'registration: unknown metric "speed"\n'
