# SPDX-License-Identifier: BSD-3-Clause
"""What it costs to be ready for those who come by tcp, when nobody does, and that they get in."""
from pathlib import Path

import pytest

from launch import Mpi
from namespace import two_hosts


def test_no_system_calls_in_a_conversation_on_the_node(mpi: Mpi, tmp_path: Path) -> None:
    """The main thread's, between two marks: some looks at tcp until a thread watches it, what it
    takes to start that, and then none."""
    mpi("pingpong", 400_000, within=["strace", "-ff", "-ttt", "-e", "trace=!sched_yield",
                                     "-o", tmp_path / "calls"]).checked(ranks=2)
    traces = [file.read_text().splitlines() for file in tmp_path.glob("calls.*")]
    [trace] = [lines for lines in traces if any("getpgid" in line for line in lines)]
    start, end = [n for n, line in enumerate(trace) if "getpgid" in line]
    between = trace[start + 1:end]
    asked = [n for n, line in enumerate(between) if "EPOLLONESHOT" in line]
    assert len(asked) == 2, "\n".join(between[:100])  # of all sockets, and the listening one
    assert between[asked[1] + 1:] == []


@pytest.mark.parametrize("role,children", [("late", 0), ("spawn", 2)])
def test_newcomer_from_another_host(mpi: Mpi, tmp_path: Path, role: str, children: int) -> None:
    """Ranks 0 and 2 talk on one host without a break; rank 1 and a child are on the other."""
    with two_hosts(tmp_path) as (around, options):
        job = mpi("newcomer", role, ranks=3, around=around, options=options)
    job.checked(ranks=3 + children)
    assert len({report["host"] for report in job.reports}) == 2, str(job)
    assert job.total("bytes_tcp") > 100_000 and job.total("malformed") == 0, str(job)
