# SPDX-License-Identifier: BSD-3-Clause
"""The benchmarks: real OSU where it is found, else regx's companion, which prints the same."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from comparing.trouble import Trouble


@dataclass(frozen=True)
class Benchmark:
    metric: str
    unit: str
    companion: str  # the companion's name of it
    has_limit: bool  # whether the probe measures the same movement without MPI

    @property
    def has_window(self) -> bool:
        """Whether many messages are under way at a time."""
        return self.metric == "bandwidth"


BENCHMARKS = {
    f"{suite}_{name}": Benchmark(metric, unit, name, has_limit)
    for suite in ("osu", "companion")
    for name, metric, unit, has_limit in (
        ("latency", "latency", "us", True),
        ("bw", "bandwidth", "MB/s", True),
        ("bibw", "bandwidth", "MB/s", False),
    )
}

# Where the point-to-point benchmarks lie below what a user calls the place of OSU: the folder
# itself, a build tree or an installation; from 7.1 on, build trees have one folder more.
FOLDERS = (
    ".",
    "pt2pt",
    "mpi/pt2pt",
    "mpi/pt2pt/standard",
    "c/mpi/pt2pt",
    "c/mpi/pt2pt/standard",
    "libexec/osu-micro-benchmarks/mpi/pt2pt",
    "libexec/osu-micro-benchmarks/mpi/pt2pt/standard",
    "osu-micro-benchmarks/mpi/pt2pt",
    "osu-micro-benchmarks/mpi/pt2pt/standard",
)
USUAL_PLACES = (
    "/usr",
    "/usr/local",
    "/usr/lib",
    "/usr/lib64/openmpi/bin",
    *Path("/opt").glob("*osu*"),
)


@dataclass(frozen=True)
class Program:
    """A benchmark that can be run."""

    path: Path
    arguments: tuple[str, ...]  # before all others
    name: str  # in tables and in the CSV

    @property
    def is_companion(self) -> bool:
        return bool(self.arguments)


class Suite:
    """Where the benchmarks are."""

    def __init__(
        self,
        osu: Path | None,
        companion: Path,
        environment: dict[str, str],
        places: tuple[str | Path, ...] | None = None,
    ):
        self.companion = companion
        self.folders: list[Path] = []
        asked, by = (osu, "--osu") if osu else (environment.get("OSU_HOME"), "OSU_HOME")
        if asked:
            self.folders = [Path(asked) / folder for folder in FOLDERS]
            if not self._find("osu_bw"):
                raise Trouble(
                    f"{by}: no osu_bw in {asked}; wanted: an installation or a build of the"
                    " OSU micro-benchmarks, or the folder that holds osu_bw"
                )
        else:
            path = environment.get("PATH", os.defpath).split(os.pathsep)
            self.folders = [Path(folder) for folder in path if folder]
            usual = USUAL_PLACES if places is None else places
            self.folders += [Path(p) / folder for p in usual for folder in FOLDERS]

    def _find(self, benchmark: str) -> Path | None:
        for folder in self.folders:
            found = shutil.which(benchmark, path=str(folder))
            if found:
                return Path(found).absolute()
        return None

    def found(self) -> dict[str, Path]:
        """OSU's own programs, by name."""
        places = {name: self._find(name) for name in BENCHMARKS if name.startswith("osu_")}
        return {name: path for name, path in places.items() if path}

    def program(self, benchmark: str, buffers: str) -> Program:
        """OSU itself has one buffer for all messages; other choices are the companion's."""
        found = self._find(benchmark) if buffers == "same" else None
        if found:
            return Program(found, (), benchmark)
        return self.companion_program(benchmark, buffers)

    def companion_program(self, benchmark: str, buffers: str) -> Program:
        kind = BENCHMARKS[benchmark].companion
        return Program(self.companion, (kind, "--buffers", buffers), f"companion_{kind}")


def timed_arguments(program: Program, sizes: str, options: tuple[str, ...]) -> list[str]:
    return [*program.arguments, "-m", sizes, *options]


def check_arguments(program: Program, sizes: str, options: tuple[str, ...]) -> list[str]:
    """A short pass whose contents are checked; checking would spoil the times of a long one. Of
    the options it has the window alone."""
    window = options[options.index("-W") :][:2] if "-W" in options else ()
    return [*program.arguments, "-m", sizes, "-i", "2", "-x", "0", *window, "-c"]


@dataclass
class Output:
    title: str
    values: dict[int, float]
    valid: dict[int, bool] | None  # None: this version checks no content


class NotOutput(Exception):
    """What was printed is not what such a benchmark prints."""


def parse(text: str, unit: str, name: str = "") -> Output:
    """Read what a benchmark printed: any OSU from 2.0 to 7.5, the companion, or the probe. Of several
    columns of a unit, the one of that name.

    All have a first column of sizes and a header "# Size" that names the others with their units.
    Lines that begin with neither "#" nor a size come from launchers and libraries.
    """
    title, columns = "", ""
    values: dict[int, float] = {}
    valid: dict[int, bool] = {}
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("#"):
            if re.match(r"# *Size\b", line):
                columns = line
            title = title or line.lstrip("# ")
            continue
        words = line.split()
        if not columns or len(words) < 2 or not words[0].isdecimal():
            continue
        place = _column(columns, unit, name)
        try:
            value = float(words[place])
        except (ValueError, IndexError):
            raise NotOutput(f'cannot read "{line}" below "{columns}"') from None
        if 0 < value < float("inf"):  # slow wires: 0.00 MB/s for one byte is nothing to divide by
            values[int(words[0])] = value
        if columns.endswith("Validation"):
            valid[int(words[0])] = words[-1] == "Pass"
    if not columns:
        raise NotOutput('it printed no header "# Size …"')
    return Output(title, values, valid if columns.endswith("Validation") else None)


def _column(columns: str, unit: str, name: str) -> int:
    """Which column has this unit: they are told apart by their units in parentheses. osu_mbw_mr's
    are units and nothing else."""
    found = re.findall(r"(\S*)\s*\(([^)]*)\)", columns)
    if not found:
        found = [("", column) for column in columns.lstrip("# ").split()[1:]]
    for place, column in enumerate(found, 1):
        if column[1] == unit and name in ("", column[0]):
            return place
    raise NotOutput(f'no column of {f"{name} in " if name else ""}{unit} in "{columns}"')
