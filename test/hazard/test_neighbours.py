# SPDX-License-Identifier: BSD-3-Clause
"""Neighbours that cannot be reached as they seem, or that do not read what they are sent."""
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import launch
import sample
from launch import Mpi
from namespace import SharedMemory, need

APART = {"PID": ["--pid", "--fork", "--mount-proc"], "user": ["--user", "--map-root-user"],
         "user, IPC": ["--user", "--map-root-user", "--ipc"]}
OWN = {"name": "hostname box$OMPI_COMM_WORLD_RANK",
       "boot": "echo $$ >{0}/$$; mount --bind {0}/$$ /proc/sys/kernel/random/boot_id",
       "proc": "test $OMPI_COMM_WORLD_RANK = 0 || mount -t tmpfs tmpfs /proc",
       "IPC": 'test $OMPI_COMM_WORLD_RANK = 2 && mount -t tmpfs tmpfs /proc && exec unshare --ipc "$@"'}
COLLECTIVE = ["collective", "--sizes", "100,5000,300001", "alltoall", "bcast"]


@pytest.mark.parametrize("space", APART)
def test_ranks_in_their_own_namespaces_share_memory_and_bounce(mpi: Mpi, tmp_path: Path, space: str) -> None:
    """PID: every rank is process 1, and what names another's memory there names its own. User: the kernel lets
    no rank look into another, nor, with an IPC namespace, into its parent's."""
    apart = ["unshare", *APART[space]]
    need(f"{space} namespace", *apart, "true")
    memory = SharedMemory(tmp_path)
    job = mpi(*COLLECTIVE, ranks=3, around=memory.around, within=apart,
              regx={"rendezvous": "pipeline"}).checked(ranks=3).over("shm")
    assert job.total("bytes_bounce") > 0 == job.total("bytes_pipeline"), str(job)
    assert job.reasons("fallbacks").get(f"process_vm: another {space.split(',')[0]} namespace", 0) > 0, str(job)
    memory.must_be_empty(job)


@pytest.mark.parametrize("what", OWN)
def test_what_a_rank_takes_for_the_machine_is_its_own(mpi: Mpi, tmp_path: Path, what: str) -> None:
    """A host name, as containers have, a boot ID, as systemd-nspawn makes, or no /proc. Open MPI knows that
    both are on one node. To a rank without /proc and in an IPC namespace of its own another BTL leads."""
    enter = ["unshare", "--mount", "--uts", "sh", "-c", OWN[what].format(tmp_path) + '; exec "$@"', "sh"]
    need("namespaces", *enter, "true")
    if mpi.build.series == (5, 0) and what in ("proc", "IPC"):
        pytest.skip("Open MPI 5.0 does not always find a rank's local number without /proc, with btl/sm either")
    mpi(*COLLECTIVE, ranks=3, btl="regx,tcp" if what == "IPC" else "regx", within=enter,
        regx={"rendezvous": "pipeline"}).checked(ranks=3).over("shm")


@pytest.mark.parametrize("name, value, said", [("transport", "pinned", "its btl_regx_transport is another (here "),
                                               ("backend", "odp", "btl_regx_backend=odp cannot be used: ")])
def test_what_only_one_rank_has_is_named(mpi: Mpi, name: str, value: str, said: str) -> None:
    launch.need({name: value})
    other = ["sh", "-c", f'test $OMPI_COMM_WORLD_RANK = 0 || export OMPI_MCA_btl_regx_{name}={value}; exec "$@"', "sh"]
    job = mpi(*COLLECTIVE, ranks=2, within=other)
    assert job.status != 0 and any(said in line for line in job.complaints), str(job)


def test_neither_proc_nor_system_v_is_needed(mpi: Mpi, tmp_path: Path) -> None:
    """Neighbours cannot open one another's descriptors then: a file in /dev/shm has a name for a while. What an
    earlier job has left of such names is removed."""
    enter = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /proc; exec "$@"', "sh"]
    need("namespaces", *enter, "true")
    memory = SharedMemory(tmp_path, sysv=False)
    left = ["sh", "-c", 'echo >/dev/shm/regx.0123456789abcdef; exec "$@"', "sh"]
    mpi(*COLLECTIVE, ranks=3, around=[*memory.around, *left], within=enter).checked(ranks=3).over("shm")
    assert memory.left() == ""


@pytest.mark.parametrize("size", ["1G", "64M"])
def test_ranks_in_containers_of_their_own_share_memory_and_bounce(mpi: Mpi, tmp_path: Path, seed: int,
                                                                  size: str) -> None:
    """User, PID, mount, IPC and network namespaces for each, but one /dev/shm: of that a file with a name is
    shared, however small its pool, and the report says why messages bounce."""
    if mpi.build.series == (5, 0):
        pytest.skip("Open MPI 5.0 crashes in PMIx there, in MPI_Finalize")
    need("namespaces", "unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--ipc", "--net",
         "ip", "link", "set", "lo", "up")
    memory = SharedMemory(tmp_path, size=size)
    apart = [sys.executable, str(Path(__file__).with_name("container.py"))]
    cases = [case for size, window in ((3000, 4), (300_001, 2))
             for case in sample.every_kind(size, window)]
    transfer = ["transfer", "--seed", seed, "--iterations", 1, sample.write(cases, tmp_path)]
    for strategy, program in (("pipeline", COLLECTIVE), ("auto", transfer)):
        job = mpi(*program, ranks=4, around=memory.around, within=apart,
                  regx={"rendezvous": strategy, "explain": 1})
        replace(job, stderr="").checked(ranks=4).over("shm")
        assert job.total("bytes_bounce") > 0 == job.total("bytes_pipeline"), str(job)
        reasons = job.reasons("fallbacks")
        assert strategy == "auto" or reasons.get("process_vm: another PID namespace", 0) > 0, str(job)
        assert strategy == "pipeline" or any(
            "bounce" in line and "the kernel does not copy to this peer" in line for line in job.complaints), str(job)
        memory.must_be_empty(job)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("strategy,backend", [("pipeline", "none"), ("together", "none"),
                                              ("direct", "notifier")])
def test_a_process_whose_first_thread_has_ended_goes_on(mpi: Mpi, tmp_path: Path, strategy: str,
                                                        backend: str, when: str) -> None:
    """For the kernel its number then names a process without memory, mappings or descriptors. Rank 0's
    ends before MPI_Init, or all do after the first messages."""
    memory = SharedMemory(tmp_path)
    job = mpi("leader", when, ranks=3, around=memory.around,
              regx={"rendezvous": strategy, "backend": backend}).checked(ranks=3).over("shm")
    assert "process_vm: the peer's first thread has ended" in job.reasons("fallbacks") or when == "before" and \
        "bounce: fallback: the kernel does not copy to this peer" in job.ways(), str(job)
    memory.must_be_empty(job)


@pytest.mark.parametrize("sysv", [True, False], ids=["sysv", "posix"])
@pytest.mark.parametrize("what", ["rights", "descriptors", "space", "calls"])
@pytest.mark.parametrize("order", ["together", "staggered"])
@pytest.mark.parametrize("strategy", ["bounce", "pipeline", "direct", "read", "together", "staged", "auto"])
def test_what_a_process_gives_up_after_the_start_harms_no_neighbour(
        mpi: Mpi, tmp_path: Path, strategy: str, order: str, what: str, sysv: bool) -> None:
    """It is another user then, has no descriptor left, sees no System V segment or is refused
    copies, and meets some of its neighbours only afterwards. Memory that it may not open any more was mapped at the
    start."""
    memory = SharedMemory(tmp_path, sysv=sysv)
    job = mpi("become", what, order, ranks=3, around=memory.around,
              regx={"rendezvous": strategy}).checked(ranks=3).over("shm")
    refused = [why for why in job.reasons("fallbacks") if why.startswith("process_vm: not permitted")]
    assert what != "rights" or strategy in ("bounce", "auto", "staged") or refused, str(job)
    memory.must_be_empty(job)


@pytest.mark.parametrize("regx", [{"pool_size": "256K"}, {"max_send_size": 40_000, "rndv_eager_limit": 0}], ids=str)
def test_slots_that_a_peer_keeps_delay_nobody_else(mpi: Mpi, tmp_path: Path, regx: dict[str, object]) -> None:
    """Rank 1 reads none of what rank 0 has lent it until what rank 0 and rank 2 send each other is
    over: fragments too, which need slots of the pool as those for rank 1 do."""
    job = mpi("neighbours", tmp_path / "shared", ranks=3,
              regx={"rendezvous": "bounce", **regx}).checked(ranks=3).over("shm")
    sent = job.rank(0)["bytes_frag"] + job.rank(0)["bytes_eager"]
    assert sent > 41 * (4 << 20), f"some went by another path\n{job}"
    assert job.rank(2)["bytes_bounce"] == 4 << 20, str(job)


@pytest.mark.parametrize("ranks,size", [(8, "64M"), (4, "24M"), (2, "64M"), (12, "64M")])
@pytest.mark.parametrize("sysv", [True, False], ids=["sysv", "posix"])
def test_half_of_the_shared_memory_is_left_to_the_program(mpi: Mpi, tmp_path: Path, sysv: bool,
                                                          ranks: int, size: str) -> None:
    """Where there is no System V, a container's /dev/shm of 64 MB is shared among all."""
    memory = SharedMemory(tmp_path, size=size, sysv=sysv)
    mpi("collective", "--roots", 1, "--sizes", "100,30000,300000", "alltoall", "room", ranks=ranks,
        around=memory.around).checked(ranks=ranks).over("shm")


def test_where_not_all_mailboxes_fit_those_who_talk_get_theirs(mpi: Mpi, tmp_path: Path) -> None:
    """Twenty processes of which each talks with a few, in a container's /dev/shm without System V."""
    memory = SharedMemory(tmp_path, size="64M", sysv=False)
    mpi("collective", "--sizes", 1000, "bcast", ranks=20, around=memory.around).checked(ranks=20).over("shm")


def test_no_shared_memory_for_mailboxes_ends_the_job(mpi: Mpi, tmp_path: Path) -> None:
    """Both pools fit, the mailboxes of a process that comes later do not, and there is no System V: one
    line, and the end."""
    memory = SharedMemory(tmp_path, size="1712k", sysv=False)
    job = mpi("dynamic", "spawn", 1, ranks=1, around=memory.around,
              regx={"pool_size": "256K"}, mca={"btl_base_verbose": 20})
    assert job.status != 0 and job.stdout == "", str(job)
    for reason in ("fallback: shm: no memory for a mailbox", "connection lost ("):
        assert "btl:regx: " in job.stderr and reason in job.stderr, str(job)
    lost = [line for line in job.complaints if "connection to rank" in line]
    assert 1 <= len(lost) <= 2, str(job)
    assert all("shm: no memory for a mailbox" in line for line in lost), str(job)
    memory.must_be_empty(job)
