# SPDX-License-Identifier: BSD-3-Clause
"""The command line, and what is done in which order."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from comparing import configuration, environment, installation, options, output, rdma
from comparing.configuration import Row
from comparing.installation import TOP
from comparing.launch import Interrupted, Launcher, Runner
from comparing.trouble import Trouble, told
from counting import files, table
from counting.message import SIZES, Counter, Message, trips

HERE = TOP / "osu-configs"

DESCRIPTION = """\
Count what one message costs two ranks of this node over an RDMA device: packets, requests, calls
that post them, registrations, system calls; for each row of a configuration file."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="counts", description=DESCRIPTION)
    options.add_files(parser, "counts.conf")
    options.add_building(parser)
    options.add_again(parser)
    parser.add_argument(
        "--rdma", action="store_true",
        help="where there is no RDMA device here, in the emulated machine that has one")
    asked = parser.parse_args()
    asked.files = asked.files or [HERE / "counts.conf"]
    return asked


def main() -> int:
    return told("counts", lambda: count(arguments()))


def count(asked: argparse.Namespace) -> int:
    if asked.csv:
        return output.again(files.read(asked.csv), table.render, status)
    rows = configuration.read(asked.files, False)
    found = installation.found(asked, rdma.purpose())
    rows = configuration.for_openmpi(rows, found.openmpi[0])
    machine = rdma.emulated(found, asked, rows) if asked.rdma else None
    if not machine and not rdma.device_is_here():
        raise Trouble("no RDMA device here; --rdma counts in an emulated machine that has one", 1)
    folder = Path() if asked.dry_run else output.folder(asked.output, "counts")
    runner = Runner()
    counter = Counter(Launcher(found, rdma=True), runner, folder / "reports")
    cells = [(row, size) for size in SIZES for row in rows if size in row.cases[0].sizes.sizes()]
    if asked.dry_run:
        for row, size in cells:
            for iterations in trips(size):
                line = counter.line(row, size, iterations, Path("counts"), "stderr")
                print(machine.line(line) if machine else line)
        return 0
    if machine:
        patience = 2 * sum(row.timeout for row, _ in cells)
        ended = machine.run([HERE / "counts"], asked.files, folder, patience)
        print(f"counts: results are in {folder}", file=sys.stderr)
        return ended
    counter.folder.mkdir(exist_ok=True)
    runner.heed_signals()
    messages: list[Message] = []
    about = environment.collect(found, [])
    try:
        carry_out(counter, cells, messages, lambda: files.write(folder, messages, about))
    except Interrupted:
        print("counts: interrupted", file=sys.stderr)
    print(table.render(messages, environment.identity(about)), flush=True)
    return 130 if runner.stopping else status(messages)


def status(messages: list[Message]) -> int:
    return int(any(message.failed or message.problem for message in messages))


def carry_out(
    counter: Counter,
    cells: list[tuple[Row, int]],
    messages: list[Message],
    keep: Callable[[], None],
) -> None:
    """keep: called after each cell, so that whatever happens, what was counted is kept."""
    failed: set[str] = set()
    for number, (row, size) in enumerate(cells, 1):
        if row.name in failed:
            continue
        print(f"[{number}/{len(cells)}] {row.name}, {size} bytes", file=sys.stderr)
        messages.append(counter.message(row, size))
        keep()
        if messages[-1].failed:
            failed.add(row.name)
            print(f"counts: {row.name}: {messages[-1].failed}", file=sys.stderr)
