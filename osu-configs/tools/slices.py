# SPDX-License-Identifier: BSD-3-Clause
"""Measuring in slices: the jobs of all rows are alive, and one of them at a time measures one size for some
milliseconds.

A cell is a benchmark with its buffers, ranks, cost and size. A round is a slice of each of its rows, in random order,
between two looks at the phase of the machine. Jobs live for a generation of some ten seconds: in each one
all cells have a round, and then those have more that are not decided.
"""

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tools import osu, report
from tools.conditions import Load, moved
from tools.jobs import Gone, Hub, Job, end_all
from tools.launch import Interrupted, Launcher, Line, Runner, cores
from tools.rows import Case, Row
from tools.sizes import show
from tools.trouble import Trouble

SLICE_MS = 8
GENERATION_SECONDS = 12
CHECKED = 2  # iterations at the beginning of the first jobs, and at their end, when auto has made its choice
CHECKED_WINDOW = 16  # messages at a time of these
WINDOW, WINDOW_BYTES, WINDOW_LEAST = 64, 16 << 20, 4  # as OSU has them, but not more bytes
LATE_SECONDS = 5  # a slice that takes longer has fallen behind
START_SECONDS = 60
OSU_LARGE = 8 << 10
OSU_ITERATIONS = {(False, False): 5000, (False, True): 200, (True, False): 200, (True, True): 10}  # of windows; of large sizes
FEWEST = 4  # generations before all can be decided

Place = tuple[str, str, int, str]  # benchmark, buffers, ranks, pin cost: jobs of one stand side by side in one table
Cell = tuple[Place, int]
Open = set[tuple[str, Place, int]]


@dataclass(frozen=True, eq=False)
class Seat:
    """What a job is of: a row with so many ranks and such a pin cost."""

    row: Row
    ranks: int
    slower: float = 0  # percent, for --self-check

    def __str__(self) -> str:
        cost = f" (pin cost {self.row.pin_cost})" * (self.row.pin_cost != "")
        return self.row.name + f" ({self.ranks} ranks)" * (self.ranks != 2) + cost


@dataclass(frozen=True, eq=False)
class Entry:
    """A row in a cell."""

    seat: Seat
    case: Case
    size: int
    program: str  # companion_bw, or osu_bw, which is OSU's own

    @property
    def benchmark(self) -> osu.Benchmark:
        return osu.BENCHMARKS[self.case.benchmark]

    @property
    def place(self) -> Place:
        return self.program, self.case.buffers, self.case.ranks, self.seat.row.pin_cost

    @property
    def key(self) -> tuple[str, Place, int]:
        return self.seat.row.name, self.place, self.size

    def __str__(self) -> str:
        name, buffers, _, _ = self.place
        return f"{self.seat} {name}" + f" ({buffers} buffers)" * (buffers != "same") + f" at {show(self.size)}"

    def line(self, check: bool) -> str:
        """For the companion."""
        return (f"{self.benchmark.test} {self.case.buffers} {self.size} {self.window(check)} {int(self.case.owned)} {SLICE_MS}"
                f" {CHECKED if check else 0} {self.seat.slower:g}")

    def window(self, check: bool = False) -> int:
        """Messages under way at a time, in each direction: fewer large ones, so that a slice stays short."""
        if not self.benchmark.window:
            return 1
        window = self.case.window or min(WINDOW, max(WINDOW_LEAST, WINDOW_BYTES // self.size))
        return min(window, CHECKED_WINDOW) if check else window

    def value(self, seconds: float) -> float:
        """In its unit."""
        if self.benchmark.unit == osu.US:
            return 1e6 * seconds / (2 if self.benchmark.halved else 1)
        return self.size * self.benchmark.messages * self.window() / 1e6 / seconds


def entries_of(rows: list[Row], suite: osu.Suite) -> list[Entry]:
    """What cannot be measured is named."""
    seats: dict[tuple, Seat] = {}
    entries: dict[tuple, Entry] = {}
    left_out = set()
    for row in rows:
        for case in row.cases:
            if not (program := suite.program(case.benchmark, case.buffers)):
                left_out.add(case.benchmark)
                continue
            of_cost = replace(row, mca=row.mca | {"btl_regx_pin_cost": case.pin_cost}) if case.pin_cost else row
            seat = seats.setdefault((row.name, case.ranks, case.pin_cost), Seat(of_cost, case.ranks, row.slower))
            for size in case.sizes:
                entry = Entry(seat, case, size, program)
                if entry.key in entries:
                    raise Trouble(f"{row.where}: {entry} twice: their figures could not be told apart")
                entries[entry.key] = entry
    if left_out:
        print(f"compare: left out, for they are OSU's, whose place --osu DIR names: {', '.join(sorted(left_out))}",
              file=sys.stderr)
    return list(entries.values())


@dataclass
class Plan:
    """When to end: after so many rounds of each cell, else after the seconds of budget, or when nothing is open.

    open_: of all that was recorded, what is not decided; None: it cannot be told here."""

    rounds: int = 0
    budget: float = 0
    open_: Callable[[], Open | None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    generation: float = GENERATION_SECONDS
    cut: str = ""

    def __post_init__(self) -> None:
        self.started = self.clock()

    def left(self) -> float:
        return float("inf") if self.rounds else self.budget - (self.clock() - self.started)


@dataclass
class Alive:
    """A job of this generation, with what it was asked for."""

    job: Job
    file: Path
    sent: Counter[int] = field(default_factory=Counter)  # bytes by size


class Session:
    """keep: is called with each record, so that what was measured is kept, whatever happens."""

    def __init__(self, launcher: Launcher, runner: Runner, reports: Path, keep: Callable[[dict], None],
                 osu_programs: dict[str, Path] | None = None):
        self.launcher, self.runner, self.reports, self.keep = launcher, runner, reports, keep
        self.osu = osu_programs or {}
        reports.mkdir(exist_ok=True)
        self.hub = Hub(runner, launcher.network)
        self.alive: dict[Seat, Alive] = {}
        self.probe: Job | None = None
        self.phase: tuple[float, float] | None = None
        self.number = 0  # of this generation of jobs
        self.checked: set[Seat] = set()
        self.osu_checked: set[Entry] = set()
        self.apart: set[Seat] = set()  # those that did not start beside all others
        self.given_up: set[Seat] = set()
        self.behind: set[Entry] = set()  # slow ones: they have one figure
        self.rounds: Counter[Cell] = Counter()
        self.random = random.Random(0)

    # ---- from the first job to the last

    def carry_out(self, entries: list[Entry], plan: Plan) -> bool:
        """Returns whether it came to its end."""
        try:
            osus = [entry for entry in entries if entry.program in self.osu]
            groups, wanted, done = [[entry for entry in entries if entry.program not in self.osu]], None, 0
            while entries and plan.left() > 0 and (done < FEWEST or wanted != set()) and not 0 < plan.rounds <= done:
                groups = [group for old in groups if old for group in self.generation(old, plan, wanted)]
                self.osu_passes(osus, plan, wanted)
                done += 1
                wanted = plan.open_()
                entries = [entry for entry in entries if entry.seat not in self.given_up]
                self.progress(entries, plan, wanted)
            if entries and any(not self.rounds[cell] for cell in cells_of(entries)):
                plan.cut = f"{plan.budget / 60:g} minutes are too short for one round of each cell"
            return True
        except Interrupted:
            return False
        finally:
            end_all([alive.job for alive in self.alive.values()] + [self.probe] * (self.probe is not None))
            self.hub.close()

    def progress(self, entries: list[Entry], plan: Plan, wanted: Open | None) -> None:
        ours = {entry.key for entry in entries if entry.seat.row.is_regx}
        decided = "" if wanted is None else f"{len(ours - wanted)} of {len(ours)} cells decided, "
        left = "" if plan.rounds else f", {max(0, plan.left()) / 60:.1f} minutes left"
        end = "\r" if sys.stderr.isatty() else "\n"
        print(f"compare: {decided}{sum(self.rounds.values())} rounds{left}", end=end, file=sys.stderr, flush=True)

    def generation(self, entries: list[Entry], plan: Plan, wanted: Open | None) -> list[list[Entry]]:
        """Starts the jobs, has them measure, ends them. Returns the groups that live side by side."""
        self.number += 1
        load = Load()
        together, apart = self.start(entries)
        new = [entry for entry in together if entry.seat not in self.checked]
        self.check(new)
        self.passes(together, plan, plan.clock() + plan.generation, wanted)
        self.check(new)
        self.checked |= {entry.seat for entry in new}
        self.end()
        if not (self.launcher.rdma or self.launcher.own):
            self.record(None, event="load", value=load.of_others(), job=self.number)
        return [group for group in (together, apart) if group]

    def start(self, entries: list[Entry]) -> tuple[list[Entry], list[Entry]]:
        """Those whose jobs run, and those, with the peers, that do not start beside them: they are a group of their own.
        What does not start in a first group and not beside the peers alone is given up."""
        seats = list(dict.fromkeys(entry.seat for entry in entries if entry.seat not in self.given_up))
        self.start_probe()
        self.alive = {seat: self.job(seat) for seat in seats}
        self.hub.gather([alive.job for alive in self.alive.values()], START_SECONDS)
        failed = {seat: alive.job.trouble for seat, alive in self.alive.items() if alive.job.trouble}
        self.alive = {seat: alive for seat, alive in self.alive.items() if seat not in failed}
        again = {seat for seat in failed if seat.row.is_regx and seat not in self.apart
                 and any(other.row.is_regx for other in self.alive)}  # it may have been want of room
        for seat, why in failed.items():
            if seat in again:
                print(f"compare: {seat} did not start beside the others ({why}): it is tried beside the peers alone",
                      file=sys.stderr)
            else:
                self.give_up(seat, why)
        self.apart |= again
        return ([entry for entry in entries if entry.seat in self.alive],
                [entry for entry in entries if entry.seat in again or not entry.seat.row.is_regx] if again else [])

    def start_probe(self) -> None:
        if self.probe is None and self.launcher.on_this_node and len(cores()) > 1:
            words = (str(self.launcher.installation.programs / "probe"), "HUB", "NAME", *map(str, cores()[:2]))
            self.probe = Job("the probe", Line({}, words), 1, self.hub)
            self.hub.gather([self.probe], START_SECONDS)
            self.probe = self.probe if self.probe.is_ready else None

    def job(self, seat: Seat, command: list[str] | None = None, preload: dict[str, str] | None = None) -> Alive:
        name = "-".join(map(str, filter(None, (seat.row.name, seat.ranks, seat.row.pin_cost, self.number)))).replace(":", "-")
        file = self.reports / f"{name}.jsonl"
        file.unlink(missing_ok=True)
        command = command or [str(self.launcher.installation.programs / "companion"), "HUB", "NAME"]
        row = replace(seat.row, environment=seat.row.environment | (preload or {}))
        return Alive(Job(str(seat), self.launcher.line(row, command, file, seat.ranks), seat.ranks, self.hub), file)

    def end(self) -> None:
        """Ends the jobs, and proves their paths."""
        end_all([alive.job for alive in self.alive.values()])
        for seat, alive in self.alive.items():
            if alive.job.trouble:
                self.give_up(seat, alive.job.trouble)
            elif seat.row.is_regx and alive.sent:
                proof = report.prove(alive.file, claim_of(seat.row, alive.sent, seat.ranks))
                self.record(seat, event="path", text=proof.problem, job=self.number)
                self.record(seat, event="ran", text=" over ".join(filter(None, (proof.backend, proof.wire))), job=self.number)
                for event, found in (("count", proof.counts), ("choice", proof.decisions)):
                    for name, count in found.items():
                        self.record(seat, event=event, text=name, value=count, job=self.number)
        self.alive = {}

    # ---- slices

    def check(self, entries: list[Entry]) -> None:
        for entry in entries:
            if (words := self.ask(entry, True)) is None:
                continue
            wrong = sum(int(rank[2]) for rank in words)
            self.record(entry.seat, entry, event="wrong data" if wrong else "checked",
                        text=f"{wrong} messages had other bytes than were sent" if wrong else "")
            if wrong:
                print(f"WRONG DATA: {entry}", file=sys.stderr)
                self.given_up.add(entry.seat)

    def passes(self, entries: list[Entry], plan: Plan, until: float, wanted: Open | None) -> None:
        """First a round of each cell; then, as long as the jobs are young, of those that are not decided."""
        chosen, first = entries, True
        self.phase = self.look()
        while first or (plan.clock() < until and not plan.rounds):
            cells = cells_of(chosen)
            order = list(cells)
            self.random.shuffle(order)
            for cell in order:
                if plan.left() <= 0 or not first and plan.clock() >= until:
                    return
                self.round(cells[cell], cell)
            if first and wanted:
                chosen = [entry for entry in entries if entry.key in wanted] or entries
            first = False

    def round(self, entries: list[Entry], cell: Cell) -> None:
        order = [entry for entry in entries if entry.seat in self.alive and entry not in self.behind]
        self.random.shuffle(order)
        found = [(entry, value) for entry in order if (value := self.slice(entry)) is not None]
        before, self.phase = self.phase, self.look()
        self.rounds[cell] += 1
        for entry, value in found:
            self.record(entry.seat, entry, job=self.number, round=self.rounds[cell], value=value,
                        unit=entry.benchmark.unit, moved=int(moved(before, self.phase)),
                        line=self.phase and self.phase[0], copy=self.phase and self.phase[1])

    def slice(self, entry: Entry) -> float | None:
        started = time.monotonic()
        words = self.ask(entry, False)
        if words is None or float(words[0][0]) <= 0:
            return None
        if time.monotonic() - started > LATE_SECONDS and not self.launcher.rdma:
            self.behind.add(entry)
            text = f"it fell behind: a slice took {time.monotonic() - started:.0f} s"
            self.record(entry.seat, entry, event="behind", text=text)
        return entry.value(float(words[0][0]))

    def ask(self, entry: Entry, check: bool) -> list[list[str]] | None:
        """None: it is no longer there, which is said."""
        alive = self.alive.get(entry.seat)
        if alive is None or entry.seat in self.given_up:
            return None
        try:
            words = alive.job.ask(entry.line(check), entry.seat.row.timeout)
            if not all(len(rank) == 5 for rank in words):
                alive.job.lose(f"it answered \"{' '.join(words[0])}\"")
        except Gone as gone:
            self.give_up(entry.seat, str(gone))
            del self.alive[entry.seat]
            return None
        alive.sent[entry.size] += int(words[0][1]) * entry.benchmark.messages * entry.window(check) * entry.size
        if int(words[0][3]):
            for name, count in (("freed", 3), ("came_back", 4)):
                self.record(entry.seat, entry, event="count", text=name, value=sum(int(rank[count]) for rank in words))
        return words

    # ---- OSU's own benchmarks

    def osu_passes(self, entries: list[Entry], plan: Plan, wanted: Open | None) -> None:
        """Each place by itself, once by the jobs of all its rows, which are parked and go on in random order; each size
        of a pass is a figure. Small sizes and large ones have jobs of their own, of different numbers of iterations."""
        places: dict[tuple[Place, bool], list[Entry]] = {}
        for entry in entries:
            if entry.seat not in self.given_up:
                places.setdefault((entry.place, entry.size > OSU_LARGE), []).append(entry)
        for (place, large), mine in places.items():
            keys = {entry.key for entry in mine}
            if plan.left() > 0 and (plan.rounds or not wanted or keys & wanted or not self.rounds[place, mine[0].size]):
                self.osu_pass(mine, large)

    def osu_pass(self, entries: list[Entry], large: bool) -> None:
        self.number += 1
        of_seat: dict[Seat, list[Entry]] = {}
        for entry in entries:
            of_seat.setdefault(entry.seat, []).append(entry)
        self.start_probe()
        for seat, mine in of_seat.items():
            self.osu_check(seat, mine)
        iterations = OSU_ITERATIONS[entries[0].benchmark.window, large]
        self.alive = {seat: self.job(seat, self.osu_words(mine) + ["-i", str(iterations), "-x", str(iterations // 10)],
                                     {"LD_PRELOAD": str(self.launcher.installation.programs / "pace.so"),
                                      "REGX_PACE": f"HUB NAME {SLICE_MS}"})
                      for seat, mine in of_seat.items() if seat not in self.given_up}
        self.hub.gather([alive.job for alive in self.alive.values()], START_SECONDS)
        before = self.look()
        left = {seat for seat, alive in self.alive.items() if not alive.job.trouble}
        while left:
            for seat in self.random.sample(sorted(left, key=str), len(left)):
                try:
                    self.alive[seat].job.ask("go", seat.row.timeout)
                except Gone:  # also at its end
                    left.discard(seat)
        after = self.look()
        self.rounds.update(cells_of(entries).keys())
        for seat, alive in self.alive.items():
            self.osu_figures(seat, alive, of_seat[seat], moved(before, after), after)
        self.alive = {}

    def osu_words(self, entries: list[Entry]) -> list[str]:
        sizes = [entry.size for entry in entries]
        first = entries[0]
        return [str(self.osu[first.program]), "-m", f"{min(sizes)}:{max(sizes)}", *first.case.options]

    def osu_check(self, seat: Seat, entries: list[Entry]) -> None:
        """Once: OSU's own check of contents."""
        unchecked = [entry for entry in entries if entry not in self.osu_checked and not entry.benchmark.unchecked]
        self.osu_checked |= {*entries}
        if not unchecked or seat in self.given_up:
            return
        line = self.launcher.line(seat.row, [*self.osu_words(unchecked), "-i", "2", "-x", "0", "-c"], os.devnull, seat.ranks)
        outcome = self.runner.run(line, 3 * seat.row.timeout)
        try:
            valid = osu.parse(outcome.stdout, unchecked[0].benchmark.unit).valid
        except osu.NotOutput as error:
            self.give_up(seat, outcome.failure() or str(error))
            return
        if valid is None or not all(valid.values()):
            self.record(seat, unchecked[0], event="wrong data" if valid else "failed",
                        text="OSU's check found other bytes than were sent" if valid else "contents not checked: this OSU cannot")
            self.given_up.add(seat)
            return
        for entry in unchecked:
            self.record(seat, entry, event="checked")

    def osu_figures(self, seat: Seat, alive: Alive, entries: list[Entry], changed: bool, phase: tuple[float, float] | None) -> None:
        kind = entries[0].benchmark
        status = alive.job.ended()
        try:
            values = osu.parse(alive.job.output()[0], kind.unit).values
        except osu.NotOutput as error:
            self.give_up(seat, alive.job.trouble if status else str(error))
            return
        if status != 0:
            self.give_up(seat, alive.job.trouble)
        for entry in entries:
            if entry.size in values:
                self.record(seat, entry, job=self.number, round=self.rounds[entry.place, entry.size], value=values[entry.size],
                            unit=kind.unit, moved=int(changed), line=phase and phase[0], copy=phase and phase[1])
        if seat.row.is_regx and status == 0:
            sizes = [size for size in values if kind.own_sizes]
            large = sum(size for size in sizes if size > report.RENDEZVOUS_ABOVE) / max(1, sum(sizes))
            proof = report.prove(alive.file, replace(claim_of(seat.row, Counter({1: 1}), seat.ranks), large=large,
                                                     one_sided=kind.one_sided))
            self.record(seat, event="path", text=proof.problem, job=self.number)

    def look(self) -> tuple[float, float] | None:
        """The phase, or None: it cannot be told here."""
        if self.probe is None:
            return None
        try:
            (line, copy), = self.probe.ask("", START_SECONDS)
            return float(line), float(copy)
        except (Gone, ValueError):
            self.probe = None
            return None

    def give_up(self, seat: Seat, why: str) -> None:
        self.given_up.add(seat)
        print(f"FAILED: {seat}: {why}", file=sys.stderr)
        self.record(seat, event="failed", text=why)

    def record(self, seat: Seat | None, entry: Entry | None = None, **more: Any) -> None:
        line: dict[str, Any] = {}
        if seat is not None:
            line = {"row": seat.row.name, "kind": "regx" if seat.row.is_regx else "peer", "ranks": seat.ranks,
                    "pin_cost": seat.row.pin_cost}
        if entry is not None:
            line |= {"benchmark": entry.place[0], "buffers": entry.place[1], "size": entry.size,
                     "options": " ".join(entry.case.options)}
        self.keep(line | more)


def cells_of(entries: Iterable[Entry]) -> dict[Cell, list[Entry]]:
    cells: dict[Cell, list[Entry]] = {}
    for entry in entries:
        cells.setdefault((entry.place, entry.size), []).append(entry)
    return cells


def claim_of(row: Row, sent: Counter[int], ranks: int) -> report.Claim:
    large = sum(count for size, count in sent.items() if size > report.RENDEZVOUS_ABOVE)
    return report.Claim(row.regx("rendezvous"), large / sum(sent.values()), backend=row.regx("backend"),
                        transport=row.regx("transport"), ranks=ranks)
