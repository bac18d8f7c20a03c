# SPDX-License-Identifier: BSD-3-Clause
"""Hazard 1 on a device, which really sends the pages that it was given when memory was registered.

The same address, new pages: an application unmaps a buffer, maps another at its address, and sends
or receives again. Who learns of that sends the new bytes. Who does not (hooks, of raw system calls)
is seen to send the old ones: that is what all backends are for, and that this test would notice."""
import pytest

import device
from job import Job
from launch import Mpi

pytestmark = device.needed

SIZE = 100_000
USES = 3  # of either buffer in a round
BACKENDS = ["none", "hooks", "notifier", "hooks+notifier", "odp"]
BLIND = {("hooks", "raw")}


def stale(mpi: Mpi, backend: str, how: str, side: str, rounds: int) -> Job:
    return mpi("stale", how, side, rounds, SIZE, around=["chrt", "-i", "0"], timeout=600,
               regx={"transport": "verbs", "rendezvous": "direct", "backend": backend,
                     "admit": "first", "odp_prefetch": "touch"})


@pytest.mark.parametrize("side", ["send", "receive"])
@pytest.mark.parametrize("how", ["libc", "raw"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_same_address_new_pages(mpi: Mpi, full: bool, backend: str, how: str, side: str) -> None:
    rounds = 1000 if full else 40
    job = stale(mpi, backend, how, side, rounds)
    if (backend, how) in BLIND:
        assert job.status != 0 and "a buffer whose pages are new" in job.stderr, \
            f"old bytes were to be seen\n{job}"
        return
    job.checked(ranks=2).carried("direct").over("verbs")
    changing, fixed = (job.rank(rank) for rank in ((0, 1) if side == "send" else (1, 0)))
    uses = 2 * USES * rounds
    for report in (changing, fixed):
        assert report["hits"] + report["misses"] + report["uncached"] == uses, str(job)
    if backend == "none":
        assert changing["uncached"] == changing["deregistrations"] == uses, str(job)
    elif backend == "odp":  # nothing has changed for it
        assert changing["misses"] == fixed["misses"] == 2, str(job)
        assert changing["hits"] == fixed["hits"] == uses - 2, str(job)
    else:
        assert changing["misses"] + changing["uncached"] >= rounds + 1, str(job)
        assert changing["hits"] >= USES * rounds, f"the control\n{job}"
        assert fixed["hits"] >= 0.99 * uses, f"the side that changes nothing\n{job}"


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_changes(mpi: Mpi, backend: str) -> None:
    job = stale(mpi, backend, "keep", "send", 20)
    job.checked(ranks=2).carried("direct").over("verbs")
    if backend != "none":
        assert job.total("hits") >= 0.9 * 2 * 2 * USES * 20, str(job)
