# SPDX-License-Identifier: BSD-3-Clause
"""On a node, whether 4 to 32 KiB go eagerly or by rendezvous is found out meanwhile; not if the user
says it."""
from pathlib import Path

import pytest

import sample
from job import Job
from launch import Build, Mpi
from sample import Case
from tables import strategies

ITERATIONS = 6
SIZE = 32_000  # eager by default in any Open MPI


def cases_of(size: int, window: int = 40) -> list[Case]:
    """Contiguous, packed, buffered and synchronous messages, all in turn."""
    plain = Case(size, 1, 2, window=window)
    return [plain, Case(size, 1, 2, "vector", "vector", window=window), plain,
            Case(size, 1, 2, send="bsend", window=window), plain,
            Case(size, 1, 2, send="ssend", window=window),
            Case(size, 1, 2, "vector", "contiguous", send="bsend", window=window),
            Case(size, 1, 2, "contiguous", "vector", send="ssend", window=window),
            Case(size, pattern="both", window=1), plain] * 2


def large(job: Job) -> int:
    return sum(job.total(f"messages_{path}") for path in strategies())


def run(mpi: Mpi, tmp_path: Path, seed: int, cases: list[Case], **regx: object) -> Job:
    return mpi("transfer", "--seed", seed, "--iterations", ITERATIONS,
               sample.write(cases, tmp_path), regx=regx).checked(ranks=2)


@pytest.mark.parametrize("size", [6000, 16_000, SIZE])
def test_messages_of_all_kinds_are_right_while_the_limit_moves(mpi: Mpi, build: Build, tmp_path: Path,
                                                               seed: int, size: int) -> None:
    """Each rank tries both ways; those of a rendezvous count at their receiver. Up to 32 KiB auto has
    one: the receiver reads."""
    cases = cases_of(size)
    job = run(mpi, tmp_path, seed, cases).over("shm")
    sent = sum(len(case.sizes()) * case.windows(2, ITERATIONS) for case in cases)
    configured = build.size("eager_limit")
    for report in job.reports:
        assert report["messages_read"] >= 16, str(job)
        assert report["messages_read"] == sum(report[f"messages_{path}"] for path in strategies()), str(job)
        assert report["messages_eager"] >= 16 + sent // 8, str(job)
        assert report["eager_limit"] in (4096 + 80, 8192 + 80, 16384 + 80, configured), str(job)


@pytest.mark.parametrize("regx", [
    {"eager_limit": 32_848}, {"rendezvous": "bounce"}], ids=str)
def test_the_limit_stays_where_the_user_decides(mpi: Mpi, build: Build, tmp_path: Path, seed: int,
                                                regx: dict[str, object]) -> None:
    job = run(mpi, tmp_path, seed, cases_of(SIZE), **regx)
    assert large(job) == job.total("messages_frag") == 0, str(job)
    assert all(report["eager_limit"] == build.size("eager_limit")
               for report in job.reports), str(job)
