# SPDX-License-Identifier: BSD-3-Clause
"""The load: how much of the cores' time other programs took while something was measured."""

import os
import resource
import time

DISTURBED_FROM = 0.15  # of the cores' time; the kernel's own work for a run stays below


class Load:
    """From its making on: what ran on our cores that was not started, and waited for, by us."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.busy = _busy_seconds()
        self.ours = _our_seconds()

    def others(self) -> float:
        """The share of the cores' time that others took; 0 where it was too short to tell."""
        time_of_cores = (time.monotonic() - self.started) * len(os.sched_getaffinity(0))
        taken = (_busy_seconds() - self.busy) - (_our_seconds() - self.ours)
        return max(0.0, taken / time_of_cores) if time_of_cores > 0.5 else 0.0


def notes(others: list[float]) -> list[str]:
    """What a table says of runs during which others took such shares."""
    disturbed = [share for share in others if share >= DISTURBED_FROM]
    if not disturbed:
        return []
    return [
        f"Load: other programs took up to {100 * max(disturbed):.0f} % of the cores' time during"
        f" {len(disturbed)} of {len(others)} runs: repeat on a quiet machine."
    ]


def _busy_seconds() -> float:
    """User, nice, system, interrupts and what a hypervisor took; of the cores that we may use."""
    names = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    ticks = 0
    with open("/proc/stat", encoding="ascii") as lines:
        for line in lines:
            name, *fields = line.split()
            if name in names:
                user, nice, system, _idle, _wait, irq, softirq, steal = map(int, fields[:8])
                ticks += user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK")


def _our_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime
