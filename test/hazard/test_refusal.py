# SPDX-License-Identifier: BSD-3-Clause
"""What the machine refuses is done another way, right, counted by reason, and stdout stays clean."""
import os
import shutil
from pathlib import Path

import pytest

from launch import Build, Mpi
from job import Job
from namespace import SharedMemory
from tables import strategies

COLLECTIVE = ["collective", "--sizes", "100,5000,300001", "alltoall", "bcast"]
STRATEGIES = [strategy for strategy in [*strategies(), "auto"] if strategy != "bounce"]
# Before the job: root may look into every process, and read every file.
PRIVILEGES = "-sys_ptrace,-dac_override,-dac_read_search"
NO_PRIVILEGES = ["setpriv", f"--bounding-set={PRIVILEGES}", f"--inh-caps={PRIVILEGES}"] \
    if os.geteuid() == 0 else []


def refused(job: Job) -> str:
    """The reasons, of which there must be one."""
    reasons = job.reasons("fallbacks")
    assert reasons and all(count > 0 for count in reasons.values()), str(job)
    return " ".join(reasons)


def denied(build: Build, rank: int, call: str) -> list[str]:
    """Words before the program: a filter refuses that rank the call."""
    return ["sh", "-c", f'[ $OMPI_COMM_WORLD_RANK != {rank} ] || exec "{build.programs / "deny"}" {call} "$@"; exec "$@"',
            "sh"]


def test_a_process_that_others_may_not_look_into_shares_memory(mpi: Mpi, build: Build, tmp_path: Path) -> None:
    """Rank 0's program may be run, but not read: the other ranks may not open its descriptors, nor
    copy from its memory, and it may do both to them."""
    program = tmp_path / "collective"
    shutil.copy(build.programs / "collective", program)
    program.chmod(0o111)
    one = ["sh", "-c", f'[ $OMPI_COMM_WORLD_RANK = 0 ] && shift && exec {program} "$@"; exec "$@"',
           "sh"]
    job = mpi(*COLLECTIVE, ranks=3, around=NO_PRIVILEGES, within=one,
              regx={"rendezvous": "pipeline"}).checked(ranks=3).over("shm")
    assert "process_vm: not permitted" in refused(job) and job.total("bytes_bounce") > 0, str(job)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_without_process_vm_messages_bounce(mpi: Mpi, build, strategy: str) -> None:
    """By a seccomp filter, as in many containers: bounce instead."""
    job = mpi(*COLLECTIVE, ranks=3, within=[build.programs / "deny", "process_vm"],
              regx={"rendezvous": strategy}).checked(ranks=3)
    assert job.total("bytes_bounce") > 0, str(job)
    assert not any(job.total(f"bytes_{path}") for path in strategies() if path != "bounce"), str(job)
    if strategy in ("together", "staged", "remap"):  # the same, but it was asked for
        why = "the kernel does not copy to this peer"
        assert job.reasons("fallbacks") == {why: job.ways()[f"bounce: fallback: {why}"]}, str(job)
    elif strategy in ("pipeline", "direct", "read"):
        assert "process_vm" in refused(job) or "reading from" in refused(job), str(job)
        assert job.total("messages_fallback") > 0, str(job)
    elif strategy == "auto":  # knows before it tries
        assert not job.reasons("fallbacks"), str(job)
        assert "bounce: auto: the kernel does not copy to this peer" in job.ways(), str(job)


def test_process_vm_denied_to_one_rank_bounces_its_sends(mpi: Mpi, build) -> None:
    """Only rank 0's filter refuses: what it sends bounces, what it receives need not."""
    job = mpi(*COLLECTIVE, ranks=3, within=denied(build, 0, "process_vm"),
              regx={"rendezvous": "pipeline"}).checked(ranks=3)
    assert "process_vm" in refused(job), str(job)
    for rank in range(3):
        path, other = ("bounce", "pipeline") if rank == 0 else ("pipeline", "bounce")
        assert job.rank(rank)[f"bytes_{path}"] > 0 == job.rank(rank)[f"bytes_{other}"], str(job)


def test_together_denied_to_one_rank_takes_slots(mpi: Mpi, build) -> None:
    """What rank 0 would have to copy goes by slots, and so does what it sends: it exposes nothing."""
    job = mpi(*COLLECTIVE, ranks=3, within=denied(build, 0, "process_vm"),
              regx={"rendezvous": "together"}).checked(ranks=3)
    assert job.rank(0)["chunks_sender"] == job.rank(0)["chunks_receiver"] == 0, str(job)
    assert job.rank(0)["slots_high"] > 0 and job.rank(0)["bytes_bounce"] > 0, str(job)
    assert job.rank(0)["bytes_together"] == job.rank(0)["gets"] == 0, str(job)
    assert all(job.rank(rank)["messages_fallback"] > 0 for rank in (1, 2)), str(job)
    for rank in (1, 2):
        assert job.rank(rank)["chunks_receiver"] > 0, str(job)  # the peer helps if it has time


def test_to_who_may_attach_no_segments_another_btl_leads(mpi: Mpi, build) -> None:
    """To rank 1, which alone may not."""
    job = mpi(*COLLECTIVE, ranks=3, within=denied(build, 1, "shmat"), btl="regx,tcp,self",
              mca={"btl_tcp_if_include": "lo"}).checked(ranks=3)  # by eth0 that of 5.0 may find no way to its own node
    assert [job.rank(rank)["messages_eager"] > 0 for rank in range(3)] == [True, False, True], str(job)
    assert job.reasons("fallbacks")["a process of this node: by another BTL"] > 0, str(job)


def test_without_shared_memory_the_job_ends(mpi: Mpi, tmp_path: Path) -> None:
    """One clear line, and Open MPI ends the job; beside tcp it goes on."""
    memory = SharedMemory(tmp_path, size="64K", sysv=False)
    job = mpi(*COLLECTIVE, ranks=4, around=memory.around)
    assert job.status != 0 and job.stdout == "", str(job)
    assert job.complaints == ["regx: btl_regx_transport=shm: there is no shared memory for this "
                              "process, neither of System V nor in /dev/shm: allow one, or name another BTL, too "
                              "(--mca btl regx,vader,self)"], str(job)
    memory.must_be_empty(job)
