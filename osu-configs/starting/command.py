# SPDX-License-Identifier: BSD-3-Clause
"""The command line, and what is done in which order."""

import argparse
import sys
from pathlib import Path

from comparing import configuration, environment, installation, options, output
from comparing.awake import awake
from comparing.configuration import Row
from comparing.installation import TOP
from comparing.launch import Interrupted, Launcher, Runner
from comparing.phase import Mailbox
from comparing.trouble import Trouble, told
from starting import files, table
from starting.measure import Meter, Start

HERE = TOP / "osu-configs"
REPETITIONS = 9

DESCRIPTION = """\
Time MPI_Init and MPI_Finalize on this node, and weigh the processes between them: for each row of
a configuration file and each number of ranks, in interleaved jobs."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="startup", description=DESCRIPTION)
    options.add_files(parser, "startup.conf")
    options.add_building(parser)
    options.add_again(parser)
    parser.add_argument("-n", dest="repetitions", type=int, default=REPETITIONS, metavar="N",
                        help=f"jobs of each row and number of ranks (default: {REPETITIONS})")  # fmt: skip
    asked = parser.parse_args()
    asked.files = asked.files or [HERE / "startup.conf"]
    return asked


def main() -> int:
    return told("startup", lambda: start(arguments()))


def start(asked: argparse.Namespace) -> int:
    if asked.csv:
        return output.again(files.read(asked.csv), table.render, status)
    if not 1 <= asked.repetitions <= 999:
        raise Trouble(f"-n {asked.repetitions}: allowed: 1 to 999")
    rows = configuration.read(asked.files, False)
    found = installation.found(asked, "compare")
    rows = configuration.for_openmpi(rows, found.openmpi[0])
    runner, launcher = Runner(), Launcher(found)
    mailbox = Mailbox(found, runner, launcher.on_this_node)
    cells = [(row, Start(row.name, ranks)) for ranks in numbers(rows) for row in rows
             if ranks in numbers([row])]  # fmt: skip
    if asked.dry_run:
        meter = Meter(launcher, runner, Path(), mailbox)
        for row, cell in cells:
            print(f"# {row.name}, {cell.ranks} ranks")
            print(meter.line(row, cell.ranks, None))
        return 0
    folder = output.folder(asked.output, "startup")
    meter = Meter(launcher, runner, folder / "reports", mailbox)
    meter.folder.mkdir(exist_ok=True)
    about = environment.collect(found, [])
    runner.heed_signals()
    try:
        with awake():
            carry_out(meter, cells, asked.repetitions, folder, about)
    except Interrupted:
        print("startup: interrupted", file=sys.stderr)
    starts = [cell for _, cell in cells]
    files.write(folder, starts, about)
    output.show("startup", folder, lambda _: table.render(starts, environment.identity(about)))
    return 130 if runner.stopping else status(starts)


def status(starts: list[Start]) -> int:
    return int(any(start.failed or start.problem for start in starts))


def numbers(rows: list[Row]) -> list[int]:
    """Of ranks, each once, in the order of the rows."""
    return list(dict.fromkeys(case.ranks for row in rows for case in row.cases))


def carry_out(
    meter: Meter, cells: list[tuple[Row, Start]], repetitions: int, folder: Path, about: dict
) -> None:
    """What failed once is not tried again. Written after each round, so that whatever happens, what
    was measured is kept."""
    for row, cell in cells:
        meter.prove(row, cell)
    for job in range(1, repetitions + 1):
        print(f"[{job}/{repetitions}]", file=sys.stderr)
        for row, cell in cells:
            if not cell.failed:
                meter.measure(row, cell)
        files.write(folder, [cell for _, cell in cells], about)
