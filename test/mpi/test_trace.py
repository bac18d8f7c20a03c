# SPDX-License-Identifier: BSD-3-Clause
"""btl_base_verbose: what was chosen and why, from level 10 on; connections from 20; paths and
fallbacks from 40. Silent else."""
from job import Job
from launch import Mpi


def traced(mpi: Mpi, level: int, **regx: object) -> tuple[Job, list[str]]:
    """The job, and what it traced, without Open MPI's prefix."""
    job = mpi("collective", "--sizes", "10,100000", "alltoall", regx=regx,
              mca={"btl_base_verbose": level})
    assert job.status == 0 and "btl:regx" not in job.stdout, str(job)
    return job, [line.partition("btl:regx: ")[2] for line in job.stderr.splitlines()
                 if "btl:regx: " in line]


def beginning(lines: list[str], words: str) -> list[str]:
    return [line for line in lines if line.startswith(words)]


def test_silent_below_its_levels(mpi: Mpi) -> None:
    job, lines = traced(mpi, 5)
    assert not lines, str(job)
    job.ended_well()


def test_choices_connections_paths_and_fallbacks_are_said(mpi: Mpi) -> None:
    job, lines = traced(mpi, 40, rendezvous="direct", backend="retain", cache_bytes="8K",
                        chunk_size="64K", eager_limit=4096, latency=7)
    reason = job.reports[0]["transport_reason"]
    for words in ("regx ", f"transport=auto is shm ({reason})", "transport shm: ",
                  "transport verbs is not used: ", "rendezvous direct, chunks of 65536 bytes, 4 ",
                  "backend retain (asked for), keeping at most 8192 bytes in ", "module shm ("):
        assert len(beginning(lines, words)) == 2, f"{words}\n{job}"
    for rank in (0, 1):
        assert len(beginning(lines, f"rank {rank} on ")) == 2, str(job)
        assert len(beginning(lines, f"rank {rank}: connection over shm ends")) == 2, str(job)
        assert beginning(lines, f"100000 bytes from rank {rank} over shm by direct"), str(job)
    assert [line for line in beginning(lines, "registration: ")
            if line.endswith(": for this use alone, larger than the cache")], str(job)


def test_messages_that_are_read_whole_are_said(mpi: Mpi) -> None:
    job, lines = traced(mpi, 40, rendezvous="read")
    for rank in (0, 1):
        assert beginning(lines, f"100000 bytes to rank {rank} over shm may be read whole"), str(job)
        assert beginning(lines, f"100000 bytes from rank {rank} over shm: the whole is read"), \
            str(job)


def test_nothing_is_traced_where_regx_is_not_asked_for(mpi: Mpi) -> None:
    job = mpi("collective", "--sizes", "10", "alltoall", btl=None, mca={"btl_base_verbose": 10})
    assert job.status == 0, str(job)
    assert job.stderr.count("btl:regx: not used: neither named in btl nor enabled") == 2, str(job)
