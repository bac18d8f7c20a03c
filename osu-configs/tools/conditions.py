# SPDX-License-Identifier: BSD-3-Clause
"""What a run is made under: the machine's phase, other programs' load, and the node's paging.

On some machines a cache line passes between two cores in 0.03 us at times (two threads of a core), in
0.07 us or in 0.27 us at others, and this flips on its own. Figures of different phases cannot be
compared, so phase.so measures the time of a one-line mailbox before and after each size, within the run,
and whether the core's other thread is in use: its width, the instructions per cycle, is half then.
"""

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

from tools.launch import Outcome

BELOW = {0.045: "sibling", 0.1: "near", 0.2: "between", float("inf"): "far"}  # us
MOVED_BY, RESOLUTION = 0.3, 0.02  # of the smaller; us: how well a mailbox repeats
MIXED, UNMEASURED = "mixed", "unmeasured"  # unmeasured: not every rank has a core of this node
PHASES = (*BELOW.values(), UNMEASURED, MIXED)
# Of the kernel's counters, those for want of memory.
PAGING = {"pgmajfault": "major_faults", "pswpin": "swapped_in", "pswpout": "swapped_out",
          "oom_kill": "killed"}  # fmt: skip


def phase(around: list[tuple[float, float]]) -> str:
    """By the mailbox's times before a figure, perhaps within, and after."""
    mailbox = [time for time, _ in around]
    if len(mailbox) < 2:
        return UNMEASURED
    if max(mailbox) - min(mailbox) > max(MOVED_BY * min(mailbox), RESOLUTION):
        return MIXED
    return next(name for below, name in BELOW.items() if sum(mailbox) / len(mailbox) < below)


def with_load(once: Callable[[], Outcome]) -> tuple[Outcome, float]:
    """With the share of the cores' time that other programs took meanwhile, where it lasted long enough."""
    started, busy, ours = time.monotonic(), _busy_seconds(), _our_seconds()
    outcome = once()
    cores_time = (time.monotonic() - started) * len(os.sched_getaffinity(0))
    others = (_busy_seconds() - busy - _our_seconds() + ours) / cores_time
    return outcome, round(max(0, others), 3) if cores_time > 0.5 else 0


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
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def paging() -> dict[str, int]:
    """The node's counters so far; empty on one without swap space, whose first line is a header."""
    swaps = Path("/proc/swaps")
    if not swaps.exists() or len(swaps.read_text().splitlines()) < 2:
        return {}
    values = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return {name: int(values[key]) for key, name in PAGING.items() if key in values}
