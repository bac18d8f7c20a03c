# SPDX-License-Identifier: BSD-3-Clause
"""The check of content itself: it must find every kind of damage, and nothing where there is none.

The damage is done by the program after it has received, so the transport does not matter."""
from pathlib import Path

import pytest

from launch import Mpi
from sample import Case, write

SIZE = 100_000
WORDS = {
    "data": f"byte {SIZE - 1} of {SIZE}",  # one bit of the last byte
    "stale": f"byte 0 of {SIZE}",  # what came one iteration before
    "before": "outside the message was written, at -1 ",
    "after": "outside the message was written, at ",
    "gap": "outside the message was written, at ",
}


@pytest.mark.parametrize("damage", WORDS)
def test_damage_is_found(mpi: Mpi, tmp_path: Path, damage: str) -> None:
    layout = "vector" if damage == "gap" else "contiguous"
    file = write([Case(SIZE, receive_layout=layout)], tmp_path)
    job = mpi("transfer", "--damage", damage, file, btl="self,tcp")
    assert job.status == 3, str(job)
    assert job.stdout == "", str(job)
    wrong = [line for line in job.stderr.splitlines() if line.startswith("wrong on rank ")]
    assert wrong and WORDS[damage] in wrong[0], str(job)
    assert str(Case(SIZE, receive_layout=layout)) in wrong[0], str(job)


def test_right_data_passes(mpi: Mpi, tmp_path: Path) -> None:
    file = write([Case(SIZE), Case(SIZE, receive_layout="vector")], tmp_path)
    job = mpi("transfer", file, btl="self,tcp").ended_well()
    # Two cases, two iterations, both ways; the receive and the untouched send buffer.
    assert job.stdout == f"checked {2 * 2 * 2 * 2 * SIZE} bytes\n", str(job)
