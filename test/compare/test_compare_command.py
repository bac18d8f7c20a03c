# SPDX-License-Identifier: BSD-3-Clause
"""compare as a whole, with stand-ins for everything that it starts."""

import csv
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from standins import TOP, WATCHDOG, Tree

from comparing import osu

ROWS = """\
[defaults]
benchmark = osu_bw
sizes = 64K:256K
options = -i 5 -x 1
[bounce]
mca = --mca pml ob1 --mca btl regx --mca btl_regx_rendezvous bounce
environment = MBS=3000
[vader]
mca = --mca pml ob1 --mca btl vader,self
environment = MBS=2000
"""


def runs_of(document: dict, strategy: str) -> list[dict]:
    return [run for run in document["runs"] if run["arm"]["strategy"] == strategy]


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


# ---- what goes wrong is said


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
    assert all(run["problem"] for run in runs_of(document, "bounce"))
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


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


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
    process = subprocess.Popen(
        arguments, env=tree.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    hanging = tree.path / "hanging"
    try:
        deadline = time.monotonic() + WATCHDOG
        while not (hanging.exists() and hanging.read_text()):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=WATCHDOG)
    finally:
        process.kill()
    assert process.returncode == 130, stderr
    assert not is_alive(int(hanging.read_text()))
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


# ---- tables made again


def test_tables_are_made_again_from_a_csv_without_a_run(tree: Tree) -> None:
    tree.write("mailbox", "0.25 0.25 0.25 0.05")  # two phases
    done, _ = tree.compare(ROWS)
    file = tree.path / "output/results.csv"
    calls = tree.calls()
    again = tree.run("--from", file)
    assert again.returncode == 0, again.stderr
    assert "far phase" in again.stdout and "near phase" in again.stdout
    figures = done.stdout.partition("\nContent checked")[0]
    assert figures and again.stdout.startswith(figures)
    assert f"From {file}: what was checked, and what failed, stands in" in again.stdout
    assert tree.calls() == calls


def test_tables_are_made_from_a_csv_of_an_older_version(tree: Tree) -> None:
    """Without the columns that came later, and with the limit that the reference was once."""
    lines = ["strategy,backend,transport,benchmark,buffers,size,metric,unit,repetition,value"]
    for repetition in (1, 2):
        lines += [f"limit,,shm,probe,same,65536,bandwidth,MB/s,{repetition},4000",
                  f"bounce,none,uct/shm,osu_bw,same,65536,bandwidth,MB/s,{repetition},3000",
                  f"vader,,vader,osu_bw,same,65536,bandwidth,MB/s,{repetition},2000"]  # fmt: skip
    file = tree.write("old.csv", "\n".join(lines) + "\n")
    done = tree.run("--from", file)
    assert done.returncode == 0, done.stderr
    assert "osu_bw, MB/s, higher is better (phase not measured, 2 runs)" in done.stdout
    assert "3000 1.50x" in done.stdout and "4000 75%" in done.stdout


@pytest.mark.parametrize("file", sorted((TOP / "osu-configs/results").glob("*.csv")), ids=str)
def test_each_published_csv_can_be_read(tree: Tree, file: Path) -> None:
    if not file.read_text().startswith("strategy,"):
        return  # of another command of ours
    with file.open() as lines:
        unproven = any(row.get("problem") for row in csv.DictReader(lines))
    done = tree.run("--from", file)
    assert done.returncode == unproven, done.stderr
    assert " is better (" in done.stdout and f"From {file}: " in done.stdout
    assert ("(?): path not proven" in done.stdout) == unproven


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", ":1: no results.csv of compare: no column strategy"),
        ("arm,value\n", ":1: no results.csv of compare: no column strategy"),
        ("{columns}\na,b,c,osu_bw,same,eight,bandwidth,MB/s,1,2\n", ":2: malformed: invalid literal"),
        ("{columns},phase\na,b,c,osu_bw,same,8,bandwidth,MB/s,1,2,odd\n",
         ':2: malformed: unknown phase "odd"'),
        ("{columns}\n", ": no runs in it"),
    ],
)  # fmt: skip
def test_a_csv_of_another_kind_is_refused(tree: Tree, text: str, complaint: str) -> None:
    columns = "strategy,backend,transport,benchmark,buffers,size,metric,unit,repetition,value"
    file = tree.write("odd.csv", text.replace("{columns}", columns))
    done = tree.run("--from", file)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"compare: {file}{complaint}") and done.stderr.count("\n") == 1


# ---- the command line


def test_dry_run_prints_lines_that_can_be_pasted(tree: Tree) -> None:
    rows = ROWS.replace("MBS=2000", "'TWO=a b'")
    file = tree.write("rows.conf", rows)
    (tree.path / ".build").mkdir()
    subprocess.run([tree.path / "component/config/setup"], check=True, timeout=WATCHDOG)
    done = tree.run("-f", file, "--osu", tree.path / "osu", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "setup was called" not in done.stderr and not (tree.path / "calls").exists()
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert len(lines) == 6  # two rows, checked and timed, and the reference beside each
    bounce = shlex.split(lines[1])
    component = f"OMPI_MCA_opal_mca_base_component_path={tree.path}/component-dir:/pkglib"
    assert bounce[:3] == ["env", component, f"{tree.path}/bin/mpirun"]
    assert bounce[-5:] == ["-m", "65536:262144", "-i", "5", "-x", "1"][-5:]
    probe = [f"{tree.path}/bin/probe", "fastest", "-s", "bandwidth", "-m", "65536:262144"]
    assert shlex.split(lines[2]) == shlex.split(lines[5]) == probe
    assert "TWO=a b" in shlex.split(lines[4])
    for line in lines:
        pasted = subprocess.run(
            ["sh", "-c", line],
            cwd=tree.path,
            env=tree.environment,
            capture_output=True,
            text=True,
            timeout=WATCHDOG,
            check=False,
        )
        assert pasted.returncode == 0, pasted.stderr
        assert "# Size Bandwidth (MB/s)" in pasted.stdout


def test_dry_run_of_the_default_set_needs_nothing_built() -> None:
    if not all(os.access(f"/usr/bin/{name}", os.X_OK) for name in ("mpirun", "ompi_info")):
        pytest.skip("needs Open MPI in PATH")
    done = subprocess.run(
        [TOP / "osu-configs/compare", "--dry-run"],
        capture_output=True,
        text=True,
        timeout=WATCHDOG,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "--mca btl_regx_rendezvous pipeline" in done.stdout


def test_files_of_several_options_are_all_read(tree: Tree) -> None:
    defaults, bounce, vader = ROWS.partition("[bounce]")[0], *ROWS.split("[")[2:]
    files = [tree.write(f"{number}.conf", f"{defaults}[{row}")
             for number, row in enumerate((bounce, vader, vader.replace("vader", "tcp")))]  # fmt: skip
    (tree.path / ".build").mkdir()
    subprocess.run([tree.path / "component/config/setup"], check=True, timeout=WATCHDOG)
    words = ["-f", files[0], files[1], "-f", files[2], "--osu", tree.path / "osu", "--dry-run"]
    done = tree.run(*words)
    assert done.returncode == 0, done.stderr
    btls = [words[words.index("btl") + 1] for line in done.stdout.splitlines()
            if line[0] != "#" and "btl" in (words := shlex.split(line))]  # fmt: skip
    assert btls == ["regx"] * 2 + ["vader,self"] * 2 + ["tcp,self"] * 2  # checked and timed


def test_a_launcher_gets_all_by_the_environment(tree: Tree) -> None:
    file = tree.write("rows.conf", ROWS)
    (tree.path / ".build").mkdir()
    subprocess.run([tree.path / "component/config/setup"], check=True, timeout=WATCHDOG)
    done = tree.run(
        "-f", file, "--osu", tree.path / "osu", "--dry-run", "--launcher", "srun --mpi=pmix"
    )
    _, line = [text for text in done.stdout.splitlines() if "btl=regx" in text]  # checked, timed
    words = shlex.split(line)
    assert words[0] == "env" and "OMPI_MCA_pml=ob1" in words and "MBS=3000" in words
    assert "OMPI_MCA_btl_regx_rendezvous=bounce" in words
    start = words.index("srun")
    assert words[start : start + 4] == ["srun", "--mpi=pmix", "-n", "2"] and "--mca" not in words


def test_a_launcher_is_used_and_no_phase_is_claimed(tree: Tree) -> None:
    # Any launcher will do: here, the stand-in for mpirun itself.
    done, document = tree.compare(ROWS, "--launcher", f"{tree.path}/bin/mpirun --own")
    assert done.returncode == 0, done.stderr
    assert "phase not measured, 3 runs)" in done.stdout and "1.50x" in done.stdout
    assert {run["phase"] for run in document["runs"]} == {"unmeasured"}
    assert all("--own -n 2" in call for call in tree.calls())


def test_a_hostfile_maps_by_node(tree: Tree) -> None:
    hosts = tree.write("hosts", "a\nb\n")
    done, _ = tree.compare(ROWS, "--hostfile", hosts)
    assert done.returncode == 0, done.stderr
    assert all(f"--hostfile {hosts} --map-by node" in call for call in tree.calls())
    assert "phase not measured, 3 runs)" in done.stdout and "reference" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--hostfile", "/nowhere"], "--hostfile: /nowhere cannot be read"),
        (["--launcher", ""], "--launcher: wanted: a command"),
        (["--launcher", "srun", "--hostfile", "hosts"], "--hostfile is mpirun's; a launcher has"),
        (["--launcher", "'srun"], "--launcher: No closing quotation"),
        (["--osu", "/nowhere"], "--osu: no osu_bw in /nowhere; wanted: an installation or a build"),
        (["-f", "/nowhere"], "/nowhere: cannot be read: No such file or directory"),
        (["--output", "/dev/null/x"], "--output: /dev/null/x cannot be made: Not a directory"),
    ],
)
def test_bad_arguments_get_one_line(tree: Tree, arguments: list[str], complaint: str) -> None:
    done = tree.run("-f", tree.write("rows.conf", ROWS), *arguments)
    assert done.returncode == 2 and done.stdout == ""
    said = [line for line in done.stderr.splitlines() if not line.startswith("setup ")]
    assert len(said) == 1 and said[0].startswith(f"compare: {complaint}"), done.stderr


def test_osu_home_is_used_and_refused_where_it_has_no_osu(tree: Tree) -> None:
    done = tree.run("-f", tree.write("rows.conf", ROWS), OSU_HOME="/nowhere")
    assert done.returncode == 2 and "compare: OSU_HOME: no osu_bw in /nowhere" in done.stderr
    done = tree.run("-f", tree.path / "rows.conf", OSU_HOME=str(tree.path / "osu"))
    assert done.returncode == 0 and "osu_bw, MB/s" in done.stdout


@pytest.mark.parametrize(
    "folder",
    ["libexec/osu-micro-benchmarks/mpi/pt2pt", "c/mpi/pt2pt/standard", "mpi/pt2pt", "."],
)
def test_osu_is_found_installed_or_built(tree: Tree, folder: str) -> None:
    tree.write(f"place/{folder}/osu_bw", "", executable=True)
    file = tree.write("rows.conf", ROWS)
    done = tree.run("-f", file, "--osu", tree.path / "place", "--output", tree.path / "output")
    assert done.returncode == 0, done.stderr
    assert f"osu_bw is {os.path.normpath(tree.path / 'place' / folder / 'osu_bw')}\n" in done.stderr


def test_osu_is_found_in_path(tree: Tree) -> None:
    path = f"{tree.environment['PATH']}:{tree.path}/osu"
    done = tree.run("-f", tree.write("rows.conf", ROWS), PATH=path)
    assert done.returncode == 0, done.stderr
    assert f"osu_bw is {tree.path}/osu/osu_bw\n" in done.stderr


@pytest.mark.parametrize(
    "folder",
    [
        "usr/libexec/osu-micro-benchmarks/mpi/pt2pt",
        "usr/local/libexec/osu-micro-benchmarks/mpi/pt2pt",
        "usr/lib/osu-micro-benchmarks/mpi/pt2pt",
        "usr/lib64/openmpi/bin",
    ],
)
def test_osu_is_found_in_a_usual_place_but_in_path_first(
    tree: Tree, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below a root of this test's own; a folder of PATH goes before."""
    there = tree.write(f"{folder}/osu_bw", "", executable=True)
    monkeypatch.setattr(osu, "USUAL_PLACES", [f"{tree.path}{place}" for place in osu.USUAL_PLACES])
    suite = osu.Suite(None, Path("/c"), {"PATH": "/nowhere"})
    assert suite.program("osu_bw", "same") == osu.Program(there, (), "osu_bw")
    suite = osu.Suite(None, Path("/c"), {"PATH": f"/nowhere:{tree.path}/osu"})
    assert suite.program("osu_bw", "same").path == tree.path / "osu/osu_bw"


def test_on_a_bare_machine_setup_brings_python(tree: Tree) -> None:
    bare = tree.path / "bare"
    bare.mkdir()
    for name in ("sh", "dirname", "readlink", "cat", "mkdir", "ln"):
        (bare / name).symlink_to(str(shutil.which(name)))
    setup = tree.path / "component/config/setup"
    setup.write_text(setup.read_text() + f'ln -s "{sys.executable}" "{bare}/python3"\n')
    done = subprocess.run(
        tree.command("--help"),
        env={"PATH": str(bare)},
        capture_output=True,
        text=True,
        timeout=WATCHDOG,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.startswith("usage: compare")
    # Help alone is no reason to install anything.
    assert done.stderr == "setup was called with compare --no-install\n"


def test_when_setup_fails_its_message_is_the_last_word(tree: Tree) -> None:
    tree.write("setup-fails", "")
    done = tree.run("--no-install")
    assert done.returncode == 7 and done.stdout == ""
    assert done.stderr == (
        "setup was called with compare --no-install\nsetup: no package for that\n"
    )


def test_results_are_never_overwritten(tree: Tree) -> None:
    tree.compare(ROWS)
    before = (tree.path / "output/results.csv").read_bytes()
    done = tree.run("-f", tree.path / "rows.conf", "--output", tree.path / "output")
    assert done.returncode == 2 and "holds results already; choose another folder" in done.stderr
    assert (tree.path / "output/results.csv").read_bytes() == before


# ---- the plot


def test_the_plot_has_both_formats(tree: Tree) -> None:
    pytest.importorskip("matplotlib")
    tree.write("python-for-plots", sys.executable)
    done, _ = tree.compare(ROWS)
    output = tree.path / "output"
    assert f"compare: plot: {output}/plot.png {output}/plot.svg\n" in done.stderr
    assert (output / "plot.png").read_bytes().startswith(b"\x89PNG")
    svg = (output / "plot.svg").read_text()
    assert svg.startswith("<?xml") and svg.rstrip().endswith("</svg>")


def test_the_plot_marks_a_path_that_is_not_proven(tree: Tree) -> None:
    pytest.importorskip("matplotlib")
    tree.write("python-for-plots", sys.executable)
    tree.compare(ROWS.replace("MBS=3000", "PATH_TAKEN=direct"))
    svg = (tree.path / "output/plot.svg").read_text()
    assert "<!-- regx bounce (path not proven) -->" in svg  # matplotlib names what it draws


def test_without_matplotlib_one_line_says_how_to_get_it(tree: Tree, tmp_path: Path) -> None:
    # A module of that name, first in the path, which fails as a missing one does.
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "matplotlib.py").write_text(
        "raise ModuleNotFoundError('No module', name='matplotlib')\n"
    )
    tree.write("python-for-plots", sys.executable)
    file = tree.write("rows.conf", ROWS)
    done = tree.run("-f", file, "--osu", tree.path / "osu", PYTHONPATH=str(hidden))
    assert done.returncode == 0 and "3000 1.50x" in done.stdout
    hint = "matplotlib is not installed; as root: apt-get install python3-matplotlib"
    assert f"compare: no plot: {hint}\n" in done.stderr and done.stderr.count("no plot") == 1
