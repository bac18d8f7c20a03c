# SPDX-License-Identifier: BSD-3-Clause
"""Hazards 22 and 27: children made in mid-transfer that stay alive; memory unmapped after
MPI_Finalize."""
import pytest

from launch import Mpi

WATCHING = {"hooks", "notifier", "hooks+notifier"}
HOW = ["none", "fork", "vfork", "spawn", "system", "popen", "clone"]


@pytest.mark.parametrize("how", HOW)
def test_fork_during_a_transfer_leaves_the_parents_data_right(
        mpi: Mpi, backend: str, how: str) -> None:
    """What the parent has after it is exactly what it has without a child (none)."""
    rounds = 5
    job = mpi("child", how, rounds, 8 << 20, regx={
        "rendezvous": "direct", "backend": backend, "cache_bytes": "1G"}).checked(ranks=2)
    for report in job.carried("direct").reports:
        if backend in WATCHING:
            # Two buffers: new in each round's middle, the same at the next one's beginning.
            assert report["hits"] <= 2 * (rounds - 1), str(job)
            assert report["hits"] >= rounds - 1, f"the control\n{job}"
            assert report["invalidations"] >= 2 * (rounds - 1), str(job)
        elif backend == "retain":
            assert report["hits"] == 4 * rounds - 2, str(job)


@pytest.mark.parametrize("strategy", ["pipeline", "bounce"])
def test_fork_during_a_transfer_by_any_strategy(mpi: Mpi, strategy: str) -> None:
    for how in HOW:
        mpi("child", how, 3, 8 << 20, regx={"rendezvous": strategy}).checked(ranks=2)


def test_memory_may_be_unmapped_after_finalize(mpi: Mpi, backend: str) -> None:
    """Nothing hangs or crashes, and no thread and no descriptor is left."""
    job = mpi("after", 300_000, regx={"rendezvous": "direct", "backend": backend})
    notifier = int("notifier" in backend)
    looked = [line for line in job.checked(ranks=2).stderr.splitlines()
              if line.startswith("before: ")]
    assert looked == 2 * [f"before: userfaultfd {notifier}, reader {notifier}"], \
        f"the look sees what there is\n{job}"
    for report in job.reports:
        assert (report["hits"] > 0) == (backend != "none"), str(job)
