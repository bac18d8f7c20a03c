# SPDX-License-Identifier: BSD-3-Clause
"""Hazards 1, 3 and 9: memory that is unmapped and mapped again where it was registered.

Nothing can be stale on a node, where nothing is registered with a device; that content is right is
shown by test_verbs_stale.py and, on io_uring, by test/registration. What is shown here is that within
Open MPI each change ends what was kept of it, and nothing else does: by counts, which are exact."""
import pytest

from launch import Mpi

ROUNDS, SIZE = 1000, 36_000
USES = 3  # of either buffer in a round
HOW = [("hooks", "libc", "send", True), ("hooks", "raw", "send", False),  # documented blind
       ("notifier", "raw", "send", True), ("notifier", "libc", "receive", True),
       ("hooks+notifier", "raw", "receive", True), ("hooks+notifier", "libc", "send", True),
       ("retain", "libc", "send", False), ("notifier", "keep", "send", False)]


@pytest.mark.parametrize("backend,how,side,seen", HOW, indirect=["backend"])
def test_the_same_address_with_new_pages_sends_the_new_data(mpi: Mpi, backend: str, how: str,
                                                            side: str, seen: bool) -> None:
    strategy = {"send": "direct", "receive": "pipeline"}[side]
    job = mpi("stale", how, side, ROUNDS, SIZE,
              regx={"rendezvous": strategy, "backend": backend}).checked(ranks=2)
    job.carried(strategy)
    changing, fixed = (job.rank(rank) for rank in ((0, 1) if side == "send" else (1, 0)))
    uses = 2 * USES * ROUNDS
    for report in (fixed, *([] if seen else [changing])):
        assert (report["hits"], report["misses"], report["uncached"]) == (uses - 2, 2, 0), str(job)
        assert report["invalidations"] == 0, str(job)
    if not seen:
        return
    # The control once, and the buffer after each change: before it is kept it may serve itself alone.
    assert changing["misses"] == ROUNDS + 1 and changing["invalidations"] == ROUNDS - 1, str(job)
    assert changing["uncached"] <= (0 if backend == "hooks" else ROUNDS // 2), str(job)
    assert changing["hits"] + changing["misses"] + changing["uncached"] == uses, str(job)


@pytest.mark.parametrize("backend", ["notifier"], indirect=True)
def test_one_munmap_of_very_many_regions_is_seen(mpi: Mpi, backend: str) -> None:
    """What is unmapped last is given up though no further message comes (hazard 18)."""
    count, size = 5000, 36_864
    job = mpi("many", count, size, regx={
        "rendezvous": "direct", "backend": backend, "cache_bytes": "unlimited"})
    job.checked(ranks=2).carried("direct")
    sender, receiver = job.rank(0), job.rank(1)
    assert receiver["hits"] == 3 * count - 1, f"the control\n{job}"
    assert sender["hits"] == count and sender["misses"] == 2 * count, str(job)
    # It is acted on in parts: what is registered anew between two of them may end with the old.
    assert 2 * count <= sender["invalidations"] < 3 * count and sender["uncached"] == 0, str(job)
