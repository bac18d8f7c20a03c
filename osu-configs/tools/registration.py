# SPDX-License-Identifier: BSD-3-Clause
"""registration: what a hit, a miss and a change of memory cost in registration caches, measured by the
programs of osu-configs/cache."""

import argparse
import sys
from pathlib import Path

from tools import installation, output
from tools.conditions import Load
from tools.installation import Installation
from tools.launch import Interrupted, Line, Runner
from tools.trouble import Trouble, told

TIMEOUT = 300  # seconds, of one run
CANNOT = 3  # what the program ends with where a backend cannot be had
BACKENDS = ("none", "hooks", "retain", "notifier", "hooks+notifier", "kernel")
BASE = "hooks"  # what figures are set in relation to
METRICS = {
    "query": ("what is asked of the notifier or the module, alone", "ns"),
    **{f"{name}_{count}": (f"hit, {who}, {count:,} regions", "ns")
       for name, who in (("hit", "one thread"), ("hit_same", "two at once, the same"),
                         ("hit_four", "four at once, the same"),
                         ("hit_apart", "two at once, different")) for count in (1, 100, 10000)},
    "miss_apart": ("miss in a mapping of its own", "ns"),
    **{f"miss_{count}": (f"time per miss of {count} threads", "ns") for count in (1, 2, 4, 8)},
    "many_unmapped": ("munmap of 40 MB with 5,000 regions", "us"),
    "many_settled": ("the next acquire after it, and all deregistrations", "us"),
    "unmap_unwatched": ("munmap of 64 KiB never registered", "us"),
    "unmap_watched": ("munmap of 64 KiB registered", "us"),
    **{f"beside_{call}": (f"{call} of memory never registered, beside 1,000 regions: beside none is 1", "x")
       for call in ("mmap", "munmap", "madvise")},
}  # fmt: skip
COLUMNS = ("row", "benchmark", "metric", "unit", "run", "value", "others", "problem", "about")
DESCRIPTION = """\
Measure what keeping registrations costs: hits, misses, and changes of memory; for each of regx's
backends, one after the other, in several rounds. Nothing is really registered: only the keeping is
measured."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="registration", description=DESCRIPTION)
    installation.add_options(parser)
    add = parser.add_argument
    add("-n", dest="runs", type=int, metavar="N", default=5, help="rounds (default: %(default)s)")
    for name, choices in (("backends", BACKENDS), ("metrics", METRICS)):
        add(f"--{name}", nargs="+", action="extend", choices=choices, metavar=name.upper(),
            help=f"measure only these of: {', '.join(choices)}")
    add("--from", dest="csv", nargs="+", type=Path, metavar="CSV",
        help="measure nothing: make the table again from a results.csv, or from several")
    asked = parser.parse_args()
    if not 1 <= asked.runs <= 1000:
        parser.error(f"-n {asked.runs}: allowed: 1 to 1000")
    asked.backends = asked.backends or list(BACKENDS)
    return asked


def main() -> int:
    return told("registration", lambda: registration(arguments()))


def line_of(found: Installation, backend: str, metrics: list[str] | None) -> Line:
    return Line({}, (str(found.programs / "cache/cache"), backend, *(metrics or ())))


def registration(asked: argparse.Namespace) -> int:
    if asked.csv:
        from tools import table

        return show(table.read(asked.csv, COLUMNS, "registration"))
    found = installation.found(asked, "compare")
    if asked.dry_run:
        for backend in asked.backends:
            print(line_of(found, backend, asked.metrics))
        return 0
    folder = output.folder(asked.output, "registration")
    complete = measure(asked, found, folder / "results.csv")
    if not complete:
        print("registration: interrupted", file=sys.stderr)
    if not (folder / "results.csv").exists():
        return 130
    from tools import table

    frame = table.read([folder / "results.csv"], COLUMNS, "registration")
    output.replace(folder / "table.txt", render(frame, 160) + "\n")
    print(f"registration: results are in {folder}", file=sys.stderr)
    return show(frame) if complete else 130


def show(frame: "table.Frame") -> int:
    print(render(frame, output.width()), flush=True)
    return int((frame.metric == "failed").any())


def measure(asked: argparse.Namespace, found: Installation, file: Path) -> bool:
    """In each round all backends, so that a drift of the machine hits all; each begins with another."""
    runner, dropped = Runner(), set()
    runner.heed_signals()
    about = installation.about(found)
    records = output.Records(file, COLUMNS)
    try:
        for run in range(1, asked.runs + 1):
            first = (run - 1) % len(asked.backends)
            for backend in asked.backends[first:] + asked.backends[:first]:
                if backend in dropped:
                    continue
                print(f"registration: round {run}/{asked.runs}: {backend}", file=sys.stderr)
                line = line_of(found, backend, asked.metrics)
                load = Load()
                outcome = runner.run(line, TIMEOUT)
                others = load.of_others()
                this = {"row": backend, "benchmark": "registration", "run": run, "about": about}
                if outcome.status != 0:
                    dropped.add(backend)
                    event = "missing" if outcome.status == CANNOT else "failed"
                    records.keep(this | {"metric": event, "problem": outcome.failure()})
                for name, value in parse(outcome.stdout).items():
                    records.keep(this | {"metric": name, "unit": METRICS[name][1], "value": value,
                                           "others": others})  # fmt: skip
                if records.problem:
                    raise Trouble(records.problem, 1)
    except Interrupted:
        return False
    return True


def parse(text: str) -> dict[str, float]:
    """Lines "METRIC VALUE"; what is none of them was printed by a library."""
    words = map(str.split, text.splitlines())
    return {pair[0]: float(pair[1]) for pair in words if len(pair) == 2 and pair[0] in METRICS}


def render(frame: "table.Frame", width: int) -> str:
    from tools.table import layout, number

    values = frame[frame.unit != ""].groupby(["metric", "row"]).value
    found = values.agg(["median", "min", "max", "count"])
    metrics = [name for name in METRICS if name in found.index.levels[0]]
    columns: dict[str, list[str]] = {name: [] for name in BACKENDS if name in found.index.levels[1]}
    for name in metrics:
        base = found["median"].get((name, BASE))
        for backend, column in columns.items():
            if (name, backend) not in found.index:
                column += ["-", ""]
                continue
            line = found.loc[name, backend]
            speed = f" {number(base / line['median'])}x" if base and line["median"] else ""
            spread = f"{number(line['min'])}-{number(line['max'])}" if line["count"] > 1 else ""
            column += [number(line["median"]) + speed, spread]
    labels = [text for name in metrics for text in (", ".join(METRICS[name]), "")]
    lines = layout(columns, labels, width)
    lines += ["", f"Medians; below them from the least to the greatest.  x: speed relative to {BASE}, above 1 is faster."]
    lines += [f"{event}: {row}: {why}" for row, event, why in zip(frame.row, frame.metric, frame.problem)
              if event in ("missing", "failed")]
    return "\n".join([*lines, *frame.about.unique()])
