#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""staleness.py io_uring|verbs [FOLDER]: make that device's part of mca-params/staleness.md anew: what
each backend makes of each way of changing memory, by trying it. For verbs where an RDMA device is,
as in test/machine/run. FOLDER has the programs (default: the tests' build)."""
import argparse
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
FILE = TOP / "mca-params" / "staleness.md"
UNAVAILABLE = 77

WAYS = {
    "libc": "by calling libc",
    "raw": "by the system call itself",
    "thread": "by another thread, while this one takes the address",
}

Cells = dict[tuple[str, str], str]  # by row and direction
Row = str
Column = dict[Row, str]


@dataclass(frozen=True)
class Device:
    """What the table is seen against."""
    title: str
    table: str  # the program that tries
    steps: str  # the one that goes through the seven steps
    backends: list[str]  # the columns


BACKENDS = ["unprotected", "none", "hooks", "notifier", "hooks+notifier", "retain"]
DEVICES = {
    "io_uring": Device("io_uring's registered buffers", "table", "seven_steps", BACKENDS),
    "verbs": Device("An RDMA device (Soft-RoCE)", "table_verbs", "seven_steps_verbs",
                    [*BACKENDS, "odp"]),
}


@dataclass
class File:
    """What stands in it."""
    steps: str  # what the program prints, against whatever device
    tables: dict[str, dict[str, dict[str, Column]]]  # by device, way and backend


GUARD = "MADV_GUARD_INSTALL, _REMOVE"
REMAP = "shmat SHM_REMAP over it"
HOOKS = {"mremap of new memory onto it", "mremap of used memory onto it", "mremap DONTUNMAP onto it",
         "MADV_DONTNEED_LOCKED", GUARD, "fallocate PUNCH_HOLE", "ftruncate",
         "ftruncate, private mapping", "ftruncate by another process"}
MALLOC = {"free, malloc", "free of the heap's end, malloc", "free of a large block, malloc"}
BREAK = "brk to less and more"
# What the documentation says of each: whether it may be stale.
BLIND: dict[str, Callable[[Row, str], bool]] = {
    "none": lambda row, way: False,
    "hooks": lambda row, way: way == "raw" or row in HOOKS or (row == BREAK and way == "thread"),
    "notifier": lambda row, way: row in (GUARD, REMAP),
    "hooks+notifier": lambda row, way: row == GUARD or (row == REMAP and way == "raw"),
    "retain": lambda row, way: row not in MALLOC,
    "odp": lambda row, way: False,
}
# Hooks are told of brk once it was done: who then takes the memory by the system call itself, as the
# other thread does here, is sometimes earlier.
CHANCE = [("hooks", "thread", BREAK)]


class Unavailable(Exception):
    """The backend or the device cannot be had here."""


def cells(output: str) -> Cells:
    """What the program printed; a broken row is an error."""
    found: Cells = {}
    for line in output.splitlines():
        row, direction, cell, *why = line.split("\t")
        if cell == "broken":
            raise AssertionError(f"{row}, {direction}: {' '.join(why)}")
        found[row, direction] = cell
    return found


def run(program: Path, *arguments: str) -> str:
    """What it prints."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=600,
                          check=False)
    if done.returncode == UNAVAILABLE:
        raise Unavailable(done.stdout.strip())
    if done.returncode != 0:
        raise AssertionError(f"{program.name} {' '.join(arguments)} ended with {done.returncode}\n"
                             f"{done.stdout}\n{done.stderr}")
    return done.stdout


def measure(folder: Path, device: str, backend: str, way: str, rows: Sequence[Row] = (),
            options: Sequence[str] = ()) -> Cells:
    """Of those rows; of all, if none is given."""
    return cells(run(folder / DEVICES[device].table, *options, backend, way, *rows))


def named(backend: str, way: str, row: Row, cell: str) -> str:
    """The cell, as the documentation says it."""
    if (backend, way, row) in CHANCE:
        if cell not in ("fresh", "stale"):
            raise AssertionError(f"{row} ({way}): {backend} keeps it, fresh or stale, not {cell}")
        cell = "stale"
    if cell == "not cached":
        return "not cached (counted)"
    if cell == "stale" and backend in BLIND:
        if not BLIND[backend](row, way):
            raise AssertionError(f"{row} ({way}): {backend} serves stale data, undocumented")
        return "documented blind"
    return cell


def column(backend: str, way: str, measured: Cells) -> Column:
    """A cell for each row: both directions, where they differ."""
    result = {}
    for row in dict.fromkeys(row for row, _ in measured):
        sent, received = (named(backend, way, row, measured[row, direction])
                          for direction in ("send", "receive"))
        result[row] = sent if sent == received else f"sent {sent}, received {received}"
    return result


HEAD = """\
<!-- made by test/registration/staleness.py; tests compare it with what is so -->
# What becomes of a registration when memory changes

Memory is in use, and its registration kept where the backend keeps any; then it changes, and is
used again. Seen against devices that really pin pages and really go stale.

## Seven steps

The classic case, as test/registration/seven_steps.c goes through it.

```
{steps}```

## All changes

In both directions; neighbours of what changed stay kept in all cases.

- **fresh**: the bytes are right, whether by a new registration or because the old one is still true.
- **not cached (counted)**: each use registers anew, and `uncached` in the report counts it.
- **documented blind**: the backend cannot see this change; wrong bytes were seen.
- **stale**: wrong bytes were seen. `unprotected` is no backend: the same cache, told of nothing.

`hooks` are Open MPI's. `odp` is of
devices with on-demand paging; its regions follow every change. The rows
at the end of the tables for libc are what malloc does, for `retain`.
"""


def markdown(file: File) -> str:
    """The file's text."""
    lines = [HEAD.format(steps=file.steps)]
    for device, ways in file.tables.items():
        for way, columns in ways.items():
            lines += [f"### {DEVICES[device].title}: {WAYS[way]}", "",
                      "| change | " + " | ".join(columns) + " |",
                      "|---" * (len(columns) + 1) + "|"]
            for row in next(iter(columns.values())):
                cells_of_row = " | ".join(column[row] for column in columns.values())
                lines.append(f"| {row} | {cells_of_row} |")
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def documented() -> File:
    """The file as it is."""
    text = FILE.read_text()
    file = File(text.split("```\n")[1], {})
    titles = {f"### {device.title}: {title}": (name, way)
              for name, device in DEVICES.items() for way, title in WAYS.items()}
    columns: dict[str, Column] = {}
    for line in text.splitlines():
        if line in titles:
            device, way = titles[line]
            columns = file.tables.setdefault(device, {}).setdefault(way, {})
        elif line.startswith("| change |"):
            columns.update((name, {}) for name in line.strip("| ").split(" | ")[1:])
        elif line.startswith("| "):
            row, *values = line.strip("| ").split(" | ")
            for name, value in zip(columns, values, strict=True):
                columns[name][row] = value
    return file


def compare(device: str, way: str, backend: str, measured: Cells) -> None:
    """With the file; what this machine does not have is left out."""
    expected = documented().tables[device][way][backend]
    found = column(backend, way, measured)
    assert found.keys() <= expected.keys(), "staleness.py makes staleness.md anew"
    differ = {row: (expected[row], cell) for row, cell in found.items()
              if cell not in ("n/a", expected[row]) and expected[row] != "n/a"}
    assert not differ, f"{backend}, {way}: (documented, seen); staleness.py makes it anew"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device", choices=DEVICES)
    parser.add_argument("folder", type=Path, nargs="?",
                        default=TOP / ".build/obj/test/registration")
    wanted = parser.parse_args()
    device = DEVICES[wanted.device]
    steps = run(wanted.folder / device.steps)
    tables = documented().tables
    tables[wanted.device] = {
        way: {name: column(name, way, measure(wanted.folder, wanted.device, name, way))
              for name in device.backends} for way in WAYS}
    FILE.write_text(markdown(File(steps, {name: tables[name] for name in DEVICES
                                          if name in tables})))


if __name__ == "__main__":
    main()
