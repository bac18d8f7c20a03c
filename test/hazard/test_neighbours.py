# SPDX-License-Identifier: BSD-3-Clause
"""Neighbours that cannot be reached as they seem, or that do not read what they are sent."""
from pathlib import Path

import pytest

from launch import Mpi
from namespace import SharedMemory, refusal

APART = ["unshare", "--pid", "--fork", "--mount-proc"]
COLLECTIVE = ["collective", "--sizes", "100,5000,300001", "alltoall", "bcast"]


@pytest.mark.parametrize("memory,strategy", [("posix", "auto"), ("sysv", "bounce")])
def test_ranks_in_their_own_process_namespaces_use_tcp(mpi: Mpi, strategy: str,
                                                       memory: str) -> None:
    """Every rank is process 1, and what names another's file there names its own: tcp instead. So it
    is with memory of System V, of which the name is right, but not the process's."""
    why = refusal(*APART, "true")
    if why:
        pytest.skip(f"no process name space: {why}")
    job = mpi(*COLLECTIVE, ranks=2, within=APART,
              regx={"rendezvous": strategy, "uct_tls": f"{memory},tcp"}).checked(ranks=2)
    job.over("tcp")
    assert set(job.reasons("fallbacks")) == {
        "shm: another name space, or a descriptor was closed"}, str(job)
    assert job.most("peers") >= 1, str(job)


@pytest.mark.parametrize("what,regx", [
    ("lent", {}), ("eager", {"pool_size": "256K"}), ("lent", {"pool_size": "4M"}),
    ("eager", {"max_send_size": 20_000, "rndv_eager_limit": 0})], ids=str)
@pytest.mark.whole
def test_slots_that_a_peer_keeps_delay_nobody_else(mpi: Mpi, tmp_path: Path, what: str,
                                                   regx: dict[str, object]) -> None:
    """Rank 1 reads none of what rank 0 has lent it until what rank 0 and rank 2 send each other is
    over: fragments too, which need slots of the pool as those for rank 1 do."""
    job = mpi("neighbours", what, tmp_path / "pipe", ranks=3,
              regx={"rendezvous": "bounce", **regx}).checked(ranks=3).over("shm")
    sent = job.rank(0)["bytes_frag"] + job.rank(0)["bytes_eager"]
    assert sent > 41 * (4 << 20), f"some went by another path\n{job}"
    assert job.rank(2)["bytes_bounce"] == 4 << 20, str(job)


@pytest.mark.parametrize("strategy", ["bounce", "together"])
def test_a_full_mailbox_delays_nobody_else(mpi: Mpi, tmp_path: Path, strategy: str) -> None:
    """Rank 1 reads nothing until rank 0's message to rank 2 is over."""
    job = mpi("neighbours", "full", tmp_path / "pipe", ranks=3,
              regx={"rendezvous": strategy}).checked(ranks=3).carried(strategy).over("shm")
    assert job.total(f"bytes_{strategy}") == 2 * (4 << 20), str(job)


def test_little_shared_memory_takes_shorter_mailboxes(mpi: Mpi, tmp_path: Path) -> None:
    """Both pools fit, and mailboxes for both if the first who asks does not take the longest."""
    memory = SharedMemory(tmp_path, size="3896k")
    job = mpi(*COLLECTIVE, ranks=2, around=memory.around,
              regx={"uct_tls": "posix", "pool_size": "256K"}).checked(ranks=2).over("shm")
    assert job.complaints == [] and memory.left() == "", str(job)


def test_no_shared_memory_for_mailboxes_ends_the_job(mpi: Mpi, tmp_path: Path) -> None:
    """Both pools fit, the mailboxes do not, and there is no tcp: one line, and the end."""
    memory = SharedMemory(tmp_path, size="2848k")
    job = mpi("collective", "--sizes", "1000000", "bcast", ranks=2, around=memory.around,
              regx={"uct_tls": "posix", "pool_size": "256K"}, mca={"btl_base_verbose": 20})
    assert job.status != 0 and job.stdout == "", str(job)
    for reason in ("fallback: shm: no memory for a mailbox", "connection lost ("):
        assert "btl:regx: " in job.stderr and reason in job.stderr, str(job)
    lost = [line for line in job.complaints if "connection to rank" in line]
    assert 1 <= len(lost) <= 2 and len(set(lost)) == len(lost), str(job)
    assert all("shared memory is refused" in line for line in lost), str(job)
    assert memory.left() == "", str(job)
