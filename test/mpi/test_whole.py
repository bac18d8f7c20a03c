# SPDX-License-Identifier: BSD-3-Clause
"""Messages above the eager limit that go along with their announcement: over tcp, by auto."""
from pathlib import Path

import pytest

import sample
from launch import Build, Mpi
from sample import Case
from tables import strategies

FRAME = 65_536  # bytes of a frame over tcp, with Open MPI's header
HEADERS = range(32, 200)  # of an announcement, in any Open MPI
ITERATIONS = 3
TCP = {"uct_tls": "tcp"}


def large(job) -> int:
    return sum(job.total(f"messages_{path}") for path in strategies())


def test_messages_up_to_a_frame_go_whole(mpi: Mpi, build: Build, tmp_path: Path,
                                         seed: int) -> None:
    """Of every kind, from just above the eager limit to the longest that fits a frame."""
    eager = build.size("eager_limit")
    sizes = (eager, eager + 1, 32_768, 40_001, FRAME - HEADERS.stop)
    cases = [case for size in sizes for case in sample.every_kind(size, 5)
             if (case.send_layout, case.receive_layout) == ("contiguous", "contiguous")
             and case.send != "bsend"]
    job = mpi("transfer", "--seed", seed, "--iterations", ITERATIONS,
              sample.write(cases, tmp_path), regx=TCP, timeout=300).checked(ranks=2).over("tcp")
    assert large(job) == job.total("messages_frag") == 0, str(job)
    assert job.total("bytes_eager") >= \
        sum(sum(case.sizes()) * case.windows(2, ITERATIONS) for case in cases), str(job)


def test_longer_messages_do_not(mpi: Mpi, tmp_path: Path, seed: int) -> None:
    cases = [Case(size, window=4) for size in (FRAME - HEADERS.start + 1, FRAME, 3 * FRAME)]
    job = mpi("transfer", "--seed", seed, "--iterations", ITERATIONS,
              sample.write(cases, tmp_path), regx=TCP).checked(ranks=2).over("tcp")
    assert large(job) == sum(case.window * case.windows(2, ITERATIONS) for case in cases), str(job)


@pytest.mark.parametrize("regx", [
    {**TCP, "rendezvous": "pipeline"}, {**TCP, "rndv_eager_limit": 0}, {**TCP, "eager_limit": 8000},
    {**TCP, "auto_choice": "32K:bounce"}, {**TCP, "verify": 1}, {"rendezvous": "auto"}], ids=str)
def test_what_the_user_decides_stays(mpi: Mpi, tmp_path: Path, seed: int,
                                     regx: dict[str, object]) -> None:
    """Nor do any where it was said how they are to go, or over shared memory."""
    cases = [Case(40_000, window=4)]
    job = mpi("transfer", "--seed", seed, "--iterations", ITERATIONS,
              sample.write(cases, tmp_path), regx=regx).checked(ranks=2)
    assert large(job) == 4 * cases[0].windows(2, ITERATIONS), str(job)
