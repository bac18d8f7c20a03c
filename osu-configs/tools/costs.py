# SPDX-License-Identifier: BSD-3-Clause
"""compare --recommend: the file of btl_regx_costs (component/btl/costs.h), from what was measured.

The rows of costs.conf run between two cores of each kind of neighbours that this node has: cores that share a cache
of the second level, of the third, a package, or neither.
"""

import re
from dataclasses import replace
from pathlib import Path

from tools import output, table
from tools.installation import TOP
from tools.launch import cores
from tools.rows import FOLDER, Row
from tools.sizes import show
from tools.trouble import Trouble

ROWS = FOLDER / "costs.conf"
WAYS = ("eager", "staged", "together", "read")  # rows, in the order of a line
NEIGHBOURS = {"l2": "share a cache of the second level", "l3": "share a cache of the third level", "package": "share a package",
              "node": "share none of these"}  # fmt: skip
# The pattern that each benchmark has, in a line.
PATTERNS = {"osu_latency": "single", "companion_latency": "touched", "osu_bw": "stream", "osu_bibw": "exchange"}
SYSTEM = Path("/sys/devices/system/cpu")
# The first processor's, as costs.c asks for them.
PROCESSOR = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part", "cpu")


def processor() -> str:
    first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    return " ".join(line[2] for line in re.finditer(r"^([^\t:]+?)\s*: (.*)$", first, re.MULTILINE)
                    if line[1] in PROCESSOR)


def sharing(core: int) -> dict[str, str]:
    """By kind of neighbour, what a core shares with such ones: the same text for each that does."""
    found = {}
    for cache in sorted((SYSTEM / f"cpu{core}/cache").glob("index*")):
        if (level := (cache / "level").read_text().strip()) in ("2", "3"):
            found[f"l{level}"] = (cache / "shared_cpu_list").read_text()
    package = SYSTEM / f"cpu{core}/topology/physical_package_id"
    return found | {"package": package.read_text()} if package.exists() else found


def pairs() -> dict[str, tuple[int, int]]:
    """Of each kind that this node has, the nearest first, the first core and another."""
    first, *others = cores()
    own, found = sharing(first), {}
    for other in others:
        its = sharing(other)
        kind = next((kind for kind in NEIGHBOURS if kind in own and own[kind] == its.get(kind)), "node")
        found.setdefault(kind, (first, other))
    return {kind: found[kind] for kind in NEIGHBOURS if kind in found}


def between_neighbours(rows: list[Row]) -> list[Row]:
    """Each row for each kind of neighbours. Trouble: there are none."""
    if missing := {*WAYS} - {row.name for row in rows}:
        raise Trouble(f"--recommend: no row {', '.join(sorted(missing))}; wanted: those of {ROWS.name}")
    if not (found := pairs()):
        raise Trouble("--recommend: there is one core here; wanted: two, for messages between them")
    return [replace(row, name=f"{row.name}.{kind}", cores=pair) for kind, pair in found.items() for row in rows
            if row.name in WAYS]


def measured(frame: table.Frame) -> dict[tuple[str, int, str], dict[str, int]]:
    """Nanoseconds of a message by each way, of each kind of neighbours, size and pattern: the median."""
    values = table.values_of(frame)
    found: dict[tuple[str, int, str], dict[str, int]] = {}
    for (row, benchmark, unit, size), value in values.groupby(["row", "benchmark", "unit", "size"]).value.median().items():
        way, _, kind = row.partition(".")
        cost = 1000 * (value if unit == "us" else size / value)
        found.setdefault((kind, int(size), PATTERNS[benchmark]), {})[way] = max(1, round(cost))
    return found


def text(frame: table.Frame, version: str) -> str:
    costs = measured(frame)
    kinds = [kind for kind in NEIGHBOURS if any(key[0] == kind for key in costs)]
    lines = ["regx-costs 3", f"regx {version}", f"processor {processor()}",
             "# neighbour, size, pattern, then nanoseconds of a message: eager, staged, together, read",
             *(f"# {line}" for line in frame.about[frame.about != ""].unique())]
    # A process that may run on any core: as those that are farthest apart.
    for kind, name in [*((kind, kind) for kind in kinds), (kinds[-1], "any")]:
        for size in sorted({key[1] for key in costs if key[0] == kind}):
            shown = show(size).replace(" ", "").removesuffix("iB")
            lines += [" ".join([name, shown, pattern, *(str(ways.get(way, "-")) for way in WAYS)])
                      for pattern in PATTERNS.values() if (ways := costs.get((kind, size, pattern)))]
    return "\n".join([*lines, "end", ""])


def recommend(frame: table.Frame, file: Path) -> None:
    """Writes it, and says what it has not measured."""
    version = re.findall(r"AC_INIT\(\[regx\], \[(.*)\]\)", (TOP / "configure.ac").read_text())[0]
    output.replace(file, text(frame, version))
    there = pairs()
    print(f"Costs between cores that {', that '.join(NEIGHBOURS[kind] for kind in there)} are in {file}."
          f" For all jobs: btl_regx_costs = {file.absolute()}")
    if others := [NEIGHBOURS[kind] for kind in NEIGHBOURS if kind not in there]:
        print(f"Not measured, for there are none here: cores that {', that '.join(others)}."
              " Threads of one core are not tried.")
