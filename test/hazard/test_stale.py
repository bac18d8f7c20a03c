# SPDX-License-Identifier: BSD-3-Clause
"""Hazards 1, 3 and 9: memory that is unmapped and mapped again where it was registered.

Every byte is checked; what is proven here are the counts: the changed range misses after each
change and no sooner, the control hits. Nothing can be stale on these wires, which register nothing
with a device: that the counts are those of fresh data is shown on io_uring, in test/registration."""
import pytest

from launch import Mpi

SIZE = 20_000
USES = 3  # of either buffer in a round
SEES = {"libc": {"hooks", "notifier", "hooks+notifier"}, "raw": {"notifier", "hooks+notifier"},
        "keep": set()}


@pytest.mark.parametrize("side", ["send", "receive"])
@pytest.mark.parametrize("how", SEES)
def test_the_same_address_with_new_pages_sends_the_new_data(mpi: Mpi, backend: str, how: str,
                                                            side: str) -> None:
    rounds = 10_000 if backend in SEES[how] else 500
    strategy = {"send": "direct", "receive": "pipeline"}[side]
    job = mpi("stale", how, side, rounds, SIZE, timeout=600,
              regx={"rendezvous": strategy, "backend": backend}).checked(ranks=2)
    job.carried(strategy)
    changing, fixed = (job.rank(rank) for rank in ((0, 1) if side == "send" else (1, 0)))
    uses = 2 * USES * rounds
    for report in (changing, fixed):
        assert report["hits"] + report["misses"] + report["uncached"] == uses, str(job)
    if backend == "none":
        for report in (changing, fixed):
            assert report["uncached"] == report["deregistrations"] == uses, str(job)
        return
    assert fixed["hits"] >= 0.99 * uses, f"the side that changes nothing\n{job}"
    if backend not in SEES[how]:  # documented blind, or nothing to be seen
        assert changing["hits"] >= 0.99 * uses and changing["invalidations"] == 0, str(job)
        return
    assert rounds + 1 <= changing["misses"] <= 1.01 * rounds + 1, f"the changed buffer\n{job}"
    assert changing["invalidations"] in (rounds - 1, rounds), str(job)
    assert 0.99 * (2 * USES - 2) * rounds <= changing["hits"] <= (2 * USES - 1) * rounds, \
        f"the control, and the changed buffer before it changed\n{job}"
    if backend == "hooks+notifier":
        # Where the reader lags behind, a new registration has made the hook's word old.
        least, most = (rounds - 1, rounds + 20) if how == "raw" else (0, changing["uncached"] + 20)
        assert least <= changing["hooks_missed"] <= most, str(job)


@pytest.mark.parametrize("side", ["send", "receive"])
def test_the_same_address_with_new_pages_over_tcp(mpi: Mpi, backend: str, side: str) -> None:
    """Where the receiver itself checks each write against what is registered."""
    rounds = 500
    job = mpi("stale", "raw", side, rounds, 100_000, timeout=300, regx={
        "rendezvous": "pipeline", "backend": backend, "chunk_size": "16K", "uct_tls": "tcp"})
    job.checked(ranks=2).carried("pipeline").over("tcp")
    changing = job.rank(0 if side == "send" else 1)
    chunks = 7  # of one message
    if backend in SEES["raw"]:
        assert changing["misses"] + changing["uncached"] >= chunks * (rounds + 1), str(job)
        assert changing["hits"] >= 0.99 * (2 * USES - 2) * chunks * rounds, f"the control\n{job}"


def test_one_munmap_of_very_many_regions_is_seen(mpi: Mpi, backend: str) -> None:
    count, size = 5000, 20_480
    job = mpi("many", count, size, timeout=300, regx={
        "rendezvous": "direct", "backend": backend, "cache_count": "unlimited",
        "cache_bytes": "unlimited"}).checked(ranks=2).carried("direct")
    sender, receiver = job.rank(0), job.rank(1)
    if backend == "none":
        assert sender["registrations"] == sender["deregistrations"] == 3 * count, str(job)
        return
    assert receiver["hits"] >= 0.99 * 3 * count, f"the control\n{job}"
    if backend == "retain":  # documented blind
        assert sender["hits"] >= 0.99 * 2 * count and sender["invalidations"] == 0, str(job)
        return
    assert 0.99 * count <= sender["hits"] <= count, f"before the change\n{job}"
    assert sender["misses"] + sender["uncached"] >= 2 * count, f"after it\n{job}"
    # It is acted on in parts: what is registered anew between two of them may end with the old.
    assert 0.99 * count <= sender["invalidations"] <= 1.01 * count, str(job)
