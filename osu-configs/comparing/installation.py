# SPDX-License-Identifier: BSD-3-Clause
"""The installation: what component/config/setup built, and where."""

import argparse
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from comparing.trouble import Trouble

TOP = Path(__file__).resolve().parents[2]
BUILD = TOP / ".build"


@dataclass(frozen=True)
class Installation:
    component: Path  # the folder that holds mca_btl_regx.so
    mpirun: str
    pkglibdir: str
    companion: Path
    probe: Path
    python: str  # one that has matplotlib
    openmpi: tuple[int, int, int]

    @property
    def component_path(self) -> str:
        return f"{self.component}:{self.pkglibdir}"


def found(asked: argparse.Namespace, purpose: str = "compare") -> Installation:
    """As the command line of one of our commands asks for it."""
    if asked.no_build:
        return _read(BUILD / "env")
    return guess() if asked.dry_run else set_up(not asked.no_install, purpose)


def set_up(install: bool, purpose: str = "compare") -> Installation:
    """Build and install what is missing for a purpose, as setup names it. Setup says itself what it
    does, and what is wrong."""
    command = [str(TOP / "component/config/setup"), purpose]
    if not install:
        command.append("--no-install")
    status = subprocess.run(command, stdout=sys.stderr, check=False).returncode
    if status != 0:
        sys.exit(130 if status < 0 else status)
    return _read(BUILD / "env")


def guess() -> Installation:
    """For --dry-run, which builds nothing: what is there, or where setup would put it."""
    if (BUILD / "env").exists():
        return _read(BUILD / "env")
    if not shutil.which("mpirun") or not shutil.which("ompi_info"):
        raise Trouble("no Open MPI in PATH; without --dry-run, compare installs it", 1)
    print("compare: regx is not built yet; without --dry-run, compare builds it", file=sys.stderr)
    info = _output(["ompi_info", "--parsable", "--path", "pkglibdir"])
    return Installation(
        component=BUILD / "prefix/lib/openmpi",
        mpirun="mpirun",
        pkglibdir=info.strip().rpartition(":")[2],
        companion=BUILD / "obj/osu-configs/companion",
        probe=BUILD / "obj/osu-configs/probe",
        python=sys.executable,
        openmpi=_openmpi("mpirun"),
    )


def _read(file: Path) -> Installation:
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise Trouble(f"{file} cannot be read: {error.strerror}", 1) from None
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    try:
        return Installation(
            component=Path(values["REGX_COMPONENT_DIR"]),
            mpirun=values["REGX_MPIRUN"],
            pkglibdir=values["REGX_PKGLIBDIR"],
            companion=Path(values["REGX_COMPANION"]),
            probe=Path(values["REGX_PROBE"]),
            python=values["REGX_PYTHON"],
            openmpi=_openmpi(values["REGX_MPIRUN"]),
        )
    except KeyError as key:
        raise Trouble(f"{file}: {key.args[0]} is missing; remove the file and try again") from None


def _openmpi(mpirun: str) -> tuple[int, int, int]:
    text = _output([mpirun, "--version"])
    match = re.search(r"\b(\d+)\.(\d+)\.(\d+)", text)
    if not match or "Open MPI" not in text and "OpenRTE" not in text:
        raise Trouble(f"{mpirun} is not Open MPI's; put Open MPI's mpirun first in PATH", 1)
    return int(match[1]), int(match[2]), int(match[3])


def _output(command: list[str]) -> str:
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Trouble(f"{command[0]} cannot be run: {error}", 1) from None
    return run.stdout + run.stderr
