# SPDX-License-Identifier: BSD-3-Clause
"""Hazards 8, 10 and 17: malloc and free under a cache of registrations."""
import pytest

from launch import Mpi

TINY = {"cache_bytes": "1M", "slot_size": "64K", "pool_size": "128K", "chunk_depth": 1}


@pytest.mark.parametrize("backend", ["hooks"], indirect=True)
def test_nothing_is_allocated_within_munmap(mpi: Mpi, backend: str) -> None:
    """Hazard 8. That changes were seen there is told by the regions that they ended."""
    rounds, uses = 100, 4
    job = mpi("allocator", "nested", rounds, 100_000,
              regx={"rendezvous": "direct", "backend": backend}).checked(ranks=2).carried("direct")
    for report in job.reports:
        assert report["misses"] + report["hits"] == uses * rounds, str(job)
        assert report["misses"] > rounds, str(job)
        # Where a block lies in each way to allocate one is kept at the end, at the most.
        assert report["misses"] - report["invalidations"] <= uses, str(job)


@pytest.mark.parametrize("backend,strategy", [
    ("notifier", "direct"), ("hooks+notifier", "pipeline")], indirect=["backend"])
def test_threads_that_allocate_exchange_right_data(mpi: Mpi, full: bool, backend: str,
                                                   strategy: str) -> None:
    """Hazard 10, on a cache that has room for two regions."""
    rounds, bytes_ = 2000 if full else 60, 1 << 20
    job = mpi("threads", "--storm", "--rounds", rounds, "--largest", 400_000, timeout=900, regx={
        "rendezvous": strategy, "backend": backend, "cache_bytes": bytes_})
    job.checked(ranks=2).carried(strategy)
    for report in job.reports:
        assert report["registered_bytes"] <= bytes_, str(job)
        assert report["evictions"] + report["invalidations"] > 0, str(job)


@pytest.mark.parametrize("backend", ["notifier"], indirect=True)
def test_the_smallest_cache_and_pool_are_enough(mpi: Mpi, backend: str) -> None:
    """Hazard 17: a cache of 1 MiB, two slots, one chunk in flight."""
    regx = {"rendezvous": "pipeline", "backend": backend, **TINY}
    job = mpi("collective", "--sizes", "100,40000,300001,3000000", "alltoall", "bcast", ranks=3,
              regx=regx).checked(ranks=3)
    for report in job.reports:
        assert report["registered_bytes"] <= 1 << 20, str(job)
    assert job.total("evictions") + job.total("uncached") > 0, str(job)
