# SPDX-License-Identifier: BSD-3-Clause
"""The summary: one table of how fast regx is beside the best peer, over all benchmarks.

Above 1 regx is faster, whatever the benchmark's unit. Where a configuration has several rows of regx,
there is a mean for each of them and no table.
"""

from dataclasses import dataclass
from math import exp, log
from statistics import median

from comparing.block import Block
from comparing.columns import panels
from comparing.phase import MIXED
from comparing.result import PEER, REGX, Arm
from comparing.size import show

GROUPS_MIN = 3  # of fewer, the tables themselves say it
SAME = 0.05  # as fast, for counting wins and losses


@dataclass(frozen=True)
class Speed:
    """Beside the best peer: the median of the ratios within each repetition, whose runs were made
    one after the other, and their range."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f}-{self.most:.2f})"


def speed(block: Block, arm: Arm, size: int) -> Speed | None:
    peer = block.best_arm(PEER, size)
    if peer is None or block.phase == MIXED:
        return None

    def by_repetition(of: Arm) -> dict[int, float]:
        runs = (run for run in block.runs if run.arm == of and size in run.values)
        return {run.repetition: run.values[size] for run in runs}

    own, others = by_repetition(arm), by_repetition(peer)
    ratios = [
        others[repetition] / value if block.lower_is_better else value / others[repetition]
        for repetition, value in own.items()
        if repetition in others
    ]
    return Speed(median(ratios), min(ratios), max(ratios)) if ratios else None


def geometric_mean(values: list[float]) -> float:
    return exp(sum(map(log, values)) / len(values))


def render(blocks: list[Block], width: int) -> list[str]:
    of_arm: dict[str, list[tuple[Block, Arm]]] = {}
    for block in blocks:
        for arm in block.arms:
            if arm.kind == REGX and any(speed(block, arm, size) for size in block.sizes):
                of_arm.setdefault(arm.strategy, []).append((block, arm))
    if len({block.group for block in blocks}) < GROUPS_MIN or not of_arm:
        return []
    lines = ["Speed beside the best peer (above 1: regx is faster): the median of the ratios within"
             " each repetition, and their range."]  # fmt: skip
    if len(of_arm) == 1:
        (pairs,) = of_arm.values()
        sizes = sorted({size for block, _ in pairs for size in block.sizes})
        with_phase = len({block.phase for block, _ in pairs}) > 1
        columns = [column(block, arm, sizes, with_phase) for block, arm in pairs]
        first = ["size", ""] + [show(size) for size in sizes] + ["mean"]
        for panel in panels(first, columns, width):
            lines += ["", *panel]
        lines.append("")
    for strategy, pairs in of_arm.items():
        found = [speed(block, arm, size) for block, arm in pairs for size in block.sizes]
        values = [value.median for value in found if value]
        faster = sum(value > 1 + SAME for value in values)
        slower = sum(value < 1 - SAME for value in values)
        lines.append(
            f"regx {strategy}: geometric mean {geometric_mean(values):.2f} of {len(values)} cells;"
            f" {faster} faster and {slower} slower by more than {100 * SAME:.0f} %."
        )
    return lines


def column(block: Block, arm: Arm, sizes: list[int], with_phase: bool) -> list[str]:
    details = [block.group.buffers] if block.group.buffers != "same" else []
    details += [f"{block.group.ranks} ranks"] if block.group.ranks != 2 else []
    details += [block.phase] if with_phase else []
    found = {size: speed(block, arm, size) for size in sizes}
    cells = [str(value) if (value := found[size]) else "" for size in sizes]
    values = [value.median for value in found.values() if value]
    return [block.name(), ", ".join(details), *cells, f"{geometric_mean(values):.2f}"]
