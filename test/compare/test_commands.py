# SPDX-License-Identifier: BSD-3-Clause
"""compare, registration and instructions for real, with small rows; and that wrong data is seen."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from launch import TOP

from tools import compare, jobs, launch, registration, table

ROWS = """\
[defaults]
benchmark = companion_bw
sizes = 64K 128K
options = -W 4
[bounce]
mca = --mca pml ob1 --mca btl regx --mca btl_regx_backend none --mca btl_regx_rendezvous bounce
[vader]
mca = --mca pml ob1 --mca btl vader,self
[gone]
mca = --mca pml ob1 --mca btl no-such,self --mca odls_base_sigkill_timeout 0
"""
# Between the companion and MPI: the last byte of the 5th message that is received is changed.
TAMPER = """\
#include <mpi.h>
static int left = 5;
int MPI_Recv(void *buffer, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status *status)
{
    int result = PMPI_Recv(buffer, count, type, source, tag, comm, status);
    if (count > 4 && --left == 0)
        ((unsigned char *)buffer)[count - 1] ^= 1;
    return result;
}
"""


def run(tool: str, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(TOP / "osu-configs" / tool), *map(str, words)], env={**os.environ, **more},
                          capture_output=True, text=True, timeout=600, check=False)  # fmt: skip


def rows_file(tmp_path: Path, text: str = ROWS) -> Path:
    (tmp_path / "rows.conf").write_text(text)
    return tmp_path / "rows.conf"


def test_rows_are_checked_measured_and_shown(tmp_path: Path) -> None:
    folder = tmp_path / "output"
    done = run("compare", "--no-build", "--explain", "-f", rows_file(tmp_path), "-n", 4, "--output", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    frame = table.read([folder / "results.csv"])
    values = frame[frame.unit == "MB/s"]
    assert (values.value > 0).all() and {*zip(values.row, values.job)} == {(row, n) for row in ("bounce", "vader") for n in range(1, 5)}
    assert values.line.notna().all() == (len(launch.cores()) > 1)  # the probe tells the phase, where there are two
    assert "FAILED: gone: failed with status" in done.stdout and "Decided: " in done.stdout
    assert all(text in done.stdout for text in ("every byte right in 4 of 4 cells of 2 rows", "Path: in all 4 jobs", "  asked for\n"))
    names = {"page.html", "table.txt", "plot-many-one-way-1.png", "results.csv"}
    assert names < {file.name for file in folder.iterdir()} and "Content checked" in (folder / "table.txt").read_text()
    assert "compare --no-build --explain -f " in (folder / "page.html").read_text()
    again = run("compare", "--from", folder / "results.csv")
    assert done.stdout.endswith(f"{again.stdout}Files: page.html, table.txt, plots and results.csv in {folder}\n")
    again = run("compare", "--details", "--from", folder / "results.csv", "--output", tmp_path / "again")
    assert re.search(r"[1-4] rounds of [1-4] jobs", again.stdout)  # those of one phase
    assert {file.name for file in (tmp_path / "again").iterdir()} == names - {"results.csv"}
    again = run("compare", "--no-build", "-f", rows_file(tmp_path), "--output", folder)
    assert again.returncode == 2 and "holds results already; choose another folder\n" in again.stderr


def test_an_interrupt_prints_what_is_known(tmp_path: Path) -> None:
    command = [TOP / "osu-configs/compare", "--no-build", "-f", rows_file(tmp_path), "--output", tmp_path / "output"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        for line in process.stderr:  # a generation is over
            if "rounds" in line:
                break
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 130 and "interrupted: here is what is known so far" in stderr
    assert "Many one way" in stdout and "Decided: " in stdout


def test_one_core_and_a_second_compare_are_said(tmp_path: Path) -> None:
    lock = os.open(compare.LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        command = ["taskset", "-c", str(launch.cores()[0]), TOP / "osu-configs/compare", "--no-build", "-n", "1",
                   "-f", rows_file(tmp_path, ROWS.partition("[gone]")[0]), "--output", tmp_path / "output"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    finally:
        os.close(lock)
    assert done.returncode == 0, done.stdout + done.stderr
    for text in ("there is one core here", "another compare is running on this machine"):
        assert text in done.stderr and text in " ".join(done.stdout.split())


def test_a_dry_run_prints_lines_and_runs_nothing(tmp_path: Path) -> None:
    done = run("compare", "--dry-run", "-f", rows_file(tmp_path), "--output", tmp_path / "output")
    lines = [line for line in done.stdout.splitlines() if "mpirun" in line]
    assert done.returncode == 0 and len(lines) == 3 and not (tmp_path / "output").exists(), done.stderr
    assert "--mca btl_regx_report stderr" in lines[0]


@pytest.mark.parametrize(("words", "complaint"), [
    (["-n", "0"], "-n 0: allowed: 1 to 1000"),
    (["-n", "1", "--minutes", "1"], "--minutes 1: allowed: more than 0 to 10000, without -n"),
    (["--osu", "/"], "--osu: no osu_bw in /"),
    (["--launcher", ""], "--launcher: wanted: a command"),
    (["--launcher", "srun", "--hostfile", "h"], "--hostfile is mpirun's"),
    (["--hostfile", "/gone"], "--hostfile: /gone cannot be read"),
    (["--from", "/gone"], "/gone: cannot be read: No such file or directory"),
])  # fmt: skip
def test_wrong_arguments_are_refused(words: list[str], complaint: str) -> None:
    if "/" in words:
        complaint, words = complaint.replace(" in /", " in /proc/self/fd"), ["--osu", "/proc/self/fd"]
    done = run("compare", "--no-build", *words)
    assert done.returncode == 2 and complaint in done.stderr and "Traceback" not in done.stderr


class Companion:
    """Its ranks, which wait for lines."""

    def __init__(self, programs: Path, ranks: int = 2, **preload: str):
        words = ["mpirun", "--allow-run-as-root", "-n", str(ranks), "--oversubscribe", "--mca", "pml", "ob1", "--mca",
                 "btl", "vader,self", "--mca", "odls_base_sigkill_timeout", "0"]  # fmt: skip
        for name, value in preload.items():
            words += ["-x", f"{name}={value}"]
        self.hub = jobs.Hub(launch.Runner())
        self.job = jobs.Job("companion", launch.Line({}, (*words, str(programs / "companion"), "HUB", "NAME")), ranks, self.hub)
        self.hub.gather([self.job], 60)
        assert self.job.is_ready, self.job.trouble

    def __enter__(self) -> "Companion":
        return self

    def __exit__(self, *_: object) -> None:
        jobs.end_all([self.job])
        self.hub.close()

    def __call__(self, line: str) -> list[list[float]]:
        return [[float(word) for word in rank] for rank in self.job.ask(line, 120)]


# As OSU's programs: a barrier before each size, and before each iteration; it prints what it printed.
OSU = """\
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char buffer[1 << 20];
int main(int argc, char **argv)
{
    int rank, from = 0, to = 0, iterations = 0, checks = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-m") == 0)
            sscanf(argv[i + 1], "%d:%d", &from, &to);
        if (strcmp(argv[i], "-i") == 0)
            iterations = atoi(argv[i + 1]);
        checks |= strcmp(argv[i], "-c") == 0;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        printf("# OSU MPI Bandwidth Test\\n# Size  Bandwidth (MB/s)%s\\n", checks ? "  Validation" : "");
    for (int size = from; size <= to; size *= 2) {
        double start = MPI_Wtime();
        for (int i = 0; i < iterations; i++) {
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 0)
                MPI_Send(buffer, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
            else
                MPI_Recv(buffer, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            printf("%d %f%s\\n", size, 1e-6 * size * iterations / (MPI_Wtime() - start), checks ? "  WORD" : "");
    }
    MPI_Finalize();
    return 0;
}
"""


@pytest.mark.parametrize("word", ["Pass", "Fail"])
def test_osus_own_programs_are_parked_at_their_barriers(tmp_path: Path, word: str) -> None:
    (tmp_path / "pt2pt").mkdir()
    (tmp_path / "osu.c").write_text(OSU.replace("WORD", word))
    subprocess.run(["mpicc", tmp_path / "osu.c", "-o", tmp_path / "pt2pt/osu_bw"], check=True, timeout=60)
    text = ROWS.partition("[gone]")[0].replace("companion_bw", "osu_bw").replace("64K 128K", "4K 64K 128K")
    done = run("compare", "--no-build", "-f", rows_file(tmp_path, text), "-n", 2, "--osu", tmp_path, "--output", tmp_path / "output")
    frame = table.read([tmp_path / "output/results.csv"])
    if word == "Fail":
        assert done.returncode == 1 and "WRONG DATA: bounce" in done.stdout and not frame.unit.any()
        return
    assert done.returncode == 0, done.stdout + done.stderr
    values = frame[frame.unit == "MB/s"]
    assert {*zip(values.row, values["size"], values["round"])} == {
        (row, size << 10, number) for row in ("bounce", "vader") for size in (4, 64, 128) for number in (1, 2)}
    assert "every byte right in 6 of 6 cells" in done.stdout and "Path: in all 4 jobs" in done.stdout


@pytest.mark.parametrize("buffers", ["same", "fresh", "freed", "rotate:3", "slide:3", "touched"])
def test_every_kind_of_buffer_is_checked_and_timed(programs: Path, buffers: str) -> None:
    with Companion(programs) as companion:
        for test in ("latency", "bw", "bibw", *["p99"] * (buffers == "same")):
            for size in (67, 67 << 10):
                assert [rank[1:3] for rank in companion(f"{test} {buffers} {size} 5 0 1 3 0")] == [[3, 0], [3, 0]]
                first, second = companion(f"{test} {buffers} {size} 5 0 1 0 0")
                assert 0 < first[0] < 1 and first[1] == second[1] >= 1 and (first[3] > 0) == (buffers == "freed")


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_exchanges_of_groups_are_checked(programs: Path, ranks: int) -> None:
    with Companion(programs, ranks) as companion:
        for test, buffers in (("sendrecv", "same"), ("sendrecv", "touched"), ("halo", "same")):
            assert [rank[2] for rank in companion(f"{test} {buffers} 3000 1 0 1 3 0")] == ranks * [0]


@pytest.mark.parametrize("size", [5, 4096])
def test_one_wrong_byte_is_seen(programs: Path, tmp_path: Path, size: int) -> None:
    (tmp_path / "tamper.c").write_text(TAMPER)
    library = tmp_path / "tamper.so"
    subprocess.run(["mpicc", "-shared", "-fPIC", tmp_path / "tamper.c", "-o", library], check=True, timeout=60)
    with Companion(programs, LD_PRELOAD=str(library)) as companion:
        assert [rank[2] for rank in companion(f"latency same {size} 1 0 1 4 0")] == [0, 0]
        assert [rank[2] for rank in companion(f"latency same {size} 1 0 1 4 0")] == [1, 1]  # the 5th of each rank
        assert [rank[2] for rank in companion(f"latency same {size} 1 0 1 4 0")] == [0, 0]
    stderr = companion.job.output()[1]
    assert f"size {size}, iteration 4, message 0: first wrong byte at {size - 1}" in stderr


@pytest.mark.parametrize("line", ["latncy same 8 1 0 1 0 0", "latency sme 8 1 0 1 0 0", "bw rotate:0 8 1 0 1 0 0", "bw same 0 1 0 1 0 0",
                                  "bw freed 8 1 0 1 0 0", "bw"])  # fmt: skip
def test_the_companion_refuses_nonsense(programs: Path, line: str) -> None:
    with Companion(programs) as companion:
        with pytest.raises(jobs.Gone, match=f'cannot do "{line}"'):
            companion(line)


def test_the_probe_measures_and_refuses(programs: Path) -> None:
    if len(launch.cores()) < 2:
        pytest.skip("needs two cores")
    hub = jobs.Hub(launch.Runner())
    words = (str(programs / "probe"), "HUB", "NAME", *map(str, launch.cores()[:2]))
    job = jobs.Job("probe", launch.Line({}, words), 1, hub)
    hub.gather([job], 60)
    for _ in range(3):
        (line, copy), = job.ask("", 60)
        assert 1 < float(line) < 1e5 and 0.01 < float(copy) < 1000
    jobs.end_all([job])
    hub.close()
    assert not job.trouble
    assert subprocess.run([programs / "probe", "fly"], capture_output=True, timeout=60, check=False).returncode == 2


def test_registrations_are_measured_by_each_backend(tmp_path: Path) -> None:
    """That hits are hits and misses are misses, the program checks itself."""
    wanted = {"hit_1", "miss_apart", "unmap_watched"}
    has_not = {"none": {"hit_1"}, "retain": {"unmap_watched"}}
    backends = ["none", "retain", "hooks", "notifier"]
    done = run("registration", "--no-build", "-n", 1, "--backends", *backends, "--output", tmp_path / "output",
               "--metrics", *wanted)  # fmt: skip
    frame = table.read([tmp_path / "output/results.csv"], registration.COLUMNS)
    if (frame.metric == "missing").any():
        pytest.skip(frame[frame.metric == "missing"].problem.iloc[0])
    assert done.returncode == 0, done.stderr
    assert {*zip(frame.row, frame.metric)} == \
        {(backend, name) for backend in backends for name in wanted - has_not.get(backend, set())}
    assert (frame.value > 0).all()
    assert run("registration", "--from", tmp_path / "output/results.csv").stdout == done.stdout


@pytest.mark.alone  # valgrind runs one thread at a time: ranks that poll beside it would starve it
def test_instructions_are_counted_without_noise(tmp_path: Path) -> None:
    """Of a peer, so that it does not depend on what regx is like at the moment, by two rows."""
    if not shutil.which("valgrind"):
        pytest.skip("needs valgrind")
    row = "benchmark = osu_latency\nsizes = 8:8\nmca = --mca pml ob1 --mca btl vader,self\n"
    file = rows_file(tmp_path, f"[one]\n{row}[two]\n{row}")
    done = run("instructions", "--no-build", "-f", file, "--output", tmp_path / "output")
    one, two = (line.split()[1:] for line in done.stdout.splitlines()[1:3])
    assert done.returncode == 0 and (one[0], one[2]) == (two[0], two[2]) and float(one[0]) > 20, done.stdout
