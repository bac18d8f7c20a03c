# SPDX-License-Identifier: BSD-3-Clause
"""The command: its options, and how the findings are said."""
import argparse
import json
import os
import signal
import sys
import textwrap
from typing import List, NoReturn

from .checks import CHECKS, Doctor
from .finding import EXIT, Finding, Status, needed, worst
from .openmpi import Installed

UNKNOWN = 3  # of the command line or of regx-doctor itself, as monitoring systems have it
VERDICTS = {Status.OK: "regx works on this node.", Status.NOTE: "regx works on this node.",
            Status.WARNING: "regx works on this node, but with less than could be had.",
            Status.FAILURE: "regx does not work on this node as it should."}


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(UNKNOWN, f"regx-doctor: {message}; see regx-doctor --help\n")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < 86400:
        raise argparse.ArgumentTypeError(f"{text} is not known; allowed: seconds, above 0 and below 86400")
    return seconds


def parser(version: str) -> argparse.ArgumentParser:
    made = Parser(
        prog="regx-doctor", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Says what of regx works on this node, and why the rest does not. It starts a few "
                    "small jobs on this\nnode and changes nothing.",
        epilog="Checks:\n" + "".join(f"  {name:12} {what}\n" for name, what in CHECKS.items()) +
        "\nExit status: 0 regx works, 1 it works with less than could be had, 2 it does not work or a "
        "check\nof --need is not ok, 3 the command line is wrong, or it could not do its work.")
    made.add_argument("--openmpi", metavar="PREFIX",
                      help="ask this Open MPI (default: the mpirun in PATH)")
    made.add_argument("--json", action="store_true", help="one JSON object, for scripts")
    made.add_argument("--need", metavar="CHECK,…", default="",
                      help="checks that have to be ok on this cluster, such as rdma,memlock")
    made.add_argument("--timeout", metavar="SECONDS", type=_seconds, default=60.0,
                      help="for each job (default: 60)")
    made.add_argument("--version", action="version", version=f"regx-doctor {version}")
    return made


def _paragraph(text: str, first: str) -> str:
    return textwrap.fill(text, width=110, initial_indent=first, subsequent_indent=" " * 24,
                         break_long_words=False, break_on_hyphens=False)


def people(findings: List[Finding], doctor: Doctor) -> str:
    lines = [f"regx {doctor.installed.version} on {os.uname().nodename}", ""]
    for finding in findings:
        name = finding.status.name if finding.status >= Status.WARNING else finding.status.name.lower()
        lines.append(_paragraph(finding.text, f"  {name:8}{finding.check:13} "))
        if finding.remedy and finding.status != Status.OK:
            lines.append(_paragraph(finding.remedy, f"{'':24}=> "))
    return "\n".join([*lines, "", VERDICTS[worst(findings)]])


def machines(findings: List[Finding], doctor: Doctor) -> str:
    status = worst(findings)
    checks = {finding.check: {"status": finding.status.name.lower(), "text": finding.text,
                              "remedy": finding.remedy} for finding in findings}
    return json.dumps({"host": os.uname().nodename, "status": EXIT[status],
                       "verdict": VERDICTS[status], "checks": checks, "facts": doctor.facts})


def main(installed: Installed) -> int:
    made = parser(installed.version)
    wanted = made.parse_args()
    names = [name for name in wanted.need.split(",") if name]
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        made.error(f"--need {unknown[0]}: no such check; allowed: {', '.join(CHECKS)}")
    if sys.stdout is None:
        made.error("standard output is closed")
    doctor = Doctor(installed, wanted.openmpi, wanted.timeout)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        doctor.examine()
    except KeyboardInterrupt:
        return 130
    except OSError as error:  # no room for a job's files, say
        print(f"regx-doctor: {error}", file=sys.stderr)
        return UNKNOWN
    said = [finding.check for finding in doctor.findings]
    missing = [Finding(name, Status.FAILURE, "not known: what it needs does not work")
               for name in names if name not in said]
    findings = needed(doctor.findings, names) + missing
    try:
        print((machines if wanted.json else people)(findings, doctor), flush=True)
    except OSError as error:  # and nothing is left for Python to write at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"regx-doctor: standard output: {error.strerror}", file=sys.stderr)
            return UNKNOWN
    return EXIT[worst(findings)]
