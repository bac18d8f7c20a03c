# SPDX-License-Identifier: BSD-3-Clause
"""The files that instructions leaves, results.csv, results.json and table.txt; and a results.csv
read again."""

import dataclasses
from pathlib import Path

from comparing import environment, output, record
from profiling import table
from profiling.count import BATCHES, METRICS, Count

IDENTITY = (*environment.IDENTITY[:3], "valgrind", *environment.IDENTITY[3:])
COLUMNS = ("arm", "metric", "lowest", "mean", "batches", "attempt", "problem", "failed")
ATTEMPT = 1  # no phase of the machine moves a count: none is made again


def identity(about: dict) -> dict[str, str]:
    return environment.identity(about, IDENTITY)


def write(folder: Path, counts: list[Count], about: dict) -> None:
    versions = identity(about)
    rows = (
        (count.arm, count.metric, *figures(count), ATTEMPT, count.problem, count.failed,
         *versions.values())
        for count in counts
    )  # fmt: skip
    output.replace_csv(folder / "results.csv", (*COLUMNS, *IDENTITY), rows)
    document = {"environment": about, "counts": [dataclasses.asdict(count) for count in counts]}
    output.replace_json(folder / "results.json", document)
    output.replace(folder / "table.txt", table.render(counts, versions) + "\n")


def figures(count: Count) -> tuple[object, ...]:
    if count.lowest is None:
        return "", "", 0
    return count.lowest, count.mean, BATCHES


def read(file: Path) -> tuple[list[Count], dict[str, str]]:
    """With what identity() says."""
    wanted = (*COLUMNS, *IDENTITY)
    records, about = record.read_table(file, "instructions", wanted, IDENTITY)
    counts = []
    for line in records:
        metric = line.word("metric", [metric.name for metric in METRICS])
        count = Count(line.text("arm"), metric, problem=line.text("problem") or None,
                      failed=line.text("failed") or None)  # fmt: skip
        line.whole("attempt", 1)
        if not count.failed:
            line.word("batches", (str(BATCHES),))
            count.lowest, count.mean = line.number("lowest"), line.number("mean")
        counts.append(count)
    return counts, about
