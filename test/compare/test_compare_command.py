# SPDX-License-Identifier: BSD-3-Clause
"""compare as a whole, with stand-ins for everything that it starts."""

import csv
import json
import os
import signal

import pytest
from standins import ROWS, Tree, is_alive, runs_of, stopped

# ---- a whole comparison


def test_a_good_run_ends_with_table_and_proofs(tree: Tree) -> None:
    done, document = tree.compare(ROWS)
    assert done.returncode == 0, done.stderr
    assert "regx bounce" in done.stdout and "3000 1.50x" in done.stdout
    assert "4000 75%" in done.stdout  # of the reference
    assert "Content checked: 2 of 2 rows, by companion_bw -c." in done.stdout
    assert "in all 3 runs regx's report proves the path" in done.stdout
    assert "setup was called with compare\n" in done.stderr
    assert " left\n" in done.stderr
    assert document["environment"]["openmpi"] == "4.1.4"
    assert {run["phase"] for run in document["runs"]} == {"far"}
    assert (tree.path / "output/table.txt").read_text() == done.stdout


def test_the_csv_has_ordered_columns_and_a_row_for_each_value(tree: Tree) -> None:
    tree.compare(ROWS)
    text = (tree.path / "output/results.csv").read_text()
    # Scripts rely on the first ten, and on their order.
    assert text.splitlines()[0] == (
        "strategy,backend,transport,benchmark,buffers,size,metric,unit,repetition,value,kind,ranks"
        ",options,beside,phase,mailbox_before,mailbox_after,attempt,problem"
    )
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == 3 * 3 * 4  # repetitions, sizes, two arms with a reference each
    (reference, *_) = [row for row in rows if row["strategy"] == "reference"]
    assert reference["beside"] == "bounce" and reference["kind"] == "reference"
    assert reference["benchmark"] == "osu_bw" and reference["value"] == "4000.0"
    bounce = [row for row in rows if row["strategy"] == "bounce"]
    assert bounce[0] == {
        "strategy": "bounce",
        "backend": "none",
        "transport": "uct/shm",
        "benchmark": "osu_bw",
        "buffers": "same",
        "size": "65536",
        "metric": "bandwidth",
        "unit": "MB/s",
        "repetition": "1",
        "value": "3000.0",
        "kind": "regx",
        "ranks": "2",
        "options": "-i 5 -x 1",
        "beside": "",
        "phase": "far",
        "mailbox_before": "0.250",
        "mailbox_after": "0.250",
        "attempt": "1",
        "problem": "",
    }
    assert [row["repetition"] for row in bounce] == ["1"] * 3 + ["2"] * 3 + ["3"] * 3
    assert {row["transport"] for row in rows if row["strategy"] == "vader"} == {"vader"}


def test_arms_are_interleaved_and_each_repetition_begins_with_another(tree: Tree) -> None:
    _, document = tree.compare(ROWS)
    order = [(run["arm"]["strategy"], run["beside"], run["repetition"]) for run in document["runs"]]
    assert order == [
        (strategy, beside, repetition)
        for repetition, arms in enumerate((("bounce", "vader"), ("vader", "bounce")) * 2, 1)
        for arm in arms
        for strategy, beside in ((arm, ""), ("reference", arm))
        if repetition <= 3
    ]


def test_checks_are_short_and_timed_runs_are_not_checked(tree: Tree) -> None:
    tree.compare(ROWS)
    calls = tree.calls()
    assert len(calls) == 2 + 6
    assert all(call.endswith("-m 65536:262144 -i 2 -x 0 -c") for call in calls[:2])
    assert all(call.endswith("-m 65536:262144 -i 5 -x 1") for call in calls[2:])
    assert all("--bind-to core" in call or "--oversubscribe" in call for call in calls)


def test_rows_of_other_versions_are_left_out(tree: Tree) -> None:
    rows = ROWS + "[sm]\nopenmpi = 5 6\nmca = --mca pml ob1 --mca btl sm,self\n"
    done, document = tree.compare(rows)
    assert done.returncode == 0 and "sm" not in {arm["strategy"] for arm in document["arms"]}


def test_full_has_more_repetitions(tree: Tree) -> None:
    _, document = tree.compare(ROWS, "--full")
    assert len(runs_of(document, "bounce")) == 7


def test_there_are_as_many_repetitions_as_asked(tree: Tree) -> None:
    _, document = tree.compare(ROWS, "-n", 2)
    assert len(runs_of(document, "bounce")) == 2
    done = tree.run("-n", 0)
    assert done.returncode == 2 and "-n 0: allowed: 1 to 1000" in done.stderr


# ---- backends

BACKENDS = ROWS + """\
[kept]
mca = --mca pml ob1 --mca btl regx --mca btl_regx_rendezvous bounce --mca btl_regx_backend hooks
environment = HITS=77
"""


def test_backends_are_compared_by_what_they_save(tree: Tree) -> None:
    done, document = tree.compare(BACKENDS)
    assert done.returncode == 0, done.stderr
    assert runs_of(document, "kept")[0]["counts"] == {"hits": 154, "registrations": 10}
    lines = done.stdout.splitlines()
    (hits,) = [line.split() for line in lines if line.split()[:1] == ["hits"]]
    assert hits == ["hits", "-", "-", "154", "-"]  # bounce, vader, kept, the reference
    (made,) = [line.split() for line in lines if line.split()[:1] == ["registrations"]]
    assert made == ["registrations", "-", "-", "10", "-"]
    assert "Registering costs NOTHING on uct/shm" in done.stdout
    rows = list(csv.DictReader((tree.path / "output/results.csv").read_text().splitlines()))
    (row, *_) = [row for row in rows if row["metric"] == "hits"]
    assert row["strategy"] == "kept" and row["backend"] == "hooks"
    assert row["size"] == "" and row["value"] == "154"


def test_one_backend_is_not_compared(tree: Tree) -> None:
    done, _ = tree.compare(ROWS)
    assert "registrations" not in done.stdout and "NOTHING" not in done.stdout


# ---- stopping


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("rdma", [False, True])
def test_stopping_leaves_complete_files(tree: Tree, number: signal.Signals, rdma: bool) -> None:
    stuck = "[stuck]\nmca = --mca pml ob1 --mca btl tcp,self\nenvironment = 'ACT=hang when timed'\n"
    rows = ROWS + stuck
    file = tree.write("rows.conf", rows)
    output = tree.path / "output"
    arguments = tree.command("-f", file, "--osu", tree.path / "osu", "--output", output)
    references = 0 if rdma else 1
    arguments += ["--rdma"] if rdma else []
    done = stopped(tree, arguments, number)
    stdout = done.stdout
    assert done.returncode == 130, done.stderr
    assert not is_alive(int((tree.path / "hanging").read_text()))
    runs = 2 + 2 * references
    assert f"INTERRUPTED: {runs} runs were complete." in stdout and "1.50x" in stdout
    assert (output / "table.txt").read_text() in stdout
    document = json.loads((output / "results.json").read_text())
    assert document["interrupted"] is True and len(document["runs"]) == runs
    table = list(csv.DictReader((output / "results.csv").read_text().splitlines()))
    beside = ["reference"] * 3 * references
    assert [row["strategy"] for row in table] == ["bounce"] * 3 + beside + ["vader"] * 3 + beside
    assert not list(output.glob(".*"))


# ---- benchmarks of their own kinds

GROUPS = ROWS.replace("osu_bw", "osu_allreduce companion_incast").replace("[bounce]", "ranks = 2 4\n[bounce]")


def test_four_ranks_are_bound_even_where_they_share_cores(tree: Tree) -> None:
    """Where they share cores they are bound: which of them share one differs from run to run else."""
    done, document = tree.compare(GROUPS)
    assert done.returncode == 0, done.stderr
    ranks = [(run["arm"]["benchmark"], run["arm"]["ranks"]) for run in runs_of(document, "bounce")]
    assert set(ranks) == {(name, n) for name in ("osu_allreduce", "companion_incast") for n in (2, 4)}
    assert "osu_allreduce, us, lower is better (4 ranks, " in done.stdout
    shared = [call for call in tree.calls() if "-n 4" in call]
    cores = len(os.sched_getaffinity(0))
    for call in shared:
        assert ("--mca mpi_yield_when_idle 1" in call) == (cores < 4)
        assert ("overload-allowed" in call) == (2 <= cores < 4)
    assert "regx bounce: geometric mean" in done.stdout


def test_a_rank_that_does_not_report_fails_the_comparison(tree: Tree) -> None:
    """All four must."""
    code = tree.path / "bin/mpirun"
    code.write_text(code.read_text().replace("for rank in range(ranks)", "for rank in range(2)"))
    done, _ = tree.compare(GROUPS)
    assert done.returncode == 1
    assert "regx reported for 2 of 4 ranks" in done.stdout


def test_without_osu_its_own_benchmarks_are_left_out(tree: Tree) -> None:
    file = tree.write("rows.conf", GROUPS)
    done = tree.run("-f", file, "--output", tree.path / "output")
    assert done.returncode == 0, done.stderr
    assert "Left out, for there is no OSU here: osu_allreduce." in done.stdout
    only = tree.write("only.conf", ROWS.replace("osu_bw", "osu_allreduce"))
    done = tree.run("-f", only)
    assert done.returncode == 1 and done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last == "compare: no OSU here, and nothing else has osu_allreduce"


def test_each_percentile_has_rows_and_a_table_of_its_own(tree: Tree) -> None:
    rows = ROWS.replace("osu_bw", "companion_percentiles").replace("-i 5", "-i 1000")
    done, document = tree.compare(rows)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tree.path / "output/results.csv").read_text().splitlines()))
    found = {row["metric"]: float(row["value"]) for row in rows if row["strategy"] == "bounce"}
    assert found == {"p50": 1, "p99": 2, "p99.9": 3, "max1000": 4}
    for metric in found:
        assert f"companion_percentiles {metric}, us, lower is better" in done.stdout
    assert "in all 3 runs regx's report proves the path" in done.stdout
    # It is the same messages whose contents are checked.
    assert [call.split("companion ")[1].split()[0] for call in tree.calls()[:2]] == ["latency"] * 2


# ---- auto

AUTO = ROWS.replace(" --mca btl_regx_rendezvous bounce", "")


@pytest.mark.parametrize("bench, check", [("osu_bw", "-i 24 -x 0 -W 16 -c"), ("osu_latency", "-i 64 -x 0 -c")])
def test_auto_is_checked_past_its_trial(tree: Tree, bench: str, check: str) -> None:
    decisions = '{"bounce: on trial": 9, "together: faster when tried": 70}'
    rows = AUTO.replace("MBS=3000", f"'DECISIONS={decisions}'").replace("osu_bw", bench)
    done, document = tree.compare(rows)
    assert done.returncode == 0, done.stderr
    calls = tree.calls()
    assert calls[0].endswith(check) and calls[1].endswith("-i 2 -x 0 -c")  # auto, then vader
    assert document["checks"][0]["decisions"]["together: faster when tried"] == 140
    choice = f"Choice: bounce {bench}: together: faster when tried (420), on trial (54);"
    assert f"{choice} to pin together: --mca btl_regx_rendezvous together\n" in done.stdout
    assert "trials alone" not in done.stdout


def test_between_nodes_auto_tries_nothing(tree: Tree) -> None:
    tree.compare(AUTO, "--hostfile", tree.write("hosts", "a\nb\n"))
    assert tree.calls()[0].endswith("-i 2 -x 0 -c")


def test_a_window_of_the_options_is_that_of_the_check(tree: Tree) -> None:
    tree.compare(AUTO.replace("-i 5", "-W 8 -i 5"))
    assert tree.calls()[0].endswith("-i 24 -x 0 -W 8 -c")
    assert tree.calls()[1].endswith("-i 2 -x 0 -W 8 -c")
