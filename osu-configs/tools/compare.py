# SPDX-License-Identifier: BSD-3-Clause
"""compare: the command line, and what is done in which order.

The emulated machine has no pandas: what makes tables and plots is imported where it is used.
"""

import argparse
import os
import shlex
import sys
from pathlib import Path

from tools import installation, launch, measure, osu, output, pinned, rdma, report, rows
from tools.launch import Launcher, Runner
from tools.trouble import Trouble, told

MINUTES, EMULATED_RUNS = 5, 3

DESCRIPTION = """\
Compare the rendezvous strategies of regx with one another and with the other ways that Open MPI
has of moving messages, by OSU's benchmarks, on two ranks. As root on Debian it installs what is
missing; it builds regx, runs every row, and prints one screen: who leads, and what proves it."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="compare", description=DESCRIPTION)
    add = parser.add_argument
    add("-f", dest="files", nargs="+", action="extend", type=rows.called, metavar="FILE",
        help="files of rows, by path, or by the name that they have in osu-configs/rows (default: strategies.conf and"
        " peers.conf)")
    installation.add_options(parser)
    add("--minutes", type=float, metavar="M",
        help=f"how long to measure, in as many runs as fit (default: {MINUTES})")
    add("-n", dest="runs", type=int, metavar="N",
        help="runs of each row, however long they take (in the emulated machine, default: 3)")
    add("--details", action="store_true", help="print all figures, rather than one screen")
    add("--explain", action="store_true",
        help="print also which way regx's messages went in the first run of each row, and why")
    add("--osu", type=Path, metavar="DIR",
        help="where the OSU micro-benchmarks are (default: OSU_HOME, PATH, the usual folders;"
        " where there are none, regx's own companion benchmark is used)")
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
    if asked.runs is not None and not 1 <= asked.runs <= 1000:
        parser.error(f"-n {asked.runs}: allowed: 1 to 1000")
    if asked.minutes is not None and (asked.runs or not 0 < asked.minutes <= 10000):
        parser.error(f"--minutes {asked.minutes:g}: allowed: more than 0 to 10000, without -n")
    if asked.explain and asked.csv:
        parser.error("--explain: not with --from; reports/ beside the results.csv has it")
    asked.runs = asked.runs or 0
    asked.files = asked.files or [rows.FOLDER / "strategies.conf", rows.PEERS]
    return asked


def main() -> int:
    return told("compare", lambda: compare(arguments()))


def compare(asked: argparse.Namespace) -> int:
    if asked.csv:
        from tools import table

        frame = table.read(asked.csv)
        if asked.output:
            write(frame, output.folder(asked.output, "compare"))
        return shown(frame, asked.details)
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
    suite.companion = found.programs / "companion"
    if asked.rdma:
        wanted = [rdma.over_verbs(row) for row in wanted]
    elif unheeded := [row.name for row in wanted if row.memory or row.swap]:
        print("compare: memory and swap are this machine's, and not what these rows ask for, without"
              f" --rdma: {', '.join(unheeded)}", file=sys.stderr)
    if emulated:
        if asked.minutes:
            raise Trouble("--minutes: the emulated machine takes -n: its time is not this machine's")
        asked.runs = asked.runs or EMULATED_RUNS
        return in_machine(asked, wanted, suite, launcher)
    if not (asked.dry_run or asked.hostfile or asked.launcher):
        wanted, lines = pinned.can_run(wanted)
        print(*(f"compare: {line}\n" for line in lines), sep="", end="", file=sys.stderr)
    if settings := sorted(name for name in os.environ if name.startswith(("OMPI_MCA_", "PMIX_MCA_", "UCX_"))):
        print(f"compare: set in the environment, for all rows: {', '.join(settings)}", file=sys.stderr)
    jobs = measure.jobs_of(wanted, suite)
    if asked.dry_run:
        dry_run(jobs, asked.runs, launcher)
        return 0
    folder = output.folder(asked.output, "compare")
    runner = Runner()
    runner.heed_signals()
    session = measure.Session(launcher, runner, folder / "reports", installation.about(found))
    results = folder / "results.csv"
    plan = measure.Plan(jobs, asked.runs, 60 * (asked.minutes or MINUTES), undecided=lambda: undecided(results))
    complete = session.carry_out(plan, lambda records: output.write_records(results, records))
    if problem := plan.cut if complete else "interrupted":
        print(f"compare: {problem}", file=sys.stderr)
    bad = 0 if asked.measure or not session.records else present(folder, asked)
    return bad if complete else 130


def undecided(results: Path) -> set:
    from tools import screen, table

    return screen.undecided(table.read([results]))


def table_of(folder: Path) -> "table.Frame":
    from tools import table

    return table.read([folder / "results.csv"])


def present(folder: Path, asked: argparse.Namespace) -> int:
    frame = table_of(folder)
    write(frame, folder)
    for file in sorted((folder / "reports").glob("*-1.jsonl")) if asked.explain else []:
        try:
            print("\n".join([file.stem, *report.explained(report.add(report.read([file])))]) + "\n")
        except Trouble as trouble:
            print(f"{trouble}\n")
    status = shown(frame, asked.details)
    print(f"Files: page.html, table.txt, plots and results.csv in {folder}", flush=True)
    return status


def write(frame: "table.Frame", folder: Path) -> None:
    from tools import page, plot, table

    output.replace(folder / "table.txt", table.render(frame, 160) + "\n")
    page.write(frame, folder, plot.draw(frame, folder), shlex.join(["compare", *sys.argv[1:]]))


def shown(frame: "table.Frame", details: bool) -> int:
    from tools import screen, table

    width = output.width()
    print(table.render(frame, width) if details else screen.render(frame, min(width, screen.WIDTH)), flush=True)
    return table.status(frame)


def in_machine(asked: argparse.Namespace, wanted: list[rows.Row], suite: osu.Suite,
               launcher: Launcher) -> int:
    """This very command, there; the table and the plot are made here."""
    machine = rdma.Machine(wanted)
    try:
        machine.take(suite)
        jobs = measure.jobs_of(wanted, suite)
        if asked.dry_run:
            dry_run(jobs, asked.runs, launcher, machine.line)
            return 0
        folder = output.folder(asked.output, "compare")
        patience = (measure.CHECK_PATIENCE + asked.runs) * sum(job.row.timeout for job in jobs)
        status = machine.measure(["-n", asked.runs], asked.files, folder, patience)
    finally:
        machine.close()
    bad = present(folder, asked) if (folder / "results.csv").exists() else 0
    return status or bad


def dry_run(jobs: list[measure.Job], runs: int, launcher: Launcher, shown: object = str) -> None:
    """Two lines for each job. compare has regx report into files; here, to stderr."""
    for job in jobs:
        lines = [] if job.benchmark.unchecked else [("content check", job.checked(launcher))]
        for what, command in [*lines, (f"{runs or 'as many'} runs{'' if runs else ' as fit'}", job.timed())]:
            print(f"# {job}, {job.sizes()}: {what}")
            print(shown(launcher.line(job.row, command, "stderr", job.case.ranks)))
        if reference := job.reference(launcher):
            print(f"# reference, {job.sizes()}: beside each of them\n{reference}")
