# SPDX-License-Identifier: BSD-3-Clause
"""The files that compare leaves: results.csv, results.json and table.txt.

Each is replaced as a whole, so that at any moment, also after Ctrl-C, it is complete.
"""

import csv
import io
import json
import os
from dataclasses import asdict
from pathlib import Path

from comparing.configuration import Row
from comparing.result import LIMIT, Results
from comparing.trouble import Trouble

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
)


class Folder:
    def __init__(self, path: Path):
        self.path = path
        self.reports = path / "reports"
        try:
            self.reports.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Trouble(f"--output: {path} cannot be made: {error.strerror}") from None
        if (path / "results.csv").exists():
            raise Trouble(f"--output: {path} holds results already; choose another folder")

    def write(self, results: Results, environment: dict, rows: list[Row]) -> None:
        replace(self.path / "results.csv", _csv(results))
        document = {
            "environment": environment,
            "configuration": [asdict(row) for row in rows],
            **asdict(results),
        }
        replace(self.path / "results.json", json.dumps(document, indent=1, default=str) + "\n")

    def write_table(self, text: str) -> None:
        replace(self.path / "table.txt", text + "\n")


def replace(file: Path, text: str) -> None:
    new = file.with_name(f".{file.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        os.replace(new, file)
    except OSError as error:
        raise Trouble(f"{file} cannot be written: {error.strerror}", 1) from None


def _csv(results: Results) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in results.runs:
        benchmark = "probe_bounce" if run.arm.kind == LIMIT else run.arm.benchmark
        for size, value in run.values.items():
            writer.writerow(
                (run.arm.strategy, run.backend, run.transport, benchmark, run.arm.buffers)
                + (size, run.metric, run.unit, run.repetition, value)
            )
        for name, count in run.counts.items():  # of the whole run, over all sizes
            writer.writerow(
                (run.arm.strategy, run.backend, run.transport, benchmark, run.arm.buffers)
                + ("", name, "", run.repetition, count)
            )
    return text.getvalue()
