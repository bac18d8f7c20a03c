# SPDX-License-Identifier: BSD-3-Clause
"""Messages that find no room wait at the sender: in order, and with little memory each."""
import os
import re
from pathlib import Path

from launch import Mpi

MESSAGES = 20000
# Open MPI's request (500 and more), and a fragment of ours. A whole frame would be 16 KiB.
MOST = 2500


def test_small_messages_wait_in_order_and_take_little_memory(mpi: Mpi, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    job = mpi("queued", tmp_path / "fifo", MESSAGES).checked(ranks=2)
    assert job.stdout == f"checked {8 * MESSAGES} bytes\n", str(job)
    found = re.search(r"per message: (\d+)", job.stderr)
    assert found and 100 < int(found[1]) < MOST, str(job)
