# SPDX-License-Identifier: BSD-3-Clause
"""The benchmarks: real OSU where it is found, else regx's companion, which prints the same."""

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tools.trouble import Trouble

US, MBS = "us", "MB/s"
MAILBOX = "# mailbox (us), width: "  # what phase.so prints between a benchmark's lines


@dataclass(frozen=True)
class Benchmark:
    unit: str
    companion: str = ""  # the companion's name of it; empty: OSU alone has it
    checker: str = ""  # the companion's test of the same messages' contents; empty: OSU's own
    unchecked: str = ""  # why nothing can look at its contents; empty: something can
    window: bool = False  # many messages are under way at a time
    groups: bool = False  # it is for more than two ranks too
    # MPI makes other messages of those that it names, so that nothing follows from their size.
    own_sizes: bool = True
    one_sided: bool = False  # windows rather than messages
    reference: bool = False  # the probe measures the same movement without MPI
    buffers: tuple[str, ...] = ()  # empty: all
    columns: tuple[str, ...] = ("",)  # of several in its output, those that are metrics

    @property
    def metric(self) -> str:
        return "latency" if self.unit == US else "bandwidth"


ONE_SIDED = ("put_latency", "get_latency", "put_bw", "get_bw", "put_bibw", "acc_latency",
             "get_acc_latency", "fop_latency", "cas_latency")  # fmt: skip
SAME = ("same",)
BENCHMARKS = {
    **{f"{suite}_{name}": benchmark for suite in ("osu", "companion") for name, benchmark in (
        ("latency", Benchmark(US, "latency", "latency", reference=True)),
        ("bw", Benchmark(MBS, "bw", "bw", window=True, reference=True)),
        ("bibw", Benchmark(MBS, "bibw", "bibw", window=True)))},
    "companion_percentiles": Benchmark(US, "percentiles", "latency",
                                       columns=("p50", "p99", "p99.9")),
    "companion_sendrecv": Benchmark(US, "sendrecv", "sendrecv", groups=True, buffers=("same", "touched")),
    "companion_halo": Benchmark(US, "halo", "halo", groups=True, buffers=SAME),
    "osu_mbw_mr": Benchmark(MBS, window=True, groups=True, buffers=SAME),
    "osu_multi_lat": Benchmark(US, groups=True, buffers=SAME),
    **{f"osu_{name}": Benchmark(US, groups=True, own_sizes=False, buffers=SAME)
       for name in ("allreduce", "alltoall", "allgather", "bcast")},
    "osu_reduce_scatter": Benchmark(
        US, groups=True, own_sizes=False, buffers=SAME,
        unchecked="the check of OSU 7.0 writes past its receive buffer, and crashes with any MPI"),
    **{f"osu_{name}": Benchmark(
        MBS if name.endswith("bw") else US, window=name.endswith("bw"), own_sizes=False,
        one_sided=True, buffers=SAME,
        unchecked="OSU's one-sided programs check no contents; test/mpi does") for name in ONE_SIDED},
}  # fmt: skip
USUAL_PLACES = ("/usr/libexec/osu-micro-benchmarks", "/usr/local/libexec/osu-micro-benchmarks",
                "/usr/lib/osu-micro-benchmarks", "/usr/lib64/openmpi/bin", *Path("/opt").glob("*osu*"))


@dataclass(frozen=True)
class Program:
    name: str  # in tables and results.csv: osu_bw, or companion_bw
    words: tuple[str, ...]  # what starts it, without sizes and options


class Suite:
    """Where the benchmarks are."""

    def __init__(self, osu: Path | None, companion: Path = Path("companion")):
        """osu: an installation or a build of OSU's, or the folder of osu_bw in one; else it is looked
        for in OSU_HOME, PATH and the usual places. companion: regx's own, which may be built later."""
        self.companion = companion
        asked, by = (osu, "--osu") if osu else (os.environ.get("OSU_HOME"), "OSU_HOME")
        self.osu: dict[str, Path] = {}
        for place in [Path(asked)] if asked else map(Path, USUAL_PLACES):
            if (place / "osu_bw").exists():  # the other kinds of benchmarks lie beside this folder
                place = next((top for top in place.parents if top.name == "mpi"), place)
            for file in sorted(place.rglob("osu_*"), reverse=True):
                if file.name in BENCHMARKS and os.access(file, os.X_OK):
                    self.osu[file.name] = file
        if asked and "osu_bw" not in self.osu:
            raise Trouble(f"{by}: no osu_bw in {asked}; wanted: an installation or a build of the OSU"
                          " micro-benchmarks, or the folder that holds osu_bw")
        if not asked:
            there = {name: shutil.which(name) for name in BENCHMARKS if name.startswith("osu_")}
            self.osu |= {name: Path(file) for name, file in there.items() if file}

    def has(self, benchmark: str) -> bool:
        return bool(BENCHMARKS[benchmark].companion) or benchmark in self.osu

    def program(self, benchmark: str, buffers: str) -> Program:
        """OSU itself has one buffer for all messages; other choices are the companion's."""
        if buffers == "same" and benchmark in self.osu:
            return Program(benchmark, (str(self.osu[benchmark].absolute()),))
        return self._companion(BENCHMARKS[benchmark].companion, buffers)

    def checker(self, benchmark: str, buffers: str) -> Program:
        """What looks at the contents of the same messages. In the companion each has a buffer of its
        own; OSU looks at its one buffer once all have come into it."""
        test = BENCHMARKS[benchmark].checker
        return self._companion(test, buffers) if test else self.program(benchmark, buffers)

    def _companion(self, test: str, buffers: str) -> Program:
        return Program(f"companion_{test}", (str(self.companion), test, "-b", buffers))


@dataclass
class Output:
    values: dict[int, float]
    valid: dict[int, bool] | None  # None: this version checks no content
    came_back: int | None = None  # freed buffers that malloc gave again with their pages
    # By size, what phase.so measured: right before it, within, and right behind it.
    mailbox: dict[int, list[tuple[float, float]]] = field(default_factory=dict)


class NotOutput(Exception):
    """What was printed is not what such a benchmark prints."""


def parse(text: str, unit: str, name: str = "") -> Output:
    """Read what a benchmark printed: any OSU from 2.0 to 7.5, the companion, or the probe. Of several
    columns of a unit, the one of that name.

    All have a first column of sizes and a header "# Size" that names the others with their units.
    Lines that begin with neither "#" nor a size come from launchers and libraries.
    """
    columns = ""
    output = Output({}, None)
    around: list[tuple[float, float]] = []
    ended: list[int] = []  # sizes since the last mailbox
    for line in map(str.strip, text.splitlines()):
        words = line.split()
        if re.match(r"# *Size\b", line):
            columns = line
            output.valid = {} if line.endswith("Validation") else None
        elif line.startswith(MAILBOX):
            measured = float(words[-2]), float(words[-1])
            for size in ended:
                output.mailbox[size].append(measured)
            around = [*around * (not ended), measured]
            ended.clear()
        elif again := re.match(r"# came back with its pages: (\d+) of", line):
            output.came_back = (output.came_back or 0) + int(again[1])
        elif columns and len(words) > 1 and words[0].isdecimal():
            try:
                value = float(words[_column(columns, unit, name)])
            except (ValueError, IndexError):
                raise NotOutput(f'cannot read "{line}" below "{columns}"') from None
            if 0 < value < float("inf"):  # slow wires: 0.00 MB/s for one byte is nothing to divide by
                output.values[int(words[0])] = value
            output.mailbox[int(words[0])] = [*around]
            ended.append(int(words[0]))
            if output.valid is not None:
                output.valid[int(words[0])] = words[-1] == "Pass"
    if not columns:
        raise NotOutput('it printed no header "# Size …"')
    return output


def _column(columns: str, unit: str, name: str) -> int:
    """Columns are told apart by their units in parentheses; osu_mbw_mr's are units and nothing else."""
    found = re.findall(r"(\S*)\s*\(([^)]*)\)", columns)
    found = found or [("", column) for column in columns.lstrip("# ").split()[1:]]
    for place, column in enumerate(found, 1):
        if column[1] == unit and name in ("", column[0]):
            return place
    raise NotOutput(f'no column of {f"{name} in " if name else ""}{unit} in "{columns}"')
