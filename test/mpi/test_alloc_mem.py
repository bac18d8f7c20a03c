# SPDX-License-Identifier: BSD-3-Clause
"""Memory of MPI_Alloc_mem: a message from or to it is copied by the processes, not by the kernel."""
from pathlib import Path

import pytest

import sample
from job import Job
from launch import Mpi, preloading
from sample import Case

SIZE = 256 * 1024  # one piece
TIMES = 200
MESSAGES = 2 * TIMES
BOTH = ("--send-owned", "--receive-owned")


def exchange(mpi: Mpi, folder: Path, owned: tuple[str, ...], size: int = SIZE, times: int = TIMES,
             **regx: object) -> Job:
    """Both ways at once, in memory that is allocated for each message and freed: so it serves the next."""
    cases = sample.write([Case(size, pattern="both")], folder)
    return mpi("transfer", *owned, "--iterations", times, cases, regx={"rndv_eager_limit": 0, **regx}).checked(2)


@pytest.mark.parametrize("strategy", ["read", "together"])
def test_messages_between_owned_buffers_need_neither_kernel_nor_registration(
        mpi: Mpi, tmp_path: Path, strategy: str, full: bool) -> None:
    times = 50_000 if full else TIMES
    job = exchange(mpi, tmp_path, BOTH, times=times, rendezvous=strategy).carried(strategy)
    assert job.total("gets") == 2 * times, str(job)
    # Of an assisted get the half that the sender writes is copied by the kernel.
    assert job.total("pieces_owned") >= 2 * times, str(job)
    assert job.total("registrations") == 0, str(job)


@pytest.mark.parametrize("owned,strategy", [("--send-owned", "read"),  # copied by its receiver
                                            ("--receive-owned", "pipeline")])  # by its sender
def test_one_side_in_owned_memory_is_enough(mpi: Mpi, tmp_path: Path, owned: str, strategy: str) -> None:
    job = exchange(mpi, tmp_path, (owned,), rendezvous=strategy).carried(strategy)
    assert job.total("pieces_owned") == MESSAGES, str(job)


def test_where_files_in_memory_must_not_be_executed(mpi: Mpi, tmp_path: Path) -> None:
    """All others are refused, as by Linux 6.3 with vm.memfd_noexec=2."""
    within = preloading(tmp_path / "noexec.so", """
        #include <errno.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int memfd_create(const char *name, unsigned flags)
        {
            if (flags & 8) // MFD_NOEXEC_SEAL
                return syscall(SYS_memfd_create, name, flags);
            errno = EACCES;
            return -1;
        }""")
    cases = sample.write([Case(SIZE, pattern="both")], tmp_path)
    job = mpi("transfer", *BOTH, "--iterations", TIMES, cases, regx={"rndv_eager_limit": 0, "rendezvous": "read"},
              within=within).checked(2).carried("read")
    assert job.total("pieces_owned") == MESSAGES, str(job)


def test_threads_allocate_and_free_while_others_send(mpi: Mpi, seed: int) -> None:
    job = mpi("threads", "--seed", seed, "--owned", "--threads", 3, "--rounds", 60,
              regx={"rendezvous": "together"}).checked(2)
    assert job.total("pieces_owned") > 60, str(job)


def test_it_can_be_switched_off(mpi: Mpi, tmp_path: Path) -> None:
    job = exchange(mpi, tmp_path, BOTH, rendezvous="read", alloc_mem_size="none").carried("read")
    assert job.total("pieces_owned") == 0, str(job)


def test_beyond_its_size_memory_is_ordinary_and_that_is_counted(mpi: Mpi, tmp_path: Path) -> None:
    """The buffer that is sent from is the first."""
    times = 4
    job = exchange(mpi, tmp_path, BOTH, 1 << 20, times, rendezvous="read", alloc_mem_size="2M")
    assert job.total("pieces_owned") >= 2 * times, str(job)
    assert job.reasons("fallbacks") == {"MPI_Alloc_mem: alloc_mem_size is used up": 2 * times}, str(job)


def test_memory_that_is_not_freed_outlives_mpi(mpi: Mpi) -> None:
    job = mpi("finalize", "kept", SIZE, 1, regx={"rendezvous": "read"}).checked(2)
    assert job.total("pieces_owned") > 0, str(job)
