# SPDX-License-Identifier: BSD-3-Clause
"""Messages longer than their receive."""
import re
from typing import Callable

import pytest

from launch import Mpi

PAIRS = [100, 50, 3000, 1, 50_000, 49_999, 1 << 20, 100_000, (9 << 20) + 1, 9 << 20]


def overrun(stdout: str) -> int:
    match = re.fullmatch(r"overrun (\d+) checked \d+ bytes\n", stdout)
    assert match, stdout
    return int(match[1])


@pytest.mark.parametrize("strategy", ["bounce", "pipeline", "direct", "auto", "together"])
def test_a_truncated_message_is_an_error_and_the_next_is_right(
        mpi: Mpi, record_property: Callable[[str, object], None], strategy: str) -> None:
    """MPI_ERR_TRUNCATE, nothing written beyond the message, and the next message is right.

    That the message's rest is written behind the receive is Open MPI's (ob1 gives every BTL the
    message's length): tcp's overrun stands beside regx's.
    """
    job = mpi("truncate", *PAIRS, regx={"rendezvous": strategy}).ended_well()
    job.carried(strategy).over("shm")
    assert job.total("malformed") == 0 and len(job.reports) == 2, str(job)
    tcp = mpi("truncate", *PAIRS, btl="tcp,self",
              mca={"btl_tcp_if_include": "lo"}).ended_well()
    record_property("overrun", overrun(job.stdout))
    record_property("overrun_of_tcp", overrun(tcp.stdout))
    assert overrun(job.stdout) <= overrun(tcp.stdout), f"{job}\n{tcp}"
