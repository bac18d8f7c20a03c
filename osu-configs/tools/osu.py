# SPDX-License-Identifier: BSD-3-Clause
"""The benchmarks: by regx's companion; with --osu, OSU's own, which are parked at their barriers."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tools.trouble import Trouble

US, MBS = "us", "MB/s"


@dataclass(frozen=True)
class Benchmark:
    unit: str
    test: str = ""  # the companion's name of it; empty: OSU alone has it
    messages: int = 1  # of an iteration, for each of its window
    halved: bool = False  # an iteration is there and back
    unchecked: str = ""  # why nothing can look at its contents; empty: something can
    window: bool = False  # many messages are under way at a time
    groups: bool = False  # it is for more than two ranks too
    # MPI makes other messages of those that it names, so that nothing follows from their size.
    own_sizes: bool = True
    one_sided: bool = False  # windows rather than messages
    buffers: tuple[str, ...] = ()  # empty: all


ONE_SIDED = ("put_latency", "get_latency", "put_bw", "get_bw", "put_bibw", "acc_latency",
             "get_acc_latency", "fop_latency", "cas_latency")  # fmt: skip
SAME = ("same",)
BENCHMARKS = {
    **{f"{suite}_{name}": benchmark for suite in ("osu", "companion") for name, benchmark in (
        ("latency", Benchmark(US, "latency", 2, halved=True)),
        ("bw", Benchmark(MBS, "bw", window=True)),
        ("bibw", Benchmark(MBS, "bibw", 2, window=True)))},
    "companion_p99": Benchmark(US, "p99", 2, halved=True),
    "companion_sendrecv": Benchmark(US, "sendrecv", 2, groups=True, buffers=("same", "touched")),
    "companion_halo": Benchmark(US, "halo", 8, groups=True, buffers=SAME),
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


class Suite:
    """Where OSU's benchmarks are, if they are asked for."""

    def __init__(self, osu: Path | None):
        """osu: an installation or a build of OSU's, or the folder of osu_bw in one."""
        self.osu: dict[str, Path] = {}
        if osu is None:
            return
        place = osu
        if (place / "osu_bw").exists():  # the other kinds of benchmarks lie beside this folder
            place = next((top for top in place.parents if top.name == "mpi"), place)
        for file in sorted(place.rglob("osu_*"), reverse=True):
            if file.name in BENCHMARKS and os.access(file, os.X_OK):
                self.osu[file.name] = file.absolute()
        if "osu_bw" not in self.osu:
            raise Trouble(f"--osu: no osu_bw in {osu}; wanted: an installation or a build of the OSU"
                          " micro-benchmarks, or the folder that holds osu_bw")

    def program(self, benchmark: str, buffers: str) -> str:
        """Its name in tables: osu_bw, or companion_bw; empty: it cannot be had. OSU has one buffer for all messages."""
        if buffers == "same" and benchmark in self.osu:
            return benchmark
        test = BENCHMARKS[benchmark].test
        return f"companion_{test}" if test else ""


@dataclass
class Output:
    values: dict[int, float]
    valid: dict[int, bool] | None  # None: this version checks no content


class NotOutput(Exception):
    """What was printed is not what such a benchmark prints."""


def parse(text: str, unit: str) -> Output:
    """Read what any OSU from 2.0 to 7.5 printed.

    All have a first column of sizes and a header "# Size" that names the others with their units.
    Lines that begin with neither "#" nor a size come from launchers and libraries.
    """
    columns = ""
    output = Output({}, None)
    for line in map(str.strip, text.splitlines()):
        words = line.split()
        if re.match(r"# *Size\b", line):
            columns = line
            output.valid = {} if line.endswith("Validation") else None
        elif columns and len(words) > 1 and words[0].isdecimal():
            try:
                value = float(words[_column(columns, unit)])
            except (ValueError, IndexError):
                raise NotOutput(f'cannot read "{line}" below "{columns}"') from None
            if 0 < value < float("inf"):  # slow wires: 0.00 MB/s for one byte is nothing to divide by
                output.values[int(words[0])] = value
            if output.valid is not None:
                output.valid[int(words[0])] = words[-1] == "Pass"
    if not columns:
        raise NotOutput('it printed no header "# Size …"')
    return output


def _column(columns: str, unit: str) -> int:
    """Columns are told apart by their units in parentheses; osu_mbw_mr's are units and nothing else."""
    found = re.findall(r"\(([^)]*)\)", columns) or columns.lstrip("# ").split()[1:]
    if unit not in found:
        raise NotOutput(f'no column of {unit} in "{columns}"')
    return found.index(unit) + 1
