# SPDX-License-Identifier: BSD-3-Clause
"""Keeping the cores awake.

A virtual core that idles between two runs may be placed elsewhere when it wakes, so that two cores
are near each other in one run and far in the next, or change some milliseconds after a run began.
The kernel's PM QoS interface (pm_qos_interface.rst) keeps idle cores from sleeping as long as a
file is open. On hardware that holds off deep idle states and the time to leave them.
"""

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path

LATENCY = Path("/dev/cpu_dma_latency")


@contextlib.contextmanager
def awake() -> Iterator[bool]:
    """While it lasts, idle cores do not sleep; False where the system does not allow that."""
    try:
        held = LATENCY.open("wb", buffering=0)
    except OSError:
        yield False
        return
    with held:
        held.write(struct.pack("i", 0))
        yield True
