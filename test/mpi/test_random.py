# SPDX-License-Identifier: BSD-3-Clause
"""Jobs at random: combinations that were not thought of. Such runs found a hang that no other test met
(a fragment queued behind others held the one slot that the first of them needed)."""
import random
from pathlib import Path
from typing import Any

import pytest

import sample
from launch import Mpi
from tables import strategies

JOBS, ALL_JOBS = 3, 150  # without and with --full
COLLECTIVES = ["alltoall", "bcast", "scatter"]


def settings(rng: random.Random) -> dict[str, Any]:
    chosen = {"rendezvous": rng.choice([*strategies(), "auto"])}
    return chosen | rng.choice([
        {},
        {"pool_size": "128K", "slot_size": "64K"},
        {"pool_size": "16K", "slot_size": "4K"},
        {"pool_size": "8K", "slot_size": "4K"},
        {"chunk_size": "4K", "chunk_depth": rng.randint(1, 64)},
        {"chunk_size": "64K", "chunk_depth": rng.randint(1, 8)},
        {"rndv_eager_limit": 0},
        {"eager_limit": rng.choice([512, 1024, 8000])},
        {"max_send_size": rng.choice([4096, 20000, 40000])}])


def program(rng: random.Random, folder: Path) -> list[Any]:
    name = rng.choice(["threads", "collective", "transfer"])
    words = [name, "--seed", rng.randrange(1 << 30)]
    if name == "threads":
        return words + ["--threads", rng.randint(2, 6), "--rounds", 20, "--largest",
                        rng.choice([20_000, 200_000, 2_000_000]),
                        *rng.choice([[], ["--shared"]])]
    if name == "collective":
        sizes = rng.choices([0, 1, 100, 4096, 10_000, 70_000, 300_001], k=4)
        return words + ["--sizes", ",".join(map(str, sizes)), *COLLECTIVES]
    sizes = [rng.randrange(*rng.choice([(1, 5000), (5000, 100_000), (100_000, 3_000_000)]))
             for _ in range(10)]
    cases = [sample.of_size(size, rng, plain=rng.random() < 0.5) for size in sizes]
    return words + ["--iterations", 3, sample.write(cases, folder)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    full = metafunc.config.getoption("--full")
    metafunc.parametrize("number", range(ALL_JOBS if full else JOBS))


def test_random_messages_are_right(mpi: Mpi, tmp_path: Path, seed: int, number: int) -> None:
    rng = random.Random(f"{seed} {number}")
    ranks = rng.randint(2, 6)
    words, regx = program(rng, tmp_path), settings(rng)
    job = mpi(*words, ranks=ranks, regx=regx)
    job.checked(ranks).over("shm")
    carried = ["eager", "frag", *strategies()]
    assert sum(job.total(f"bytes_{path}") for path in carried) > 0, str(job)
