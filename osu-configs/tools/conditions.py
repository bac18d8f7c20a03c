# SPDX-License-Identifier: BSD-3-Clause
"""What a run is made under: the machine's phase, other programs' load, and the node's paging.

On some machines a cache line passes between two cores in 0.05 us at times and in 0.27 us at others,
and this flips on its own. Figures of different phases cannot be compared, so the time of a one-line
mailbox is measured before and after each run, and a run across a flip is made again.
"""

import contextlib
import os
import resource
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tools import osu
from tools.launch import Line, Outcome, Runner

NEAR_BELOW, FAR_FROM = 0.1, 0.2  # us
MOVED_BY, RESOLUTION = 0.3, 0.02  # of the smaller; us: how well a mailbox repeats
MIXED, UNMEASURED = "mixed", "unmeasured"  # unmeasured: not both ranks are on a core of this node
PHASES = ("near", "between", "far", UNMEASURED, MIXED)
ATTEMPTS = 1 + 3  # a run across which the phase changed is repeated at most three times
# Of the kernel's counters, those for want of memory.
PAGING = {"pgmajfault": "major_faults", "pswpin": "swapped_in", "pswpout": "swapped_out",
          "oom_kill": "killed"}  # fmt: skip


def moved(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return False
    return abs(after - before) > max(MOVED_BY * min(before, after), RESOLUTION)


def phase(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return UNMEASURED
    if moved(before, after):
        return MIXED
    mean = (before + after) / 2
    return "near" if mean < NEAR_BELOW else "far" if mean >= FAR_FROM else "between"


class Conditions:
    """Runs things within one phase, where that can be measured, and tells under what."""

    def __init__(self, runner: Runner, probe: tuple[str, ...] | None, sees_others: bool = True):
        """probe: None where ranks do not have cores of this node; sees_others: whether other programs
        can be told from what works for the run. Soft-RoCE works in threads of the kernel."""
        self.runner, self.probe, self.sees_others = runner, probe, sees_others
        self.last: float | None = None

    def mailbox(self) -> float | None:
        if self.probe is None:
            return None
        outcome = self.runner.run(Line({}, (*self.probe, "mailbox")), timeout=60)
        try:
            self.last = next(iter(osu.parse(outcome.stdout, "us").values.values()), None)
        except osu.NotOutput:
            self.last = None
        return self.last

    def within(self, once: Callable[[], Outcome]) -> tuple[Outcome, dict]:
        """The outcome, and its columns of results.csv."""
        before = self.last if self.last is not None else self.mailbox()
        for attempt in range(1, ATTEMPTS + 1):
            started, busy, ours = time.monotonic(), _busy_seconds(), _our_seconds()
            outcome = once()
            cores_time = (time.monotonic() - started) * len(os.sched_getaffinity(0))
            others = (_busy_seconds() - busy - _our_seconds() + ours) / cores_time
            after = self.mailbox()
            if outcome.status != 0 or not moved(before, after) or attempt == ATTEMPTS:
                break
            before = after
        shown = self.sees_others and cores_time > 0.5
        return outcome, {"phase": phase(before, after), "before": before, "after": after,
                         "attempts": attempt, "others": round(max(0, others), 3) if shown else 0}


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


@contextlib.contextmanager
def awake() -> Iterator[None]:
    """While it lasts, idle cores do not sleep, where the system allows that (pm_qos_interface.rst): a
    virtual core that wakes may be placed elsewhere, so that the phase changes."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            held = stack.enter_context(Path("/dev/cpu_dma_latency").open("wb", buffering=0))
            held.write(struct.pack("i", 0))
        yield
