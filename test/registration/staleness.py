#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""staleness.py io_uring|verbs [FOLDER]: make mca-params/staleness.md anew: what each backend makes of
each way of changing memory, by trying it on that device. For verbs where an RDMA device is, as in
test/machine/run: only there is there odp. FOLDER has the programs (default: the tests' build). One
table serves both devices, so a device that differs from the other fails its tests."""
import argparse
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
FILE = TOP / "mca-params" / "staleness.md"
UNAVAILABLE = 77

WAYS = ("libc", "raw", "thread")

Cells = dict[tuple[str, str], str]  # by row and direction
Row = str
Column = dict[Row, str]


@dataclass(frozen=True)
class Device:
    """What the table is seen against."""
    table: str  # the program that tries
    steps: str  # the one that goes through the seven steps
    backends: list[str]  # the columns


BACKENDS = ["unprotected", "none", "hooks", "notifier", "hooks+notifier", "retain"]
DEVICES = {
    "io_uring": Device("table", "seven_steps", BACKENDS),
    "verbs": Device("table_verbs", "seven_steps_verbs", [*BACKENDS, "kernel", "odp"]),
}


@dataclass
class File:
    """What stands in it."""
    steps: str  # what the program prints first: of the unprotected cache
    tables: dict[str, dict[str, Column]]  # by way and backend


GUARD = "MADV_GUARD_INSTALL, _REMOVE"
REMAP = "shmat SHM_REMAP over it"
ONTO = {"mremap of new memory onto it", "mremap of used memory onto it", "mremap DONTUNMAP onto it",
        "mremap FIXED onto it that fails"}
HOOKS = {*ONTO, "munmap by another libc (dlmopen)",
         "MADV_DONTNEED by io_uring", "MADV_DONTNEED by process_madvise (after Linux 6.12)",
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
    "kernel": lambda row, way: False,
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


def measure(folder: Path, device: str, backend: str, way: str, rows: Sequence[Row] = ()) -> Cells:
    """Of those rows; of all, if none is given."""
    return cells(run(folder / DEVICES[device].table, backend, way, *rows))


def named(backend: str, way: str, row: Row, cell: str) -> str:
    """The cell, as the documentation says it."""
    if (backend, way, row) in CHANCE:
        if cell not in ("fresh", "stale"):
            raise AssertionError(f"{row} ({way}): {backend} keeps it, fresh or stale, not {cell}")
        cell = "stale"
    if cell == "not cached":
        return "uncached"
    if cell == "stale" and backend in BLIND:
        if not BLIND[backend](row, way):
            raise AssertionError(f"{row} ({way}): {backend} serves stale data, undocumented")
        return "blind"
    return cell


def column(backend: str, way: str, measured: Cells) -> Column:
    """A cell for each row: both directions, where they differ."""
    result = {}
    for row in dict.fromkeys(row for row, _ in measured):
        sent, received = (named(backend, way, row, measured[row, direction])
                          for direction in ("send", "receive"))
        result[row] = sent if sent == received else f"sent {sent}; received {received}"
    return result


HEAD = """\
<!-- made by test/registration/staleness.py; tests compare it with what is so -->
# What becomes of a registration when memory changes

Each test registers a buffer, changes its memory, and uses it again. A backend that keeps registrations keeps this one.
The tests ran on two devices that pin pages, so that a registration can go stale: io_uring's registered buffers (Linux
6.18), and Soft-RoCE (Linux 7.2, 7.3). In each cell that both devices have, the outcome was the same. For `none`,
`hooks`, `notifier` and `hooks+notifier` messages over the first device (`btl_regx_transport pinned`) had the same
outcome, too. A row names the Linux that it needs, if not all have it.

## Seven steps

The classic case (test/registration/seven_steps.c). With each backend the peer gets B in the last step.

```
{steps}```

## The changes that were tried

The tables hold for what is sent and for what is received. Registrations of other memory, next to that which changed,
are kept. The column `unprotected` is no backend, but the same cache without any report of changes. It shows which
changes make a registration stale at all.

- **fresh**: the bytes are right. If `unprotected` is fresh, too, the old registration is still true, and the row says
  nothing of the backend. Otherwise the backend was told of the change, and the buffer was registered anew.
- **uncached**: the bytes are right, since each use registers anew; `uncached` in the report counts it.
- **stale** (in the column `unprotected`) and **blind** (in that of a backend): wrong bytes were seen. The backend is
  not told of this change. (UCX's hooks, used where UCX 1.15 or later is loaded, see an mremap onto the buffer;
  Open MPI's own, in this table, do not.)

A change is made by a call of libc; or by the system call itself (*raw*); or by libc in another thread, while this one
takes the address as soon as it is free (*thread*). A cell names *raw* and *thread* only where their outcome differs
from that of the call of libc. `hooks` are Open MPI's. `odp` needs a device with on-demand paging. `kernel` needs its
module, and was tested over Soft-RoCE only. With it a change of a part of a huge page also ends the registrations of the
rest of that page. The second table has the changes that only libc can make.
"""
TAIL = """
`odp` is uncached for memory of malloc, because such buffers do not begin on a page. Soft-RoCE (Linux 7.2) mishandles
them, so over it regx registers them for each use.

Not in the tables, since they need an older Linux than those:

- Before Linux 6.17 another userfaultfd of the process may unregister memory that `notifier` watches
  (UFFDIO_UNREGISTER). `notifier` is not told of what changes there afterwards, `hooks+notifier` only of what
  libc's functions change.
- Before Linux 5.18 MADV_FREE makes a registration stale. Open MPI's hooks (UCX's see it) and `retain` are not told.

`hooks` miss some changes that are in no row, such as what dlclose unmaps: [regx.conf](regx.conf) has the whole list.

The change `mprotect` forbids writing and allows it again; the pages stay the same. Memory that the program keeps
protected, and fills when it is accessed, is another case, in which all backends but `none` may give wrong data:
[limits.md](limits.md#memory-that-changes).
"""


def split(cell: str) -> dict[str, str]:
    """By way, of what stands in the table: "fresh, raw: blind"."""
    first, *others = cell.split(", ")
    return {"libc": first, **dict(other.split(": ") for other in others)}


def joined(columns: dict[str, Column], row: Row) -> str:
    """The same the other way round; columns: of one backend by way."""
    usual = columns["libc"].get(row, "n/a")
    return ", ".join([usual, *(f"{way}: {column[row]}" for way, column in columns.items()
                               if column.get(row, usual) != usual)])


def table(tables: dict[str, dict[str, Column]], rows: Sequence[Row]) -> list[str]:
    """Rows with the same cells are one."""
    backends = list(tables["libc"])
    alike: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found = tuple(joined({way: tables[way][backend] for way in WAYS}, row) for backend in backends)
        alike.setdefault(found, []).append(row)
    return ["", f"| change | {' | '.join(backends)} |", "|---" * (len(backends) + 1) + "|",
            *(f"| {'<br>'.join(names)} | {' | '.join(found)} |" for found, names in alike.items())]


def markdown(file: File) -> str:
    """The file's text."""
    rows = list(file.tables["libc"]["none"])
    everywhere = [row for row in rows if row in file.tables["raw"]["none"]]
    alone = [row for row in rows if row not in everywhere]
    return "\n".join([HEAD.format(steps=file.steps).rstrip(), *table(file.tables, everywhere),
                      *table(file.tables, alone)]) + "\n" + TAIL


def documented() -> File:
    """The file as it is."""
    text = FILE.read_text()
    file = File(text.split("```\n")[1], {way: {} for way in WAYS})
    _, *parts = text.split("| change |")
    for part, ways in zip(parts, [WAYS, WAYS[:1]], strict=True):
        heads, _, *lines = part.partition("\n\n")[0].strip().splitlines()
        backends = heads.strip("| ").split(" | ")
        for names, *values in (line.strip("| ").split(" | ") for line in lines):
            for backend, value in zip(backends, values, strict=True):
                cell = split(value)
                for way in ways:
                    file.tables[way].setdefault(backend, {}).update(
                        (row, cell.get(way, cell["libc"])) for row in names.split("<br>"))
    return file


def compare(way: str, backend: str, measured: Cells, by_ucx: bool = False) -> None:
    """With the file; what this machine does not have is left out. by_ucx: its hooks report, not Open MPI's."""
    expected = documented().tables[way][backend]
    if by_ucx and backend == "hooks" and way != "raw":
        expected |= dict.fromkeys(ONTO, "fresh")
    found = column(backend, way, measured)
    assert found.keys() <= expected.keys(), "staleness.py makes staleness.md anew"
    differ = {row: (expected[row], cell) for row, cell in found.items()
              if cell not in ("n/a", expected[row]) and expected[row] != "n/a"}
    assert not differ, f"{backend}, {way}: (documented, seen); staleness.py makes it anew"


def seven_steps(folder: Path, device: str) -> None:
    """They end as documented without protection, and with each backend the peer gets B."""
    steps = run(folder / DEVICES[device].steps)
    unprotected, *backends = steps.split("\n\n")
    assert unprotected + "\n" == documented().steps, steps
    assert backends and all(block.rstrip().endswith("the peer gets B") for block in backends), steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device", choices=DEVICES)
    parser.add_argument("folder", type=Path, nargs="?",
                        default=TOP / ".build/obj/test/registration")
    wanted = parser.parse_args()
    device = DEVICES[wanted.device]
    steps, _, _ = run(wanted.folder / device.steps).partition("\n\n")
    tables = documented().tables
    for way in WAYS:
        for name in device.backends:
            found = column(name, way, measure(wanted.folder, wanted.device, name, way))
            known = tables[way].setdefault(name, {})  # also by a machine that had more
            tables[way][name] = {row: known.get(row, cell) if cell == "n/a" else cell
                                 for row, cell in found.items()}
    FILE.write_text(markdown(File(steps + "\n", tables)))


if __name__ == "__main__":
    main()
