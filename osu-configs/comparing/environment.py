# SPDX-License-Identifier: BSD-3-Clause
"""The environment that a comparison was made in: what one must know to judge its figures."""

import datetime
import os
import platform
import re
import resource
import subprocess
import sys
from pathlib import Path

from comparing.installation import TOP, Installation
from comparing.osu import Program

COMMIT = "REGX_COMMIT"  # the variable that says it where there is no git: in the emulated machine
# Of what is collected, what says which machine and which versions figures are of.
IDENTITY = ("regx_commit", "openmpi", "ucx", "kernel", "processor", "date")
NAMES = {"regx_commit": "regx", "openmpi": "Open MPI", "ucx": "UCX", "kernel": "Linux",
         "processor": "on", "date": "at"}  # fmt: skip


def collect(installation: Installation, programs: list[Program]) -> dict:
    return {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": sys.argv,
        "host": platform.node(),
        "kernel": platform.release(),
        "distribution": _field("/etc/os-release", "PRETTY_NAME", "=").strip('"'),
        "processor": _field("/proc/cpuinfo", "model name", ":") or platform.machine(),
        "cores_allowed": sorted(os.sched_getaffinity(0)),
        "caches": _caches(),
        "frequency_governor": _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "transparent_huge_pages": _text("/sys/kernel/mm/transparent_hugepage/enabled"),
        "load_before": os.getloadavg(),
        "memory": _field("/proc/meminfo", "MemTotal", ":"),
        "dev_shm_bytes": _free_bytes("/dev/shm"),
        "memlock_bytes": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        "openmpi": ".".join(map(str, installation.openmpi)),
        "mpirun": installation.mpirun,
        "ucx": said("ucx_info", "-v") or said("pkg-config", "--modversion", "ucx"),
        "regx_commit": os.environ.get(COMMIT) or commit(),
        "benchmarks": {program.name: str(program.path) for program in programs},
        "mca_environment": {k: v for k, v in os.environ.items() if re.match("OMPI_|PMIX_|UCX_", k)},
    }


def commit() -> str | None:
    return said("git", "-C", str(TOP), "describe", "--always", "--dirty")


def identity(about: dict, keys: tuple[str, ...] = IDENTITY) -> dict[str, str]:
    """As a results.csv has it in each line."""
    return {key: str(about.get(key) or "") for key in keys}


def identity_line(identity: dict[str, str]) -> str:
    """The last of a table."""
    texts = {key: value.lstrip("# ").removeprefix(f"{key}-") for key, value in identity.items()}
    return ", ".join(f"{NAMES.get(key, key)} {text or 'unknown'}" for key, text in texts.items())


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _field(path: str, name: str, separator: str) -> str:
    for line in (_text(path) or "").splitlines():
        key, found, value = line.partition(separator)
        if found and key.strip() == name:
            return value.strip()
    return ""


def _caches() -> dict[str, str | None]:
    caches = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind = _text(f"{folder}/level"), _text(f"{folder}/type")
        caches[f"L{level} {kind}"] = _text(f"{folder}/size")
    return caches


def _free_bytes(folder: str) -> int | None:
    try:
        status = os.statvfs(folder)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def said(*command: str) -> str | None:
    """The first line of what a command says, if it is there."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.splitlines()[0].strip() if run.stdout and run.returncode == 0 else None
