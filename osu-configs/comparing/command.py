# SPDX-License-Identifier: BSD-3-Clause
"""compare itself: the command line, and what is done in which order."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from comparing import (
    configuration,
    environment,
    installation,
    options,
    osu,
    output,
    rdma,
    saved,
    table,
)
from comparing.configuration import Row
from comparing.files import Folder
from comparing.installation import TOP, Installation
from comparing.launch import Launcher, Runner
from comparing.plan import Plan, available
from comparing.result import Results
from comparing.session import (
    CHECK_PATIENCE,
    Session,
    check_arguments,
    reference_line,
    timed_arguments,
)
from comparing.trouble import Trouble, told

HERE = TOP / "osu-configs"
DEFAULT_FILES = [HERE / "strategies.conf", HERE / "peers.conf"]
REPETITIONS, FULL_REPETITIONS = 3, 7

DESCRIPTION = """\
Compare the rendezvous strategies of regx with one another and with the other ways that Open MPI
has of moving messages, by OSU's benchmarks, on two ranks. As root on Debian it installs what is
missing; it builds regx, runs every row, and prints one table."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="compare", description=DESCRIPTION)
    options.add_files(parser, "strategies.conf and peers.conf")
    options.add_building(parser)
    add = parser.add_argument
    add("--full", action="store_true", help="more sizes and repetitions")
    add("-n", dest="repetitions", type=int, metavar="N",
        help=f"repetitions (default: {REPETITIONS}, with --full {FULL_REPETITIONS})")
    add("--osu", type=Path, metavar="DIR",
        help="where the OSU micro-benchmarks are (default: OSU_HOME, PATH, the usual folders;"
        " where there are none, regx's own companion benchmark is used)")
    add("--hostfile", type=Path, metavar="F", help="run between the first two nodes of this file")
    add("--launcher", metavar="COMMAND",
        help='start ranks with this instead of mpirun, for example "srun --mpi=pmix"')
    add("--rdma", action="store_true",
        help="regx's rows go over an RDMA device (transport verbs, where they name no other): this"
        " machine's, or where it has none, Soft-RoCE in an emulated one (test/machine/run)")
    options.add_again(parser, several=True)
    asked = parser.parse_args()
    if asked.repetitions is None:
        asked.repetitions = FULL_REPETITIONS if asked.full else REPETITIONS
    if not 1 <= asked.repetitions <= 1000:
        parser.error(f"-n {asked.repetitions}: allowed: 1 to 1000")
    asked.files = asked.files or DEFAULT_FILES
    return asked


def main() -> int:
    return told("compare", lambda: compare(arguments()))


def compare(asked: argparse.Namespace) -> int:
    if asked.csv:
        return again(asked.csv)
    # What is wrong with the command line or a file is said before anything is installed.
    rows = configuration.read(asked.files, asked.full)
    found = installation.found(asked, rdma.purpose() if asked.rdma else "compare")
    rows = configuration.for_openmpi(rows, found.openmpi[0])
    launcher = Launcher(found, asked.hostfile, asked.launcher, asked.rdma)
    suite = osu.Suite(asked.osu, found.companion, dict(os.environ))
    machine = None
    if asked.rdma:
        rows = [rdma.over_verbs(row) for row in rows]
        machine = rdma.emulated(found, asked, rows)
    if machine:
        suite = machine.take(suite, found.companion)
    rows, left_out = available(rows, suite)
    if not rows:
        raise Trouble(f"no OSU here, and nothing else has {', '.join(left_out)}", 1)
    plan = Plan(rows, suite, asked.repetitions, with_reference=launcher.on_this_node)
    if asked.dry_run:
        dry_run(plan, launcher, machine)
        return 0
    folder = Folder(asked.output)
    if machine:
        return in_machine(machine, plan, asked, found, folder)
    return measure(plan, launcher, suite, rows, found, folder, left_out)


def again(files: list[Path]) -> int:
    """What was measured before, as a table."""
    results = saved.read(files)
    print(table.render(results, output.width()), flush=True)
    return results.status()


def in_machine(
    machine: rdma.Machine, plan: Plan, asked: argparse.Namespace, found: Installation, folder: Folder
) -> int:
    """This very command, there."""
    command: list[str | Path] = [HERE / "compare", "-n", str(asked.repetitions)]
    command += ["--full"] if asked.full else []
    if any(not job.program.is_companion for job in plan.jobs):
        command += ["--osu", machine.programs]
    patience = (CHECK_PATIENCE + plan.repetitions) * sum(job.row.timeout for job in plan.jobs)
    status = machine.run(command, asked.files, folder.path, patience)
    print(f"compare: {draw(folder, found)}", file=sys.stderr)
    print(f"compare: results are in {folder.path}", file=sys.stderr)
    return status


def dry_run(plan: Plan, launcher: Launcher, machine: rdma.Machine | None) -> None:
    """One line per row and benchmark. compare has regx report into files; here, to stderr."""
    for job in plan.jobs:
        check = ("content check", job.checker, check_arguments(job, job.checker, launcher))
        runs = (f"{plan.repetitions} runs", job.program, timed_arguments(job))
        for what, program, arguments in [runs] if job.benchmark.unchecked else [check, runs]:
            print(f"# {job.arm}, {job.case.sizes}: {what}")
            command = [str(program.path), *arguments]
            line = launcher.line(job.row, command, "stderr", job.case.ranks)
            print(machine.line(line) if machine else line)
        if plan.has_reference(job):
            print(f"# reference, {job.case.sizes}: beside each of them")
            print(reference_line(job, launcher))


def measure(
    plan: Plan,
    launcher: Launcher,
    suite: osu.Suite,
    rows: list[Row],
    found: Installation,
    folder: Folder,
    left_out: list[str],
) -> int:
    programs = {job.program.name: job.program for job in plan.jobs}
    for program in programs.values():
        print(f"compare: {program.name} is {program.path}", file=sys.stderr)
    facts = environment.collect(found, list(programs.values()))

    runner = Runner()
    runner.heed_signals()
    session = Session(plan, launcher, suite, runner, folder.reports)
    session.results.left_out = left_out
    if not launcher.rdma:
        wants = [row.name for row in rows if row.memory or row.swap]
        session.results.memory_not_heeded = wants
    results = session.carry_out(lambda so_far: folder.write(so_far, facts, rows))
    folder.write(results, facts, rows)
    return present(results, folder, found)


def present(results: Results, folder: Folder, found: Installation) -> int:
    print(f"compare: {draw(folder, found)}", file=sys.stderr)
    output.show("compare", folder.path, lambda width: table.render(results, width))
    return results.status()


def draw(folder: Folder, found: Installation) -> str:
    """What became of the plot, in one line: it is never worth losing the table."""
    command = [found.python, "-B", "-m", "comparing.plot", str(folder.path / "results.json")]
    try:
        run = subprocess.run(
            command, cwd=HERE, capture_output=True, text=True, timeout=120, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no plot: {error}"
    said = (run.stdout + run.stderr).strip().splitlines()
    return said[-1] if said else f"no plot: it ended with status {run.returncode}"
