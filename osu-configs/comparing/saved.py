# SPDX-License-Identifier: BSD-3-Clause
"""Saved results: what a results.csv says, to make its tables again.

Older files lack the last columns. They are read too, but what they do not say cannot be had: without
a phase, runs of all phases are in one table, as they are of one whose phase was not measured.
"""

from pathlib import Path

from comparing.record import Record
from comparing.record import read as read_records
from comparing.result import PEER, REFERENCE, REGX, Arm, Results, Run
from comparing.trouble import Trouble

WANTED = ("strategy", "benchmark", "buffers", "size", "metric", "unit", "repetition", "value")
OLD_REFERENCE, OLD_BENCHMARK = "limit", "probe"


def read(files: list[Path]) -> Results:
    """Trouble names the file, the line and the column that is wrong."""
    results = Results(source=", ".join(map(str, files)))
    old_references: list[Run] = []
    for file in files:
        runs: dict[tuple, Run] = {}
        for record in read_records(file, "compare", WANTED):
            _take(record, runs)
        for run in runs.values():
            old = run.arm.benchmark == OLD_BENCHMARK
            (old_references if old else results.runs).append(run)
    if not results.runs:
        raise Trouble(f"{results.source}: no runs in it")
    results.runs += _references(results, old_references)
    arms = dict.fromkeys(run.arm for run in results.runs)
    results.arms = sorted(arms, key=lambda arm: arm.kind == REFERENCE)  # which comes last
    return results


def _take(record: Record, runs: dict[tuple, Run]) -> None:
    text = record.text
    arm = Arm(text("strategy"), _kind(record), text("benchmark"), text("buffers"),
              record.whole("ranks", 1, default=2))  # fmt: skip
    repetition, value = record.whole("repetition"), record.number("value")
    run_of = (arm, repetition, text("beside"))
    conditions = record.conditions()
    if not text("size"):  # a count of the whole run, whose lines have come before
        for key, run in runs.items():
            if key[:3] == run_of:
                run.counts[text("metric")] = int(value)
        return
    size = record.whole("size")
    run = runs.setdefault(
        (*run_of, text("metric")),
        Run(
            **conditions,
            arm=arm,
            repetition=repetition,
            metric=text("metric"),
            unit=text("unit"),
            line="",
            beside=text("beside"),
            options=text("options"),
            backend=text("backend"),
            transport=text("transport"),
            problem=text("problem") or None,
        ),
    )
    run.values[size] = value


def _kind(record: Record) -> str:
    """Older files do not say it, but regx alone has a backend."""
    if record.text("kind"):
        return record.word("kind", (REGX, PEER, REFERENCE))
    if record.text("strategy") == OLD_REFERENCE:
        return REFERENCE
    return REGX if record.text("backend") else PEER


def _references(results: Results, runs: list[Run]) -> list[Run]:
    """Of older files, in which one stood for all benchmarks of a metric."""
    found = []
    for run in runs:
        groups = {
            other.arm.group
            for other in results.runs
            if other.metric == run.metric and other.arm.buffers == run.arm.buffers
        }
        for group in groups:
            arm = Arm("reference", REFERENCE, group.benchmark, group.buffers, group.ranks)
            found.append(Run(**{**vars(run), "arm": arm}))
    return found
