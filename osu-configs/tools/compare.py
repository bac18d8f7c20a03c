# SPDX-License-Identifier: BSD-3-Clause
"""compare: the command line, and what is done in which order.

The emulated machine has no pandas: what judges, and makes tables and plots, is imported where it is used.
"""

import argparse
import dataclasses
import fcntl
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools import installation, launch, osu, output, pinned, program, rdma, report, rows, slices
from tools.launch import Launcher, Runner
from tools.trouble import Trouble, told

MINUTES, EMULATED_ROUNDS = 5, 3
SLOWER = (0, 3, 10)  # percent, of the rows of --self-check
LOCK = Path(tempfile.gettempdir()) / "regx-compare.lock"

DESCRIPTION = """\
Compare the rendezvous strategies of regx with one another and with the other ways that Open MPI
has of moving messages. As root on Debian it installs what is missing; it builds regx, measures all
rows in slices of some milliseconds, in turns, and prints one screen: who is fastest, and what proves it."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="compare", description=DESCRIPTION)
    add = parser.add_argument
    add("-f", dest="files", nargs="+", action="extend", type=rows.called, metavar="FILE",
        help="files of rows, by path, or by the name that they have in osu-configs/rows (default: strategies.conf and"
        " peers.conf)")
    installation.add_options(parser)
    add("--minutes", type=float, metavar="M",
        help=f"how long to measure at most (default: {MINUTES}); it ends before, if all is decided")
    add("-n", dest="rounds", type=int, metavar="N",
        help=f"rounds of each cell, however long they take, each by new jobs (in the emulated machine, default: {EMULATED_ROUNDS})")
    add("--details", action="store_true", help="print all figures below their tables")
    add("--explain", action="store_true",
        help="print also which way regx's messages went in the first job of each row, and why")
    add("--self-check", action="store_true",
        help="the first row of the files (default: auto) beside itself, and beside itself made 3 %% and 10 %% slower")
    add("--program", metavar="CMD", help="run this, for example 'mpirun -n 2 ./program', under each row, and say which one to use"
        " (default: the strategies, pml/ucx, and Open MPI's own choice)")
    add("--metric", type=program.expression, metavar="RE", help="of --program: the first number behind this expression in what it"
        " prints, rather than its time")
    add("--higher", action="store_true", help="of --metric: more is better")
    add("--osu", type=Path, metavar="DIR", help="where the OSU micro-benchmarks are; without, regx's own companion"
        " benchmark measures as they do, and what only they have is left out")
    add("--hostfile", type=Path, metavar="F", help="run between the first two nodes of this file")
    add("--launcher", metavar="COMMAND",
        help='start ranks with this instead of mpirun, for example "srun --mpi=pmix"')
    add("--rdma", action="store_true",
        help="regx's rows go over an RDMA device (transport verbs, where they name no other): this"
        " machine's, or where it has none, Soft-RoCE in an emulated one (test/machine/run)")
    add("--from", dest="csv", nargs="+", type=Path, metavar="CSV",
        help="measure nothing: show the results.csv of an earlier run again, or several; with --output, make the page and"
        " the plots, too")
    add("--measure", action="store_true", help=argparse.SUPPRESS)  # in the emulated machine: no tables
    asked = parser.parse_args()
    if asked.rounds is not None and not 1 <= asked.rounds <= 1000:
        parser.error(f"-n {asked.rounds}: allowed: 1 to 1000")
    if asked.minutes is not None and (asked.rounds or not 0 < asked.minutes <= 10000):
        parser.error(f"--minutes {asked.minutes:g}: allowed: more than 0 to 10000, without -n")
    if asked.explain and asked.csv:
        parser.error("--explain: not with --from; reports/ beside the results.csv has it")
    if (asked.metric or asked.higher) and not asked.program or asked.higher and not asked.metric:
        parser.error("--metric is of --program, --higher of --metric")
    if asked.program and (asked.rdma or asked.hostfile or asked.launcher or asked.rounds or asked.self_check or asked.csv):
        parser.error("--program: not with --rdma, --hostfile, --launcher, -n, --self-check or --from: its own command starts it")
    asked.rounds, asked.named = asked.rounds or 0, bool(asked.files)
    asked.minutes = asked.minutes or MINUTES * (2 if asked.program else 1)
    asked.files = asked.files or [rows.FOLDER / "strategies.conf", rows.PEERS]
    return asked


def main() -> int:
    return told("compare", lambda: compare(arguments()))


def compare(asked: argparse.Namespace) -> int:
    if asked.csv:
        from tools import table

        return present(table.read(asked.csv), asked.output and output.folder(asked.output, "compare"), asked)
    # What is wrong with the command line or a file is said before anything is installed.
    wanted = rows.read(asked.files)
    suite = osu.Suite(asked.osu)
    launch.own_launcher(asked.hostfile, asked.launcher)
    emulated = asked.rdma and not rdma.device_is_here()
    if emulated and (asked.hostfile or asked.launcher):
        raise Trouble("--hostfile, --launcher: there is no RDMA device here, and the emulated machine is"
                      " one node")
    found = installation.found(asked, "machine" if emulated else "rdma" if asked.rdma else "compare")
    wanted = rows.for_openmpi(wanted, found.major)
    launcher = Launcher(found, asked.hostfile, asked.launcher, asked.rdma)
    if asked.rdma:
        wanted = [rdma.over_verbs(row) for row in wanted]
    elif unheeded := [row.name for row in wanted if row.memory or row.swap]:
        print("compare: memory and swap are this machine's, and not what these rows ask for, without"
              f" --rdma: {', '.join(unheeded)}", file=sys.stderr)
    if emulated:
        if "--minutes" in sys.argv:
            raise Trouble("--minutes: the emulated machine takes -n: its time is not this machine's")
        asked.rounds = asked.rounds or EMULATED_ROUNDS
        return in_machine(asked, wanted, suite, launcher)
    if not (asked.dry_run or asked.hostfile or asked.launcher):
        wanted, lines = pinned.can_run(wanted)
        print(*(f"compare: {line}\n" for line in lines), sep="", end="", file=sys.stderr)
    if settings := sorted(name for name in os.environ if name.startswith(("OMPI_MCA_", "PMIX_MCA_", "UCX_"))):
        print(f"compare: set in the environment, for all rows: {', '.join(settings)}", file=sys.stderr)
    if asked.self_check:
        wanted = slowed(wanted)
    if asked.program:
        return run_program(asked, found)
    entries = slices.entries_of(wanted, suite)
    if not entries:
        raise Trouble("there is nothing to measure", 1)
    if asked.dry_run:
        dry_run(entries, launcher)
        return 0
    return measure(asked, entries, launcher, installation.about(found), suite)


def run_program(asked: argparse.Namespace, found: installation.Installation) -> int:
    wanted = rows.for_openmpi(program.chosen(asked), found.major)
    if asked.dry_run:
        print(*(program.line_of(shlex.split(asked.program), row, found, Path("stderr")) for row in wanted), sep="\n")
        return 0
    folder = output.folder(asked.output, "compare")
    records, runner = output.Records(folder / "results.csv"), Runner()
    runner.heed_signals()
    (folder / "reports").mkdir(exist_ok=True)
    lock = alone(records)
    turns = program.Turns(asked, wanted, found, records, folder / "reports", runner)
    complete = turns.carry_out()
    os.close(lock)
    if not complete:
        print("compare: interrupted: here is what is known so far", file=sys.stderr)
    text = program.screen(records.lines, wanted, turns.unit)
    print(installation.about(found), "", *text, sep="\n", flush=True)
    output.replace(folder / "table.txt", "\n".join(text) + "\n")
    if records.problem:
        raise Trouble(records.problem, 1)
    bad = any(line.get("event") == "failed" or line.get("event") == "path" and line["text"] for line in records.lines)
    return int(bad) if complete else 130


def slowed(wanted: list[rows.Row]) -> list[rows.Row]:
    """The row twice, and slower ones."""
    row = next((row for row in wanted if row.name == "auto"), wanted[0])
    return [dataclasses.replace(row, name=f"{row.name}{name}", slower=slower)
            for name, slower in (("", 0), *((f"+{slower}%", slower) for slower in SLOWER))]


def measure(asked: argparse.Namespace, entries: list[slices.Entry], launcher: Launcher, about: str, suite: osu.Suite) -> int:
    folder = output.folder(asked.output, "compare")
    records = output.Records(folder / "results.csv")
    runner = Runner()
    runner.heed_signals()
    lock = alone(records)
    records.keep({"event": "about", "text": about})
    for row in {entry.seat.row.name: entry.seat.row for entry in entries}.values():
        text = " ".join([*(f"--mca {name} {value}" for name, value in row.mca.items()),
                         *(f"-x {name}={value}" for name, value in row.environment.items())])
        records.keep({"row": row.name, "kind": "regx" if row.is_regx else "peer", "event": "set", "text": text})
    if launcher.cores < 2 and not launcher.network:
        doubt(records, "there is one core here, whose turns the ranks take: no figure says anything of two")
    plan = slices.Plan(asked.rounds, 60 * asked.minutes, lambda: None if asked.measure else open_in(records.lines))
    session = slices.Session(launcher, runner, folder / "reports", records.keep, suite.osu)
    complete = session.carry_out(entries, plan)
    os.close(lock)
    if problem := plan.cut if complete else "interrupted: here is what is known so far":
        print(f"compare: {problem}", file=sys.stderr)
    bad = 0
    if not asked.measure and records.lines:
        from tools import table

        bad = present(table.of(records.lines), folder, asked)
    if records.problem:
        raise Trouble(records.problem, 1)
    return bad if complete else 130


def alone(records: output.Records) -> int:
    """Says if another one is running."""
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        doubt(records, "another compare is running on this machine: the figures of both are worth nothing")
    return lock


def doubt(records: output.Records, text: str) -> None:
    print(f"compare: {text}", file=sys.stderr)
    records.keep({"event": "doubt", "text": text})


def open_in(records: list[dict[str, Any]]) -> slices.Open:
    from tools import judge, table

    return judge.open_in(table.of(records))


def present(frame: "table.Frame", folder: Path | None, asked: argparse.Namespace) -> int:
    """Prints the screen, and writes the same with all figures, and the page, into the folder."""
    from tools import page, screen

    width = output.width()
    problem = ""
    if folder:
        try:
            output.replace(folder / "table.txt", screen.render(frame, 160, details=True) + "\n")
            page.write(frame, folder, shlex.join(["compare", *sys.argv[1:]]))
        except (OSError, Trouble) as error:
            problem = str(error)
    for file in sorted((folder / "reports").glob("*-1.jsonl")) if folder and asked.explain else []:
        try:
            print("\n".join([file.stem, *report.explained(report.add(report.read([file])))]) + "\n")
        except Trouble as trouble:
            print(f"{trouble}\n")
    print(screen.render(frame, width if asked.details else min(width, screen.WIDTH), asked.details), flush=True)
    if folder and not problem:
        print(f"Files: page.html, table.txt, plots and results.csv in {folder}", flush=True)
    elif problem:
        print(f"compare: {problem}", file=sys.stderr)
    return screen.status(frame) or int(bool(problem))


def in_machine(asked: argparse.Namespace, wanted: list[rows.Row], suite: osu.Suite,
               launcher: Launcher) -> int:
    """This very command, there; the screen and the page are made here."""
    from tools import table

    machine = rdma.Machine(wanted)
    try:
        machine.take(suite)
        entries = slices.entries_of(wanted, suite)
        if asked.dry_run:
            dry_run(entries, launcher, machine.line)
            return 0
        folder = output.folder(asked.output, "compare")
        patience = (2 + asked.rounds) * sum(row.timeout * len(row.cases) for row in wanted)
        status = machine.measure(["-n", asked.rounds], asked.files, folder, patience)
    finally:
        machine.close()
    there = (folder / "results.csv").exists()
    bad = present(table.read([folder / "results.csv"]), folder, asked) if there else 0
    return status or bad


def dry_run(entries: list[slices.Entry], launcher: Launcher, shown: Any = str) -> None:
    """A line for each job. compare has regx report into files; here, to stderr."""
    for seat in dict.fromkeys(entry.seat for entry in entries):
        cells = [entry for entry in entries if entry.seat is seat]
        print(f"# {seat}: {len(cells)} cells, {', '.join(dict.fromkeys(entry.place[0] for entry in cells))}")
        print(shown(launcher.line(seat.row, ["companion", "HUB", "NAME"], "stderr", seat.ranks)))
