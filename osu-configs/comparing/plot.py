# SPDX-License-Identifier: BSD-3-Clause
"""The plot: python3 -m comparing.plot results.json draws plot.png and plot.svg beside it.

Above the figures themselves, below their ratio to the best peer, where differences can be seen.
It runs as a program of its own, because matplotlib may belong to another Python than compare's.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from comparing.phase import MIXED, PHASES, UNMEASURED
from comparing.result import REFERENCE, PEER, REGX
from comparing.size import show

REGX_COLOURS = ("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#e377c2")
PEER_COLOURS = ("#444444", "#8c8c8c", "#b08d57", "#6b8e9e", "#9e7b8e", "#7d8f69")
MARKERS = "osD^vP*X"
UNPROVEN = " (path not proven)"


class Panel:
    """What belongs into one pair of axes: one benchmark, choice of buffers, metric and phase."""

    def __init__(self, place: tuple, phase: str, runs: list[dict]):
        benchmark, buffers, ranks, metric = place
        buffers = "" if buffers == "same" else f", {buffers} buffers"
        buffers += "" if ranks == 2 else f", {ranks} ranks"
        buffers += "" if metric in ("latency", "bandwidth") else f", {metric}"
        self.title = f"{benchmark}{buffers}, " + (
            "phase not measured" if phase == UNMEASURED else f"{phase} phase"
        )
        self.lower_is_better = runs[0]["unit"] == "us"
        self.scale = 1.0 if self.lower_is_better else 1e-3  # MB/s to GB/s
        compared = [run for run in runs if run["arm"]["kind"] != REFERENCE]
        self.sizes = sorted({int(size) for run in compared for size in run["values"]})
        self.values: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.kinds: dict[str, str] = {}
        for run in runs:
            strategy = run["arm"]["strategy"]
            self.kinds[strategy] = run["arm"]["kind"]
            for size, value in run["values"].items():
                if int(size) in self.sizes:
                    self.values[strategy][int(size)].append(value)

    def best_peer(self, size: int) -> float | None:
        peers = [
            median(values[size])
            for strategy, values in self.values.items()
            if self.kinds[strategy] == PEER and size in values
        ]
        if not peers:
            return None
        return min(peers) if self.lower_is_better else max(peers)

    def has_peers(self) -> bool:
        return any(kind == PEER for kind in self.kinds.values())


def panels(document: dict) -> list[list[Panel | None]]:
    """A row per phase, a column per benchmark, buffers and metric; None where nothing ran."""
    runs = [run for run in document["runs"] if run["values"]]
    compared = [run for run in runs if run["arm"]["kind"] != REFERENCE]
    phases = [p for p in PHASES if p != MIXED and any(run["phase"] == p for run in compared)]
    places = list(dict.fromkeys(map(_place, compared)))

    def panel(place: tuple, phase: str) -> Panel | None:
        def belongs(run: dict) -> bool:
            return (_place(run), run["phase"]) == (place, phase)

        if not any(map(belongs, compared)):
            return None
        return Panel(place, phase, list(filter(belongs, runs)))

    return [[panel(place, phase) for place in places] for phase in phases]


def _place(run: dict) -> tuple:
    """What one column of panels is of."""
    arm = run["arm"]
    return arm["benchmark"], arm["buffers"], arm.get("ranks", 2), run["metric"]


def styles(document: dict) -> dict[str, dict]:
    """The same line for an arm in all panels: regx in colours, peers greyish, the reference dotted."""
    found: dict[str, dict] = {}
    for arm in document["arms"]:
        number = sum(style["kind"] == arm["kind"] for style in found.values())
        if arm["strategy"] in found:
            continue
        if arm["kind"] == REGX:
            colour = REGX_COLOURS[number % len(REGX_COLOURS)]
            line = {"color": colour, "linewidth": 2.0, "zorder": 3}
        elif arm["kind"] == PEER:
            line = {"color": PEER_COLOURS[number % len(PEER_COLOURS)], "linestyle": "--"}
        else:
            line = {"color": "black", "linestyle": ":"}
        if arm["kind"] != REFERENCE:
            line.update(marker=MARKERS[number % len(MARKERS)], markersize=4.5)
        name = {REGX: f"regx {arm['strategy']}", REFERENCE: "reference: two processes without MPI"}
        found[arm["strategy"]] = {
            "kind": arm["kind"],
            "label": name.get(arm["kind"], arm["strategy"]),
            "line": line,
        }
    for run in document["runs"]:
        style = found[run["arm"]["strategy"]]
        if run["problem"] is not None and not style["label"].endswith(UNPROVEN):
            style["label"] += UNPROVEN
    return found


def draw(document: dict, folder: Path) -> list[Path]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = panels(document)
    if not rows:
        return []
    style = styles(document)
    figure, grid = pyplot.subplots(
        2 * len(rows),
        len(rows[0]),
        figsize=(6.6 * len(rows[0]), 8.4 * len(rows)),
        gridspec_kw={"height_ratios": (3, 2) * len(rows)},
        squeeze=False,
    )
    handles: dict[str, object] = {}
    for number, row in enumerate(rows):
        for panel, above, below in zip(row, grid[2 * number], grid[2 * number + 1]):
            if panel is None:
                above.set_axis_off()
                below.set_axis_off()
                continue
            _absolute(panel, above, style, handles)
            _relative(panel, below, style)
            for axes in (above, below):
                _sizes_axis(panel, axes)
    in_order = [name for name in style if name in handles]
    environment = document["environment"]
    title = (
        f"regx and its peers on {environment['processor']}, Open MPI {environment['openmpi']},"
        f" {environment['date'][:10]}\nmedians, shaded from minimum to maximum"
    )
    figure.tight_layout()
    legend = figure.legend(
        [handles[name] for name in in_order],
        [style[name]["label"] for name in in_order],
        title=title,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncol=5,
        frameon=False,
    )
    legend.get_title().set_multialignment("center")
    written = [folder / "plot.png", folder / "plot.svg"]
    for file in written:
        figure.savefig(file, dpi=130, bbox_inches="tight")
    return written


def _absolute(panel: Panel, axes: Any, style: dict, handles: dict) -> None:
    for strategy, values in panel.values.items():
        sizes = sorted(values)
        line = style[strategy]["line"]
        medians = [median(values[size]) * panel.scale for size in sizes]
        (handles[strategy],) = axes.plot(sizes, medians, **line)
        low = [min(values[size]) * panel.scale for size in sizes]
        high = [max(values[size]) * panel.scale for size in sizes]
        axes.fill_between(sizes, low, high, color=line["color"], alpha=0.15, linewidth=0)
    axes.set_title(panel.title, fontsize=11)
    if panel.lower_is_better:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_ylabel("one-way time (us), lower is better")
    else:
        axes.set_ylim(bottom=0)
        axes.set_ylabel("bandwidth (GB/s), higher is better")
    axes.grid(True, which="major", color="#dddddd", linewidth=0.7)


def _relative(panel: Panel, axes: Any, style: dict) -> None:
    better = "lower" if panel.lower_is_better else "higher"
    axes.set_ylabel(f"best peer = 1, {better} is better")
    axes.grid(True, which="major", color="#dddddd", linewidth=0.7)
    if not panel.has_peers():
        axes.text(0.5, 0.5, "no peer in this phase", transform=axes.transAxes, ha="center")
        return
    axes.axhline(1, color="black", linewidth=1)
    top = 2.0
    for strategy, values in panel.values.items():
        if panel.kinds[strategy] == PEER:
            continue
        ratios = {
            size: median(values[size]) / best
            for size in sorted(values)
            if (best := panel.best_peer(size)) is not None
        }
        if panel.kinds[strategy] == REGX:
            top = max(top, 1.1 * max(ratios.values(), default=0))
        axes.plot(list(ratios), list(ratios.values()), **style[strategy]["line"])
    axes.set_ylim(0, min(top, 4))


def _sizes_axis(panel: Panel, axes: Any) -> None:
    sizes = panel.sizes
    axes.set_xscale("log", base=2)
    step = 1 if len(sizes) <= 10 else 2
    axes.set_xticks(sizes[::step], [show(size) for size in sizes[::step]], rotation=45, ha="right")
    axes.set_xlabel("message size")
    axes.minorticks_off()


def main() -> int:
    file = Path(sys.argv[1])
    try:
        written = draw(json.loads(file.read_text(encoding="utf-8")), file.parent)
    except ModuleNotFoundError as error:
        hint = "as root: apt-get install python3-matplotlib"
        print(f"no plot: {error.name} is not installed; {hint}")
        return 1
    print("plot: " + (" ".join(map(str, written)) if written else "nothing to draw"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
