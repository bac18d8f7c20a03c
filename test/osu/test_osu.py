# SPDX-License-Identifier: BSD-3-Clause
"""OSU's own benchmarks with their content check (-c), over regx alone; not measured here.

Hazard 29: others parse OSU's stdout by its first column, so not a line may be added to it."""
import re
from pathlib import Path

import pytest

from launch import Mpi
from job import Job
from tables import strategies

STRATEGIES = [*strategies(), "auto"]
# Among more than two ranks each message goes as between two: one strategy there tells.
AMONG_MANY = [pytest.param(name, marks=pytest.mark.full if name != "auto" else ()) for name in STRATEGIES]
SIZES = [1 << power for power in range(23)]  # 1 B to 4 MiB
UP_TO_1_MIB = [size for size in SIZES if size <= 1 << 20]
# Iterations and those before them: a window of osu_bw is 64 messages.
PAIRS = {"osu_latency": (4, 1), "osu_bw": (2, 1), "osu_bibw": (2, 1)}
HEADER = re.compile(r"#.*|")
ROW = re.compile(r"(\d+)(?:\s+\d+\.\d+)+\s+(Pass|Fail)")


@pytest.fixture(scope="module")
def osu(pytestconfig: pytest.Config) -> Path:
    folder: Path | None = pytestconfig.getoption("--osu")
    if folder is None:
        pytest.skip("no --osu DIR given")
    programs = folder.resolve() / "libexec" / "osu-micro-benchmarks" / "mpi"
    if not programs.is_dir():
        pytest.fail(f"--osu {folder}: there is no {programs}")
    return programs


def validated(job: Job, sizes: list[int], ranks: int) -> Job:
    """Every line is OSU's, every size is there, every one passed OSU's check."""
    job.ended_well()
    lines = job.stdout.splitlines()
    rows = [match for line in lines if (match := ROW.fullmatch(line))]
    strange = [line for line in lines if not ROW.fullmatch(line) and not HEADER.fullmatch(line)]
    assert not strange, f"{strange}\n{job}"
    assert [int(row[1]) for row in rows] == sizes, str(job)
    assert all(row[2] == "Pass" for row in rows), str(job)
    assert len(job.reports) == ranks and job.total("malformed") == 0, str(job)
    return job


def carried(job: Job, strategy: str) -> Job:
    """By that strategy alone; what finds no landing pages, of which remap has few, goes by slots."""
    if strategy != "remap":
        return job.carried(strategy)
    assert job.total("bytes_remap") > 0, str(job)
    assert set(job.reasons("fallbacks")) <= {"remap: all landing pages are in use"}, str(job)
    return job


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("benchmark", PAIRS)
def test_osus_check_passes_between_two_ranks(mpi: Mpi, osu: Path, benchmark: str,
                                             strategy: str) -> None:
    iterations, warm_up = PAIRS[benchmark]
    job = mpi(osu / "pt2pt" / benchmark, "-c", "-m", "1:4194304", "-i", iterations, "-x", warm_up,
              regx={"rendezvous": strategy})
    carried(validated(job, SIZES, ranks=2), strategy).over("shm")
    assert job.total("bytes_shm") > iterations * sum(SIZES), str(job)


@pytest.mark.parametrize("strategy", AMONG_MANY)
def test_osus_check_passes_between_several_pairs(mpi: Mpi, osu: Path, strategy: str) -> None:
    job = mpi(osu / "pt2pt" / "osu_mbw_mr", "-c", "-m", "1:1048576", "-i", 2, "-x", 1, ranks=4,
              regx={"rendezvous": strategy})
    carried(validated(job, UP_TO_1_MIB, ranks=4), strategy).over("shm")


def test_osus_check_passes_among_threads(mpi: Mpi, osu: Path) -> None:
    job = mpi(osu / "pt2pt" / "osu_latency_mt", "-c", "-t", "2:2", "-m", "1:1048576", "-i", 3,
              "-x", 1)
    validated(job, UP_TO_1_MIB, ranks=2)


@pytest.mark.parametrize("benchmark", ["osu_alltoall", "osu_bcast", "osu_allreduce",
                                       "osu_ialltoall"])
@pytest.mark.parametrize("strategy", AMONG_MANY)
def test_osus_check_passes_in_collectives(mpi: Mpi, osu: Path, benchmark: str,
                                          strategy: str) -> None:
    # A reduction starts at one element of four bytes; non-blocking ones have more columns.
    sizes = [size for size in UP_TO_1_MIB if size >= 4]
    job = mpi(osu / "collective" / benchmark, "-c", "-m", "4:1048576", "-i", 3, "-x", 1, ranks=4,
              regx={"rendezvous": strategy})
    carried(validated(job, sizes, ranks=4), strategy).over("shm")
