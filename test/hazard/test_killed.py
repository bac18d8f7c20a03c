# SPDX-License-Identifier: BSD-3-Clause
"""One of many is killed: the job ends, nothing is left of it, and no rank received wrong bytes."""
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from job import Job
from launch import AT_ONCE, Mpi
from namespace import SharedMemory
from skips import process_vm_is_refused

KILLED = 128 + 9
ERRORS_ARE_FATAL = "MPI_ERRORS_ARE_FATAL"
LOST = re.compile(r"regx: connection to rank (\d+) on (\S+) lost \(.+\)")
# Words before a program: mpirun does not see that it is killed, and lets the others live. So it is with
# programs that are started by a script.
HIDDEN = ["sh", "-c", f'"$@"; status=$?; [ $status -ne {KILLED} ] || exec tail -f /dev/null; '
          'exit $status', "sh"]


def ends(mpi: Mpi, folder: Path, how: str, ranks: int, regx: dict[str, object], size: int = 2 << 20,
         after: int = 1, more: Sequence[str] = (), wire: str = "posix", **options: object) -> Job:
    """A job of which rank 1 ends in the middle of transfers. Whatever regx says is whom it has lost:
    who lost one ends, and is lost to others."""
    memory = SharedMemory(folder, size={"posix": "4G", "sysv": "64K"}[wire], sysv=wire == "sysv")
    noted = folder / "noted"
    job = mpi("ending", how, size, after, noted, *more, ranks=ranks, around=memory.around, regx=regx,
              **options)
    assert job.status != 0, str(job)
    memory.must_be_empty(job)
    # Since 5.0 ob1 prints this after each line by which regx ends a process, and so does MPI_Init after
    # the reason that it cannot reach a rank, one that was killed before it published anything. Any other
    # FATAL is ob1's that ends without a reason.
    reasons = len(job.complaints) + job.stderr.count("An error occurred in MPI_Init")
    assert job.stderr.count(ERRORS_ARE_FATAL) <= (0 if mpi.build.series == (4, 1) else reasons), str(job)
    for bad in ("wrong", "FATAL", "received signal"):
        assert bad not in job.stderr.replace(ERRORS_ARE_FATAL, ""), str(job)
    assert len(job.complaints) < ranks and len(lost(job)) == len(job.complaints), str(job)
    if how in ("kill", "mpirun"):
        ended, under_way = map(int, noted.read_text().split())
        # To and from the last rank, which waits for that.
        assert ended == after and under_way >= 2, f"not in the middle: {noted.read_text()}\n{job}"
    return job


def by_a_signal_or_ob1(mpi: Mpi, job: Job) -> bool:
    """Whether mpirun's status is that of the rank that was killed, or of one that has lost it: ob1 ends
    that one with -1, since 5.0 with MPI_ERR_UNKNOWN."""
    return job.status in (KILLED, 255 if mpi.build.series == (4, 1) else 14)


def lost(job: Job) -> list[tuple[int, str]]:
    """Rank and host of each connection that was lost."""
    found = [LOST.fullmatch(line) for line in job.complaints]
    return [(int(match[1]), match[2]) for match in found if match]


@pytest.mark.parametrize(("wire", "strategy"), [
    ("posix", "bounce"), ("posix", "pipeline"), ("posix", "read"), ("sysv", "together")])
def test_a_killed_rank_of_many_ends_the_job(mpi: Mpi, tmp_path: Path, full: bool, seed: int,
                                            wire: str, strategy: str) -> None:
    """All have transfers under way with all. Mostly mpirun ends the others before they find out."""
    ranks = 64 if full else 8
    after = random.Random(f"{seed} {wire} {strategy}").choice([0, 1, ranks // 2])
    job = ends(mpi, tmp_path, "kill", ranks, {"rendezvous": strategy, "chunk_size": "256K"}, wire=wire,
               size=200_000 if ranks == 64 else 2 << 20, after=after)
    assert by_a_signal_or_ob1(mpi, job) and job.stdout == "", str(job)


@pytest.mark.parametrize("backend", ["hooks+notifier"], indirect=True)
def test_a_killed_rank_leaves_nothing_that_was_watched(mpi: Mpi, tmp_path: Path, backend: str) -> None:
    """With a notifier's threads and descriptors, and buffers that lie in shared memory, of which
    peers map what they copy."""
    job = ends(mpi, tmp_path, "kill", 8, {"rendezvous": "together", "backend": backend}, more=["owned"])
    assert by_a_signal_or_ob1(mpi, job) and job.stdout == "", str(job)


@pytest.mark.parametrize(("how", "wire"), [("finalize", "posix"), ("mpirun", "sysv")])
def test_a_job_that_ends_at_its_end_leaves_nothing(mpi: Mpi, tmp_path: Path, how: str,
                                                   wire: str) -> None:
    """A rank is killed while the others are in MPI_Finalize, or mpirun in the middle of transfers."""
    job = ends(mpi, tmp_path, how, 8, {}, wire=wire)
    assert by_a_signal_or_ob1(mpi, job), str(job)


# Where one is killed: at its nth system call of that name, before the kernel does it; and whether it
# has moved a piece of a message by one of those before.
MOMENTS = [
    ("posix", "fallocate", 3, False),  # it makes shared memory
    ("sysv", "shmget", 3, False),
    ("posix", "process_vm_readv", 3, False),  # it asks whether it may copy: of each peer, and again
    ("posix", "process_vm_readv", 9, True),  # of two peers' messages it copies 16 pieces and more
]


@pytest.mark.parametrize(("wire", "call", "count", "moves"), MOMENTS)
@pytest.mark.whole
def test_a_rank_is_killed_at_a_system_call(mpi: Mpi, tmp_path: Path, wire: str, call: str,
                                           count: int, moves: bool) -> None:
    if call == "process_vm_readv" and process_vm_is_refused():
        pytest.skip("process_vm_readv is refused")
    # -DDD: mpirun does not end strace before it has written its last line; the watchdog waits for it.
    trace = tmp_path / "trace"
    inject = f"inject={call}:signal=SIGKILL:when={count}"
    ranks, size = (3, 16 << 20) if moves else (8, 2 << 20)
    job = ends(mpi, tmp_path, "none", ranks, {"rendezvous": "read"}, size, wire=wire, within=[
        "sh", "-c", '[ "$OMPI_COMM_WORLD_RANK" = 1 ] || exec "$@"; '
        f'exec strace -DDD -qq -o {trace} -e trace={call} -e {inject} "$@"', "sh"])
    calls = trace.read_text().splitlines()
    assert len(calls) == count + 1 and calls[-1] == "+++ killed by SIGKILL +++", f"{calls}\n{job}"
    moved = [int(line.rsplit("=", 1)[1].split()[0]) for line in calls[:-2]]
    assert not moves or max(moved) > 32768, f"no piece of a message yet: {calls}\n{job}"
    assert by_a_signal_or_ob1(mpi, job) and job.stdout == "", str(job)


def told(job: Job) -> None:
    """A rank has lost rank 1, and said so."""
    assert any(rank == 1 for rank, _ in lost(job)), str(job)


def test_survivors_tell_whom_they_have_lost(mpi: Mpi, tmp_path: Path) -> None:
    """Where mpirun does not."""
    told(ends(mpi, tmp_path, "kill", 8, {"rendezvous": "direct"}, within=HIDDEN, mca=AT_ONCE))


@pytest.mark.parametrize("wire", ["posix", "sysv"])
def test_who_is_gone_before_the_first_message_is_told(mpi: Mpi, tmp_path: Path, wire: str) -> None:
    """Where mpirun does not tell: no rank waits for a peer that was never there to connect to."""
    told(ends(mpi, tmp_path, "gone", 8, {}, wire=wire, within=HIDDEN, mca=AT_ONCE))


@pytest.mark.parametrize("how", ["read", "write", "receive", "fill"])
@pytest.mark.parametrize("wire", ["posix", "sysv"])
def test_who_waits_for_a_killed_neighbour_is_told(mpi: Mpi, tmp_path: Path, how: str, wire: str) -> None:
    """Where mpirun does not tell: whatever one waits for, as vader's and tcp's processes do for ever."""
    told(ends(mpi, tmp_path, how, 2, {}, wire=wire, within=HIDDEN, mca=AT_ONCE))
