# SPDX-License-Identifier: BSD-3-Clause
"""Hazard 20, and the kinds of memory of hazard 13: read-only, mapped, never touched, stack."""
import os
from pathlib import Path

import pytest

from launch import Mpi


@pytest.mark.parametrize("strategy,who,line", [
    ("bounce", "sender", "1000000 bytes to rank 1 on {host} are lost: out of memory"),
    ("pipeline", "receiver", "1000000 bytes from rank 0 on {host} are lost: out of memory"),
    ("together", "receiver", "1000000 bytes from rank 0 on {host} are lost: out of memory"),
    ("direct", "nobody", None)])
@pytest.mark.whole
def test_no_memory_for_a_message_ends_the_job_with_one_line(mpi: Mpi, strategy: str, who: str,
                                                            line: str | None) -> None:
    """Open MPI would wait for it for ever: one line and the end."""
    job = mpi("allocator", who, 1_000_000, regx={"rendezvous": strategy})
    if line is None:
        job.checked(ranks=2).carried(strategy)
        return
    assert job.status != 0 and job.stdout == "", str(job)
    assert job.complaints == ["regx: " + line.format(host=os.uname().nodename)], str(job)


@pytest.mark.parametrize("strategy", ["bounce", "pipeline", "together"])
def test_every_kind_of_memory_is_sent_right(mpi: Mpi, tmp_path: Path, strategy: str) -> None:
    job = mpi("memory", tmp_path, 100, 65_537, 4_000_000,
              regx={"rendezvous": strategy}).checked(ranks=2)
    job.carried(strategy).over("shm")
