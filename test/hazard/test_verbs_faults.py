# SPDX-License-Identifier: BSD-3-Clause
"""An RDMA device that refuses, fails in the middle, or has little of everything: by a layer between
regx and libibverbs. Whatever happens, what is made is destroyed before a process ends that ends by
itself."""
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import device
import sample
import softroce
from job import Job
from launch import Build
from sample import MIB, Case

pytestmark = device.needed

CHUNK, CHUNKS = 256 << 10, 5
OPENING = 3  # registrations of the transport itself: receive buffers, slots and the pool
OPERATIONS = ["SEND", "RDMA WRITE", "RDMA READ"]
FAULTS = {"post": "Input/output error", "sent": "remote operation error",
          "error": "Work Request Flushed Error"}
ENDED = "queue pair: last WQE reached"


class Faulty:
    """Starts jobs with the layer told what to do."""

    def __init__(self, verbs: Callable[..., Job], build: Build, folder: Path) -> None:
        self.verbs = verbs
        self.build = build
        self.report = folder / "objects"

    def __call__(self, *program: object, strategy: str = "pipeline", backend: str = "none",
                 regx: dict[str, object] | None = None, layer: dict[str, object] | None = None,
                 **how: Any) -> Job:
        settings = {"rendezvous": strategy, "backend": backend, "rndv_eager_limit": 0,
                    "chunk_size": CHUNK, **(regx or {})}
        return self.verbs(*program, regx=settings, **how,
                          within=softroce.layer(self.build, **(layer or {}), report=self.report))

    def objects(self) -> list[dict[str, list[int]]]:
        """What each process made, and what is left of it."""
        lines = self.report.read_text().splitlines() if self.report.exists() else []
        return [json.loads(line) for line in lines]


@pytest.fixture
def faulty(verbs: Callable[..., Job], build: Build, tmp_path: Path) -> Iterator[Faulty]:
    start = Faulty(verbs, build, tmp_path)
    yield start
    for line in start.objects():
        left = {name: left for name, (_, left) in line.items() if left != 0}
        assert not left, f"left at the end: {left}"


@pytest.mark.parametrize("strategy,backend,count", [
    pytest.param("pipeline", "none", 2 * CHUNKS, marks=pytest.mark.core),
    ("direct", "none", 2), ("pipeline", "notifier", 2 * CHUNKS),
    pytest.param("direct", "hooks", 2, marks=pytest.mark.core)])
def test_bytes_whose_registration_is_refused_bounce(faulty: Faulty, strategy: str, backend: str,
                                                    count: int) -> None:
    """Hazard 15: of those that a message of five chunks and one back take at each end, one after
    the other. Those bytes bounce, counted."""
    job = faulty("refused", count, CHUNKS * CHUNK, strategy=strategy, backend=backend)
    job.checked(ranks=2).over("verbs")
    refused = 2 * count
    paths = job.total("bytes_bounce"), job.total(f"bytes_{strategy}")
    assert sum(paths) == 2 * refused * CHUNKS * CHUNK, str(job)
    assert min(paths) > 0, str(job)
    bounced = sum(job.reasons("fallbacks").values())
    assert set(job.reasons("fallbacks")) <= {
        f"{end}: no room in kernel or device" for end in ("sender", "receiver")}, str(job)
    assert job.total("messages_fallback") == bounced, str(job)
    if backend == "none":
        # What a sender registers before the CTS, and is refused, it registers again when the CTS has come.
        early = 2 if strategy == "pipeline" else 0
        assert refused - early <= bounced <= refused, str(job)
        assert job.total("registrations") == job.total("deregistrations"), str(job)
    else:  # what is dead is given up first, and then it may be tried again
        assert 0 < bounced <= refused, str(job)
    assert len(faulty.objects()) == 2


@pytest.mark.core
def test_what_may_not_be_registered_to_be_read_bounces(faulty: Faulty) -> None:
    """Of two messages each way the first registration is refused at each end, and of two the second: the whole
    at the sender, which has it written, or the receiver's, which bounces."""
    job = faulty("refused", 2, CHUNKS * CHUNK, strategy="read", backend="none")
    job.checked(ranks=2).over("verbs")
    assert job.total("bytes_bounce") == 2 * CHUNKS * CHUNK < job.total("bytes_read"), str(job)
    assert job.reasons("fallbacks") == {
        "sender: no room in kernel or device": 2, "the sender lets nothing be read": 2,
        "receiver: no room in kernel or device": 2}, str(job)
    assert job.total("messages_fallback") == 4, str(job)


@pytest.mark.parametrize("number", range(1, OPENING + 1))
def test_refused_buffers_end_verbs_a_refused_pool_is_smaller(faulty: Faulty, number: int) -> None:
    """Without its buffers the transport is none; the pool is made smaller instead."""
    job = faulty("collective", "--sizes", "10,100000", "bcast", btl="regx,vader,self",
                 layer={"reg": number})
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    if number < OPENING:
        job.warned("cannot register")
    else:
        assert not job.complaints, str(job)
        assert job.reasons("fallbacks") == {"pool: smaller than asked for": 2}, str(job)


@pytest.mark.parametrize("strategy,fault", [("bounce", "sent"), ("pipeline", "post"),
                                            ("direct", "error"), ("read", "sent")])
def test_a_failure_is_named_in_one_line_and_ends_the_job(faulty: Faulty, tmp_path: Path, full: bool,
                                                         seed: int, strategy: str,
                                                         fault: str) -> None:
    """A post that is refused, a completion in error, a queue pair that is driven to error. One line
    names the peer, the operation and the status; then Open MPI ends the job. Who has nothing under
    way when its queue pair fails hears of that from the device, or its peer does."""
    numbers = [1, 2, 3, 4, 5, 10]
    cases = sample.write([Case(CHUNKS * CHUNK, send="send", receive="recv")], tmp_path)
    for number in numbers if full else random.Random(f"{seed} {strategy} {fault}").sample(numbers, 1):
        job = faulty("transfer", "--iterations", 20, cases, strategy=strategy,
                     layer={"rank": 0, fault: number, "timeout": 14})
        assert job.status != 0, str(job)
        lost = {rank: [line for line in job.complaints if f"connection to rank {rank}" in line]
                for rank in (0, 1)}
        assert len(lost[1]) == 1 or (fault == "error" and len(lost[0]) == 1), str(job)
        for line in lost[1]:
            assert FAULTS[fault] in line or (fault == "error" and ENDED in line), str(job)
        for line in lost[1] + lost[0]:
            assert ENDED in line or any(f"{what}: " in line for what in OPERATIONS), str(job)
        assert all("transport retry counter exceeded" in line for line in lost[0]), str(job)
        assert "checked" not in job.stdout, str(job)


@pytest.mark.parametrize("rank,layer,says", [
    (0, {"make": 1}, "making a queue pair: Cannot allocate memory"),
    (1, {"modify": 1}, "making a queue pair: Connection timed out"),
    (0, {"modify": 2}, ""),
    (1, {"modify": 3}, "connecting the queue pair: Connection timed out")], ids=str)
def test_who_can_make_no_queue_pair_says_so_and_no_rank_waits(faulty: Faulty, tmp_path: Path, rank: int,
                                                              layer: dict[str, object], says: str) -> None:
    """Neither for the rank that speaks first, nor for the one that answers: that one says so, and the
    other does not wait. By the second call the network is asked for a route, and then once more. (What else
    fails while connecting: test/unit/transport/verbs/test_faults.c.)"""
    cases = sample.write([Case(CHUNKS * CHUNK, send="send", receive="recv")], tmp_path)
    job = faulty("transfer", "--iterations", 1, cases, layer={"rank": rank, **layer})
    assert (job.status == 0) == ("checked" in job.stdout) == (says == ""), str(job)
    if says:
        job.warned(f"connection to rank {1 - rank} ", f"lost ({says})")


@pytest.mark.parametrize("strategy", ["bounce", "pipeline"])
def test_the_smallest_queues_carry_all_messages(faulty: Faulty, tmp_path: Path, seed: int,
                                                strategy: str) -> None:
    """One receive buffer for all peers, a completion queue that just holds what one peer may have
    under way, a pool of two slots."""
    cases = sample.write([Case(size, pattern=pattern, window=window)
                          for size, window in ((100, 40), (12_000, 8), (300_001, 4))
                          for pattern in ("fan", "both")], tmp_path)
    job = faulty("transfer", "--seed", seed, "--iterations", 1, cases, ranks=3, strategy=strategy,
                 layer={"srq": 1, "cq": 257}, regx={"pool_size": "128K", "slot_size": "64K"})
    job.checked(ranks=3).over("verbs")
    assert len(faulty.objects()) == 3


def test_queues_that_are_too_small_refuse_verbs_in_one_line(faulty: Faulty) -> None:
    job = faulty("collective", "--sizes", "10", "bcast", btl="regx,vader,self", layer={"cq": 200})
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    job.warned("gives no completion queue")


def test_the_cache_keeps_no_more_than_the_device_has(faulty: Faulty) -> None:
    """What is registered for one use alone may come on top: then a region makes way, and nothing bounces."""
    regions, buffers = 40, 100
    job = faulty("many", buffers, 4096, strategy="direct", backend="hooks", layer={"mr": regions},
                 regx={"eager_limit": 1024})
    job.checked(ranks=2).over("verbs")
    assert not job.reasons("fallbacks"), str(job)
    assert job.rank(0)["evictions"] >= buffers - regions, str(job)
    assert job.most("registered_high") <= (regions - OPENING) * 4096, str(job)


@pytest.mark.parametrize("backend", ["none", "hooks"])
def test_messages_longer_than_a_region_may_be_bounce(faulty: Faulty, tmp_path: Path, backend: str) -> None:
    """What is longer than a region may be bounces, and nothing is given up for it; the pool is as
    large as can be."""
    most = 4 * MIB
    cases = sample.write([Case(size, send="send", receive="recv")
                          for size in (100_000, most + 4096)], tmp_path)
    job = faulty("transfer", "--iterations", 3, cases, strategy="direct", backend=backend,
                 layer={"mr_size": most})
    job.checked(ranks=2).over("verbs")
    reasons = job.reasons("fallbacks")
    assert reasons.pop("pool: smaller than asked for") == 2, str(job)
    assert set(reasons) == {"receiver: no room in kernel or device"}, str(job)
    assert job.total("bytes_bounce") == sum(reasons.values()) * (most + 4096), str(job)
    assert job.total("bytes_direct") > 0 and job.total("evictions") == 0, str(job)
    assert [line["too much"][0] for line in faulty.objects()] == [0, 0], str(job)


@pytest.mark.parametrize("backend", ["none", "notifier"])
def test_every_object_of_the_device_is_given_back(faulty: Faulty, tmp_path: Path, backend: str) -> None:
    cases = sample.write([Case(CHUNKS * CHUNK, send="send", receive="recv")], tmp_path)
    faulty("transfer", "--iterations", 3, cases, backend=backend).checked(ranks=2)
    assert len(faulty.objects()) == 2
    for line in faulty.objects():
        # One for the peer, one for datagrams, one that tries what the device can.
        assert line["qp"][0] == 3, line
        assert line["srq"][0] == line["cq"][0] == 1, line
        if backend == "none":
            assert line["mr"][0] == OPENING + 2 * 3 * CHUNKS, line
