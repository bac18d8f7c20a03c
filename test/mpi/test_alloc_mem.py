# SPDX-License-Identifier: BSD-3-Clause
"""Memory of MPI_Alloc_mem: a message from or to it is copied by the processes, not by the kernel."""
import pytest

from launch import Mpi

SIZE = 256 * 1024  # one piece
TIMES = 200
MESSAGES = 2 * TIMES


@pytest.mark.parametrize("strategy", ["read", "together"])
def test_messages_between_owned_buffers_need_neither_kernel_nor_registration(
        mpi: Mpi, strategy: str, full: bool) -> None:
    size, times = (32 * 1024, 500000) if full else (SIZE, TIMES)
    job = mpi("alloc_mem", size, times, "owned", "owned", regx={"rendezvous": strategy},
              timeout=600).checked(ranks=2).carried(strategy)
    assert job.total("pieces_owned") > 0, str(job)
    assert job.total("gets") == 2 * times, str(job)
    # Of an assisted get the half that the sender writes is copied by the kernel.
    assert job.total("pieces_owned") >= 2 * times, str(job)
    assert job.total("registrations") == 0, str(job)


@pytest.mark.parametrize("send,receive,strategy", [
    ("owned", "ordinary", "read"),  # copied by its receiver
    ("ordinary", "owned", "pipeline"),  # by its sender
    ("renewed", "renewed", "read")])  # freed memory serves the next messages
def test_one_side_in_owned_memory_is_enough(mpi: Mpi, send: str, receive: str, strategy: str) -> None:
    job = mpi("alloc_mem", SIZE, TIMES, send, receive,
              regx={"rendezvous": strategy}).checked(ranks=2).carried(strategy)
    assert job.total("pieces_owned") == MESSAGES, str(job)


def test_threads_allocate_and_free_while_others_send(mpi: Mpi) -> None:
    threads = 3
    job = mpi("alloc_mem", SIZE, TIMES // 4, "renewed", "renewed", threads,
              regx={"rendezvous": "together"}).checked(ranks=2)
    assert job.total("pieces_owned") >= threads * MESSAGES // 4, str(job)


def test_it_can_be_switched_off(mpi: Mpi) -> None:
    job = mpi("alloc_mem", SIZE, TIMES, "owned", "owned",
              regx={"rendezvous": "read", "alloc_mem_size": "none"}).checked(ranks=2).carried("read")
    assert job.total("pieces_owned") == 0, str(job)


def test_beyond_its_size_memory_is_ordinary_and_that_is_counted(mpi: Mpi) -> None:
    size = 2 << 20
    job = mpi("alloc_mem", size, 4, "owned", "owned",
              regx={"rendezvous": "read", "alloc_mem_size": "2M"}).checked(ranks=2)
    # The buffer that is sent from was the first.
    assert job.total("pieces_owned") >= 2 * 4, str(job)
    assert job.reasons("fallbacks") == {"MPI_Alloc_mem: alloc_mem_size is used up": 2}, str(job)


@pytest.mark.parametrize("place,times,ranks", [("kept", 4, 2), ("owned", 0, 1)])
def test_memory_that_is_not_freed_outlives_mpi_and_one_process_has_ordinary_memory(
        mpi: Mpi, place: str, times: int, ranks: int) -> None:
    job = mpi("alloc_mem", SIZE, times, place, place, ranks=ranks).ended_well()
    if ranks > 1:
        assert job.total("pieces_owned") > 0, str(job)
