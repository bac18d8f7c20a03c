# SPDX-License-Identifier: BSD-3-Clause
"""The files that startup leaves, results.csv, results.json and table.txt; and a results.csv read again."""

from collections.abc import Iterator
from pathlib import Path

from comparing import output, record
from comparing.environment import IDENTITY, identity
from comparing.record import CONDITIONS
from starting import table
from starting.measure import METRICS, Job, Start

COLUMNS = ("arm", "ranks", "job", *METRICS, *CONDITIONS, "problem", "failed")


def write(folder: Path, starts: list[Start], environment: dict) -> None:
    about = identity(environment)
    rows = ((*row, *about.values()) for start in starts for row in rows_of(start))
    output.replace_csv(folder / "results.csv", (*COLUMNS, *IDENTITY), rows)
    output.replace_json(folder / "results.json", {"environment": environment})
    output.replace(folder / "table.txt", table.render(starts, about) + "\n")


def rows_of(start: Start) -> Iterator[tuple]:
    for number, job in enumerate(start.jobs, 1):
        values = (job.values[metric] for metric in METRICS)
        yield (start.arm, start.ranks, number, *values, *record.conditions(job), start.problem,
               start.failed)  # fmt: skip
    if not start.jobs:  # it has a line in the table all the same
        nothing = [""] * len((*METRICS, *CONDITIONS))
        yield start.arm, start.ranks, "", *nothing, start.problem, start.failed


def read(file: Path) -> tuple[list[Start], dict[str, str]]:
    """With what identity() says."""
    records, about = record.read_table(file, "startup", (*COLUMNS, *IDENTITY), IDENTITY)
    found: dict[tuple[str, int], Start] = {}
    for line in records:
        arm, ranks = line.text("arm"), line.whole("ranks", 1)
        start = found.setdefault((arm, ranks), Start(arm, ranks))
        start.problem, start.failed = line.text("problem") or None, line.text("failed") or None
        if line.text("job"):
            line.whole("job", 1)
            values = {metric: line.number(metric) for metric in METRICS}
            start.jobs.append(Job(**line.conditions(), values=values))
    return list(found.values()), about
