# SPDX-License-Identifier: BSD-3-Clause
"""What was measured."""

from dataclasses import dataclass, field
from statistics import median

from comparing.result import Conditions
from registering.metrics import SUBJECTS, Metric


@dataclass(kw_only=True)
class Run(Conditions):
    subject: str
    repetition: int
    values: dict[str, float] = field(default_factory=dict)
    failed: str | None = None


@dataclass
class Results:
    runs: list[Run] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)  # subject: why it cannot be had here
    interrupted: bool = False

    def subjects(self) -> list[str]:
        seen = {run.subject for run in self.runs if run.values}
        return [name for name in SUBJECTS if name in seen]

    def values(self, subject: str, metric: str) -> list[float]:
        runs = (run for run in self.runs if run.subject == subject)
        return [run.values[metric] for run in runs if metric in run.values]

    def median(self, subject: str, metric: str) -> float | None:
        values = self.values(subject, metric)
        return median(values) if values else None

    def base(self, subject: str, metric: Metric) -> float | None:
        """What the subject's figure is set in relation to."""
        if metric.base is None or metric.base == subject:
            return None
        if metric.base in SUBJECTS:
            return self.median(metric.base, metric.name)
        return self.median(subject, metric.base)

    def ratio(self, subject: str, metric: Metric) -> float | None:
        value, base = self.median(subject, metric.name), self.base(subject, metric)
        return value / base if value is not None and base else None

    def failures(self) -> dict[str, str]:
        return {run.subject: run.failed for run in self.runs if run.failed}

    def status(self) -> int:
        return 130 if self.interrupted else int(bool(self.failures()) or not self.runs)
