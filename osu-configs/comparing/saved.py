# SPDX-License-Identifier: BSD-3-Clause
"""Saved results: what a results.csv says, to make its tables again.

Older files lack the last columns. They are read too, but what they do not say cannot be had: without
a phase, runs of all phases are in one table, as they are of one whose phase was not measured.
"""

import csv
from pathlib import Path

from comparing.phase import PHASES, UNMEASURED
from comparing.result import PEER, REFERENCE, REGX, Arm, Results, Run
from comparing.trouble import Trouble

WANTED = ("strategy", "benchmark", "buffers", "size", "metric", "unit", "repetition", "value")
OLD_REFERENCE, OLD_BENCHMARK = "limit", "probe"


def read(files: list[Path]) -> Results:
    """Trouble names the file and the line that is none."""
    results = Results(source=", ".join(map(str, files)))
    old_references: list[Run] = []
    for file in files:
        runs: dict[tuple, Run] = {}
        try:
            with file.open(encoding="utf-8", newline="") as lines:
                table = csv.DictReader(lines)
                missing = [name for name in WANTED if name not in (table.fieldnames or ())]
                if missing:
                    raise Trouble(f"{file}:1: no results.csv of compare: no column {missing[0]}")
                for row in table:
                    _take(row, runs, f"{file}:{table.line_num}")
        except OSError as error:
            raise Trouble(f"{file}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise Trouble(f"{file}: cannot be read: not a text file") from None
        for run in runs.values():
            old = run.arm.benchmark == OLD_BENCHMARK
            (old_references if old else results.runs).append(run)
    if not results.runs:
        raise Trouble(f"{results.source}: no runs in it")
    results.runs += _references(results, old_references)
    arms = dict.fromkeys(run.arm for run in results.runs)
    results.arms = sorted(arms, key=lambda arm: arm.kind == REFERENCE)  # which comes last
    return results


def _take(row: dict, runs: dict[tuple, Run], where: str) -> None:
    try:
        arm = Arm(
            row["strategy"], _kind(row), row["benchmark"], row["buffers"], int(row.get("ranks") or 2)
        )
        repetition, value = int(row["repetition"]), float(row["value"])
        mailbox = tuple(_time(row.get(name)) for name in ("mailbox_before", "mailbox_after"))
        attempts = int(row.get("attempt") or 1)
        size = int(row["size"]) if row["size"] else None
    except (ValueError, TypeError, KeyError) as error:
        raise Trouble(f"{where}: malformed: {error}") from None
    phase = row.get("phase") or UNMEASURED
    if phase not in PHASES:
        raise Trouble(f'{where}: malformed: unknown phase "{phase}"')
    run_of = (arm, repetition, row.get("beside"))
    if size is None:  # a count of the whole run, whose lines have come before
        for key, run in runs.items():
            if key[:3] == run_of:
                run.counts[row["metric"]] = int(value)
        return
    run = runs.setdefault(
        (*run_of, row["metric"]),
        Run(
            phase=phase,
            mailbox=(mailbox[0], mailbox[1]),
            attempts=attempts,
            seconds=0.0,
            others=0.0,
            arm=arm,
            repetition=repetition,
            metric=row["metric"],
            unit=row["unit"],
            line="",
            beside=row.get("beside") or "",
            options=row.get("options") or "",
            backend=row.get("backend") or "",
            transport=row.get("transport") or "",
            problem=row.get("problem") or None,
        ),
    )
    run.values[size] = value


def _kind(row: dict) -> str:
    """Older files do not say it, but regx alone has a backend."""
    if row.get("kind"):
        if row["kind"] not in (REGX, PEER, REFERENCE):
            raise ValueError(f'unknown kind "{row["kind"]}"')
        return str(row["kind"])
    if row["strategy"] == OLD_REFERENCE:
        return REFERENCE
    return REGX if row.get("backend") else PEER


def _time(text: str | None) -> float | None:
    return float(text) if text else None


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
