# SPDX-License-Identifier: BSD-3-Clause
"""Many ranks on few processors: the memory that they take, and little of it to be had."""
from pathlib import Path

import pytest

from launch import Mpi
from namespace import SharedMemory

SIZE = 300_001
LEEWAY = 4 << 20  # bytes of a rank, beside the pool


@pytest.fixture(scope="session")
def ranks(full: bool) -> int:
    return 64 if full else 8


def taken(file: Path) -> dict[str, int]:
    """What the program `ranks` found, in bytes of all ranks together."""
    return {when: int(count) for when, count in map(str.split, file.read_text().splitlines())}


def test_memory_of_many_ranks_is_that_of_vader_the_pool_and_a_little(
        mpi: Mpi, tmp_path: Path, ranks: int) -> None:
    """When all have talked to all; what processes share is counted once."""
    ours, theirs = tmp_path / "regx", tmp_path / "vader"
    job = mpi("ranks", ours, SIZE, ranks=ranks, timeout=600).checked(ranks=ranks).over("shm")
    vader = "vader,self" if mpi.build.series < (5, 0) else "sm,self"
    mpi("ranks", theirs, SIZE, ranks=ranks, btl=vader, timeout=600).ended_well()
    pool = job.most("pool_pinned_bytes")
    with_regx, with_vader = taken(ours), taken(theirs)
    for when in ("begun", "talked"):
        more = (with_regx[when] - with_vader[when]) / ranks
        print(f"{ranks} ranks, {when}: {with_regx[when] / ranks / (1 << 20):.2f} MiB each, of which "
              f"the pool {pool / (1 << 20):.2f}; with vader {with_vader[when] / ranks / (1 << 20):.2f}")
        assert more <= pool + LEEWAY, f"{when}: {more} bytes of each rank more than vader\n{job}"


def test_many_ranks_share_a_small_shared_memory(mpi: Mpi, tmp_path: Path, ranks: int) -> None:
    """Who gets none there takes System V, and the report says so. Nothing is left behind."""
    memory = SharedMemory(tmp_path, size="7M")
    job = mpi("ranks", tmp_path / "taken", SIZE, ranks=ranks, around=memory.around,
              timeout=600).checked(ranks=ranks)
    assert memory.left() == "", f"left: {memory.left()}\n{job}"
    assert any("no shared memory" in reason for reason in job.reasons("fallbacks")), str(job)
