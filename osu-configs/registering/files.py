# SPDX-License-Identifier: BSD-3-Clause
"""The files that registration leaves, results.csv, results.json and table.txt; and a results.csv
read again."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from comparing import output, record
from comparing.environment import IDENTITY, identity
from comparing.record import CONDITIONS
from registering import table
from registering.metrics import METRICS, SUBJECTS
from registering.result import Results, Run

COLUMNS = ("subject", "metric", "unit", "repetition", "value", *CONDITIONS, "others", "failed",
           "missing", "interrupted")  # fmt: skip
INTERRUPTED = ("no", "yes")


def write(folder: Path, results: Results, environment: dict) -> None:
    about = identity(environment)
    end = (INTERRUPTED[results.interrupted], *about.values())
    rows = ((*row, *end) for row in rows_of(results))
    output.replace_csv(folder / "results.csv", (*COLUMNS, *IDENTITY), rows)
    output.replace_json(folder / "results.json", {"environment": environment, **asdict(results)})
    output.replace(folder / "table.txt", table.render(results, output.WIDTH, about) + "\n")


def rows_of(results: Results) -> Iterator[tuple]:
    for run in results.runs:
        made = (*record.conditions(run), run.others, run.failed, "")
        for metric, value in run.values.items():
            yield run.subject, metric, METRICS[metric].unit, run.repetition, value, *made
        if not run.values:
            yield run.subject, "", "", run.repetition, "", *made
    for subject, why in results.missing.items():
        yield subject, *[""] * (COLUMNS.index("missing") - 1), why


def read(file: Path) -> tuple[Results, dict[str, str]]:
    """With what identity() says."""
    records, about = record.read_table(file, "registration", (*COLUMNS, *IDENTITY), IDENTITY)
    results = Results()
    runs: dict[tuple[str, int], Run] = {}
    for line in records:
        results.interrupted = line.word("interrupted", INTERRUPTED) == "yes"
        subject = line.word("subject", SUBJECTS)
        if why := line.text("missing"):
            results.missing[subject] = why
            continue
        made = line.conditions() | {"others": line.number("others")}
        repetition = line.whole("repetition", 1)
        run = Run(**made, subject=subject, repetition=repetition, failed=line.text("failed") or None)
        run = runs.setdefault((subject, repetition), run)
        if line.text("metric") or not run.failed:
            metric = line.word("metric", METRICS)
            line.word("unit", (METRICS[metric].unit,))
            run.values[metric] = line.number("value")
    results.runs = list(runs.values())
    return results, about
