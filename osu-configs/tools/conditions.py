# SPDX-License-Identifier: BSD-3-Clause
"""What figures are made under: the machine's phase, and other programs' load.

On a virtual machine a cache line passes between two cores in 24 ns at times (two threads of a core), in 55 or in 200
at others, and this flips on its own. The probe tells how long it takes, and how fast memory is copied.
"""

import os
import resource
import time
from pathlib import Path

Phase = tuple[float, float]  # ns of a cache line, GB/s of a copy
MOVED_BY = 1.3  # times, between two looks at the phase: it has changed


def moved(before: Phase | None, after: Phase | None) -> bool:
    return (before is not None and after is not None
            and any(max(a, b) > MOVED_BY * min(a, b) for a, b in zip(before, after)))  # fmt: skip


class Load:
    """Of other programs on the cores that we may use, from here on; of ours what has ended counts."""

    def __init__(self) -> None:
        self.started, self.busy, self.ours = time.monotonic(), _busy_seconds(), _our_seconds()

    def of_others(self) -> float:
        """A share of the cores' time; 0 where it lasted too short to be told."""
        cores_time = (time.monotonic() - self.started) * len(os.sched_getaffinity(0))
        others = (_busy_seconds() - self.busy - _our_seconds() + self.ours) / cores_time
        return round(max(0, others), 3) if cores_time > 0.5 else 0


def _busy_seconds() -> float:
    """User, nice, system, interrupts and what a hypervisor took; of the cores that we may use."""
    names = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name in names:
            ticks += sum(map(int, fields[:3] + fields[5:8]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _our_seconds() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
