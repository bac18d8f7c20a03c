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
    companion: str = ""  # the companion's name of it; empty: OSU alone has it
    checker: str = ""  # the companion's test of the same messages' contents; empty: itself
    unchecked: str = ""  # why nothing can look at its contents; empty: something can
    has_window: bool = False  # whether many messages are under way at a time
    for_groups: bool = False  # whether it is for more than two ranks too
    # Whether MPI makes other messages of those that the benchmark names, so that nothing follows
    # from their size.
    is_collective: bool = False
    one_sided: bool = False  # windows: put, get and atomic operations rather than messages
    has_reference: bool = False  # whether the probe measures the same movement without MPI
    columns: tuple[str, ...] = ("",)  # of several in its output, those that are metrics
    iterations_min: int = 1


PERCENTILES = ("p50", "p99", "p99.9", "max1000")
COLLECTIVES = ("allreduce", "alltoall", "allgather", "bcast")
ONE_SIDED = ("put_latency", "get_latency", "put_bw", "get_bw", "put_bibw")
ONE_SIDED += ("acc_latency", "get_acc_latency", "fop_latency", "cas_latency")
LATENCY, BANDWIDTH = ("latency", "us"), ("bandwidth", "MB/s")

BENCHMARKS = {
    **{
        f"{suite}_{name}": benchmark
        for suite in ("osu", "companion")
        for name, benchmark in (
            ("latency", Benchmark(*LATENCY, "latency", has_reference=True)),
            # OSU looks at its one buffer once all messages have come into it; the companion's
            # messages have one each.
            ("bw", Benchmark(*BANDWIDTH, "bw", "bw", has_window=True, has_reference=True)),
            ("bibw", Benchmark(*BANDWIDTH, "bibw", "bibw", has_window=True)),
        )
    },
    "companion_percentiles": Benchmark(
        *LATENCY, "percentiles", "latency", columns=PERCENTILES, iterations_min=1000
    ),
    "companion_sendrecv": Benchmark(*LATENCY, "sendrecv", for_groups=True),
    "companion_halo": Benchmark(*LATENCY, "halo", for_groups=True, is_collective=True),
    "companion_incast": Benchmark(*BANDWIDTH, "incast", has_window=True, for_groups=True),
    "osu_mbw_mr": Benchmark(*BANDWIDTH, has_window=True, for_groups=True),
    "osu_multi_lat": Benchmark(*LATENCY, for_groups=True),
    **{
        f"osu_{name}": Benchmark(*LATENCY, for_groups=True, is_collective=True)
        for name in COLLECTIVES
    },
    "osu_reduce_scatter": Benchmark(
        *LATENCY,
        for_groups=True,
        is_collective=True,
        unchecked="the check of OSU 7.0 writes past its receive buffer, and crashes with any MPI",
    ),
    **{
        f"osu_{name}": Benchmark(
            *(BANDWIDTH if name.endswith("bw") else LATENCY),
            has_window=name.endswith("bw"),
            one_sided=True,
            unchecked="OSU's one-sided programs check no contents; test/mpi/windows does",
        )
        for name in ONE_SIDED
    },
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
FOLDERS += tuple(
    folder.replace("pt2pt", other)
    for other in ("collective", "one-sided")
    for folder in FOLDERS
    if "pt2pt" in folder
)
FOLDERS += ("../collective", "../../collective/blocking", "../one-sided", "../../one-sided")
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

    def has(self, benchmark: str) -> bool:
        return bool(BENCHMARKS[benchmark].companion or self._find(benchmark))

    def program(self, benchmark: str, buffers: str) -> Program:
        """OSU itself has one buffer for all messages; other choices are the companion's."""
        found = self._find(benchmark) if buffers == "same" else None
        if found:
            return Program(found, (), benchmark)
        return self._companion(BENCHMARKS[benchmark].companion, buffers)

    def checker(self, benchmark: str, buffers: str) -> Program:
        """What looks at the contents of the same messages."""
        own = BENCHMARKS[benchmark].checker
        return self._companion(own, buffers) if own else self.program(benchmark, buffers)

    def other_checker(self, benchmark: str, buffers: str) -> Program | None:
        """Where OSU's program cannot check."""
        kind = BENCHMARKS[benchmark].companion
        return self._companion(kind, buffers) if kind else None

    def _companion(self, kind: str, buffers: str) -> Program:
        return Program(self.companion, (kind, "--buffers", buffers), f"companion_{kind}")


def timed_arguments(program: Program, sizes: str, options: tuple[str, ...]) -> list[str]:
    return [*program.arguments, "-m", sizes, *options]


def window_option(options: tuple[str, ...]) -> tuple[str, ...]:
    return options[options.index("-W") :][:2] if "-W" in options else ()


def check_arguments(program: Program, sizes: str, options: tuple[str, ...]) -> list[str]:
    """A short pass whose contents are checked; checking would spoil the times of a long one. Of
    the options it has the window alone."""
    return [*program.arguments, "-m", sizes, "-i", "2", "-x", "0", *window_option(options), "-c"]


# auto tries each way before it chooses one (component/rendezvous): in some rounds, of which each ends
# when no message is under way, as it is at the end of each iteration of a check. So it has chosen
# after a few iterations, however many messages each of them has.
PAST_TRIAL, LONE_PAST_TRIAL = 24, 64
WINDOW, CHECKED_WINDOW = 64, 16  # messages at a time: usually, and those that are checked at most


def long_check_arguments(
    program: Program, benchmark: Benchmark, sizes: str, options: tuple[str, ...]
) -> list[str]:
    """The same with so many iterations that what auto has chosen has carried messages too."""
    window: tuple[str, ...] = ()
    if benchmark.has_window:
        own = window_option(options)[1:]
        asked = int(own[0]) if own and own[0].isdecimal() else WINDOW
        window = ("-W", str(min(asked, CHECKED_WINDOW)))
    iterations = str(PAST_TRIAL if benchmark.has_window else LONE_PAST_TRIAL)
    return [*program.arguments, "-m", sizes, "-i", iterations, "-x", "0", *window, "-c"]


@dataclass
class Output:
    title: str
    values: dict[int, float]
    valid: dict[int, bool] | None  # None: this version checks no content
    came_back: int | None = None  # buffers that malloc gave again with their pages


CAME_BACK = re.compile(r"# came back with its pages: (\d+) of \d+ buffers")


class NotOutput(Exception):
    """What was printed is not what such a benchmark prints."""


def parse(text: str, unit: str, name: str = "") -> Output:
    """Read what a benchmark printed: any OSU from 2.0 to 7.5, the companion, or the probe. Of several
    columns of a unit, the one of that name.

    All have a first column of sizes and a header "# Size" that names the others with their units.
    Lines that begin with neither "#" nor a size come from launchers and libraries.
    """
    title, columns, came_back = "", "", None
    values: dict[int, float] = {}
    valid: dict[int, bool] = {}
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("#"):
            if re.match(r"# *Size\b", line):
                columns = line
            title = title or line.lstrip("# ")
            if again := CAME_BACK.match(line):
                came_back = (came_back or 0) + int(again[1])
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
    return Output(title, values, valid if columns.endswith("Validation") else None, came_back)


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
