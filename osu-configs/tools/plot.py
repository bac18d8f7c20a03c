# SPDX-License-Identifier: BSD-3-Clause
"""The plots. plot-auto.png answers at a glance whether `auto` pays: its speed relative to the best of Open MPI's own
transports and of UCX, in each phase. Of each benchmark there is another one with all rows: left the speed relative to
the best peer, where differences can be seen, right the figures themselves, in the phase that most of them are of."""

from pathlib import Path
from typing import Any

import matplotlib
import numpy
import pandas

matplotlib.use("Agg")
from matplotlib import pyplot, ticker  # noqa: E402  (the backend is chosen before)
from PIL import Image  # noqa: E402  (matplotlib's own)

from tools import screen, verdict  # noqa: E402
from tools.conditions import PHASES, UNMEASURED  # noqa: E402
from tools.sizes import show  # noqa: E402
from tools.table import Frame, related  # noqa: E402

COLOURS = {"regx": ("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#e377c2"),
           "peer": ("#444444", "#8c8c8c", "#b08d57", "#6b8e9e", "#9e7b8e", "#7d8f69")}
AUTO = "auto"  # the row
OURS, OWN, UCX = "regx auto", "Open MPI's own", "UCX"  # the last two: the best of each
FAMILIES = {OWN: ("#444444", 1.2), UCX: ("#1f77b4", 1.2), OURS: ("#d62728", 2.2)}
LABEL_APART = 0.045  # of the height: labels at the ends of lines do not cover one another


def draw(frame: Frame, folder: Path) -> list[Path]:
    """plot-registration.png or plot-auto.png, then plot-BENCHMARK.png of each place that has figures."""
    speeds = screen.speeds(frame)
    if speeds.empty:
        return []
    rows = frame.drop_duplicates("row")
    colours = {row: COLOURS[kind][at % len(COLOURS[kind])] for kind in COLOURS
               for at, row in enumerate(rows.row[rows.kind == kind])}  # fmt: skip
    about = frame.about.iloc[0]
    first = [registration(speeds, folder, about)] if verdict.answers(speeds) else at_a_glance(frame, folder, about)
    return [*first,
            *(one(name, group, absolute(frame, group), colours, folder, about)
              for name, group in screen.named_groups(speeds))]  # fmt: skip


# ---- auto, at a glance


def families(frame: Frame) -> Frame:
    """By place, phase and size: `auto`, the best row of Open MPI's own transports and the best of UCX's, each with
    its speed relative to the best of Open MPI's own, above 1 where it is faster, and the interval of that speed; where
    both `auto` and a transport of Open MPI's were measured."""
    found = related(screen.in_a_phase(frame), [*screen.PLACE, "phase"])
    found["family"] = numpy.where(found.kind == "regx", found.row.map({AUTO: OURS}),
                                  numpy.where(found.row.str.startswith("ucx"), UCX, OWN))  # fmt: skip
    keys = [*screen.PLACE, "phase", "size"]
    found = found.dropna(subset=["family"])
    # A peer with too few runs to be the best stands for its family only where that has no other.
    found = found[~found.few | found.groupby([*keys, "family"]).few.transform("all")]
    found = found.sort_values("order").drop_duplicates([*keys, "family"])
    base = found[found.family == OWN][[*keys, "median"]]
    found = found.merge(base, on=keys, suffixes=("", "_own"))
    for speed, value in (("speed", "median"), ("slowest", "high"), ("fastest", "low")):
        found[speed] = (found.median_own / found[value]).where(found.lower, found[value] / found.median_own)
    both = found.groupby([*screen.PLACE, "phase"]).family.transform(lambda names: {OURS, OWN} <= {*names})
    return found[both.astype(bool)]


def at_a_glance(frame: Frame, folder: Path, about: str) -> list[Path]:
    """A panel for each phase and benchmark of families."""
    found = families(frame)
    if found.empty:
        return []
    measured = pandas.MultiIndex.from_frame(found[screen.PLACE])
    places = [place for place in frame[screen.PLACE].drop_duplicates().itertuples(index=False, name=None)
              if place in measured]  # fmt: skip
    phases = [phase for phase in PHASES if (found.phase == phase).any()]
    panels = [(place, phase) for place in places for phase in phases]
    columns = len(phases) if len(phases) > 1 else min(2, len(places))  # a phase has its column; one alone has two
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(rows, columns, squeeze=False, sharex=True, sharey=True,
                                   figsize=(6.2 * columns + 0.6, 2.7 * rows + 0.9))  # fmt: skip
    spots = list(axes.flat)
    ends = []
    for axis, (place, phase) in zip(spots, panels):
        mine = found[measured.isin([place])]
        ends.append((axis, panel(axis, mine[mine.phase == phase])))
        cores = "" if phase == UNMEASURED else f", {phase} cores"
        axis.set_title(f"{screen.named_groups(mine)[0][0]}{cores}", fontsize=10)
    for axis in spots[len(panels):]:
        axis.set_visible(False)
    for axis, of_axis in ends:  # when all lines are drawn: the panels share their scale
        label(axis, of_axis)
    sizes_axis(spots, sorted(found["size"].unique()))
    figure.supylabel("speed relative to the best of Open MPI's own; above 1 is faster", fontsize=9, x=0.004)
    figure.text(0.01, 0.005, about, fontsize=7, color="#666666")
    figure.tight_layout(rect=(0.01, 0.02, 1, 1))
    return [saved(figure, folder / "plot-auto.png")]


def panel(axes: Any, found: Frame) -> list[tuple[float, str, str]]:
    """Draws the lines, and answers where each ends, its name and its colour."""
    axes.set_visible(not found.empty)
    ends = []
    for family, (colour, width) in FAMILIES.items():
        line = found[found.family == family].sort_values("size")
        if line.empty:
            continue
        axes.plot(line["size"], line.speed, color=colour, linewidth=width)
        axes.fill_between(line["size"], line.slowest, line.fastest, color=colour, alpha=0.18, linewidth=0)
        ends.append((line.speed.iloc[-1], family, colour))
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_locator(ticker.LogLocator(base=2, subs=(1, 2**0.5)))
    axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%.2g"))
    return ends


# ---- whether registering pays


def registration(speeds: Frame, folder: Path, about: str) -> Path:
    """plot-registration.png: for each kind of buffers the speed relative to bounce of a cache, a pipeline and the
    others, at the dearest cost that was measured."""
    found = speeds[(speeds.metric == "latency") & (speeds.pin_cost == speeds.pin_cost.iloc[-1])]
    found = found if len(found) else speeds[speeds.pin_cost == speeds.pin_cost.iloc[-1]]
    cost = speeds.pin_cost.iloc[-1]
    kinds = list(dict.fromkeys(found.buffers))
    figure, axes = pyplot.subplots(1, len(kinds), figsize=(3.6 * len(kinds), 4.2), sharey=True, squeeze=False)
    of_panel = []
    for panel, buffers in zip(axes[0], kinds):
        rows = found[found.buffers == buffers]
        ends: list[tuple[float, str, str]] = [(1.0, "bounce", "#444444")]
        panel.axhline(1, color="#444444", linewidth=2)
        for (text, choose), colour in zip(verdict.LINES.items(), COLOURS["regx"]):
            line = verdict.beside(choose(rows), verdict.strategy(rows, "bounce"))
            if line.empty:
                continue
            panel.plot(line.index, line.speed, color=colour, marker="o", markersize=4, linewidth=2)
            panel.fill_between(line.index, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
            ends.append((line.speed.iloc[-1], text, colour))
        panel.set_title(f"{verdict.called(buffers)}:\n{verdict.winner(rows)}", fontsize=11, fontweight="bold")
        panel.set_xlim(found["size"].min() / 1.1, found["size"].max() * 1.1)
        panel.set_yscale("log", base=2)
        panel.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        of_panel.append((panel, ends))
    for panel, ends in of_panel:  # when all lines are drawn: the panels share their scale
        label(panel, ends)
    axes[0][0].set_ylabel("speed relative to bounce; above 1 registering pays")
    sizes_axis(list(axes[0]), sorted(found["size"].unique()))
    figure.suptitle(f"What is the fastest way, by what becomes of the buffer? One message at a time over pinned, pin cost {cost}")
    figure.text(0.01, 0.005, about, fontsize=7, color="#666666")
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    return saved(figure, folder / "plot-registration.png")


def saved(figure: Any, file: Path) -> Path:
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
    Image.open(file).quantize(64).save(file, optimize=True)  # a quarter of the bytes, for READMEs
    return file


# ---- all rows of a benchmark


def absolute(frame: Frame, group: Frame) -> Frame:
    """The figures of that place in its most frequent phase."""
    values = screen.in_a_phase(frame)
    for key in screen.PLACE:
        values = values[values[key] == group[key].iloc[0]]
    return related(values[values.phase == values.phase.mode()[0]], screen.PLACE)


def one(name: str, speeds: Frame, found: Frame, colours: dict[str, str], folder: Path, about: str) -> Path:
    """Peers with too few runs to be the best are not drawn: one might stand above the line of the best."""
    speeds, found = speeds[~speeds.few], found[~found.few]
    compared = bool(speeds.speed.notna().any())
    figure, axes = pyplot.subplots(1, 1 + compared, figsize=(13, 5.2), squeeze=False,
                                   gridspec_kw={"width_ratios": (3, 2)[-1 - compared:]})  # fmt: skip
    right = axes[0][-1]
    if compared:
        beside(axes[0][0], speeds, colours)
    for (row, kind), line in found.groupby(["row", "kind"], sort=False):
        line = line.sort_values("size")
        right.plot(line["size"], line["median"], color=colours[row], linewidth=2 if kind == "regx" else 1,
                   linestyle="-" if kind == "regx" else "--")  # fmt: skip
        right.fill_between(line["size"], line["low"], line["high"], color=colours[row], alpha=0.15, linewidth=0)
    reference = found.groupby("size").reference.median().dropna()
    if len(reference):
        right.plot(reference.index, reference, ":k", label="reference: two processes without MPI")
        right.legend(frameon=False)
    lower = found.lower.iloc[0]
    right.set_yscale("log" if lower else "linear")
    right.set_title(f"{found.unit.iloc[0]}, {'lower' if lower else 'higher'} is better")
    if not compared:
        label(right, [(line["median"].iloc[-1], f"regx {row}", colours[row])
                      for row, line in found.sort_values("size").groupby("row")])  # fmt: skip
    figure.suptitle(name)
    sizes_axis(list(axes[0]), sorted(speeds["size"].unique()))
    figure.text(0.01, 0.005, about, fontsize=7, color="#666666")
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    file = folder / f"plot-{name.replace(' ', '-').replace('(', '').replace(')', '').replace(':', '-')}.png"
    return saved(figure, file)


def beside(axes: Any, speeds: Frame, colours: dict[str, str]) -> None:
    """The speeds relative to the best peer."""
    ends: list[tuple[float, str, str]] = []
    for (row, kind), line in speeds.groupby(["row", "kind"], sort=False):
        line = line.dropna(subset=["speed"]).sort_values("size")
        if line.empty:
            continue
        ours = kind == "regx"
        axes.plot(line["size"], line.speed, color=colours[row], marker="o" if ours else None, markersize=4,
                  linewidth=2 if ours else 1, linestyle="-" if ours else "--")  # fmt: skip
        ends.append((line.speed.iloc[-1], f"regx {row}" if ours else row, colours[row]))
    axes.axhline(1, color="black", linewidth=1)
    axes.set_yscale("log", base=2)
    axes.set_ylim(max(speeds.speed.min() / 1.15, 1 / 8), max(1.15 * speeds.speed.max(), 2))
    axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.set_title("speed, best peer = 1, higher is better")
    label(axes, ends)


def label(axes: Any, ends: list[tuple[float, str, str]]) -> None:
    """The rows' names, right of their lines' ends, moved up where they would cover one another."""
    axes.autoscale_view()  # matplotlib would only when it draws
    at = 0.0
    for value, text, colour in sorted(ends):
        place = axes.transAxes.inverted().transform(axes.transData.transform((1, value)))[1]
        at = max(place, at + LABEL_APART)
        axes.text(1.01, at, text, transform=axes.transAxes, color=colour, va="center", fontsize=9)


def sizes_axis(both: list[Any], sizes: list[float]) -> None:
    for axes in both:
        axes.set_xscale("log", base=2)
        step = 1 if len(sizes) <= 10 else 2
        axes.set_xticks(sizes[::step], [show(size) for size in sizes[::step]], rotation=45, ha="right")
        axes.minorticks_off()
        axes.grid(True, color="#dddddd", linewidth=0.7)
