# SPDX-License-Identifier: BSD-3-Clause
"""btl_base_verbose: what was chosen and why, from level 10 on; connections from 20; paths and
fallbacks from 40. Silent else."""
import pytest

from launch import Mpi

# From which level on a line begins so.
LINES = {10: ["regx "], 20: ["rank 0 on ", "rank 1: connection over shm ends"],
         40: ["100000 bytes from rank 1 over shm by direct", "registration: "]}


@pytest.mark.parametrize("level", [9, 10, 20, 40])
def test_choices_connections_paths_and_fallbacks_are_said(mpi: Mpi, level: int) -> None:
    job = mpi("collective", "--sizes", "10,100000", "alltoall", mca={"btl_base_verbose": level},
              regx={"rendezvous": "direct", "backend": "retain", "cache_bytes": "8K", "chunk_size": "64K"})
    job.checked(ranks=2)
    said = [line.partition("btl:regx: ")[2] for line in job.stderr.splitlines() if "btl:regx: " in line]
    assert (", rendezvous direct, backend retain (asked for)" in "".join(said)) == (level >= 10), str(job)
    for needs, lines in LINES.items():
        for words in lines:
            assert any(line.startswith(words) for line in said) == (level >= needs), f"{words}\n{job}"


def test_nothing_is_traced_where_regx_is_not_asked_for(mpi: Mpi) -> None:
    job = mpi("collective", "--sizes", "10", "alltoall", btl=None, mca={"btl_base_verbose": 10})
    said = job.stderr.count("btl:regx: not used: neither named in btl nor enabled")
    assert (job.status, said) == (0, 2), str(job)
