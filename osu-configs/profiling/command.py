# SPDX-License-Identifier: BSD-3-Clause
"""The command line, and what is done in which order."""

import argparse
import sys
from pathlib import Path

from comparing import configuration, environment, installation, options, output
from comparing.configuration import Row
from comparing.installation import TOP
from comparing.launch import Interrupted, Launcher, Runner
from comparing.trouble import told
from profiling import files, table
from profiling.count import METRICS, Count, Counter, Metric

HERE = TOP / "osu-configs"

DESCRIPTION = """\
Count the instructions that an 8-byte message costs a process on this node: per MPI_Isend, per
received message, and per call of MPI's progress in which nothing comes; for each row of a
configuration file, by valgrind. The same numbers each time: speed plays no part."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="instructions", description=DESCRIPTION)
    options.add_files(parser, "instructions.conf")
    options.add_building(parser)
    options.add_again(parser)
    asked = parser.parse_args()
    asked.files = asked.files or [HERE / "instructions.conf"]
    return asked


def main() -> int:
    return told("instructions", lambda: count(arguments()))


def count(asked: argparse.Namespace) -> int:
    if asked.csv:
        return output.again(files.read(asked.csv), table.render, status)
    rows = configuration.read(asked.files, False)
    found = installation.found(asked, "instructions")
    rows = configuration.for_openmpi(rows, found.openmpi[0])
    cells = [(row, metric) for metric in METRICS for row in rows]
    runner = Runner()
    if asked.dry_run:
        counter = Counter(Launcher(found), runner, Path())
        for row, metric in cells:
            print(f"# {row.name}, instructions {metric.title}")
            print(counter.line(row, metric, Path(f"{row.name}-{metric.name}"), "stderr"))
        return 0
    folder = output.folder(asked.output, "instructions")
    counter = Counter(Launcher(found), runner, folder / "reports")
    counter.folder.mkdir(exist_ok=True)
    about = environment.collect(found, []) | {"valgrind": environment.said("valgrind", "--version")}
    runner.heed_signals()
    counts: list[Count] = []
    try:
        carry_out(counter, cells, counts, folder, about)
    except Interrupted:
        print("instructions: interrupted", file=sys.stderr)
    output.show("instructions", folder, lambda _: table.render(counts, files.identity(about)))
    return 130 if runner.stopping else status(counts)


def status(counts: list[Count]) -> int:
    return int(any(count.failed or count.problem for count in counts))


def carry_out(
    counter: Counter,
    cells: list[tuple[Row, Metric]],
    counts: list[Count],
    folder: Path,
    about: dict,
) -> None:
    """Written after each cell, so that whatever happens, what was counted is kept."""
    for number, (row, metric) in enumerate(cells, 1):
        print(f"[{number}/{len(cells)}] {row.name}, {metric.title}", file=sys.stderr)
        counts.append(counter.count(row, metric))
        files.write(folder, counts, about)
        if counts[-1].failed:
            print(f"instructions: {row.name}: {counts[-1].failed}", file=sys.stderr)
