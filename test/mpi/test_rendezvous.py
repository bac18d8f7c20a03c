# SPDX-License-Identifier: BSD-3-Clause
"""Each strategy does what its name says: one message of 8 MiB from rank 1 to rank 0, counted."""
from pathlib import Path
from typing import Any

import pytest

import sample
from launch import Mpi, at_ranks
from job import Job
from sample import MIB, Case
from tables import strategies

SIZE = 8 * MIB
CHUNK = MIB
SENDER, RECEIVER = 1, 0


def sent(mpi: Mpi, folder: Path, **regx: Any) -> Job:
    """Its base is not at the start of a page, so cuts from the base are not page boundaries."""
    file = sample.write([Case(SIZE, 100, 200, pattern="fan")], folder)
    job = mpi("transfer", "--iterations", 1, file,
              regx={"rndv_eager_limit": 0, "chunk_size": "1M", **regx})
    return job.checked(ranks=2).over("shm")


def one_message(mpi: Mpi, folder: Path, **regx: Any) -> Job:
    return sent(mpi, folder, **regx).carried(regx["rendezvous"], range(SIZE, SIZE + 1))


def registered(report: dict[str, Any], times: set[int]) -> None:
    """On each side that registers; a wire that needs no registration on one side has none there."""
    assert report["registrations"] in times, report
    assert report["deregistrations"] == report["registrations"], report
    assert report["registered_bytes"] == 0, report


@pytest.mark.parametrize("strategy,puts", [("pipeline", 8), ("direct", 1)])
def test_each_put_is_of_what_was_registered_for_it(mpi: Mpi, tmp_path: Path, strategy: str, puts: int) -> None:
    """By chunks, or whole."""
    depth = 4
    job = one_message(mpi, tmp_path, rendezvous=strategy, chunk_depth=depth)
    sender, receiver = job.rank(SENDER), job.rank(RECEIVER)
    assert (sender["puts"], receiver["puts"]) == (puts, 0), str(job)
    registered(receiver, {puts})
    registered(sender, {0, puts})
    assert strategy == "direct" or receiver["registered_high"] <= depth * CHUNK, str(job)
    assert job.most("slots_high") == 0, str(job)


@pytest.mark.parametrize("strategy", ["read", "together"])
def test_the_receiver_reads_at_once_on_a_node(mpi: Mpi, tmp_path: Path, strategy: str) -> None:
    """What the sender exposed with the RTS: one get, nothing registered, no control message."""
    job = one_message(mpi, tmp_path, rendezvous=strategy)
    sender, receiver = job.rank(SENDER), job.rank(RECEIVER)
    assert (sender["puts"], sender["gets"]) == (0, 0), str(job)
    assert (receiver["puts"], receiver["gets"]) == (0, 1), str(job)
    assert (sender[f"messages_{strategy}"], receiver[f"messages_{strategy}"]) == (0, 1), str(job)
    assert job.total("registrations") == 0, str(job)
    assert job.most("slots_high") == 0, str(job)


@pytest.mark.parametrize("strategy", ["read", "together", "staged"])
def test_what_open_mpi_does_not_expose_is_written(mpi: Mpi, tmp_path: Path, strategy: str) -> None:
    job = sent(mpi, tmp_path, rendezvous=strategy, flags="send,put")
    assert (job.rank(SENDER)["puts"], job.rank(RECEIVER)["gets"]) == (8, 0), str(job)
    assert job.ways()["pipeline: fallback: the sender lets nothing be read"] == 1, str(job)


def test_bounce_goes_by_slots(mpi: Mpi, tmp_path: Path) -> None:
    job = one_message(mpi, tmp_path, rendezvous="bounce", slot_size="64K", pool_size="1M")
    sender, receiver = job.rank(SENDER), job.rank(RECEIVER)
    assert job.total("registrations") == 0, str(job)
    # Full slots, except where the first and the last are cut finer.
    assert SIZE // (64 << 10) <= sender["puts"] <= 256, str(job)
    assert receiver["puts"] == 0, str(job)
    assert 1 <= receiver["slots_high"] <= MIB // (64 << 10), str(job)


def test_two_slots_serve_any_number_of_peers(mpi: Mpi, tmp_path: Path, seed: int) -> None:
    """Hazard 17: they are enough for any number of peers."""
    ranks = 8
    cases = [Case(300_001, 5, 6, pattern="fan", window=8),
             Case(300_001, 5, 6, "vector", "contiguous", "fan", window=8),
             Case(2 * MIB + 1, 1, 2, pattern="both", window=2),
             Case(2 * MIB + 1, 1, 2, "contiguous", "vector", "both", window=2)]
    job = mpi("transfer", "--seed", seed, sample.write(cases, tmp_path), ranks=ranks,
              regx={"rendezvous": "bounce", "slot_size": "64K", "pool_size": "128K"})
    job.checked(ranks).carried("bounce").over("shm")
    assert 1 <= job.most("slots_high") <= 2, str(job)
    assert job.most("pool_bytes") == 128 << 10, str(job)


def test_queued_fragments_leave_a_slot_for_the_first(mpi: Mpi, tmp_path: Path) -> None:
    """Fragments queue for a receiver that comes late; none may hold the slot that the first needs.
    With one slot for fragments, a slot held behind the first is a hang."""
    case = Case(67886, 0, 730, "indexed", "contiguous", "both", "isend", "late", 200)
    job = mpi("transfer", "--iterations", 1, sample.write([case], tmp_path), ranks=2,
              regx={"rendezvous": "bounce", "pool_size": "128K", "slot_size": "64K"})
    job.checked(ranks=2)
    assert all(report["messages_frag"] > 0 for report in job.reports), str(job)


@pytest.mark.parametrize("size,row", [(70_000, 65_536), (MIB, MIB)])
def test_auto_tries_each_path_on_a_node(mpi: Mpi, tmp_path: Path, size: int, row: int) -> None:
    """Some messages go each way; which carries the others depends on time (unit/rendezvous has a clock
    of its own). So one size alone: on a busy machine a way may seem far worse, and then it is not tried for
    larger ones. There are enough messages for turns that are repeated."""
    count, window = 480, 8
    job = mpi("transfer", "--iterations", count // window, sample.write([Case(size, window=window)], tmp_path),
              regx={"rendezvous": "auto"}).checked(ranks=2)
    job.carried("auto").over("shm")
    assert sum(job.total(f"messages_{way}") for way in strategies()) == count * 2, str(job)
    found = {(its["from"], its["way"]) for report in job.reports for its in report["explain"] if its["MB/s"]}
    assert found == {(row, way) for way in ("staged", "read", "together")}, str(job)


@pytest.mark.parametrize("strategy,verify", [
    ("auto", 0), pytest.param("auto", 1, marks=pytest.mark.full), ("staged", 0), ("staged", 1)])
def test_what_is_staged_is_taken_from_where_its_sender_copies_it(mpi: Mpi, tmp_path: Path, strategy: str,
                                                                 verify: int) -> None:
    count = 200
    cases = [Case(size, 3, 5, pattern=pattern) for size in (20_001, 131_072, 300_001)
             for pattern in ("pair", "both")]
    job = mpi("transfer", "--iterations", count, sample.write(cases, tmp_path),
              regx={"rendezvous": strategy, "verify": verify})
    job.checked(ranks=2).carried(strategy).over("shm")
    assert 0 < job.total("stages_taken") <= job.total("messages_staged"), str(job)
    assert job.total("puts") == job.most("slots_high") == 0, str(job)  # none went to the pool, or was to go


def test_each_rank_may_have_its_own_strategy(mpi: Mpi, tmp_path: Path) -> None:
    """Hazard 26: where the receiver alone decides, each rank may have a value of its own."""
    file = sample.write([Case(3 * MIB + 1, 3, 4, pattern="both", window=3)], tmp_path)
    job = mpi("transfer", file, within=at_ranks({
        "0": {"rendezvous": "bounce", "chunk_size": "64K", "slot_size": "16K"},
        "1": {"rendezvous": "pipeline", "chunk_size": "1M"}})).checked(ranks=2)
    assert {report["rendezvous"] for report in job.reports} == {"bounce", "pipeline"}, str(job)
    assert job.total("messages_bounce") > 0 < job.total("messages_pipeline"), str(job)
