# SPDX-License-Identifier: BSD-3-Clause
"""compare, registration and instructions for real, with small rows; and that wrong data is seen."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from launch import TOP

from tools import launch, osu, table
from tools.conditions import UNMEASURED, phase

ROWS = """\
[defaults]
benchmark = companion_bw
sizes = 64K:128K
options = -i 4 -x 1 -W 4
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
    output = tmp_path / "output"
    done = run("compare", "--no-build", "--explain", "-f", rows_file(tmp_path), "-n", 2, "--output", output)
    assert done.returncode == 0, done.stdout + done.stderr
    frame = table.read([output / "results.csv"])
    values = frame[frame.unit == "MB/s"]
    assert [*zip(values.row, values.run)][::2] == [("bounce", 1), ("vader", 1), ("vader", 2), ("bounce", 2)]
    # The ranks measure it, if each has a core.
    assert (values.phase != UNMEASURED).all() == (len(launch.cores()) > 1)
    assert (values.value > 0).all() and set(frame[frame.metric == "checked"].row) == {"bounce", "vader"}
    assert "FAILED: gone companion_bw: failed with status" in done.stdout
    assert all(text in done.stdout for text in ("Content checked: 2 of 3 rows.", "Path: in all 2 runs", "  asked for\n"))
    names = {"page.html", "table.txt", "plot-companion_bw.png", "results.csv"}
    assert names < {file.name for file in output.iterdir()} and "Content checked" in (output / "table.txt").read_text()
    assert "compare --no-build --explain -f " in (output / "page.html").read_text()
    again = run("compare", "--from", output / "results.csv")
    assert done.stdout.endswith(f"{again.stdout}Files: page.html, table.txt, plots and results.csv in {output}\n")
    again = run("compare", "--details", "--from", output / "results.csv", "--output", tmp_path / "again")
    assert "Medians, below them their intervals" in again.stdout
    assert {file.name for file in (tmp_path / "again").iterdir()} == names - {"results.csv"}
    again = run("compare", "--no-build", "-f", rows_file(tmp_path), "--output", output)
    assert again.returncode == 2 and "holds results already; choose another folder\n" in again.stderr


def test_a_dry_run_prints_lines_and_runs_nothing(tmp_path: Path) -> None:
    done = run("compare", "--dry-run", "-f", rows_file(tmp_path), "--output", tmp_path / "output")
    lines = [line for line in done.stdout.splitlines() if "mpirun" in line]
    assert done.returncode == 0 and len(lines) == 6 and not (tmp_path / "output").exists(), done.stderr
    assert "--mca btl_regx_report stderr" in lines[0] and lines[0].endswith("-i 2 -x 0 -W 4 -c")


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


def companion(programs: Path, *words: object, ranks: int = 2, **preload: str
              ) -> subprocess.CompletedProcess[str]:  # fmt: skip
    command = ["mpirun", "--allow-run-as-root", "-n", str(ranks), "--oversubscribe", "--mca", "pml", "ob1", "--mca",
               "btl", "vader,self", "--mca", "odls_base_sigkill_timeout", "0"]  # fmt: skip
    for name, value in preload.items():
        command += ["-x", f"{name}={value}"]
    return subprocess.run([*command, programs / "companion", *map(str, words)], capture_output=True, text=True,
                          timeout=600, check=False)  # fmt: skip


@pytest.mark.parametrize("buffers", ["same", "fresh", "freed", "rotate:3", "slide:3", "touched"])
@pytest.mark.parametrize("test", ["latency", "bw", "bibw"])
def test_every_kind_of_buffer_is_checked(programs: Path, test: str, buffers: str) -> None:
    done = companion(programs, test, "-m", "67:3000", "-i", 3, "-x", 1, "-W", 5, "-c", "-b", buffers)
    output = osu.parse(done.stdout, osu.BENCHMARKS[f"companion_{test}"].unit)
    assert done.returncode == 0 and output.valid == {67 << n: True for n in range(6)}, done.stderr
    assert (output.came_back is not None) == (buffers == "freed")


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize(("test", "buffers"), [("sendrecv", "same"), ("sendrecv", "touched"), ("halo", "same")])
def test_exchanges_of_groups_are_checked(programs: Path, test: str, buffers: str, ranks: int) -> None:
    done = companion(programs, test, "-m", "67:3000", "-i", 3, "-x", 1, "-c", "-b", buffers, ranks=ranks)
    assert done.returncode == 0 and osu.parse(done.stdout, "us").valid == {67 << n: True for n in range(6)}


@pytest.mark.parametrize("size", [5, 4096])
def test_one_wrong_byte_is_seen(programs: Path, tmp_path: Path, size: int) -> None:
    (tmp_path / "tamper.c").write_text(TAMPER)
    library = tmp_path / "tamper.so"
    subprocess.run(["mpicc", "-shared", "-fPIC", tmp_path / "tamper.c", "-o", library], check=True, timeout=60)
    done = companion(programs, "latency", "-m", f"{size}:{2 * size}", "-i", 4, "-x", 4, "-c",
                     LD_PRELOAD=str(library))  # fmt: skip
    assert done.returncode == 1
    assert f"size {size}, iteration 4, message 0: first wrong byte at {size - 1}" in done.stderr
    assert osu.parse(done.stdout, "us").valid == {size: False}  # the first wrong size is the last one


@pytest.mark.parametrize("words", [
    ("latncy",), ("latency", "-z"), ("bw", "-b", "rotate:"), ("bw", "-m", "8:4"), ("percentiles", "-i", "5"),
])  # fmt: skip
def test_the_companion_refuses_nonsense(programs: Path, words: tuple[str, ...]) -> None:
    done = companion(programs, *words)
    assert done.returncode == 2 and done.stdout == "" and "companion: " in done.stderr


def test_the_probe_measures_and_refuses(programs: Path) -> None:
    def probe(*words: str) -> subprocess.CompletedProcess[str]:
        command = [programs / "probe", *map(str, launch.cores()[:2]), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)

    if len(launch.cores()) < 2:
        pytest.skip("needs two cores")
    found = osu.parse(probe("latency", "-m", "7:30000").stdout, "us")
    assert list(found.values) == [7 << n for n in range(13)]
    assert [len(times) for times in found.mailbox.values()] == 13 * [2]  # of what phase it is
    assert list(osu.parse(probe("bandwidth", "-m", "8:8").stdout, "MB/s").values) == [8]
    assert probe("latency", "-m", "8").returncode == probe("fly").returncode == 2


def test_a_figure_has_the_phase_in_which_it_was_measured() -> None:
    """Two sizes between two measurements; then the cores are moved; and two within a size."""
    lines = ["# Size  Latency (us)", f"{osu.MAILBOX}0.07 3", "1 0.2", "2 0.2", f"{osu.MAILBOX}0.08 1", "4 0.3",
             f"{osu.MAILBOX}0.03 2", f"{osu.MAILBOX}0.031 1", "8 0.1", f"{osu.MAILBOX}0.032 1", "16 0.2"]  # fmt: skip
    found = osu.parse("\n".join(lines), "us").mailbox
    first, moved, last = [(0.07, 3), (0.08, 1)], [(0.08, 1), (0.03, 2)], (0.032, 1)
    assert found == {1: first, 2: first, 4: moved, 8: [(0.03, 2), (0.031, 1), last], 16: [last]}
    assert [phase(times) for times in found.values()] == ["near", "near", "mixed", "sibling", "unmeasured"]
    assert [phase(2 * [(time, 3)]) for time in (0.03, 0.12, 0.25)] == ["sibling", "between", "far"]


def test_registrations_are_measured_by_each_backend(tmp_path: Path) -> None:
    """That hits are hits and misses are misses, the program checks itself."""
    wanted = {"hit_1", "miss_apart", "unmap_watched"}
    has_not = {"none": {"hit_1"}, "retain": {"unmap_watched"}}
    backends = ["none", "retain", "hooks", "notifier"]
    done = run("registration", "--no-build", "-n", 1, "--backends", *backends, "--output", tmp_path / "output",
               "--metrics", *wanted)  # fmt: skip
    frame = table.read([tmp_path / "output/results.csv"])
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
