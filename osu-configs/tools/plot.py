# SPDX-License-Identifier: BSD-3-Clause
"""The plot: above the figures themselves, below their ratio to the best peer, where differences can be
seen; a column for each benchmark, choice of buffers, number of ranks, metric and phase."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend is chosen before)

from tools.sizes import show  # noqa: E402
from tools.table import GROUP, Frame, figures  # noqa: E402

COLOURS = {"regx": ("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#e377c2"),
           "peer": ("#444444", "#8c8c8c", "#b08d57", "#6b8e9e", "#9e7b8e", "#7d8f69")}
MARKERS = "osD^vP*X"


def styles(found: Frame) -> dict[str, dict]:
    """The same line for a row in all columns: regx in colours, peers greyish."""
    lines = {}
    for kind, colours in COLOURS.items():
        for at, row in enumerate(found[found.kind == kind].row.unique()):
            lines[row] = {"color": colours[at % len(colours)], "marker": MARKERS[at % len(MARKERS)],
                          "linestyle": "-" if kind == "regx" else "--", "markersize": 4.5,
                          "label": f"regx {row}" if kind == "regx" else row}  # fmt: skip
    return lines


def draw(frame: Frame, folder: Path) -> None:
    """plot.png and plot.svg, if there is anything to draw."""
    found = figures(frame)
    if found.empty:
        return
    style = styles(found)
    groups = found.groupby(GROUP, sort=False)
    figure, grid = pyplot.subplots(2, len(groups), figsize=(6.6 * len(groups), 8.4), squeeze=False,
                                   gridspec_kw={"height_ratios": (3, 2)})  # fmt: skip
    for (place, group), above, below in zip(groups, *grid):
        benchmark, buffers, ranks, metric, phase = place
        lower = group.lower.iloc[0]
        above.set_title(f"{benchmark} {metric}, {buffers} buffers, {ranks:.0f} ranks, {phase}", fontsize=11)
        above.set_ylabel(f"{group.unit.iloc[0]}, {'lower' if lower else 'higher'} is better")
        below.set_ylabel(f"best peer = 1, {'lower' if lower else 'higher'} is better")
        for row, line in group.sort_values("size").groupby("row", sort=False):
            above.plot(line["size"], line["median"], **style[row])
            above.fill_between(line["size"], line["min"], line["max"], color=style[row]["color"],
                               alpha=0.15, linewidth=0)  # fmt: skip
            if line.kind.iloc[0] == "regx" and line.ratio.notna().any():
                below.plot(line["size"], line.ratio, **style[row])
        reference = group.groupby("size").reference.median().dropna()
        if len(reference):
            above.plot(reference.index, reference, ":k", label="reference: without MPI")
        below.axhline(1, color="black", linewidth=1)
        below.set_ylim(0, min(max(2, 1.1 * group[group.kind == "regx"].ratio.max()), 4))
        above.set_yscale("log" if lower else "linear")
        _sizes_axis([above, below], sorted(group["size"].unique()))
    labels: dict[str, Any] = {}
    for axes in grid[0]:
        labels |= dict(zip(*reversed(axes.get_legend_handles_labels())))
    figure.tight_layout()
    figure.legend(labels.values(), labels.keys(), title="\n".join(frame.about.unique()), ncol=5,
                  loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)  # fmt: skip
    figure.savefig(folder / "plot.png", dpi=130, bbox_inches="tight")
    figure.savefig(folder / "plot.svg", bbox_inches="tight")


def _sizes_axis(both: list[Any], sizes: list[float]) -> None:
    for axes in both:
        axes.set_xscale("log", base=2)
        step = 1 if len(sizes) <= 10 else 2
        axes.set_xticks(sizes[::step], [show(size) for size in sizes[::step]], rotation=45, ha="right")
        axes.minorticks_off()
        axes.grid(True, color="#dddddd", linewidth=0.7)
