# SPDX-License-Identifier: BSD-3-Clause
"""Hazards 22 and 27: children made in mid-transfer that stay alive; memory unmapped after
MPI_Finalize, when nothing may hang or crash, and no thread is left."""
import pytest

from launch import Mpi

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
