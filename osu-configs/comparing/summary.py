# SPDX-License-Identifier: BSD-3-Clause
"""The summary: one table of how fast regx is beside the best peer, over all benchmarks.

Above 1 regx is faster, whatever the benchmark's unit. Where a configuration has several rows of regx,
there is a mean for each of them and no table.
"""

from math import exp, log
from statistics import median

from comparing.block import Block
from comparing.columns import panels
from comparing.phase import MIXED
from comparing.result import PEER, REGX, Arm
from comparing.size import show

GROUPS_MIN = 3  # of fewer, the tables themselves say it
SAME = 0.05  # as fast, for counting wins and losses


def speed(block: Block, arm: Arm, size: int) -> tuple[float, float, float] | None:
    """The ratio of the medians, and the least and the most that two runs of one repetition give."""
    peer = block.best_arm(PEER, size)
    if peer is None or block.phase == MIXED or not block.values(arm, size):
        return None

    def by_repetition(of: Arm) -> dict[int, float]:
        runs = (run for run in block.runs if run.arm == of and size in run.values)
        return {run.repetition: run.values[size] for run in runs}

    def ratio(own: float, other: float) -> float:
        return other / own if block.lower_is_better else own / other

    own, others = by_repetition(arm), by_repetition(peer)
    pairs = [ratio(own[r], others[r]) for r in own if r in others]
    middle = ratio(median(block.values(arm, size)), median(block.values(peer, size)))
    return middle, min(pairs, default=middle), max(pairs, default=middle)


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
    lines = ["Speed beside the best peer (above 1: regx is faster), and its range from run to run:"]
    if len(of_arm) == 1:
        (pairs,) = of_arm.values()
        sizes = sorted({size for block, _ in pairs for size in block.sizes})
        columns = [column(block, arm, sizes) for block, arm in pairs]
        first = ["size", ""] + [show(size) for size in sizes] + ["mean"]
        for panel in panels(first, columns, width):
            lines += ["", *panel]
        lines.append("")
    for strategy, pairs in of_arm.items():
        found = [speed(block, arm, size) for block, arm in pairs for size in block.sizes]
        values = [value[0] for value in found if value]
        faster = sum(value > 1 + SAME for value in values)
        slower = sum(value < 1 - SAME for value in values)
        lines.append(
            f"regx {strategy}: geometric mean {geometric_mean(values):.2f} of {len(values)} cells;"
            f" {faster} faster and {slower} slower by more than {100 * SAME:.0f} %."
        )
    return lines


def column(block: Block, arm: Arm, sizes: list[int]) -> list[str]:
    details = [block.group.buffers] if block.group.buffers != "same" else []
    details += [f"{block.group.ranks} ranks"] if block.group.ranks != 2 else []
    found = {size: speed(block, arm, size) for size in sizes}
    cells = [
        f"{value[0]:.2f} ({value[1]:.2f}-{value[2]:.2f})" if (value := found[size]) else ""
        for size in sizes
    ]
    values = [value[0] for value in found.values() if value]
    return [block.name(), ", ".join(details), *cells, f"{geometric_mean(values):.2f}"]
