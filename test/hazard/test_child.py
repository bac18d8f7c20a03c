# SPDX-License-Identifier: BSD-3-Clause
"""Hazards 22 and 27: children made in mid-transfer that stay alive; memory unmapped after
MPI_Finalize, when nothing may hang or crash, and no thread is left."""
import pytest

from launch import Mpi
from tables import strategies

BYTES = 8 + 5_000 + 20_000 + 70_000 + 140_000 + (3 << 20)  # of a round's messages, each way

HOW = ["fork", "vfork", "spawn", "clone"]


@pytest.mark.parametrize("backend", ["hooks", "notifier", "retain"], indirect=True)
def test_fork_during_a_transfer_leaves_the_parents_data_right(mpi: Mpi, backend: str) -> None:
    """What the parent has after it is exactly what it has without a child (none)."""
    rounds = 2 * (len(HOW) + 1)
    job = mpi("child", 2, 8 << 20, "none", *HOW, regx={
        "rendezvous": "direct", "backend": backend, "cache_bytes": "1G"}).checked(ranks=2)
    for report in job.carried("direct").reports:
        # Two buffers: new in each round's middle, the same at the next one's beginning.
        kept = 2 * (rounds - 1) if backend != "retain" else 4 * rounds - 2
        assert report["hits"] == kept and report["uncached"] == 0, str(job)
        assert report["misses"] == 4 * rounds - kept, str(job)
        assert report["invalidations"] == (2 * rounds if backend != "retain" else 0), str(job)


def test_fork_during_a_transfer_by_chunks(mpi: Mpi) -> None:
    mpi("child", 1, 8 << 20, *HOW, regx={"rendezvous": "pipeline"}).checked(ranks=2)


@pytest.mark.parametrize("strategy", [*strategies(), "auto"])
@pytest.mark.parametrize("who", [(0,), (1,), (0, 1)], ids=str)
def test_a_child_that_goes_on_with_messages_sends_its_own_memory(mpi: Mpi, who: tuple[int, ...], strategy: str) -> None:
    """The parent, whose number and memory peers know, only waits. Nobody can end MPI then, so there is no report."""
    for before in 0, 1:
        job = mpi("instead", before, *who, regx={"rendezvous": strategy})
        assert job.stdout == f"checked {(1 + before) * 2 * 2 * BYTES} bytes\n", str(job)


@pytest.mark.parametrize("backend", ["none", "hooks"])
@pytest.mark.parametrize("who", [(0,), (1,), (0, 1)], ids=str)
def test_over_pinned_such_a_child_bounces(mpi: Mpi, who: tuple[int, ...], backend: str) -> None:
    """The ring, and what is pinned there, is its parent's."""
    for before in 0, 1:
        job = mpi("instead", before, *who, regx={"transport": "pinned", "rendezvous": "pipeline", "backend": backend})
        assert job.stdout == f"checked {(1 + before) * 2 * 2 * BYTES} bytes\n", str(job)
