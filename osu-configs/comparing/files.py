# SPDX-License-Identifier: BSD-3-Clause
"""The files that compare leaves: results.csv, results.json and table.txt."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from comparing import output, record, table
from comparing.configuration import Row
from comparing.result import Results

COLUMNS = (
    "strategy",
    "backend",
    "transport",
    "benchmark",
    "buffers",
    "size",
    "metric",
    "unit",
    "repetition",
    "value",
    # Scripts rely on those above and on their order. What is new goes to the end.
    "kind",
    "ranks",
    "options",
    "beside",
    *record.CONDITIONS,
    "problem",
)


class Folder:
    def __init__(self, asked: Path | None):
        self.path = output.folder(asked, "compare")
        self.reports = self.path / "reports"
        self.reports.mkdir(exist_ok=True)

    def write(self, results: Results, environment: dict, rows: list[Row]) -> None:
        output.replace_csv(self.path / "results.csv", COLUMNS, _rows(results))
        document = {
            "environment": environment,
            "configuration": [asdict(row) for row in rows],
            **asdict(results),
        }
        output.replace_json(self.path / "results.json", document)
        output.replace(self.path / "table.txt", table.render(results, output.WIDTH) + "\n")


def _rows(results: Results) -> Iterator[tuple]:
    for run in results.runs:
        group = run.arm.group
        arm = (run.arm.strategy, run.backend, run.transport, group.benchmark, group.buffers)
        about = (run.arm.kind, group.ranks, run.options, run.beside)
        about += (*record.conditions(run), run.problem or "")
        for size, value in run.values.items():
            yield *arm, size, run.metric, run.unit, run.repetition, value, *about
    for run in results.executions():
        arm = (run.arm.strategy, run.backend, run.transport, run.arm.benchmark, run.arm.buffers)
        about = (run.arm.kind, run.arm.ranks, run.options, run.beside)
        about += (run.phase, "", "", run.attempts, "")
        for name, count in run.counts.items():  # of the whole run, over all sizes
            yield *arm, "", name, "", run.repetition, count, *about
