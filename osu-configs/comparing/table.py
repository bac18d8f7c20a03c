# SPDX-License-Identifier: BSD-3-Clause
"""The table: medians with min-max per size and arm, and the ratio to the best peer.

One block per benchmark, choice of buffers and phase: only runs of one phase are ever set in
relation to one another.
"""

from dataclasses import dataclass
from statistics import median

from comparing import load
from comparing.path import COUNTS
from comparing.phase import MIXED, PHASES, UNMEASURED
from comparing.result import LIMIT, PEER, REGX, Arm, Results, Run
from comparing.size import show

MISSING = "-"
REGISTERS_FOR_FREE = ("uct",)  # transports; processes of a node copy from one another


@dataclass
class Block:
    """The runs of one benchmark, one choice of buffers and one phase."""

    results: Results
    benchmark: str
    buffers: str
    phase: str
    runs: list[Run]

    def __post_init__(self) -> None:
        self.unit = self.runs[0].unit
        self.lower_is_better = self.unit == "us"
        compared = [run for run in self.runs if run.arm.kind != LIMIT]
        self.sizes = sorted({size for run in compared for size in run.values})
        group = (self.benchmark, self.buffers)
        self.arms = [arm for arm in self.results.arms if arm.group == group]

    def values(self, arm: Arm, size: int) -> list[float]:
        return [run.values[size] for run in self.runs if run.arm == arm and size in run.values]

    def best(self, kind: str, size: int) -> float | None:
        """The best median among the arms of a kind."""
        arms = [arm for arm in self.arms if arm.kind == kind]
        medians = [median(v) for arm in arms if (v := self.values(arm, size))]
        if not medians:
            return None
        return min(medians) if self.lower_is_better else max(medians)

    def ratio(self, arm: Arm, size: int) -> float | None:
        """To the best peer. None where a run saw two phases: that is no measurement."""
        values, best = self.values(arm, size), self.best(PEER, size)
        if not values or best is None or self.phase == MIXED:
            return None
        return median(values) / best

    def percent_of_limit(self, size: int) -> float | None:
        """What regx's best arm reaches of what the same movement reaches without MPI."""
        limit, best = self.best(LIMIT, size), self.best(REGX, size)
        if limit is None or best is None or self.phase == MIXED:
            return None
        return 100 * (limit / best if self.lower_is_better else best / limit)

    # ---- as text

    def title(self) -> str:
        better = "lower" if self.lower_is_better else "higher"
        mailboxes = [m for run in self.runs for m in run.mailbox if m is not None]
        if self.phase == UNMEASURED:
            phase = "phase not measured"
        elif self.phase == MIXED:
            phase = "the phase changed during these runs: no ratios"
        else:
            phase = f"{self.phase} phase, mailbox {median(mailboxes):.2f} us"
        buffers = "" if self.buffers == "same" else f"{self.buffers} buffers, "
        return f"{self.benchmark}, {self.unit}, {better} is better ({buffers}{phase})"

    def header(self, arm: Arm) -> str:
        return f"regx {arm.strategy}" if arm.kind == REGX else arm.strategy

    def cell(self, arm: Arm, size: int) -> tuple[str, str]:
        """Two lines: the median with its ratio, and min-max."""
        if self.results.is_wrong(arm):
            return "WRONG DATA", ""
        values = self.values(arm, size)
        if not values:
            return ("failed" if self.results.failure(arm) else MISSING), ""
        text = number(median(values))
        if arm.kind == REGX and (ratio := self.ratio(arm, size)) is not None:
            text += f" {ratio:.2f}x"
        elif arm.kind == PEER and self.ratio(arm, size) == 1:
            text += " *"
        elif arm.kind == LIMIT and (percent := self.percent_of_limit(size)) is not None:
            text += f" {percent:.0f}%"
        if self.unproven(arm):
            text += " ?"
        spread = f"{number(min(values))}-{number(max(values))}" if len(values) > 1 else ""
        return text, spread

    def unproven(self, arm: Arm) -> bool:
        return any(run.arm == arm and run.problem for run in self.runs)

    def counts(self, arm: Arm, name: str) -> str:
        """The median over the runs, of both ranks and all sizes together."""
        found = [run.counts[name] for run in self.runs if run.arm == arm and name in run.counts]
        return f"{median(found):.0f}" if found else MISSING

    def compares_backends(self) -> bool:
        return len({run.backend for run in self.runs if run.arm.kind == REGX}) > 1

    def render(self, width: int) -> list[str]:
        first = ["size"] + [line for size in self.sizes for line in (show(size), "")]
        columns = [
            [self.header(arm)] + [line for size in self.sizes for line in self.cell(arm, size)]
            for arm in self.arms
        ]
        if self.compares_backends():
            first += COUNTS
            for column, arm in zip(columns, self.arms):
                column += [self.counts(arm, name) for name in COUNTS]
        lines = [self.title()]
        for panel in panels(first, columns, width):
            lines += [""] + [line for line in panel if line]
        return lines


def number(value: float) -> str:
    """Three digits or more, without an exponent."""
    decimals = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{decimals}f}"


def blocks(results: Results) -> list[Block]:
    found = []
    for benchmark, buffers in results.groups():
        for phase in PHASES:
            runs = [
                run
                for run in results.runs
                if run.arm.group == (benchmark, buffers) and run.phase == phase and run.values
            ]
            if any(run.arm.kind != LIMIT for run in runs):
                found.append(Block(results, benchmark, buffers, phase, runs))
    return found


def panels(first: list[str], columns: list[list[str]], width: int) -> list[list[str]]:
    """Columns side by side, continued below where the width does not take all of them."""

    def padded(column: list[str]) -> list[str]:
        wide = max(map(len, column)) + 2
        return [text.rjust(wide) for text in column]

    panels: list[list[str]] = []
    lines: list[str] = []
    for column in map(padded, columns):
        if not lines or len(lines[0]) + len(column[0]) > width:
            lines = padded(first)
            panels.append(lines)
        lines[:] = [line + cell for line, cell in zip(lines, column)]
    return [[line.rstrip() for line in panel] for panel in panels]


def render(results: Results, width: int) -> str:
    lines: list[str] = []
    found = blocks(results)
    for block in found:
        lines += block.render(width) + [""]
    if found:
        repetitions = max(run.repetition for run in results.runs)
        lines += [
            f"Medians of up to {repetitions} runs, below them min-max; where there is none, of one."
            "  x: relative to the best peer (*) of the same size and phase.",
        ]
        if any(arm.kind == LIMIT for arm in results.arms):
            lines.append(
                "limit: the same movement by two processes without MPI;"
                " %: what regx's best strategy reaches of it."
            )
    return "\n".join(lines + notes(results))


def notes(results: Results) -> list[str]:
    """What a reader must know beside the figures, in plain words; wrong data first."""
    lines = []
    for check in results.checks:
        if check.wrong:
            by = f"{check.checked_by} -c"
            lines.append(f"WRONG DATA: {check.arm}: {by} received other bytes than were sent")
    checked = [c for c in results.checks if not c.wrong and not c.failed]
    if checked:
        rows = f"{len(checked)} of {len(results.checks)} rows"
        by = ", ".join(sorted({check.checked_by for check in checked}))
        lines.append(f"Content checked: {rows}, by {by} -c.")
    failures = {arm: failed for arm in results.arms if (failed := results.failure(arm))}
    lines += [f"FAILED: {arm}: {failed}" for arm, failed in failures.items()]
    lines += _path_notes(results)
    lines += _registration_notes(results)
    for run in results.runs:
        if run.phase == MIXED and not run.failed:
            before, after = run.mailbox
            lines.append(
                f"Phase: {run.arm}, run {run.repetition}: the mailbox moved from {before:.2f} to"
                f" {after:.2f} us, in the last of {run.attempts} attempts too."
            )
    lines += load.notes([run.others for run in results.runs])
    if results.interrupted:
        lines.append(f"INTERRUPTED: {len(results.runs)} runs were complete.")
    return lines


def _registration_notes(results: Results) -> list[str]:
    """Where backends are compared: what the figures can tell, and what they cannot."""
    if not any(block.compares_backends() for block in blocks(results)):
        return []
    lines = [
        f"{', '.join(COUNTS)}: in one run over all sizes, of both ranks, warm-up included.",
    ]
    free = {run.transport for run in results.runs if run.arm.kind == REGX and run.transport}
    free = {name for name in free if name.partition("/")[0] in REGISTERS_FOR_FREE}
    if free:
        lines.append(
            f"Registering costs NOTHING on {', '.join(sorted(free))}: the times above show what a"
            " backend itself costs, not what it saves."
        )
        lines.append(
            "What it saves where memory is really pinned is the registrations that it avoids:"
            " compare these lines of the table."
        )
    return lines


def _path_notes(results: Results) -> list[str]:
    proven = [run for run in results.runs if run.arm.kind == REGX and run.carried]
    unproven = [run for run in (*results.runs, *results.checks) if run.problem]
    lines = []
    if proven and not unproven:
        lines.append(
            f"Path: in all {len(proven)} runs regx's report proves the path that the row names."
        )
    said = set()
    for outcome in unproven:
        note = f"Path: {outcome.arm} (?): {outcome.problem}"
        if note not in said:
            said.add(note)
            lines.append(note)
    return lines

