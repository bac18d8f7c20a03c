# SPDX-License-Identifier: BSD-3-Clause
"""Hazards 8, 10, 17 and 18: malloc and free under a cache of registrations."""
import pytest

from launch import Mpi

TINY = {"cache_bytes": "1M", "slot_size": "64K", "pool_size": "128K", "chunk_depth": 1}


@pytest.mark.parametrize("backend", ["hooks", "notifier", "hooks+notifier"], indirect=True)
def test_nothing_is_allocated_within_munmap(mpi: Mpi, backend: str) -> None:
    """Hazard 8. That changes were seen there is told by the regions that they ended."""
    rounds, uses = 100, 4
    job = mpi("reentry", rounds, 100_000,
              regx={"rendezvous": "direct", "backend": backend}).checked(ranks=2).carried("direct")
    for report in job.reports:
        assert report["misses"] + report["hits"] == uses * rounds, str(job)
        assert report["misses"] > rounds, str(job)
        # Where a block lies in each way to allocate one is kept at the end, at the most.
        assert report["misses"] - report["invalidations"] <= uses, str(job)


@pytest.mark.parametrize("backend,strategy", [
    ("notifier", "direct"), ("hooks+notifier", "pipeline"), ("hooks", "direct"), ("none", "pipeline")],
    indirect=["backend"])
def test_threads_that_allocate_exchange_right_data(mpi: Mpi, full: bool, backend: str,
                                                   strategy: str) -> None:
    """Hazard 10, on a cache that has room for two regions."""
    rounds, bytes_ = 2000 if full else 60, 1 << 20
    job = mpi("threads", "--storm", "--rounds", rounds, "--largest", 400_000, timeout=900, regx={
        "rendezvous": strategy, "backend": backend, "cache_bytes": bytes_})
    job.checked(ranks=2).carried(strategy)
    for report in job.reports:
        assert report["registered_bytes"] <= (0 if backend == "none" else bytes_), str(job)
        assert (report["evictions"] + report["invalidations"] > 0) == (backend != "none"), str(job)


@pytest.mark.parametrize("backend,strategy", [
    ("notifier", "pipeline"), ("hooks", "direct"), ("hooks+notifier", "auto")], indirect=["backend"])
def test_the_smallest_cache_and_pool_are_enough(mpi: Mpi, backend: str, strategy: str) -> None:
    """Hazard 17: a cache of 1 MiB, two slots, one chunk in flight."""
    regx = {"rendezvous": strategy, "backend": backend, **TINY}
    job = mpi("collective", "--sizes", "100,20000,300001,3000000", "alltoall", "bcast", ranks=3,
              regx=regx).checked(ranks=3)
    for report in job.reports:
        assert report["registered_bytes"] <= 1 << 20, str(job)
    if strategy != "auto":
        assert (job.total("evictions") + job.total("uncached") > 0), str(job)


@pytest.mark.parametrize("backend", ["hooks", "notifier", "hooks+notifier", "retain"], indirect=True)
def test_freed_memory_is_unpinned_without_another_message(mpi: Mpi, backend: str) -> None:
    """Hazard 18: without another message. Every block is mapped, and unmapped by free."""
    rounds = 200
    job = mpi("idle", rounds, 300_000, regx={"rendezvous": "direct", "backend": backend})
    for report in job.checked(ranks=2).carried("direct").reports:
        if backend == "retain":  # free keeps what it gets: one block each way, for ever
            assert report["hits"] == 2 * rounds - 2 and report["misses"] == 2, str(job)
            continue
        assert report["hits"] == 0 and report["registrations"] == 2 * rounds, str(job)
        assert report["deregistrations"] == 2 * rounds, str(job)
        assert report["registered_bytes"] == 0, str(job)


@pytest.mark.parametrize("backend", ["hooks+notifier"], indirect=True)
def test_memory_that_stays_in_the_heap_is_a_cache_hit(mpi: Mpi, backend: str) -> None:
    """The control: blocks that are freed and allocated again without leaving the heap."""
    rounds = 200
    job = mpi("idle", rounds, 60_000, regx={"rendezvous": "direct", "backend": backend})
    for report in job.checked(ranks=2).carried("direct").reports:
        assert report["hits"] == 2 * rounds - 2 and report["registrations"] == 2, str(job)
