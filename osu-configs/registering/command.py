# SPDX-License-Identifier: BSD-3-Clause
"""The command line, and what is done in which order."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from comparing import environment, installation, options, output
from comparing.attempts import within_one_phase
from comparing.awake import awake
from comparing.installation import Installation
from comparing.launch import Interrupted, Line, Runner
from comparing.phase import Mailbox
from comparing.trouble import told
from registering import files, table
from registering.metrics import METRICS, SUBJECTS
from registering.result import Results, Run

REPETITIONS = 5
TIMEOUT = 300  # seconds, of one run
CANNOT = 3  # what a program ends with where its subject cannot be had

DESCRIPTION = """\
Measure what keeping registrations costs: hits, misses, what a change of memory costs, fork, memory
held and first touch; for each of regx's backends and for the caches of UCX and Open MPI, one after
the other, in several rounds. Nothing is really registered: only the keeping is measured."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="registration", description=DESCRIPTION)
    options.add_common(parser)
    options.add_again(parser)
    add = parser.add_argument
    add("-n", dest="repetitions", type=int, metavar="N", default=REPETITIONS,
        help=f"rounds (default: {REPETITIONS})")
    add("--subjects", nargs="+", action="extend", metavar="SUBJECT", choices=SUBJECTS,
        help=f"measure only these of: {', '.join(SUBJECTS)}")
    add("--metrics", nargs="+", action="extend", metavar="METRIC", choices=METRICS, default=[],
        help=f"measure only these of: {', '.join(METRICS)}")
    asked = parser.parse_args()
    if not 1 <= asked.repetitions <= 1000:
        parser.error(f"-n {asked.repetitions}: allowed: 1 to 1000")
    asked.subjects = asked.subjects or list(SUBJECTS)
    return asked


def main() -> int:
    return told("registration", lambda: benchmark(arguments()))


def line_of(found: Installation, subject: str, metrics: list[str]) -> Line:
    program = found.companion.parent / "registering" / SUBJECTS[subject].program
    return Line((), (str(program), subject, *metrics))


def benchmark(asked: argparse.Namespace) -> int:
    if asked.csv:
        return output.again(
            files.read(asked.csv),
            lambda results, about: table.render(results, output.width(), about),
            Results.status,
        )
    found = installation.guess() if asked.dry_run else installation.set_up(not asked.no_install)
    if asked.dry_run:
        for subject in asked.subjects:
            print(line_of(found, subject, asked.metrics))
        return 0
    folder = output.folder(asked.output, "registration")
    facts = environment.collect(found, [])
    runner = Runner()
    runner.heed_signals()
    results = measure(asked, found, runner, lambda so_far: files.write(folder, so_far, facts))
    files.write(folder, results, facts)
    about = environment.identity(facts)
    output.show("registration", folder, lambda width: table.render(results, width, about))
    return results.status()


def measure(
    asked: argparse.Namespace,
    found: Installation,
    runner: Runner,
    keep: Callable[[Results], None],
) -> Results:
    """In each round all subjects, so that a drift of the machine hits all; each round begins with
    another."""
    results = Results()
    mailbox = Mailbox(found, runner, usable=True)
    try:
        with awake():
            for repetition in range(1, asked.repetitions + 1):
                first = (repetition - 1) % len(asked.subjects)
                for subject in asked.subjects[first:] + asked.subjects[:first]:
                    if subject in results.missing or subject in results.failures():
                        continue
                    where = f"{repetition}/{asked.repetitions}"
                    print(f"registration: round {where}: {subject}", file=sys.stderr)
                    line = line_of(found, subject, asked.metrics)
                    one(line, subject, repetition, mailbox, results)
                    keep(results)
    except Interrupted:
        results.interrupted = True
    return results


def one(
    line: Line, subject: str, repetition: int, mailbox: Mailbox, results: Results
) -> None:
    outcome, conditions = within_one_phase(mailbox, lambda: mailbox.runner.run(line, TIMEOUT))
    said = outcome.stderr.strip().splitlines()
    why = said[-1].removeprefix("registration: ") if said else "it said nothing"
    if outcome.status == CANNOT:
        results.missing[subject] = why.removeprefix(f"{subject}: ")
        return
    run = Run(**vars(conditions), subject=subject, repetition=repetition)
    results.runs.append(run)
    if outcome.status is None:
        run.failed = f"no end within {TIMEOUT} s: ended by the watchdog"
    elif outcome.status != 0:
        run.failed = f"ended with status {outcome.status}: {why}"
    run.values = parse(outcome.stdout)


def parse(text: str) -> dict[str, float]:
    """Lines "METRIC VALUE"; what is none of them was printed by a library."""
    values = {}
    for words in map(str.split, text.splitlines()):
        if len(words) == 2 and words[0] in METRICS:
            values[words[0]] = float(words[1])
    return values
