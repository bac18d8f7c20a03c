# SPDX-License-Identifier: BSD-3-Clause
"""What component/config/setup built, and the machine and the versions that figures are of."""

import argparse
import datetime
import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.trouble import Trouble

TOP = Path(__file__).resolve().parents[2]
HERE = TOP / "osu-configs"
BUILD = TOP / ".build"
UCX_YEARS = {"1.12": 2022, "1.13": 2022, "1.14": 2023, "1.15": 2023, "1.16": 2024, "1.17": 2024, "1.18": 2025}
COMMIT = "REGX_COMMIT"  # the variable that says it where there is no git: in the emulated machine


@dataclass(frozen=True)
class Installation:
    component_path: str  # where Open MPI finds regx and its own components
    mpirun: str
    programs: Path  # the folder of the programs that are built from osu-configs
    openmpi: str

    @property
    def major(self) -> int:
        return int(self.openmpi.partition(".")[0])


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those that all commands of osu-configs have."""
    add = parser.add_argument
    add("--dry-run", action="store_true", help="print the lines that would be run, and run nothing")
    add("--no-install", action="store_true", help="say what is missing, rather than install it")
    add("--no-build", action="store_true", help="take what was built before, as it is")
    add("--output", type=Path, metavar="DIR",
        help=f"where the results go (default: .build/{parser.prog}/, by date and time)")


def found(asked: argparse.Namespace, purpose: str) -> Installation:
    """Built, and what is missing for that purpose installed, as far as the command line allows.
    setup itself says what it does, and what is wrong."""
    if not (asked.no_build or asked.dry_run):
        command = [str(TOP / "component/config/setup"), purpose, *["--no-install"] * asked.no_install]
        status = subprocess.run(command, stdout=sys.stderr, check=False).returncode
        if status:
            sys.exit(130 if status < 0 else status)
    try:
        lines = (BUILD / "env").read_text().splitlines()
    except OSError as error:
        raise Trouble(f"{BUILD}/env cannot be read: {error.strerror}; build first, by"
                      f" component/config/setup {purpose}", 1) from None
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    try:
        return Installation(
            component_path=values["REGX_COMPONENT_DIR"] + ":" + values["REGX_PKGLIBDIR"],
            mpirun=values["REGX_MPIRUN"],
            programs=Path(values["REGX_COMPANION"]).parent,
            openmpi=_openmpi(values["REGX_MPIRUN"]))
    except KeyError as key:
        raise Trouble(f"{BUILD}/env: {key.args[0]} is missing; remove the file and try again") from None


def _openmpi(mpirun: str) -> str:
    text = said(mpirun, "--version")
    match = re.search(r"\(Open(?: MPI|RTE)\) (\d+\.\d+\.\d+)", text)
    if not match:
        raise Trouble(f"{mpirun} is not Open MPI's; put Open MPI's mpirun first in PATH", 1)
    return match[1]


def said_all(*command: str) -> str:
    """What a command says, if it is there."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout if run.returncode == 0 else ""


def said(*command: str) -> str:
    """The first line of it."""
    return said_all(*command).partition("\n")[0].strip()


def commit() -> str:
    """Without git, as in a tarball, the version."""
    if found := os.environ.get(COMMIT) or said("git", "-C", str(TOP), "describe", "--always", "--dirty"):
        return found
    return re.findall(r"AC_INIT\(\[regx\], \[(.*)\]\)", (TOP / "configure.ac").read_text())[0]


def _with_year(ucx: str) -> str:
    """UCX itself does not say when it was released."""
    year = UCX_YEARS.get(".".join(ucx.split(".")[:2]))
    return f"{ucx} ({year})" if year else ucx


def about(installation: Installation) -> str:
    """The last line of a table."""
    models = re.findall(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    ucx = re.search(r"\d+\.\d+\.\d+", said("ucx_info", "-v") or said("pkg-config", "--modversion", "ucx"))
    openmpi = re.search(r"Open MPI release date: .*(\d{4})", said_all("ompi_info"))
    date = datetime.datetime.now().astimezone().isoformat(timespec="minutes")
    return (f"regx {commit()}, Open MPI {installation.openmpi}{f' ({openmpi[1]})' if openmpi else ''},"
            f" UCX {_with_year(ucx[0]) if ucx else 'unknown'}, Linux {platform.release()}, on"
            f" {len(os.sched_getaffinity(0))} cores of {models[0] if models else platform.machine()},"
            f" at {date}")
