# SPDX-License-Identifier: BSD-3-Clause
"""Keeping the cores awake.

A virtual core that idles between two runs may be placed elsewhere when it wakes, so that two cores
are near each other in one run and far in the next, or change some milliseconds after a run began.
A process of idle priority on each core gets no time while a benchmark spins there, and keeps the
core from sleeping while none does. (On hardware it holds off idle states and low clocks alike.)
"""

import os
import subprocess
import sys

SPIN = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(100_000):
        pass
"""


class Awake:
    """As a context: while it lasts, the cores that we may use do not sleep."""

    def __init__(self, wanted: bool = True) -> None:
        self.wanted = wanted
        self.spinners: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Awake":
        for core in sorted(os.sched_getaffinity(0)) if self.wanted else ():
            self.spinners.append(
                subprocess.Popen(
                    [sys.executable, "-c", SPIN, str(core)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # a Ctrl-C is ours to handle
                )
            )
        return self

    def __exit__(self, *_: object) -> None:
        for spinner in self.spinners:
            spinner.kill()
            spinner.wait()
        self.spinners = []

    def seconds(self) -> float:
        """The cores' time that the spinners took until now."""
        ticks = 0
        for spinner in self.spinners:
            try:
                with open(f"/proc/{spinner.pid}/stat", encoding="ascii") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except OSError:
                continue
            ticks += int(fields[11]) + int(fields[12])  # user and system
        return ticks / os.sysconf("SC_CLK_TCK")
