# SPDX-License-Identifier: BSD-3-Clause
"""Hazards by their numbers, over an RDMA device. Number 1 is in test_verbs_stale.py, 14 and 24 (a
peer is killed) in test_verbs.py, 15 in test_verbs_faults.py, 2 to 5 in test/registration."""
import random
from pathlib import Path

import pytest

import device
import sample
from sample import MIB, Case

pytestmark = device.needed

STRATEGIES = ["bounce", "pipeline", "direct", "read"]
CACHING = ["hooks", "notifier", "hooks+notifier"]
BACKENDS = ["none", *CACHING]
CHILDREN = ["fork", "vfork", "spawn", "clone"]
NOT_KEPT = ("not watched: ", "odp: pinned, ")  # what was registered could not be


def test_hazard_16_many_buffers(verbs, full: bool) -> None:
    """More than are kept, and one munmap over all of them. Not so many that the cache forgets a buffer
    before it is used again: it makes room only for what it has seen before."""
    count, size, kept = (4_000 if full else 1_500), 4096, 1_000
    job = verbs("many", count, size, timeout=3600 if full else 600, regx={
        "rendezvous": "direct", "backend": "hooks+notifier", "eager_limit": 1024,
        "cache_bytes": kept * size})
    job.checked(ranks=2).over("verbs").carried("direct", but=NOT_KEPT)
    sender, receiver = job.rank(0), job.rank(1)
    assert sender["evictions"] >= count - kept, str(job)
    assert receiver["hits"] >= 0.99 * 3 * count, f"the control\n{job}"


@pytest.mark.parametrize("side,how,why", [
    ("send", "early", "sender: not mapped"), ("send", "protect", "sender: not readable"),
    ("receive", "early", "receiver: not mapped"), ("receive", "protect", "receiver: not writable")])
def test_hazard_16_refusals_are_told_apart(verbs, side: str, how: str, why: str) -> None:
    """Those by what is mapped; test_verbs_faults.py has the device that is full, test_verbs.py the
    limit of locked memory, test/registration/test_limits.py the number of mappings."""
    job = verbs("inuse", side, how, 3 * MIB, 8 * 4096, regx={
        "rendezvous": "pipeline", "backend": "none", "rndv_eager_limit": 0},
                mca={"btl_base_verbose": 100})
    job.lost(side, why.partition(": ")[2])
    assert job.stderr.count(f"fallback: {why}") == 1, str(job)


@pytest.mark.parametrize("backend", ["none", "hooks"])
def test_hazard_16_more_under_way_than_may_be_pinned(verbs, backend: str) -> None:
    """What finds no room among the registrations for one use bounces; the kernel is asked what is
    pinned. (On a machine with less memory than that: test_working_set.py.)"""
    once, own = 4 * MIB, 32 * MIB  # own: pool and buffers of the transport, at the most
    job = verbs("working_set", 32, 2 * MIB, 2, once + own, mca={"btl_base_verbose": 10}, regx={
        "rendezvous": "direct", "backend": backend, "cache_bytes": "1M", "once_bytes": once})
    job.checked(ranks=2).over("verbs")
    assert job.stderr.count(f"at most {once // 2} bytes pinned for one use") == 2, str(job)
    reasons = job.reasons("fallbacks")
    assert any(reason.endswith(": over btl_regx_once_bytes") for reason in reasons), str(job)
    assert job.total("messages_direct") > 0 and job.total("messages_fallback") > 0, str(job)
    assert 0 < job.most("registered_high") <= once, str(job)


@pytest.mark.parametrize("backend", CACHING)
def test_hazard_17_little_of_everything(verbs, tmp_path: Path, seed: int, backend: str) -> None:
    """A cache of 1 MiB, two slots, one chunk in flight."""
    cases = sample.write([Case(size, 5, 6, pattern="both", window=3)
                          for size in (20_000, 300_001, 3 * MIB)], tmp_path)
    strategy = random.Random(f"{seed} {backend}").choice(["pipeline", "direct"])
    job = verbs("transfer", "--seed", seed, "--iterations", 2, cases, regx={
        "rendezvous": strategy, "backend": backend, "chunk_depth": 1, "pool_size": "128K",
        "slot_size": "64K", "rndv_eager_limit": 0, "cache_bytes": "1M"})
    job.checked(ranks=2).over("verbs").carried(strategy, but=NOT_KEPT)
    for report in job.reports:
        assert report["registered_bytes"] <= MIB + 2 * 4096, f"more is kept than may be\n{job}"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_hazard_20_every_kind_of_memory(verbs, tmp_path: Path, seed: int, strategy: str) -> None:
    """Read-only send buffers among them: a string literal, .rodata, a mapped file."""
    lots = BACKENDS + ["odp"] * device.pages_on_demand()
    backend = random.Random(f"{seed} {strategy} 20").choice(lots)
    job = verbs("memory", tmp_path, 100, 65_537, 4_000_000,
                regx={"rendezvous": strategy, "backend": backend})
    job.checked(ranks=2).over("verbs").carried(strategy, but=NOT_KEPT)


@pytest.mark.parametrize("how", CHILDREN)
def test_hazard_22_child_in_mid_transfer(verbs, full: bool, seed: int, how: str) -> None:
    """One that stays alive, and writes all around the buffers."""
    lots = random.Random(f"{seed} {how} 22")
    for backend in BACKENDS if full else [lots.choice(BACKENDS)]:
        for strategy in STRATEGIES if full else [lots.choice(STRATEGIES)]:
            job = verbs("child", 3, 4 * MIB, how, regx={"rendezvous": strategy, "backend": backend})
            job.checked(ranks=2).over("verbs").carried(strategy, but=NOT_KEPT)
