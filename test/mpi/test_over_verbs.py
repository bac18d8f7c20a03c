# SPDX-License-Identifier: BSD-3-Clause
"""The MPI suite over an RDMA device."""
import random
from dataclasses import replace
from pathlib import Path

import pytest

import device
import sample
from launch import Build, at_ranks
from sample import MIB, PAGE, Case

STRATEGIES = ["bounce", "pipeline", "direct", "read"]
BACKENDS = ["none", "hooks", "notifier", "hooks+notifier", "odp"]
CORE = [("direct", "none"), ("direct", "odp")]  # of short runs: the others are in those of all sizes
ITERATIONS = 2
EAGER = 16_640  # bytes of a frame over verbs, to which regx lowers its limit

pytestmark = device.needed


def narrow(case: Case, slot: int) -> Case:
    """One at a time of what is large."""
    return replace(case, window=1 if case.size > slot + 1 else min(case.window, 8))


@pytest.mark.parametrize("strategy,backend", zip(STRATEGIES, ["none", "hooks", "hooks+notifier", "notifier"]))
@pytest.mark.core
def test_sizes_around_every_limit_are_right_over_verbs(verbs, build: Build, tmp_path: Path, full: bool, seed: int,
                                                       strategy: str, backend: str) -> None:
    eager, slot, chunk = EAGER, build.size("slot_size"), build.size("chunk_size")
    sizes = [1, PAGE + 1, 8192, eager - 1, eager, eager + 1, slot + 1, chunk - 1, chunk, chunk + 1,
             4 * MIB + 1, sample.ODD[STRATEGIES.index(strategy)] if full else sample.ODD[0]]
    rng = random.Random(f"{seed} {strategy} verbs")
    cases = [sample.of_size(size, rng, plain=True) for size in sizes]
    if full:  # but the multiples of a chunk between four and the most, which are gigabytes: an emulated
        # wire carries a hundred megabytes a second
        cases += sample.sample([size for size in sample.boundaries(eager, chunk, slot, sample.LARGEST)
                                if size <= 4 * chunk + 1 or size >= sample.LARGEST - 1 or size in sample.ODD],
                               None, rng.randrange(1 << 30))
    cases = [narrow(case, slot) for case in cases]
    job = verbs("transfer", "--seed", seed, "--iterations", ITERATIONS, sample.write(cases, tmp_path),
                regx={"rendezvous": strategy, "backend": backend, "rndv_eager_limit": 0})
    expected = sample.rendezvous_bytes(cases, eager, 2, ITERATIONS)
    job.checked(ranks=2).carried(strategy, expected).over("verbs")
    assert {report["backend"] for report in job.reports} == {backend}, str(job)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_kind_of_message_is_right_over_verbs(verbs, tmp_path: Path, seed: int,
                                                   strategy: str) -> None:
    cases = sample.every_kind(1000, 3) + sample.every_kind(200_001, 3)
    job = verbs("transfer", "--seed", seed, "--iterations", 1, sample.write(cases, tmp_path),
                regx={"rendezvous": strategy, "rndv_eager_limit": 0})
    expected = sample.rendezvous_bytes(cases, EAGER, 2, 1)
    job.checked(ranks=2).carried(strategy, expected).over("verbs")


@pytest.mark.parametrize("strategy,backend", [
    pytest.param(strategy, backend, marks=[pytest.mark.core] * ((strategy, backend) in CORE))
    for strategy, backend in [*(("direct", backend) for backend in BACKENDS),
                              *(("read", backend) for backend in ("none", "notifier", "odp"))]])
def test_each_backend_carries_short_runs_over_verbs(verbs, tmp_path: Path, seed: int, strategy: str, backend: str) -> None:
    """What is sent again from the same buffers is registered again, or not."""
    if backend == "odp" and not device.pages_on_demand():
        refused = verbs("transfer", "--seed", seed, sample.write([Case(8)], tmp_path),
                        btl="regx,vader,self", regx={"backend": "odp"})
        refused.left_out("btl_regx_backend=odp cannot be used: ",
                         " has no on-demand paging; always possible: none")
        return
    at = (0, 0) if backend == "odp" else (5, 6)  # test_on_demand.py says why
    cases = [Case(300_001, *at, window=2), Case(300_001, *at, pattern="both", window=2)]
    job = verbs("transfer", "--seed", seed, "--iterations", 5, sample.write(cases, tmp_path),
                regx={"rendezvous": strategy, "backend": backend, "rndv_eager_limit": 0})
    job.checked(ranks=2).carried(strategy).over("verbs")
    assert {report["backend"] for report in job.reports} == {backend}, str(job)
    uses = 2 * job.total(f"messages_{strategy}")  # at both ends
    if backend == "none":
        assert job.total("registrations") == job.total("deregistrations") == uses, str(job)
    else:
        assert 0 < job.total("registrations") < uses, str(job)
        # What a sender exposes and the receiver then reads in chunks is looked up once more.
        twice = job.total("messages_read") if backend != "odp" else 0
        assert 0 <= job.total("registrations") + job.total("hits") - uses <= twice, str(job)


@pytest.mark.parametrize("strategy,backend,ranks", [("auto", "notifier", 3), ("pipeline", "hooks", 8),
                                                    ("bounce", "none", 5)])
def test_several_ranks_carry_all_sizes_over_verbs(verbs, build: Build, tmp_path: Path, seed: int,
                                                  strategy: str, backend: str, ranks: int) -> None:
    """From eager messages to 4 MiB, in seeded kinds."""
    slot, chunk = build.size("slot_size"), build.size("chunk_size")
    rng = random.Random(f"{seed} {strategy}")
    sizes = [rng.randrange(1, EAGER), rng.randrange(slot, chunk), chunk + 1]
    cases = [replace(sample.of_size(size, rng, plain=False), window=3, pattern="fan") for size in sizes]
    cases.append(Case(4 * MIB, pattern="fan"))
    job = verbs("transfer", "--seed", seed, "--iterations", 1, sample.write(cases, tmp_path),
                ranks=ranks, regx={"rendezvous": strategy, "backend": backend})
    job.checked(ranks).over("verbs")
    assert {report["backend"] for report in job.reports} == {backend}, str(job)
    by = {path: job.total(f"messages_{path}") for path in STRATEGIES}
    assert sum(by.values()) == by.get(strategy, sum(by.values())) > 0, str(job)


@pytest.mark.parametrize("strategy,moves,others,each", [("pipeline", "puts", "gets", 5),
                                                        ("read", "gets", "puts", 1)])
def test_each_chunk_is_registered_once_at_each_end(verbs, tmp_path: Path, seed: int, strategy: str,
                                                   moves: str, others: str, each: int) -> None:
    """Fresh buffers or not, a message of five chunks makes five registrations at each end; one that is read
    whole makes one."""
    cases = [Case(5 * MIB)]
    job = verbs("transfer", "--seed", seed, "--iterations", 2, sample.write(cases, tmp_path),
                regx={"rendezvous": strategy, "backend": "none", "rndv_eager_limit": 0,
                      "chunk_size": "1M"})
    job.checked(ranks=2).carried(strategy).over("verbs")
    assert job.total(moves) == each * job.total(f"messages_{strategy}"), str(job)
    assert job.total(others) == 0, str(job)
    assert job.total("registrations") == job.total("deregistrations") == 2 * job.total(moves)


@pytest.mark.parametrize("strategy,backend", [pytest.param("pipeline", "none", marks=pytest.mark.core),
                                              ("direct", "hooks"), ("read", "notifier")])
def test_memory_of_mpi_is_registered_once_over_verbs(verbs, strategy: str, backend: str) -> None:
    """Whatever the backend keeps. Its messages have five chunks each."""
    times = 10
    job = verbs("finalize", "kept", 5 * MIB, times,
                regx={"rendezvous": strategy, "backend": backend, "chunk_size": "1M", "explain": 1})
    explained = [line for line in job.complaints if "MPI_Alloc_mem's memory registered once and used" in line]
    assert len(explained) == 1 and job.status == 0, str(job)
    job.carried(strategy).over("verbs")
    assert job.total("registrations") == 2 and job.total("deregistrations") == 0, str(job)
    assert job.total("uses_owned") >= 2 * times, str(job)


@pytest.mark.parametrize("size,each", [("256M", 4), ("none", 20)])
def test_memory_that_mpi_gives_again_is_registered_anew_over_verbs(verbs, tmp_path: Path, seed: int, size: str,
                                                                   each: int) -> None:
    """Each rank's two buffers, for each of its messages; and five chunks of each where MPI gives other memory."""
    times = 10
    job = verbs("transfer", "--seed", seed, "--iterations", times, "--send-owned", "--receive-owned",
                sample.write([Case(320_000, pattern="both")], tmp_path),
                regx={"rendezvous": "pipeline", "backend": "none",
                      "chunk_size": "64K", "rndv_eager_limit": 0, "alloc_mem_size": size})
    job.checked(ranks=2).over("verbs")
    assert job.total("registrations") == job.total("deregistrations") == each * times, str(job)


def test_verify_compares_each_chunk_over_verbs(verbs, tmp_path: Path, seed: int) -> None:
    """Each chunk's checksum, which the reader compares."""
    job = verbs("transfer", "--seed", seed, "--iterations", 2,
                sample.write([Case(2 * MIB + 1)], tmp_path),
                regx={"rendezvous": "read", "verify": 1, "rndv_eager_limit": 0})
    job.checked(ranks=2).carried("read").over("verbs")
    assert job.total("verified") == job.total("gets") > 0, str(job)


def test_each_receiver_decides_the_strategy_of_its_messages(verbs, tmp_path: Path,
                                                            seed: int) -> None:
    """One process has chunks written, one the whole."""
    cases = [Case(300_001, pattern="both", window=3)]
    job = verbs("transfer", "--seed", seed, "--iterations", 2, sample.write(cases, tmp_path),
                regx={"rndv_eager_limit": 0, "chunk_depth": 2},
                within=at_ranks({"0": {"rendezvous": "direct", "chunk_size": "128K"},
                                 "1": {"rendezvous": "pipeline", "chunk_size": "64K"}}))
    job.checked(ranks=2).over("verbs")
    assert job.rank(0)["messages_pipeline"] == job.rank(1)["messages_direct"] > 0, str(job)
    assert job.rank(0)["puts"] == 5 * job.rank(0)["messages_pipeline"], str(job)
    assert job.rank(1)["puts"] == job.rank(1)["messages_direct"], str(job)
    assert job.total("messages_fallback") == 0, str(job)


def test_slots_are_written_from_what_is_registered_for_a_peer(verbs) -> None:
    """A buffer goes to a process for which it is registered, and to one that has it bounced: of its
    slots some are written from there, too. Nothing is registered for them."""
    job = verbs("collective", "--roots", 1, "--sizes", ",".join(["3000000"] * 8), "bcast", ranks=3,
                regx={"backend": "notifier", "chunk_size": "1M"}, mca={"coll": "^tuned"},
                within=at_ranks({"2": {"rendezvous": "bounce"}, "*": {"rendezvous": "pipeline"}}))
    job.checked(3).over("verbs")
    root = job.rank(0)
    assert root["messages_bounce"] == root["messages_pipeline"] == 8, str(job)
    chunks = 3 * root["messages_pipeline"]
    acquired = root["registrations"] + root["hits"]
    assert root["puts"] > 4 * chunks, str(job)
    assert chunks + (root["puts"] - chunks) / 4 < acquired <= root["puts"], str(job)
    assert root["registrations"] <= chunks, str(job)
    assert job.total("messages_fallback") == 0, str(job)


@pytest.mark.parametrize("strategy", ["pipeline", "read"])
def test_a_truncated_message_over_verbs_is_an_error_and_the_next_is_right(verbs, strategy: str) -> None:
    """MPI_ERR_TRUNCATE, and the next message is right."""
    job = verbs("truncate", MIB, 100_000, 2 * MIB + 1, 2 * MIB, regx={"rendezvous": strategy})
    job.ended_well().over("verbs")
    assert job.total("malformed") == 0 < job.total(f"messages_{strategy}"), str(job)


def test_processes_that_come_later_exchange_messages_over_verbs(verbs) -> None:
    verbs("dynamic", "spawn", 2, ranks=1).ended_well().over("verbs")
    verbs("dynamic", "connect", 2, 2, ranks=1).ended_well().over("verbs")


@pytest.mark.parametrize("flavour", ["create", "dynamic"])
def test_each_operation_on_a_window_asks_the_target(verbs, full: bool, flavour: str) -> None:
    cases = ["fence", "lock", "mixed"]
    if full:
        cases += ["flood", "fetch", "alternate"]
    job = verbs("window", flavour, 70_001, *cases, ranks=2, regx={})
    job.checked(2).over("verbs")
    assert job.total("onesided") == job.total("onesided_messages") > 0 == job.total("malformed"), str(job)
