# SPDX-License-Identifier: BSD-3-Clause
"""Messages over the device in software that pins (io_uring): each strategy with each backend. What is
registered there goes stale for real, so content shows whether a backend tells of every change."""
from pathlib import Path
from typing import Any

import pytest

import sample
from job import Job
from launch import Build, Mpi, limited
from sample import MIB, Case

BACKENDS = ["none", "notifier", "hooks", "retain"]
PAIRS = [*((strategy, backend) for strategy in ("pipeline", "direct", "read") for backend in BACKENDS),
         ("bounce", "none"), ("auto", "notifier")]
SIZES = [70_000, 300_001, MIB, 3 * MIB + 5]


def over(mpi: Mpi, *program: object, regx: dict[str, object], **how: Any) -> Job:
    return mpi(*program, regx={"transport": "pinned", "rndv_eager_limit": 0, **regx}, **how)


@pytest.mark.parametrize("strategy,backend", PAIRS)
def test_each_strategy_is_right_with_each_backend(mpi: Mpi, tmp_path: Path, seed: int, strategy: str,
                                                  backend: str) -> None:
    cases = [Case(size, 3, 4, pattern="both", window=2) for size in SIZES]
    job = over(mpi, "transfer", "--seed", seed, "--iterations", 3, sample.write(cases, tmp_path),
               regx={"rendezvous": strategy, "backend": backend})
    job.checked(ranks=2).carried(strategy)
    assert {report["transport"] for report in job.reports} == {"pinned"}, str(job)
    assert {report["backend"] for report in job.reports} == {backend}, str(job)
    if strategy == "auto":
        return
    moved = 0 if strategy == "bounce" else job.total(f"bytes_{strategy}")
    assert job.total("bytes_pinned") == moved and job.total("pinned_refused") == 0, str(job)
    if strategy == "bounce":
        assert job.total("registrations") == 0, str(job)
    elif backend == "none":
        moves = job.total("puts") + job.total("gets")
        assert job.total("registrations") == job.total("deregistrations") == 2 * moves > 0, str(job)
        assert job.total("hits") == 0, str(job)
    else:
        assert job.total("hits") > 0, str(job)


@pytest.mark.parametrize("strategy,backend", [("pipeline", "none"), ("direct", "hooks"), ("read", "notifier")])
def test_memory_of_mpi_is_registered_once(mpi: Mpi, strategy: str, backend: str) -> None:
    """Whatever the backend keeps. Its messages have five chunks each."""
    times = 20
    job = over(mpi, "finalize", "kept", 5 * MIB, times, regx={"rendezvous": strategy, "backend": backend,
                                                              "chunk_size": "1M"})
    job.checked(ranks=2).carried(strategy)
    assert job.total("registrations") == 2 and job.total("deregistrations") == 0, str(job)
    assert job.total("uses_owned") >= 2 * times, str(job)


@pytest.mark.parametrize("strategy", ["pipeline", "read"])
def test_memory_that_mpi_gives_again_is_registered_anew(mpi: Mpi, tmp_path: Path, seed: int, strategy: str) -> None:
    """Each rank's two buffers, for each of its messages."""
    times = 30
    job = over(mpi, "transfer", "--seed", seed, "--iterations", times, "--send-owned", "--receive-owned",
               sample.write([Case(300_001, pattern="both")], tmp_path),
               regx={"rendezvous": strategy, "backend": "none", "chunk_size": "64K"})
    job.checked(ranks=2).carried(strategy)
    assert job.total("registrations") == job.total("deregistrations") == 4 * times, str(job)


@pytest.mark.parametrize("strategy", ["pipeline", "read"])
def test_every_kind_of_message_is_right(mpi: Mpi, tmp_path: Path, seed: int, strategy: str) -> None:
    """Three ranks, of which each moves to both others at once."""
    cases = sample.every_kind(200_001, 3) + [Case(MIB + 1, 5, 6, pattern="fan", window=4)]
    job = over(mpi, "transfer", "--seed", seed, "--iterations", 1, sample.write(cases, tmp_path),
               ranks=3, regx={"rendezvous": strategy})
    job.checked(ranks=3).carried(strategy)
    assert job.total("bytes_pinned") > 0, str(job)


@pytest.mark.parametrize("side", ["send", "receive"])
def test_retain_is_blind_for_what_the_program_maps_itself(mpi: Mpi, side: str) -> None:
    """The device reaches the pages that were registered. (Of the other backends: test_staleness.py.)"""
    job = over(mpi, "stale", "libc", side, 40, 100_000, regx={"rendezvous": "direct", "backend": "retain"})
    assert job.status != 0 and "a buffer whose pages are new" in job.stderr, f"old bytes were to be seen\n{job}"


@pytest.mark.parametrize("kib,owned", [(64, ()), (1024, ()), (1024, ("--send-owned", "--receive-owned"))])
def test_what_may_not_be_locked_bounces(mpi: Mpi, tmp_path: Path, seed: int, kib: int,
                                        owned: tuple[str, ...]) -> None:
    """The kernel counts what an ordinary user's rings have pinned."""
    cases = [Case(2 * MIB, 3, 4, pattern="both", window=2)]
    job = over(mpi.for_any_user(), "transfer", "--seed", seed, "--iterations", 2, *owned, sample.write(cases, tmp_path),
               around=limited(kib), regx={"rendezvous": "direct", "backend": "none"})
    if job.complaints:
        job = job.warned("ulimit -l", f"is {kib} KiB")
    job.checked(ranks=2)
    assert job.total("bytes_bounce") > 0 and job.total("bytes_pinned") == 0, str(job)


def test_without_io_uring_one_line_says_so(mpi: Mpi, build: Build) -> None:
    job = over(mpi, "collective", "--sizes", "1", "bcast", btl="regx,vader,self", regx={},
               within=[build.programs / "deny", "io_uring"])
    job.left_out("transport=pinned: no io_uring for this process: not permitted")


def test_what_the_kernel_alone_copies_is_refused(mpi: Mpi) -> None:
    job = over(mpi, "collective", "--sizes", "1", "bcast", btl="regx,vader,self",
               regx={"rendezvous": "together"})
    job.left_out("rendezvous=together: over transport pinned the kernel does not copy")


def test_what_a_registration_is_to_cost_is_told(mpi: Mpi, tmp_path: Path, seed: int) -> None:
    job = over(mpi, "transfer", "--seed", seed, "--iterations", 1, sample.write([Case(MIB)], tmp_path),
               regx={"rendezvous": "pipeline", "pin_cost": "ucx", "explain": 1})
    heads = [line for line in job.complaints if "transport pinned (" in line]
    assert job.status == 0 and len(heads) == 1, str(job)
    assert "(pinned, 16000 ns a registration and 246 ns a page; asked for)" in heads[0], str(job)
    assert job.total("bytes_pinned") > 0, str(job)
    # At least what they are to cost, which no busy machine makes wrong.
    assert job.total("registering_ns") >= 16_000 * job.total("registrations") > 0, str(job)
