# SPDX-License-Identifier: BSD-3-Clause
"""What one message costs: two runs that differ in nothing but the number of messages, and the
difference of what was counted, by that of messages. Both ranks are added up."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from comparing import path, rdma
from comparing.configuration import Row
from comparing.launch import Launcher, Line, Outcome, Runner
from comparing.session import explain

SIZES = (8, 8 << 10, 64 << 10, 1 << 20, 4 << 20)
LARGE = 1 << 20
# Round trips of the two runs. Not too few: at first receive buffers are still being posted.
TRIPS, TRIPS_LARGE = (150, 300), (10, 20)
LAYER = ("sends", "send_calls", "receives", "receive_calls", "registrations")
COUNTS = ("packets", *LAYER, "system_calls")
# Made while waiting, more or fewer by chance.
WAITING = ("epoll_wait", "epoll_pwait", "poll", "ppoll", "select", "pselect6", "sched_yield",
           "nanosleep", "clock_nanosleep", "futex", "restart_syscall")  # fmt: skip


@dataclass
class Message:
    arm: str
    size: int
    counts: dict[str, float] = field(default_factory=dict)
    carried: str = ""
    problem: str | None = None  # the path was not proven
    failed: str | None = None


def trips(size: int) -> tuple[int, int]:
    return TRIPS_LARGE if size >= LARGE else TRIPS


class Counter:
    def __init__(self, launcher: Launcher, runner: Runner, folder: Path):
        self.launcher = launcher
        self.runner = runner
        self.folder = folder
        self.layer = launcher.installation.companion.parent / "counting/.libs/layer.so"

    def line(self, row: Row, size: int, iterations: int, to: Path, report: str) -> Line:
        companion = self.launcher.installation.companion
        command = [str(companion), "latency", "-m", f"{size}:{size}"]
        command += ["-i", str(iterations), "-x", "0"]
        command = ["env", f"LD_PRELOAD={self.layer}", f"COUNTS_FILE={to}", *command]
        if shutil.which("strace"):
            trace = 'exec strace -f --seccomp-bpf -c -U calls,errors,name -e "$1" -o "$0.strace.$$" "${@:2}"'
            command = ["bash", "-c", trace, str(to), "trace=!" + ",".join(WAITING), *command]
        return self.launcher.line(row, command, report)

    def message(self, row: Row, size: int) -> Message:
        found = Message(row.name, size)
        first: dict[str, int] = {}
        few, many = trips(size)
        for iterations in (few, many):
            to = self.folder / f"{row.name}-{size}-{iterations}".replace(":", "-")
            report = Path(f"{to}.jsonl")
            line = self.line(row, size, iterations, to, str(report))
            for old in (to, report, *traces(to)):  # of a call that was interrupted
                old.unlink(missing_ok=True)
            counts, outcome = self.counted(lambda: self.runner.run(line, row.timeout), to)
            found.failed = explain(outcome)
            if found.failed:
                return found
            if row.is_regx:
                strategy = row.parameter("btl_regx_rendezvous") or "auto"
                proof = path.prove(report, strategy, [size], transport="verbs")
                found.problem, found.carried = proof.problem, proof.carried
            if iterations == few:
                first = counts
        messages = 2 * (many - few)
        found.counts = {name: (counts[name] - first[name]) / messages for name in counts}
        return found

    def counted(self, run: Callable[[], Outcome], to: Path) -> tuple[dict[str, int], Outcome]:
        before = packets()
        outcome = run()
        counts = {"packets": packets() - before}
        if to.exists():
            lines = [json.loads(line) for line in to.read_text().splitlines()]
            counts |= {name: sum(line[name] for line in lines) for name in LAYER}
        summaries = traces(to)
        if summaries:
            counts["system_calls"] = sum(system_calls(file.read_text()) for file in summaries)
        return counts, outcome


def traces(to: Path) -> list[Path]:
    """strace's summaries, one per process."""
    return list(to.parent.glob(f"{to.name}.strace.*"))


def packets() -> int:
    """What all ports have sent. Soft-RoCE and hardware count in different files."""
    total = 0
    for port in rdma.DEVICES.glob("*/ports/*"):
        for name in ("hw_counters/sent_pkts", "counters/port_xmit_packets"):
            if (port / name).exists():
                total += int((port / name).read_text())
                break
    return total


def system_calls(text: str) -> int:
    """Of strace's summary: lines "CALLS [ERRORS] NAME" between two rules, and the total below. A
    read that finds nothing is waiting too."""
    calls = 0
    for line in text.splitlines():
        *numbers, name = line.split() or [""]
        if numbers and numbers[0].isdecimal() and name != "total":
            errors = int(numbers[1]) if len(numbers) == 2 and name == "read" else 0
            calls += int(numbers[0]) - errors
    return calls
