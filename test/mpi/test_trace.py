# SPDX-License-Identifier: BSD-3-Clause
"""btl_base_verbose: what was chosen and why, from level 10 on; connections from 20; paths and
fallbacks from 40. Silent else."""
from pathlib import Path

import pytest

import sample
from job import Job
from launch import Mpi
from sample import Case


def lines_of(job: Job) -> list[str]:
    """What it traced, without Open MPI's prefix."""
    return [line.partition("btl:regx: ")[2] for line in job.stderr.splitlines()
            if "btl:regx: " in line]


def traced(mpi: Mpi, level: int | None, sizes: str = "10,100000",
           **regx: object) -> tuple[Job, list[str]]:
    """The job, and what it traced, without Open MPI's prefix."""
    mca = {} if level is None else {"btl_base_verbose": level}
    job = mpi("collective", "--sizes", sizes, "alltoall", regx=regx, mca=mca)
    assert job.status == 0, str(job)
    assert "btl:regx" not in job.stdout, str(job)
    return job, lines_of(job)


def beginning(lines: list[str], words: str) -> list[str]:
    return [line for line in lines if line.startswith(words)]


@pytest.mark.parametrize("level", [None, 0, 5])
def test_silent_below_its_levels(mpi: Mpi, level: int | None) -> None:
    job, lines = traced(mpi, level)
    assert not lines, str(job)
    job.ended_well()


def test_level_10_says_what_was_chosen(mpi: Mpi) -> None:
    """Once per rank; as the report has it."""
    job, lines = traced(mpi, 10, rendezvous="pipeline", backend="none", chunk_size="64K")
    for words in ("regx ", "transport=auto is uct (", "transport uct: ",
                  "rendezvous pipeline, chunks of 65536 bytes, 4 ",
                  "backend none (asked for), keeping nothing"):
        assert len(beginning(lines, words)) == 2, str(job)
    reason = job.reports[0]["transport_reason"]
    assert len(beginning(lines, f"transport=auto is uct ({reason})")) == 2, str(job)
    assert len(beginning(lines, "transport verbs is not used: ")) == 2, str(job)
    assert all(" a pool of " in line for line in beginning(lines, "transport uct: ")), str(job)
    assert not [line for line in lines if line.startswith("rank ")], str(job)


def test_level_10_says_what_open_mpi_is_told_of_each_module(mpi: Mpi) -> None:
    job, lines = traced(mpi, 10, eager_limit=4096, latency=7)
    told = beginning(lines, "module uct (")
    assert len(told) == 2, str(job)
    assert all(" eager to 4096 bytes," in line and ", latency 7 us," in line for line in told), \
        str(job)


def test_level_10_says_at_the_end_what_auto_found(mpi: Mpi) -> None:
    job, lines = traced(mpi, 10)
    wanted = sorted(f"auto found auto_choice={report['auto_choice']}" for report in job.reports)
    assert sorted(beginning(lines, "auto found ")) == wanted, str(job)


def test_level_10_says_the_budget_of_a_backend(mpi: Mpi) -> None:
    job, lines = traced(mpi, 10, backend="retain", cache_bytes="1M", cache_count=17)
    assert len(beginning(lines, "backend retain (asked for), keeping at most 1048576 bytes in 17 "
                         "registrations")) == 2, str(job)


@pytest.mark.parametrize("tls,wire", [("posix", "shm"), ("tcp", "tcp")])
def test_level_20_says_each_connection(mpi: Mpi, tls: str, wire: str) -> None:
    """Of each rank to each, itself included; and that it ended."""
    job, lines = traced(mpi, 20, uct_tls=tls)
    for rank in (0, 1):
        assert len(beginning(lines, f"rank {rank} on ")) == 2, str(job)
        assert all(f": {wire} (" in line for line in beginning(lines, f"rank {rank} on "))
        assert len(beginning(lines, f"rank {rank}: connection over {wire} ends")) == 2, str(job)


def test_level_40_says_each_path(mpi: Mpi) -> None:
    """Of each large message as it is received, and why it does not go as asked for."""
    job, lines = traced(mpi, 40, rendezvous="pipeline")
    for rank in (0, 1):
        assert beginning(lines, f"100000 bytes from rank {rank} over shm by pipeline"), str(job)
    assert not beginning(lines, "fallback: "), str(job)


def test_level_40_says_each_fallback(mpi: Mpi) -> None:
    job, lines = traced(mpi, 40, rendezvous="together", uct_tls="tcp")
    reason = "together: the kernel does not copy to this peer"
    assert beginning(lines, f"fallback: {reason}"), str(job)
    assert job.reports[0]["fallbacks"][reason] > 0
    assert beginning(lines, "100000 bytes from rank 1 over tcp by bounce"), str(job)


@pytest.mark.parametrize("strategy", ["read", "together"])
def test_level_40_says_which_messages_are_read_whole(mpi: Mpi, strategy: str) -> None:
    job, lines = traced(mpi, 40, rendezvous=strategy)
    for rank in (0, 1):
        assert beginning(lines, f"100000 bytes to rank {rank} over shm may be read whole"), str(job)
        assert beginning(lines, f"100000 bytes from rank {rank} over shm: the whole is read"), \
            str(job)
    assert not beginning(lines, "fallback: "), str(job)


def test_level_40_says_which_messages_are_taken_from_a_stage(mpi: Mpi) -> None:
    """Of the second on, and of none that is longer than a stage."""
    job, lines = traced(mpi, 40, "100000,200000", auto_choice="32K:bounce")
    for rank in (0, 1):
        assert beginning(lines, f"100000 bytes from rank {rank} over shm: taken from its sender's "
                         "stage"), str(job)
        assert beginning(lines, f"200000 bytes from rank {rank} over shm by bounce"), str(job)
        assert not beginning(lines, f"200000 bytes from rank {rank} over shm: "), str(job)
    assert not beginning(lines, "fallback: "), str(job)


def test_level_40_says_what_is_packed(mpi: Mpi, tmp_path: Path) -> None:
    """Once for each message, not for each of its fragments."""
    file = sample.write([Case(1000000, send_layout="vector", receive_layout="vector")], tmp_path)
    job = mpi("transfer", "--iterations", 1, file, mca={"btl_base_verbose": 40})
    assert job.status == 0, str(job)
    for rank in (0, 1):
        said = beginning(lines_of(job), f"1000000 bytes to rank {rank} over shm in fragments")
        assert len(said) == 1, str(job)


def test_level_40_says_why_a_registration_is_not_kept(mpi: Mpi) -> None:
    job, lines = traced(mpi, 40, rendezvous="direct", backend="retain", cache_bytes="8K")
    assert [line for line in beginning(lines, "registration: ")
            if line.endswith(": for this use alone, larger than the cache")], str(job)


def test_nothing_is_traced_where_regx_is_not_asked_for(mpi: Mpi) -> None:
    job = mpi("collective", "--sizes", "10", "alltoall", btl=None, mca={"btl_base_verbose": 10})
    assert job.status == 0, str(job)
    assert job.stderr.count("btl:regx: not used: neither named in btl nor enabled") == 2, str(job)
