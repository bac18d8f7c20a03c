# SPDX-License-Identifier: BSD-3-Clause
"""The companion benchmark and the probe, for real: output, options, and that wrong data is seen."""

import os
import re
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest
from job import Job
from openmpi import crashed_there
from standins import TOP, WATCHDOG

from comparing import osu

MIB = 1 << 20
FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"]

# Between the companion and MPI: of the 5th message or window of TAMPER_BYTES or more that is
# received, the last byte is changed, or the one at TAMPER_AT.
TAMPER = """\
#include <mpi.h>
#include <stdlib.h>
static int left = 5, last_count;
static void *last;
static MPI_Datatype last_type;
static MPI_Request *last_request;
static void change(void *buffer, int count, MPI_Datatype type)
{
    int bytes;
    MPI_Aint low, each, all;
    MPI_Type_size(type, &bytes);
    MPI_Type_get_extent(type, &low, &each);
    MPI_Type_get_true_extent(type, &low, &all);
    if (bytes * count >= atoi(getenv("TAMPER_BYTES")) && left > 0 && --left == 0)
        ((unsigned char *)buffer)[getenv("TAMPER_AT") ? atoi(getenv("TAMPER_AT"))
                                                      : (count - 1) * each + all - 1] ^= 1;
}
int MPI_Recv(void *buffer, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
             MPI_Status *status)
{
    int result = PMPI_Recv(buffer, count, type, source, tag, comm, status);
    change(buffer, count, type);
    return result;
}
int MPI_Irecv(void *buffer, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    if (source != MPI_PROC_NULL) {
        last = buffer;
        last_count = count;
        last_type = type;
        last_request = request;
    }
    return PMPI_Irecv(buffer, count, type, source, tag, comm, request);
}
int MPI_Sendrecv(const void *send, int sends, MPI_Datatype send_type, int to, int send_tag,
                 void *buffer, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                 MPI_Status *status)
{
    int result = PMPI_Sendrecv(send, sends, send_type, to, send_tag, buffer, count, type, source,
                               tag, comm, status);
    change(buffer, count, type);
    return result;
}
int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses)
{
    int result = PMPI_Waitall(count, requests, statuses);
    if (last_request >= requests && last_request < requests + count)
        change(last, last_count, last_type);
    return result;
}
"""


# The third message comes to another place than it should.
LOSE = """
#include <mpi.h>
static char elsewhere[65536];
static int messages;
int MPI_Irecv(void *buffer, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    return PMPI_Irecv(++messages == 3 ? elsewhere : buffer, count, type, source, tag, comm,
                      request);
}
"""


def library(folder: Path, code: str) -> Path:
    """To be loaded before the program."""
    (folder / "code.c").write_text(code)
    command = ["mpicc", "-shared", "-fPIC", folder / "code.c", "-o", folder / "code.so"]
    subprocess.run(command, check=True, timeout=WATCHDOG)
    return folder / "code.so"


@pytest.fixture(scope="module")
def tamper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(tmp_path_factory.mktemp("tamper"), TAMPER)


@pytest.fixture(scope="module")
def lose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(tmp_path_factory.mktemp("lose"), LOSE)


@pytest.fixture(scope="module")
def companion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("mpicc"):
        pytest.skip("needs mpicc in PATH")
    program = tmp_path_factory.mktemp("companion") / "companion"
    here = TOP / "osu-configs"
    sources = [here / "companion.c", *sorted((here / "benchmark").glob("*.c"))]
    subprocess.run(["mpicc", *FLAGS, *sources, "-o", program], check=True, timeout=WATCHDOG)
    return program


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("cc"):
        pytest.skip("needs cc in PATH")
    program = tmp_path_factory.mktemp("probe") / "probe"
    here = TOP / "osu-configs"
    sources = [here / "probe.c", *sorted((here / "probing").glob("*.c"))]
    subprocess.run(["cc", *FLAGS, *sources, "-o", program], check=True, timeout=WATCHDOG)
    return program


def mpirun(*words: object, ranks: int = 2, **environment: str) -> subprocess.CompletedProcess[str]:
    """A job over vader. One that died of Open MPI's own defect (openmpi.py) is run again, once."""
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = ["mpirun", "-n", str(ranks), "--oversubscribe", "--mca", "pml", "ob1"]
    command += ["--mca", "btl", "vader,self", *map(str, words)]
    for _ in range(2):
        done = subprocess.run(command, env={**os.environ, **as_root, **environment}, timeout=WATCHDOG,
                              capture_output=True, text=True, check=False)  # fmt: skip
        job = Job(" ".join(command), done.returncode, done.stdout, done.stderr)
        if job.status != 128 + 11 or not crashed_there(job, Path(os.environ["REGX_PKGLIBDIR"])):
            break
        warnings.warn(f"Open MPI died in its own MPI_Finalize; run again: {job.command}", stacklevel=2)
    return done


def sizes_of(stdout: str) -> list[int]:
    """Of all lines, even one that a busy machine made 0.00 MB/s, which is no value to compare."""
    return [int(line.split()[0]) for line in stdout.splitlines() if line[0].isdecimal()]


@pytest.mark.parametrize("test", ["latency", "bw", "bibw"])
@pytest.mark.parametrize("buffers", ["same", "fresh", "rotate:3", "rotate:50", "slide:3",
                                     "strided:1", "strided:48", "buffered", "touched"])
def test_companion_checks_every_size_in_every_kind_of_buffer(companion: Path, test: str,
                                                             buffers: str) -> None:
    options = ["-m", "3:6000", "-i", "3", "-x", "1", "-W", "5", "-c", "--buffers", buffers]
    done = mpirun(companion, test, *options)
    assert done.returncode == 0, done.stderr
    unit = osu.BENCHMARKS[f"companion_{test}"].unit
    output = osu.parse(done.stdout, unit)
    sizes = [3 << i for i in range(11)]
    assert sizes_of(done.stdout) == sizes and output.valid == dict.fromkeys(sizes, True)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("# regx companion MPI ") and lines[0].endswith(f"buffers {buffers}")
    assert re.match(r"# Size +\S+ \(\S+\) +Validation$", lines[1])


@pytest.mark.parametrize("test", ["latency", "bw", "bibw"])
@pytest.mark.parametrize("buffers", ["same", "fresh", "rotate:3", "slide:3", "buffered"])
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_one_wrong_byte_is_seen(
    companion: Path, tamper: Path, test: str, buffers: str, size: int
) -> None:
    options = ["-m", f"{size}:{2 * size}", "-i", "4", "-x", "4", "-W", "2", "-c", "-b", buffers]
    preload = ["-x", f"LD_PRELOAD={tamper}", "-x", f"TAMPER_BYTES={size}"]
    done = mpirun(*preload, companion, test, *options)
    assert done.returncode == 1
    assert f"size {size}, iteration 4, message" in done.stderr
    assert f"first wrong byte at {size - 1}" in done.stderr
    # The first wrong size is the last one.
    unit = osu.BENCHMARKS[f"companion_{test}"].unit
    assert osu.parse(done.stdout, unit).valid == {size: False}


@pytest.mark.parametrize("test", ["latency", "bw", "bibw"])
@pytest.mark.parametrize(("at", "found"), [("", 4095), ("0", 0), ("16", 15), ("160", 80)])
def test_one_wrong_byte_of_a_piece_or_behind_it_is_seen(
    companion: Path, tamper: Path, test: str, at: str, found: int
) -> None:
    """Pieces of 16 bytes, and 16 bytes behind each that are not the message's."""
    options = ["-m", "4096:8192", "-i", "4", "-x", "4", "-W", "2", "-c", "-b", "strided:16"]
    preload = ["-x", f"LD_PRELOAD={tamper}", "-x", "TAMPER_BYTES=4096"]
    preload += ["-x", f"TAMPER_AT={at}"] if at else []
    done = mpirun(*preload, companion, test, *options)
    assert done.returncode == 1
    assert "size 4096, iteration 4, message" in done.stderr
    assert f"first wrong byte at {found}" in done.stderr


@pytest.mark.parametrize("test", ["bw", "bibw"])
@pytest.mark.parametrize("buffers", ["same", "fresh", "rotate:5", "slide:3", "strided:16",
                                     "buffered", "touched"])
def test_one_lost_message_of_a_window_is_seen(
    companion: Path, lose: Path, test: str, buffers: str
) -> None:
    """In one buffer for all, the next message would hide it."""
    options = ["-m", "4096:4096", "-i", "1", "-x", "0", "-W", "5", "-c", "-b", buffers]
    done = mpirun("-x", f"LD_PRELOAD={lose}", companion, test, *options)
    assert done.returncode == 1
    assert "size 4096, iteration 0, message 2: first wrong byte at 0" in done.stderr


# malloc as it is gives 1 MiB back to the kernel at each free; told not to, it never does.
KEEPING = {"MALLOC_TOP_PAD_": str(64 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
           "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}  # fmt: skip
GIVING_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}


@pytest.mark.parametrize("test", ["latency", "bw", "bibw"])
@pytest.mark.parametrize("keeps", [False, True])
def test_freed_buffers_that_come_back_are_counted(companion: Path, test: str, keeps: bool) -> None:
    options = ["-m", f"{MIB}:{MIB}", "-i", "3", "-x", "1", "-W", "5", "-c", "-b", "freed"]
    done = mpirun(companion, test, *options, **(KEEPING if keeps else GIVING_BACK))
    assert done.returncode == 0, done.stderr
    output = osu.parse(done.stdout, osu.BENCHMARKS[f"companion_{test}"].unit)
    assert output.valid == {MIB: True}
    buffers = 4 * (1 if test == "latency" else 5)  # each rank has as many to send and to receive
    assert f" of {4 * buffers} buffers" in done.stdout
    # All but the first iteration's; MPI allocates meanwhile, too.
    assert output.came_back is not None
    assert output.came_back >= 2 * buffers if keeps else output.came_back == 0, done.stdout


def test_sizes_that_pieces_do_not_divide_are_refused(companion: Path) -> None:
    done = mpirun(companion, "bw", "-m", "25:100", "-b", "strided:64")
    assert done.returncode != 0
    assert "messages of 100 bytes have no whole number of pieces of 64 bytes" in done.stderr


def test_companion_prints_as_osu_does(companion: Path) -> None:
    done = mpirun(companion, "bw", "-m", "1024:2048", "-i", "2", "-x", "0")
    assert done.returncode == 0, done.stderr
    _, header, *lines = done.stdout.splitlines()
    assert header == "# Size      Bandwidth (MB/s)"
    assert len(lines) == 2
    assert all(re.fullmatch(r"(1024|2048) +\d+\.\d\d", line) for line in lines)
    assert all(len(line) == len(header) for line in lines)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "one test is wanted: latency, bw, bibw, percentiles, sendrecv,"),
        (["bcast"], "one test is wanted: latency, bw, bibw, percentiles, sendrecv,"),
        (["bw", "bibw"], "one test is wanted: latency, bw, bibw, percentiles, sendrecv,"),
        (["bw", "-m", "8:4"], "-m wants [MIN:]MAX"),
        (["bw", "-m", "0:4"], "-m wants [MIN:]MAX"),
        (["bw", "-m", "1:2G"], "-m wants [MIN:]MAX"),
        (["bw", "-i", "0"], "-i wants a number"),
        (["bw", "-i", "-1"], "-i wants a number"),
        (["bw", "-x", "two"], "-x wants a number"),
        (["bw", "-W", "0"], "-W wants a number"),
        (["bw", "-b", "rotate:0"],
         "-b wants same, fresh, freed, rotate:N, slide:N, strided:N, buffered"),
        (["bw", "-b", "slide:"], "-b wants same, fresh, freed, rotate:N"),
        (["bw", "-b", "strided"], "-b wants same, fresh, freed, rotate:N"),
        (["bw", "-b"], "unknown option, or one without its value"),
        (["bw", "--huge"], "unknown option, or one without its value"),
        (["percentiles", "-i", "999"], "percentiles want 1000 iterations or more"),
        (["percentiles", "-c"], "percentiles check no contents; latency moves the same messages"),
        (["sendrecv", "-b", "fresh"], "sendrecv and incast have buffers same or touched, halo"),
        (["bw", "-b", "freed", "-o", "-m", "64:64"], "freed buffers are malloc's, not MPI_Alloc_mem"),
        (["bw", "-b", "freed"], "freed buffers are marked, and want messages of 64 bytes or more"),
        (["halo", "-b", "touched"], "sendrecv and incast have buffers same or touched, halo"),
    ],
)
def test_companion_refuses_nonsense_in_one_line(
    companion: Path, arguments: list[str], complaint: str
) -> None:
    done = mpirun(companion, *arguments)
    assert done.returncode == 2 and done.stdout == ""
    said = [line for line in done.stderr.splitlines() if line.startswith("companion: ")]
    assert len(said) == 1 and complaint in said[0]


def test_companion_wants_two_ranks(companion: Path) -> None:
    done = mpirun(companion, "bw", ranks=3)
    assert done.returncode == 2 and "exactly two ranks are wanted" in done.stderr
    done = mpirun(companion, "halo", ranks=1)
    assert done.returncode == 2 and "two ranks or more are wanted" in done.stderr


# ---- exchanges of more than two ranks

GROUPS = ("sendrecv", "halo", "incast")


@pytest.mark.parametrize("test", GROUPS)
@pytest.mark.parametrize("ranks", [2, 3, 4, 5])
def test_groups_exchange_what_they_should(companion: Path, test: str, ranks: int) -> None:
    done = mpirun(companion, test, "-m", "8:8192", "-i", "3", "-x", "1", "-W", "3", "-c",
                  ranks=ranks)  # fmt: skip
    assert done.returncode == 0, done.stderr
    output = osu.parse(done.stdout, "MB/s" if test == "incast" else "us")
    sizes = [8 << i for i in range(11)]
    assert sizes_of(done.stdout) == sizes and output.valid == dict.fromkeys(sizes, True)


@pytest.mark.parametrize("test", GROUPS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_one_wrong_byte_between_any_ranks_is_seen(
    companion: Path, tamper: Path, test: str, ranks: int
) -> None:
    preload = ["-x", f"LD_PRELOAD={tamper}", "-x", "TAMPER_BYTES=64"]
    done = mpirun(*preload, companion, test, "-m", "64:128", "-i", "8", "-x", "0", "-W", "2", "-c",
                  ranks=ranks)  # fmt: skip
    assert done.returncode == 1
    assert "companion: WRONG DATA: rank " in done.stderr and "size 64, iteration 4" in done.stderr
    assert osu.parse(done.stdout, "MB/s" if test == "incast" else "us").valid == {64: False}


def test_a_lost_column_of_a_halo_is_seen(companion: Path, lose: Path) -> None:
    """The third receive is of a column, from the rank above or below."""
    done = mpirun("-x", f"LD_PRELOAD={lose}", companion, "halo", "-m", "4096:4096", "-i", "1",
                  "-x", "0", "-c", ranks=4)  # fmt: skip
    assert done.returncode == 1
    assert "size 4096, iteration 0, message 2: first wrong byte at 0" in done.stderr


@pytest.mark.parametrize("test", ["latency", "bw", "bibw", "sendrecv", "incast"])
def test_touched_buffers_are_measured_without_a_check(companion: Path, test: str) -> None:
    done = mpirun(companion, test, "-m", "7:7000", "-i", "3", "-x", "1", "-W", "5", "-b", "touched")
    assert done.returncode == 0, done.stderr
    assert sizes_of(done.stdout) == [7 << i for i in range(10)]


# ---- percentiles

# Every 200th message waits until its clock has gone on by that much.
LATE = """\
#include <mpi.h>
int MPI_Send(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    static int messages;
    double until = MPI_Wtime() + (++messages % 200 == 0 ? 0.004 : 0);
    while (MPI_Wtime() < until)
        ;
    return PMPI_Send(buffer, count, type, to, tag, comm);
}
"""


def test_percentiles_show_one_late_message_in_200(companion: Path, tmp_path: Path) -> None:
    """One message in 200 is late at either end: one round trip in 100 or fewer, and not the half."""
    preload = ["-x", f"LD_PRELOAD={library(tmp_path, LATE)}"]
    done = mpirun(*preload, companion, "percentiles", "-m", "8:16", "-i", "2000", "-x", "10")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^# a reading of the clock takes \d\.\d{3} us", done.stdout, re.MULTILINE)
    found = {name: osu.parse(done.stdout, "us", name).values
             for name in ("p50", "p99", "p99.9", "max1000")}  # fmt: skip
    for size in (8, 16):
        values = [found[name][size] for name in ("p50", "p99", "p99.9")]
        assert values == sorted(values)
        assert found["p50"][size] < 2000 <= found["p99.9"][size] and found["max1000"][size] >= 2000


def run_probe(probe: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [probe, *arguments], capture_output=True, text=True, timeout=WATCHDOG, check=False
    )


needs_two_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs two cores"
)


@needs_two_cores
def test_probe_measures_the_mailbox_with_8_bytes(probe: Path) -> None:
    done = run_probe(probe, "mailbox")
    assert done.returncode == 0, done.stderr
    assert list(osu.parse(done.stdout, "us").values) == [8]


@needs_two_cores
@pytest.mark.parametrize("way", ["bounce", "process_vm", "halves", "fastest"])
def test_probe_checks_what_it_moves(probe: Path, way: str) -> None:
    done = run_probe(probe, way, "-m", "7:100000")
    if way in ("process_vm", "halves") and "process_vm_* (" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    sizes = [7 << i for i in range(14)]
    assert list(osu.parse(done.stdout, "us").values) == sizes
    assert list(osu.parse(done.stdout, "MB/s").values) == sizes


@needs_two_cores
@pytest.mark.parametrize(("shape", "unit", "other"), [("latency", "us", "MB/s"),
                                                      ("bandwidth", "MB/s", "us")])
def test_probe_measures_one_shape_alone(probe: Path, shape: str, unit: str, other: str) -> None:
    done = run_probe(probe, "bounce", "-s", shape, "-m", "4096:8192")
    assert done.returncode == 0, done.stderr
    assert list(osu.parse(done.stdout, unit).values) == [4096, 8192]
    with pytest.raises(osu.NotOutput, match=f"no column of {other}"):
        osu.parse(done.stdout, other)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["bounce", "-s", "both"],
        ["fly"],
        ["mailbox", "bounce"],
        ["bounce", "-m", "8:4"],
        ["bounce", "-m", "x"],
        ["bounce", "-z"],
    ],
)
def test_probe_refuses_nonsense(probe: Path, arguments: list[str]) -> None:
    done = run_probe(probe, *arguments)
    assert done.returncode == 2 and done.stdout == "" and "probe" in done.stderr


def test_probe_wants_two_cores(probe: Path) -> None:
    core = min(os.sched_getaffinity(0))
    done = subprocess.run(
        ["taskset", "-c", str(core), probe, "mailbox"],
        capture_output=True,
        text=True,
        timeout=WATCHDOG,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "probe: two cores are needed; this process may use one only\n"
