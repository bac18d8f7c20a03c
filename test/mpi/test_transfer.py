# SPDX-License-Identifier: BSD-3-Clause
"""Point-to-point messages of every kind, in every strategy."""
import random
from dataclasses import replace
from pathlib import Path

import pytest

import sample
from launch import Build, Mpi
from sample import MIB, PAGE, Case
from tables import strategies

ON_NODE = ["bounce", "pipeline", "direct", "auto", "read", "together", "staged"]
ITERATIONS = 2
UNEXPECTED = 1000
FRAGMENT = 32 * 1024  # the least that is worth a message, on average


def unexpected() -> list[Case]:
    """Many messages that no receive is posted for; and all kinds in one stream."""
    stream = Case(250_000, 3, 4, pattern="mixed", window=40)
    return [Case(900, 3, 4, pattern="both", receive="late", window=UNEXPECTED),
            stream, replace(stream, send_layout="vector"), replace(stream, receive="late"),
            replace(stream, send="bsend", receive="probe")]


@pytest.mark.parametrize("strategy", ON_NODE)
def test_messages_of_every_size_and_kind_are_right(mpi: Mpi, build: Build, tmp_path: Path, full: bool,
                                                   seed: int, strategy: str) -> None:
    """The sizes at which something changes, the odd ones, and a sample; all combinations of pattern,
    send and receive by rendezvous, and small ones with one strategy; and many that are not expected."""
    eager, slot, chunk = (build.size(name) for name in ("eager_limit", "slot_size", "chunk_size"))
    largest, count = (sample.LARGEST, None) if full else (8 * MIB, 6)
    edges = [PAGE + 1, eager - 1, eager, eager + 1, slot + 1, chunk - 1, chunk, chunk + 1,
             *(sample.ODD if full else sample.ODD[1::2])]
    rng = random.Random(f"{seed} {strategy}")
    cases = [sample.of_size(size, rng, plain=True) for size in edges]
    cases += sample.sample(sample.boundaries(eager, chunk, slot, largest), count, rng.randrange(1 << 30))
    small = [(0, 3), (1000, 9)] if full or strategy == "auto" else []  # eager, whatever the strategy
    cases += [case for size, window in (*small, (200_001, 3)) for case in sample.every_kind(size, window)]
    cases += unexpected()
    job = mpi("transfer", "--seed", seed, "--iterations", ITERATIONS,
              sample.write(cases, tmp_path), timeout=1800,
              regx={"rendezvous": strategy, "rndv_eager_limit": 0})
    expected = sample.rendezvous_bytes(cases, eager, 2, ITERATIONS)
    job.checked(ranks=2).carried(strategy, expected).over("shm")
    assert job.total("messages_eager") > 2 * ITERATIONS * UNEXPECTED, str(job)


@pytest.mark.parametrize("ranks,strategy", [(3, "bounce"), (5, "pipeline"), (8, "auto"), (3, "together")])
@pytest.mark.whole
def test_messages_among_several_ranks_are_right(mpi: Mpi, tmp_path: Path, seed: int, strategy: str,
                                                ranks: int) -> None:
    """Each rank with each other, in pairs and all to one; ob1's own eager bytes before a grant."""
    rng = random.Random(f"{seed} {strategy} {ranks}")
    cases = sample.sample([1, 3000, 5000, 70_000, 300_000, MIB + 1], 4, rng.randrange(1 << 30))
    cases += [Case(300_001, 5, 6, pattern="fan", send=send, receive=receive, window=4)
              for send, receive in (("isend", "irecv"), ("send", "late"), ("bsend", "probe"))]
    job = mpi("transfer", "--seed", seed, "--iterations", 3, sample.write(cases, tmp_path),
              ranks=ranks, regx={"rendezvous": strategy})
    job.checked(ranks).carried(strategy)


def test_derived_types_and_buffered_sends_go_in_fragments(mpi: Mpi, tmp_path: Path, seed: int) -> None:
    """Derived types on either side and buffered sends cannot be put: they go in fragments."""
    cases = [Case(size, 7, 4095, send_layout, receive_layout, pattern, window=2)
             for size in (70_001, 3 * MIB + 1) for pattern in ("pair", "both")
             for send_layout in sample.LAYOUTS for receive_layout in sample.LAYOUTS
             if (send_layout, receive_layout) != ("contiguous", "contiguous")]
    cases.append(Case(3 * MIB + 1, send="bsend", receive="late", window=2))
    job = mpi("transfer", "--seed", seed, sample.write(cases, tmp_path))
    job.checked(ranks=2)
    assert job.total("bytes_frag") >= FRAGMENT * job.total("messages_frag") > 0, str(job)
    assert job.total("bytes_frag") + job.total("bytes_eager") >= \
        sum(sum(case.sizes()) * case.windows(2, 2) for case in cases), str(job)
    for path in (*strategies(), "fallback"):
        assert job.total(f"bytes_{path}") == 0, str(job)


@pytest.mark.parametrize("regx,packed,contiguous", [({}, 4096, 0), ({"rndv_eager_limit": 9000}, 9000, 9000)],
                         ids=str)
def test_an_rts_carries_data_only_if_asked(mpi: Mpi, tmp_path: Path, regx: dict[str, object],
                                           packed: int, contiguous: int) -> None:
    """Of contiguous data nothing unless it was asked for; all else goes by rendezvous or fragment,
    whose headers (32 bytes in Open MPI 4.1) count as theirs."""
    size, messages = 120_000, 2  # the last fragment is no frame
    cases = [Case(size, window=1), Case(size, 0, 0, "vector", "vector", window=1)]
    job = mpi("transfer", "--iterations", 1, sample.write(cases, tmp_path),
              regx={"rendezvous": "bounce", **regx}).checked(ranks=2)
    assert job.total("bytes_bounce") == messages * (size - contiguous), str(job)
    headers = job.total("bytes_frag") - messages * (size - packed)
    assert 0 < headers <= 40 * job.total("messages_frag") < 2500, str(job)


def test_messages_to_itself_are_right(mpi: Mpi, build: Build, tmp_path: Path, seed: int) -> None:
    """Of the only rank, without btl self."""
    cases = [case for size in (0, 1, 5000, 300_001)
             for case in sample.every_kind(size, 3) if case.pattern == "self"]
    cases += [Case(9 * MIB + 1, 1, 0, send_layout, receive_layout, "self")
              for send_layout in sample.LAYOUTS for receive_layout in sample.LAYOUTS]
    job = mpi("transfer", "--seed", seed, "--iterations", ITERATIONS,
              sample.write(cases, tmp_path), ranks=1, regx={"rndv_eager_limit": 0}).checked(1)
    expected = sample.rendezvous_bytes(cases, build.size("eager_limit"), 1, ITERATIONS)
    job.carried("auto", expected).over("shm")
    assert job.total("bytes_frag") > 100 * MIB, str(job)


SHAPES = [
    ("pipeline", {"chunk_size": "4K", "chunk_depth": 1, "max_send_size": 8192}),
    ("pipeline", {"chunk_size": "2M", "chunk_depth": 64, "eager_limit": 256, "max_send_size": 1024}),
    ("bounce", {"slot_size": "4K", "pool_size": "8K", "max_send_size": 16_448}),
    ("direct", {"rdma_pipeline_frag_size": 262144}),  # ob1's own pipeline over our puts
]


@pytest.mark.parametrize("strategy,shape", SHAPES, ids=lambda part: str(part).replace(" ", ""))
def test_other_chunk_slot_and_pool_sizes_are_right(mpi: Mpi, tmp_path: Path, seed: int,
                                                   strategy: str, shape: dict[str, object]) -> None:
    """Other sizes of chunk, slot and pool than the defaults."""
    rng = random.Random(f"{seed} {shape}")
    sizes = [PAGE + 1, 65_535, 65_537, 262_145, MIB - 1, 3 * MIB + 5, sample.ODD[1]]
    cases = [sample.of_size(size, rng, plain=True) for size in sizes]
    cases += [sample.of_size(size, rng, plain=False) for size in sizes]
    mpi("transfer", "--seed", seed, sample.write(cases, tmp_path),
        regx={"rendezvous": strategy, **shape}).checked(ranks=2).carried(strategy)


@pytest.mark.parametrize("strategy", ["read", "together"])
def test_what_is_read_needs_no_more_of_its_sender(mpi: Mpi, tmp_path: Path, strategy: str) -> None:
    """Which is outside MPI until the message has been received."""
    mpi("outside", tmp_path / "received", regx={"rendezvous": strategy}, timeout=120).checked(2).carried(strategy)


def test_auto_needs_no_more_of_its_sender(mpi: Mpi, tmp_path: Path) -> None:
    """By whatever path it tries on a node."""
    ways = mpi("outside", tmp_path / "received", timeout=120).checked(2).ways()
    assert sum(times for way, times in ways.items() if way.startswith(("read", "staged", "together"))) == 161


def test_what_its_sender_has_no_place_for_is_read(mpi: Mpi, tmp_path: Path) -> None:
    """There is place for 64 messages at a time."""
    ways = mpi("transfer", "--iterations", 4, sample.write([sample.Case(100_000, 1, 2, window=80)], tmp_path),
               regx={"rendezvous": "staged"}).checked(ranks=2).ways()
    assert ways["read: the sender did not stage it"] > 0 < ways["staged: asked for"], ways


@pytest.mark.full  # 6 GiB of memory
def test_a_message_of_more_than_2_gib_is_right(mpi: Mpi) -> None:
    """In one message, of a derived type."""
    size = (2 << 30) + MIB
    for strategy in "pipeline", "bounce", "direct":
        job = mpi("big", regx={"rendezvous": strategy, "rndv_eager_limit": 0})
        assert job.checked(ranks=2).stdout == f"checked {size + 64} bytes\n", str(job)
        job.carried(strategy, range(size, size + 1))


@pytest.mark.parametrize("size", [100, 1_000_000])
def test_a_program_may_leave_mpi_by_siglongjmp_while_it_waits(mpi: Mpi, size: int) -> None:
    """MPI does not allow it, old programs do it: the next progress is not refused as a nested one, though it comes
    from deeper in the stack; and what was under way arrives."""
    jumps, under_way = 10, 2 << 20
    job = mpi("jump", jumps, size).checked(ranks=2).over("shm")
    assert job.stdout == f"checked {jumps * (2 * size + under_way)} bytes\n", str(job)
