# SPDX-License-Identifier: BSD-3-Clause
"""compare --program: a whole program under each row, in turns in random order, until the best row is known.

The rows reach it by its environment, so it may be started by mpirun or by anything else that passes that on. Each run is
a generation of its own, and each turn of all rows is a round (tools/judge.py).
"""

import argparse
import random
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from tools import output, report, rows
from tools.installation import Installation
from tools.launch import Interrupted, Line, Outcome, Runner
from tools.rows import Row
from tools.trouble import Trouble

OWN = "own"  # the row without settings: Open MPI's own choice
UCX = "ucx"
LEAST_SECONDS = 60.0  # that a run may take, however few minutes are left
FEWEST = 3  # rounds


def expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f'"{text}" is no regular expression: {error}') from None


def chosen(asked: argparse.Namespace) -> list[Row]:
    """The rows of -f, else the strategies and pml/ucx; and Open MPI's own choice."""
    wanted = rows.read(asked.files)
    if not asked.named:
        wanted = [row for row in wanted if row.is_regx or row.name == UCX]
    return [*wanted, Row(OWN, {}, {}, (), "", 0, 0, 0, (), "")]


def line_of(words: list[str], row: Row, installation: Installation, to: Path) -> Line:
    environment = {f"OMPI_MCA_{name}": value for name, value in row.mca.items()} | row.environment
    if row.is_regx:
        environment |= {"OMPI_MCA_opal_mca_base_component_path": installation.component_path,
                        "OMPI_MCA_btl_regx_report": str(to)}
    return Line(environment, tuple(words))


def value_of(outcome: Outcome, metric: re.Pattern[str] | None) -> float | str:
    """Seconds, or the first number behind the expression; else why there is none."""
    if failure := outcome.failure():
        return failure
    if metric is None:
        return outcome.seconds
    found = re.search(f"(?:{metric.pattern})" + r"\D*?([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)", outcome.stdout)
    value = float(found[found.lastindex or 1]) if found else 0.0
    return value if value > 0 else f"it printed no number above 0 behind {metric.pattern}"


class Turns:
    def __init__(self, asked: argparse.Namespace, wanted: list[Row], installation: Installation, records: output.Records,
                 reports: Path, runner: Runner):
        self.words, self.metric = shlex.split(asked.program), asked.metric
        self.unit = "more" if asked.higher else "s"
        self.rows, self.installation, self.records, self.reports, self.runner = wanted, installation, records, reports, runner
        self.until = time.monotonic() + 60 * asked.minutes
        self.random = random.Random(0)

    def run(self, row: Row, number: int) -> bool:
        """Returns whether it came to its end."""
        file = self.reports / f"{row.name}-{number}.jsonl"
        file.unlink(missing_ok=True)
        patience = max(LEAST_SECONDS, self.until - time.monotonic())
        value = value_of(self.runner.run(line_of(self.words, row, self.installation, file), patience), self.metric)
        about = {"row": row.name, "kind": "regx" if row.is_regx else "peer", "benchmark": "program", "buffers": "same", "ranks": 2,
                 "size": 1}  # fmt: skip
        if isinstance(value, str):
            print(f"FAILED: {row.name}: {value}", file=sys.stderr)
            self.records.keep(about | {"event": "failed", "text": value})
            return False
        if row.is_regx:
            ranks = len({line["rank"] for line in report.read([file])}) if file.exists() else 0
            proof = report.prove(file, report.Claim(row.regx("rendezvous"), 0, row.regx("backend"), row.regx("transport"), ranks or 1))
            self.records.keep(about | {"event": "path", "text": proof.problem})
            if not ranks:
                raise Trouble(f"--program: under {row.name} no rank of it reported: it does not use MPI, or not this Open MPI"
                              f" ({self.installation.openmpi})", 1)
        self.records.keep(about | {"unit": self.unit, "job": number, "round": number, "value": value, "moved": 0})
        return True

    def carry_out(self) -> bool:
        """Returns whether it was not interrupted."""
        alive, number = list(self.rows), 0
        try:
            while alive and time.monotonic() < self.until:
                number += 1
                self.random.shuffle(alive)
                alive = [row for row in alive if self.run(row, number)]
                best, others = verdicts(self.records.lines) if number >= FEWEST else ("", {})
                print(f"compare: round {number}: {best or 'nothing'} ahead, {sum(v == 'open' for v in others.values())} open,"
                      f" {max(0, self.until - time.monotonic()) / 60:.1f} minutes left", file=sys.stderr, flush=True)
                alive = [row for row in alive if others.get(row.name) != "slower"]
                if others and "open" not in others.values() or len(alive) < 2:
                    break
        except Interrupted:
            return False
        return True


def beside_best(lines: list[dict]) -> tuple[str, Any]:
    """The row with the best mean, and the others beside it."""
    from tools import judge, table

    values = judge.values_of(table.of(lines))
    rounds = values.pivot(index="round", columns="row", values="log")
    means = rounds.sub(rounds.mean(axis=1), axis=0).mean()
    most = rounds.count().max()
    best = str(means[rounds.count() == most].idxmax())
    return best, judge.judged(values, [best])


def verdicts(lines: list[dict]) -> tuple[str, dict[str, str]]:
    if not any("round" in line for line in lines):
        return "", {}
    best, found = beside_best(lines)
    return best, dict(zip(found.row, found.verdict.where(found.row.ne(best), "best")))


def screen(lines: list[dict], wanted: list[Row], unit: str) -> list[str]:
    from tools.screen import interval
    from tools.table import number

    failed = [f"FAILED: {line['row']}: {line['text']}" for line in lines if line.get("event") == "failed"]
    if not any("round" in line for line in lines):
        return [*failed, "Decided: 0 of 0 rows"]
    best, found = beside_best(lines)
    row = next(row for row in wanted if row.name == best)
    settings = " ".join([*(f"--mca {name} {value}" for name, value in row.mca.items()),
                         *(f"-x {name}={value}" for name, value in row.environment.items())])
    others = found[found.row.ne(best)].sort_values("speed", ascending=False)
    level = list(others.row[others.verdict.ne("slower")])
    text = [*failed, f"Use {best}" + (f": {settings}" if settings else ", Open MPI's own choice: set nothing") + "."]
    text += [f"Not told apart from it, or level: {', '.join(level)}."] if level else []
    text += ["", f"{'row':<16}{'median':>10} {'' if unit == 'more' else 's':<4}{'speed, best = 1':<32}{'verdict':<10}runs"]
    for line in [*found[found.row.eq(best)].itertuples(), *others.itertuples()]:
        speed = "1" if line.row == best else f"{number(line.speed)} ({interval(line)})"
        text.append(f"{line.row:<16}{number(line.median):>10}     {speed:<32}{line.verdict or 'best':<10}{line.rounds}")
    bad = dict.fromkeys((line["row"], line["text"]) for line in lines if line.get("event") == "path" and line["text"])
    ran = sum(line.get("event") == "path" for line in lines)
    text += ["", *(f"Path (?): {name}: {why}" for name, why in bad)]
    text += [f"Path: in all {ran} runs regx's report proves the path that the row names."] if ran and not bad else []
    return [*text, f"Decided: {others.verdict.ne('open').sum()} of {len(others)} rows"]
