# SPDX-License-Identifier: BSD-3-Clause
"""A program under valgrind is not blamed for bytes that a peer had the kernel write."""
import shutil

import pytest

from launch import Mpi
from tables import strategies

BLAME = "uninitialised"


def under_valgrind(mpi: Mpi, *words: object, strategy: str) -> str:
    """What valgrind says of rank 1 in the program's own functions."""
    if shutil.which("valgrind") is None:
        pytest.skip("no valgrind")
    one = ["sh", "-c", '[ $OMPI_COMM_WORLD_RANK = 1 ] && exec valgrind -q "$@"; exec "$@"', "sh"]
    job = mpi("undefined", *words, within=one, regx={"rendezvous": strategy}, timeout=300)
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    blocks = "\n".join(line.partition("== ")[2] for line in job.stderr.splitlines()).split("\n\n")
    return "\n\n".join(block for block in blocks if BLAME in block and "undefined.c" in block)


@pytest.mark.parametrize("strategy", [*strategies(), "auto"])
def test_nobody_is_blamed_for_what_was_received(mpi: Mpi, strategy: str) -> None:
    assert under_valgrind(mpi, 1_000_000, strategy=strategy) == ""


def test_the_control_is_blamed(mpi: Mpi) -> None:
    assert BLAME in under_valgrind(mpi, 1_000_000, 16, strategy="direct")
