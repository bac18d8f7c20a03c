# SPDX-License-Identifier: BSD-3-Clause
"""One block of the table: medians with min-max per size and arm, and the ratio to the best peer.

It is of one benchmark, choice of buffers, number of ranks, metric and phase: only runs of one phase
are ever set in relation to one another.
"""

from dataclasses import dataclass
from statistics import median

from comparing.columns import MISSING, number, panels
from comparing.paging import FOR_WANT, NAMES
from comparing.path import COUNTS
from comparing.phase import MIXED, PHASES, UNMEASURED
from comparing.result import CAME_BACK, PEER, REFERENCE, REGX, Arm, Group, Results, Run
from comparing.size import show

WIDE_FROM = 0.2  # of the median: a spread from run to run that is said


@dataclass
class Block:
    """The runs of one group, one metric and one phase."""

    results: Results
    group: Group
    metric: str
    phase: str
    runs: list[Run]

    def __post_init__(self) -> None:
        self.unit = self.runs[0].unit
        self.lower_is_better = self.unit == "us"
        compared = [run for run in self.runs if run.arm.kind != REFERENCE]
        self.sizes = sorted({size for run in compared for size in run.values})
        self.arms = [arm for arm in self.results.arms if arm.group == self.group]

    def values(self, arm: Arm, size: int) -> list[float]:
        return [run.values[size] for run in self.runs if run.arm == arm and size in run.values]

    def best_arm(self, kind: str, size: int) -> Arm | None:
        """The one with the best median among the arms of a kind."""
        arms = [arm for arm in self.arms if arm.kind == kind and self.values(arm, size)]
        pick = min if self.lower_is_better else max
        return pick(arms, key=lambda arm: median(self.values(arm, size)), default=None)

    def best(self, kind: str, size: int) -> float | None:
        arm = self.best_arm(kind, size)
        return median(self.values(arm, size)) if arm else None

    def ratio(self, arm: Arm, size: int) -> float | None:
        """To the best peer. None where a run saw two phases: that is no measurement."""
        values, best = self.values(arm, size), self.best(PEER, size)
        if not values or best is None or self.phase == MIXED:
            return None
        return median(values) / best

    def is_told_apart(self, arm: Arm, size: int) -> bool:
        """Whether the arm's range and the best peer's have nothing in common."""
        peer = self.best_arm(PEER, size)
        own, others = self.values(arm, size), self.values(peer, size) if peer else []
        if not own or not others:
            return True
        return max(own) < min(others) or min(own) > max(others)

    def spread(self, arm: Arm, size: int) -> float:
        """From the least to the most, of the median; 0 of a single run."""
        values = self.values(arm, size)
        return (max(values) - min(values)) / median(values) if len(values) > 1 else 0.0

    def percent_of_reference(self, size: int) -> float | None:
        """What regx's best arm reaches of the reference runs that were made beside its own."""
        best = self.best_arm(REGX, size)
        if best is None or self.phase == MIXED:
            return None
        beside = {
            run.repetition: run.values[size]
            for run in self.runs
            if run.arm.kind == REFERENCE and size in run.values
            and run.beside in ("", best.strategy)
        }  # fmt: skip
        ratios = [
            beside[run.repetition] / run.values[size]
            for run in self.runs
            if run.arm == best and size in run.values and run.repetition in beside
        ]
        if not ratios:
            return None
        return 100 * (median(ratios) if self.lower_is_better else 1 / median(ratios))

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
        details = [f"{self.group.buffers} buffers"] if self.group.buffers != "same" else []
        details += [f"{self.group.ranks} ranks"] if self.group.ranks != 2 else []
        # Beside these, the benchmark's own defaults: so many iterations, and so many before them.
        details += sorted({f"options {run.options}" for run in self.runs if run.options})
        details += [phase, self.number_of_runs()]
        return f"{self.name()}, {self.unit}, {better} is better ({', '.join(details)})"

    def number_of_runs(self) -> str:
        """What each median is of: fewer than the repetitions, where the phase changed among them."""
        arms = [arm for arm in self.arms if arm.kind != REFERENCE]
        counts = {len(self.values(arm, size)) for arm in arms for size in self.sizes} - {0}
        least, most = min(counts), max(counts)
        return f"{least} run{'s' * (least != 1)}" if least == most else f"{least} to {most} runs"

    def name(self) -> str:
        usual = self.metric in ("latency", "bandwidth")
        return self.group.benchmark + ("" if usual else f" {self.metric}")

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
            text += f" {ratio:.2f}x" + ("" if self.is_told_apart(arm, size) else "~")
        elif arm.kind == PEER and self.ratio(arm, size) == 1:
            text += " *"
        elif arm.kind == REFERENCE and (percent := self.percent_of_reference(size)) is not None:
            text += f" {percent:.0f}%"
        if self.unproven(arm):
            text += " ?"
        spread = f"{number(min(values))}-{number(max(values))}" if len(values) > 1 else ""
        return text, spread + ("!" if self.is_wide(arm, size) else "")

    def is_wide(self, arm: Arm, size: int) -> bool:
        return arm.kind != REFERENCE and self.spread(arm, size) > WIDE_FROM

    def unproven(self, arm: Arm) -> bool:
        return any(run.arm == arm and run.problem for run in self.runs)

    def counts(self, arm: Arm, name: str) -> str:
        """The median over the runs, of both ranks and all sizes together."""
        found = [run.counts[name] for run in self.runs if run.arm == arm and name in run.counts]
        return f"{median(found):.0f}" if found else MISSING

    def compares_backends(self) -> bool:
        return len({run.backend for run in self.runs if run.arm.kind == REGX}) > 1

    def has_paged(self) -> bool:
        """Whether the node's memory was too little for some run."""
        return any(run.counts.get(name) for run in self.runs for name in FOR_WANT)

    def render(self, width: int) -> list[str]:
        first = ["size"] + [line for size in self.sizes for line in (show(size), "")]
        columns = [
            [self.header(arm)] + [line for size in self.sizes for line in self.cell(arm, size)]
            for arm in self.arms
        ]
        names = COUNTS if self.compares_backends() else ()
        names += (CAME_BACK,) if any(CAME_BACK in run.counts for run in self.runs) else ()
        names += tuple(NAMES.values()) if self.has_paged() else ()
        first += names
        for column, arm in zip(columns, self.arms):
            column += [self.counts(arm, name) for name in names]
        lines = [self.title()]
        for panel in panels(first, columns, width):
            lines += [""] + [line for line in panel if line]
        return lines


def blocks(results: Results) -> list[Block]:
    found = []
    for group in results.groups():
        of_group = [run for run in results.runs if run.arm.group == group and run.values]
        for metric in dict.fromkeys(run.metric for run in of_group):
            for phase in PHASES:
                runs = [run for run in of_group if (run.metric, run.phase) == (metric, phase)]
                if any(run.arm.kind != REFERENCE for run in runs):
                    found.append(Block(results, group, metric, phase, runs))
    return found
