# SPDX-License-Identifier: BSD-3-Clause
"""Counting: one run of messages.c per row and metric, under callgrind.

callgrind counts only while one of the metric's functions is being called, and writes one file per
batch of messages. The lowest batch is the figure: it is the same in every run. The mean of all
batches has in it what happens once in many messages, such as giving back room in a queue.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from comparing import path
from comparing.configuration import Row
from comparing.launch import Launcher, Line, Runner
from comparing.session import explain

BATCHES = 64
SIZE = 8  # bytes of a message
RANK = "OMPI_COMM_WORLD_RANK"  # the variable that tells a process its rank


@dataclass(frozen=True)
class Metric:
    name: str
    title: str
    mode: str  # of messages.c
    rank: int  # whose instructions are counted
    per_batch: int  # messages, or calls
    # Counting is switched on when one of these is entered, and off again when it is left; where a
    # later one is called by an earlier one, the other way round.
    toggles: tuple[str, ...]


METRICS = (
    Metric("isend", "per MPI_Isend", "send", 0, 16, ("PMPI_Isend",)),
    Metric("receive", "per received message", "receive", 1, 16, ("PMPI_Irecv", "PMPI_Waitall")),
    # Without the event library, which Open MPI calls by the clock.
    Metric("idle", "per idle progress call", "idle", 1, 16, ("opal_progress", "*event_base_loop")),
)


@dataclass
class Count:
    arm: str
    metric: str
    batches: list[float] = field(default_factory=list)  # instructions per message or call
    lowest: float | None = None  # of the batches
    mean: float | None = None
    problem: str | None = None  # that regx carried the messages is not proven
    failed: str | None = None


class Counter:
    def __init__(self, launcher: Launcher, runner: Runner, folder: Path):
        self.launcher = launcher
        self.runner = runner
        self.folder = folder
        self.program = launcher.installation.companion.parent / "profiling/messages"

    def line(self, row: Row, metric: Metric, to: Path, report: str) -> Line:
        command = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={to}.%q{{{RANK}}}"]
        command += ["--dump-before=batch_begins", "--zero-before=counting_begins"]
        command += [f"--toggle-collect={function}" for function in metric.toggles]
        command += [str(self.program), metric.mode, str(BATCHES)]
        return self.launcher.line(row, command, report)

    def count(self, row: Row, metric: Metric) -> Count:
        found = Count(row.name, metric.name)
        to = self.folder / f"{row.name}-{metric.name}"
        report = Path(f"{to}.jsonl")
        for old in (report, *files(to)):  # of a call that was interrupted
            old.unlink(missing_ok=True)
        outcome = self.runner.run(self.line(row, metric, to, str(report)), row.timeout)
        found.failed = explain(outcome)
        if found.failed:
            return found
        if row.is_regx:
            found.problem = path.prove(report, "auto", [SIZE]).problem
        totals = batches_of(to, metric.rank)
        if len(totals) != BATCHES or not all(totals):
            found.failed = f"callgrind did not count {metric.toggles[0]} in each of {BATCHES} batches"
            return found
        found.batches = [total / metric.per_batch for total in totals]
        found.lowest, found.mean = min(found.batches), mean(found.batches)
        for old in files(to):
            old.unlink()
        return found


def files(to: Path) -> list[Path]:
    return list(to.parent.glob(f"{to.name}.[01]*"))


def batches_of(to: Path, rank: int) -> list[int]:
    """The instructions of each batch. Files are numbered from 1; what came before the batches is in
    the first, and what came after them in the one without a number."""
    found = []
    while (file := Path(f"{to}.{rank}.{len(found) + 2}")).exists():
        found.append(total(file.read_text(errors="replace")))
    return found


def total(text: str) -> int:
    match = re.search(r"^summary: (\d+)", text, re.MULTILINE)
    return int(match[1]) if match else 0
