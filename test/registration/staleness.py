#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""staleness.py [FOLDER] > mca-params/staleness.md: make the table of what each backend makes of each
way of changing memory, by trying it. FOLDER has the program `table` (default: the tests' build)."""
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
FILE = TOP / "mca-params" / "staleness.md"
UNAVAILABLE = 77

COLUMNS = ["unprotected", "none", "hooks", "notifier", "notifier/scan", "hooks+notifier", "retain"]
WAYS = {
    "libc": "By calling libc",
    "raw": "By the system call itself",
    "thread": "By another thread, while this one takes the address",
}

Cells = dict[tuple[str, str], str]  # by row and direction
Row = str

GUARD = "MADV_GUARD_INSTALL, _REMOVE"
REMAP = "shmat SHM_REMAP over it"
HOOKS = {"mremap of new memory onto it", "mremap of used memory onto it", "mremap DONTUNMAP onto it",
         "MADV_DONTNEED_LOCKED", GUARD, "fallocate PUNCH_HOLE", "ftruncate",
         "ftruncate, private mapping", "ftruncate by another process"}
MALLOC = {"free, malloc", "free of the heap's end, malloc", "free of a large block, malloc"}
# What the documentation says of each: whether it may be stale.
BLIND: dict[str, Callable[[Row, str], bool]] = {
    "none": lambda row, way: False,
    "hooks": lambda row, way: way == "raw" or row in HOOKS,
    "notifier": lambda row, way: row in (GUARD, REMAP),
    "notifier/scan": lambda row, way: row == GUARD,
    "hooks+notifier": lambda row, way: row == GUARD or (row == REMAP and way == "raw"),
    "retain": lambda row, way: row not in MALLOC,
}


class Unavailable(Exception):
    """The backend or the oracle cannot be had here."""


def cells(output: str) -> Cells:
    """What the program printed; a broken row is an error."""
    found: Cells = {}
    for line in output.splitlines():
        row, direction, cell, *why = line.split("\t")
        if cell == "broken":
            raise AssertionError(f"{row}, {direction}: {' '.join(why)}")
        found[row, direction] = cell
    return found


def measure(folder: Path, backend: str, way: str) -> Cells:
    run = subprocess.run([folder / "table", backend, way], capture_output=True, text=True,
                         timeout=300, check=False)
    if run.returncode == UNAVAILABLE:
        raise Unavailable(f"{backend}: {run.stdout.strip()}")
    if run.returncode != 0:
        raise AssertionError(f"table {backend} {way} ended with {run.returncode}\n{run.stderr}")
    return cells(run.stdout)


def named(backend: str, way: str, row: Row, cell: str) -> str:
    """The cell, as the documentation says it."""
    if cell == "not cached":
        return "not cached (counted)"
    if cell == "stale" and backend in BLIND:
        if not BLIND[backend](row, way):
            raise AssertionError(f"{row} ({way}): {backend} serves stale data, undocumented")
        return "documented blind"
    return cell


def column(backend: str, way: str, measured: Cells) -> dict[Row, str]:
    """A cell for each row: both directions, where they differ."""
    result = {}
    for row in dict.fromkeys(row for row, _ in measured):
        sent, received = (named(backend, way, row, measured[row, direction])
                          for direction in ("send", "receive"))
        result[row] = sent if sent == received else f"sent {sent}, received {received}"
    return result


HEAD = """\
<!-- made by test/registration/staleness.py; a test compares it with what is so -->
# What becomes of a registration when memory changes

Memory is in use, and its registration kept where the backend keeps any; then it changes, and is
used again. Seen against a device that really pins pages and really goes stale (io_uring's
registered buffers), in both directions; neighbours of what changed stay kept in all cases.

- **fresh**: the bytes are right, whether by a new registration or because the old one is still true.
- **not cached (counted)**: each use registers anew, and `uncached` in the report counts it.
- **documented blind**: the backend cannot see this change; wrong bytes were seen.
- **stale**: wrong bytes were seen. `unprotected` is no backend: the same cache, told of nothing.

`hooks` are Open MPI's. `notifier/scan` is `notifier` with `btl_regx_notifier_check=scan`. The rows
at the end are what malloc does, for `retain`.
"""


def markdown(tables: dict[str, dict[str, dict[Row, str]]]) -> str:
    """By way and backend."""
    lines = [HEAD]
    for way, title in WAYS.items():
        columns = tables[way]
        lines += [f"## {title}", "", "| change | " + " | ".join(COLUMNS) + " |",
                  "|---" * (len(COLUMNS) + 1) + "|"]
        for row in columns[COLUMNS[0]]:
            lines.append(f"| {row} | " + " | ".join(columns[name][row] for name in COLUMNS) + " |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def documented() -> dict[str, dict[str, dict[Row, str]]]:
    """The tables that stand in the file, by way and backend."""
    tables: dict[str, dict[str, dict[Row, str]]] = {}
    titles = {title: way for way, title in WAYS.items()}
    way = ""
    for line in FILE.read_text().splitlines():
        if line.startswith("## "):
            way = titles[line[3:]]
            tables[way] = {name: {} for name in COLUMNS}
        elif line.startswith("| ") and not line.startswith("| change |"):
            row, *values = line.strip("| ").split(" | ")
            for name, value in zip(COLUMNS, values, strict=True):
                tables[way][name][row] = value
    return tables


def main() -> None:
    folder = Path(sys.argv[1]) if sys.argv[1:] else TOP / ".build/obj/test/registration"
    print(markdown({way: {name: column(name, way, measure(folder, name, way)) for name in COLUMNS}
                    for way in WAYS}), end="")


if __name__ == "__main__":
    main()
