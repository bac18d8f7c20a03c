# SPDX-License-Identifier: BSD-3-Clause
"""Messages longer than their receive."""
import pytest

from job import Job
from launch import Mpi, at_ranks
from tables import strategies

MIB = 1 << 20
PAIRS = [100, 50, 3000, 1, 50_000, 49_999, 1 << 20, 100_000, (9 << 20) + 1, 9 << 20]


def stopped(job: Job) -> None:
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    assert job.complaints and all("shorter than the message" in line for line in job.complaints), str(job)


@pytest.mark.parametrize("strategy", ["bounce", "pipeline", "direct", "auto", "together", "staged"])
def test_a_truncated_message_is_an_error_and_the_next_is_right(mpi: Mpi, strategy: str) -> None:
    """MPI_ERR_TRUNCATE, nothing written beyond the message, and the next message is right."""
    mpi("truncate", *PAIRS, regx={"rendezvous": strategy}).checked(ranks=2).carried(strategy).over("shm")


@pytest.mark.parametrize(("strategy", "senders"), [
    *((name, name) for name in strategies()),
    *((name, senders) for name in strategies() for senders in ("auto", "read", "together", "staged") if name != senders)])
def test_where_no_memory_is_behind_the_buffer_it_is_an_error_too(mpi: Mpi, strategy: str, senders: str) -> None:
    """What the sender offers to be read as a whole is written past the end, whatever the receiver's strategy is, where
    the kernel finds no memory: a line says so, and Open MPI says what it was. By auto and staged the sender
    offers to copy it to a staging buffer, too."""
    job = mpi("truncate", "--closed", MIB, 100 * 1024, regx={"rendezvous": strategy},
              within=at_ranks({"0": {"rendezvous": senders}}))
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    assert all("receive buffer at 0x" in line and "shorter than the message" in line
               for line in job.complaints), str(job)
    assert bool(job.complaints) == (senders in ("read", "together", "staged", "auto")), str(job)


@pytest.mark.parametrize("strategy", ["read", "together", "staged", "auto"])
@pytest.mark.parametrize("sent", [20_000, MIB])
def test_what_is_copied_out_of_memory_of_mpi_stops_there_too(mpi: Mpi, strategy: str, sent: int) -> None:
    """The receiver has that mapped and copies itself. It must not store where no memory is behind its buffer."""
    stopped(mpi("truncate", "--closed", "--owned", sent, 8192, regx={"rendezvous": strategy, "eager_limit": 4096}))


@pytest.mark.parametrize("strategy", ["pipeline", "direct"])
def test_what_the_sender_may_not_write_stops_there_too(mpi: Mpi, strategy: str) -> None:
    """It goes by slots then, out of which the receiver copies."""
    stopped(mpi("truncate", "--closed", "--denied", MIB, 100 * 1024, regx={"rendezvous": strategy},
                within=at_ranks({"0": {"rendezvous": "read"}})))
