# SPDX-License-Identifier: BSD-3-Clause
"""Neighbours that cannot be reached as they seem, or that do not read what they are sent."""
import re
from pathlib import Path

import pytest

from launch import AT_ONCE, Mpi
from namespace import SharedMemory, refusal

APART = {"process": ["--pid", "--fork", "--mount-proc"], "user": ["--user", "--map-root-user"]}
COLLECTIVE = ["collective", "--sizes", "100,5000,300001", "alltoall", "bcast"]


@pytest.mark.parametrize("space", APART)
def test_ranks_in_their_own_namespaces_use_another_btl(mpi: Mpi, tmp_path: Path, space: str) -> None:
    """Of processes: every rank is process 1, and what names another's memory there names its own, of a
    file in memory and of System V. Of users: the kernel lets no rank look into another."""
    apart = ["unshare", *APART[space]]
    why = refusal(*apart, "true")
    if why:
        pytest.skip(f"no {space} name space: {why}")
    job = mpi(*COLLECTIVE, ranks=2, btl="regx,tcp,self", around=SharedMemory(tmp_path).around,
              within=apart, mca={"btl_tcp_if_include": "lo"}).ended_well()
    assert len(job.reports) == 2 and job.total("bytes_shm") == 0, str(job)
    assert job.reasons("fallbacks")["a process of this node: by another BTL"] == 2, str(job)
    job = mpi(*COLLECTIVE, ranks=2, around=SharedMemory(tmp_path, size="64K").around, within=apart,
              mca=AT_ONCE)
    assert job.status != 0 and job.stdout == "" and 1 <= len(job.complaints) <= 2, str(job)
    assert re.fullmatch(r"regx: rank [01] on \S+ cannot be reached: it is on this node, but no "
                        r"memory can be shared with it\. Open MPI's own tcp can: --mca btl "
                        r"regx,tcp,self", job.complaints[0]), str(job)


@pytest.mark.parametrize("what,regx", [
    ("eager", {"pool_size": "256K"}), ("lent", {"pool_size": "4M"}),
    ("eager", {"max_send_size": 40_000, "rndv_eager_limit": 0})], ids=str)
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


def test_mailboxes_that_find_no_room_are_of_system_v(mpi: Mpi, tmp_path: Path) -> None:
    memory = SharedMemory(tmp_path, size="1712k")
    job = mpi(*COLLECTIVE, ranks=2, around=memory.around,
              regx={"pool_size": "256K"}).checked(ranks=2).over("shm")
    assert job.complaints == [], str(job)
    assert "shm: a mailbox in memory of the other kind" in job.reasons("fallbacks"), str(job)
    memory.must_be_empty(job)


def test_no_shared_memory_for_mailboxes_ends_the_job(mpi: Mpi, tmp_path: Path) -> None:
    """Both pools fit, the mailboxes do not, and there is no System V: one line, and the end."""
    memory = SharedMemory(tmp_path, size="1712k", sysv=False)
    job = mpi("collective", "--sizes", "1000000", "bcast", ranks=2, around=memory.around,
              regx={"pool_size": "256K"}, mca={"btl_base_verbose": 20})
    assert job.status != 0 and job.stdout == "", str(job)
    for reason in ("fallback: shm: no memory for a mailbox", "connection lost ("):
        assert "btl:regx: " in job.stderr and reason in job.stderr, str(job)
    lost = [line for line in job.complaints if "connection to rank" in line]
    assert 1 <= len(lost) <= 2 and len(set(lost)) == len(lost), str(job)
    assert all("shm: no memory for a mailbox" in line for line in lost), str(job)
    memory.must_be_empty(job)
