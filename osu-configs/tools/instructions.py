# SPDX-License-Identifier: BSD-3-Clause
"""instructions: what an 8-byte message costs a process, in instructions.

messages.c exchanges messages in batches under valgrind's callgrind, which counts only inside of the
functions named, and writes a file for each batch. The lowest batch is the figure: it is the same in
every run. The mean has in it what happens once in many messages, as giving back room in a queue.
"""

import argparse
import re
import sys
from pathlib import Path

from tools import installation, output, report, rows
from tools.launch import Interrupted, Launcher, Line, Runner
from tools.trouble import told

BATCHES, PER_BATCH = 64, 16  # as messages.c has them
RANK = "%q{OMPI_COMM_WORLD_RANK}"
SENT, RECEIVED = ("PMPI_Isend",), ("PMPI_Irecv", "PMPI_Waitall")
DESCRIPTION = """\
Count the instructions that an 8-byte message costs a process on this node: inside MPI_Isend at the
sender, inside MPI_Irecv and MPI_Waitall at the receiver; for each row of a configuration file, by
valgrind. The same numbers each time: speed plays no part."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="instructions", description=DESCRIPTION)
    parser.add_argument("-f", dest="files", nargs="+", action="extend", type=rows.called,
                        metavar="FILE",
                        help="files of rows, as compare takes them (default: instructions.conf)")
    installation.add_options(parser)
    asked = parser.parse_args()
    asked.files = asked.files or [rows.FOLDER / "instructions.conf"]
    return asked


def main() -> int:
    return told("instructions", lambda: instructions(arguments()))


def line_of(launcher: Launcher, row: rows.Row, to: Path, report_to: Path | str) -> Line:
    command = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={to}.{RANK}",
               "--dump-before=batch_begins", *(f"--toggle-collect={name}" for name in SENT + RECEIVED),
               str(launcher.installation.programs / "messages"), f"{to}.page"]  # fmt: skip
    return launcher.line(row, command, report_to)


def instructions(asked: argparse.Namespace) -> int:
    wanted = rows.read(asked.files)
    found = installation.found(asked, "instructions")
    launcher, runner, status = Launcher(found), Runner(), 0
    wanted = rows.for_openmpi(wanted, found.major)
    if asked.dry_run:
        for row in wanted:
            print(line_of(launcher, row, Path(row.name), "stderr"))
        return 0
    folder = output.folder(asked.output, "instructions")
    (folder / "reports").mkdir(exist_ok=True)
    runner.heed_signals()
    lines = [f"{'Instructions per 8-byte message':<32}{'sent':>12}{'mean':>12}{'received':>12}{'mean':>12}"]
    for row in wanted:
        print(f"instructions: {row.name}", file=sys.stderr)
        to, report_to = folder / "reports" / row.name, folder / "reports" / f"{row.name}.jsonl"
        try:
            outcome = runner.run(line_of(launcher, row, to, report_to), row.timeout)
        except Interrupted:
            return 130
        problem = outcome.failure()
        if row.is_regx and not problem:
            problem = report.prove(report_to, report.Claim("auto", 0)).problem
        counts = [] if problem else [batches(to, rank) for rank in (0, 1)]
        if counts and not all(len(batch) == BATCHES and all(batch) for batch in counts):
            problem = f"callgrind did not count in each of {BATCHES} batches"
        if problem:
            status = 1
            lines.append(f"{row.name}: FAILED: {problem}")
        else:
            cells = [cell for batch in counts for cell in (min(batch), sum(batch) / BATCHES)]
            lines.append(f"{row.name:<32}" + "".join(f"{cell / PER_BATCH:12.1f}" for cell in cells))
    lines.append(f"The lowest and the mean of {BATCHES} batches of {PER_BATCH} messages; "
                 f"{installation.said('valgrind', '--version')}, {installation.about(found)}")
    output.replace(folder / "table.txt", "\n".join(lines) + "\n")
    print("\n".join(lines), flush=True)
    return status


def batches(to: Path, rank: int) -> list[int]:
    """The instructions of each batch. Files are numbered from 1; what came before the batches is in the
    first, and what came after them in the one without a number."""
    found = []
    while (file := Path(f"{to}.{rank}.{len(found) + 2}")).exists():
        match = re.search(r"^summary: (\d+)", file.read_text(errors="replace"), re.MULTILINE)
        found.append(int(match[1]) if match else 0)
    return found
