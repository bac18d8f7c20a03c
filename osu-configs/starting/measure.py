# SPDX-License-Identifier: BSD-3-Clause
"""Measuring: one job of ranks.c per row, number of ranks and repetition."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from comparing import path
from comparing.attempts import within_one_phase
from comparing.configuration import Row
from comparing.launch import Launcher, Line, Runner
from comparing.phase import Mailbox
from comparing.result import Conditions
from comparing.session import explain

METRICS = ("init_ms", "finalize_ms", "both_ms", "pss_mib")
LINE = re.compile(r"^startup ([0-9]+) ([0-9]+) ([0-9]+) ([0-9]+)$", re.MULTILINE)


@dataclass(kw_only=True)
class Job(Conditions):
    values: dict[str, float]  # of METRICS


@dataclass
class Start:
    """All jobs of one row with one number of ranks."""

    arm: str
    ranks: int
    jobs: list[Job] = field(default_factory=list)
    problem: str | None = None  # that regx carried the messages is not proven
    failed: str | None = None

    def values(self, metric: str) -> list[float]:
        return [job.values[metric] for job in self.jobs]


class Meter:
    def __init__(self, launcher: Launcher, runner: Runner, folder: Path, mailbox: Mailbox):
        self.launcher = launcher
        self.mailbox = mailbox
        self.runner = runner
        self.folder = folder
        self.program = launcher.installation.companion.parent / "starting/ranks"

    def line(self, row: Row, ranks: int, report: str | None) -> Line:
        return self.launcher.line(row, [str(self.program)], report, ranks)

    def prove(self, row: Row, start: Start) -> None:
        """One job that is not timed: a report costs time at the end."""
        report = self.folder / f"{row.name}-{start.ranks}ranks.jsonl"
        report.unlink(missing_ok=True)
        outcome = self.runner.run(self.line(row, start.ranks, str(report)), row.timeout)
        start.failed = explain(outcome)
        if not start.failed and row.is_regx:
            start.problem = path.prove(report, "auto", [], ranks=start.ranks).problem

    def measure(self, row: Row, start: Start) -> None:
        line = self.line(row, start.ranks, None)
        outcome, conditions = within_one_phase(
            self.mailbox, lambda: self.runner.run(line, row.timeout)
        )
        start.failed = explain(outcome)
        if start.failed:
            return
        told = {int(line[0]): tuple(map(int, line[1:])) for line in LINE.findall(outcome.stdout)}
        if sorted(told) != list(range(start.ranks)):
            start.failed = f"{len(told)} of {start.ranks} ranks told of themselves"
            return
        values = {
            "init_ms": max(init for init, _, _ in told.values()) / 1e3,
            "finalize_ms": max(finalize for _, finalize, _ in told.values()) / 1e3,
            "both_ms": max(init + finalize for init, finalize, _ in told.values()) / 1e3,
            "pss_mib": mean(pss for _, _, pss in told.values()) / 1024,
        }
        start.jobs.append(Job(**vars(conditions), values=values))
