# SPDX-License-Identifier: BSD-3-Clause
"""The page: what was measured as one HTML file that needs no network, with a plot of each pattern inside: the speed of
each row of regx beside the best peer, its interval, and the rounds as points behind it."""

import base64
from pathlib import Path
from typing import Any

import jinja2
import matplotlib
import numpy

matplotlib.use("Agg")
from matplotlib import pyplot, ticker  # noqa: E402  (the backend is chosen before)
from PIL import Image  # noqa: E402  (matplotlib's own)

from tools import judge, output, screen  # noqa: E402
from tools.judge import DIFFERENT, PLACE, Frame  # noqa: E402
from tools.sizes import show  # noqa: E402

TEMPLATES = Path(__file__).parent
COLOURS = ("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#e377c2", "#8c564b", "#7f7f7f", "#bcbd22")
POINTS = 40  # rounds that are drawn of a cell
LABEL_APART = 0.045  # of the height: labels at the ends of lines do not cover one another


def write(frame: Frame, folder: Path, command: str) -> None:
    """page.html, and its plots as files of their own."""
    found = judge.judged(judge.values_of(frame))
    groups = [group for _, group in found.groupby([*PLACE, "phase"], sort=False)] if len(found) else []
    groups = [group for group in groups if group.kind.eq("regx").any() and group.speed.notna().any()]
    rows = list(dict.fromkeys(row for group in groups for row in group.row[group.kind.eq("regx")]))
    colours = {row: COLOURS[at % len(COLOURS)] for at, row in enumerate(rows)}
    plots = [draw(group, colours, folder) for group in groups]
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True,
                                     undefined=jinja2.StrictUndefined, keep_trailing_newline=True)  # fmt: skip
    first = judge.main_phase(found)
    text = environment.get_template("page.html.j2").render(
        words=[*screen.failures(frame), *(screen.words(first) if len(first) else [])] or ["Nothing was measured."],
        losses=screen.losses(first) if len(first) else [], about=screen.texts(frame, "about"), command=command,
        plots=[{"name": plot.stem, "base64": base64.b64encode(plot.read_bytes()).decode()} for plot in plots],
        tables=[table(group) for group in groups], figures=screen.render(frame, 200, details=True))  # fmt: skip
    output.replace(folder / "page.html", text)


def table(group: Frame) -> dict[str, Any]:
    """Sizes across, each cell with its interval, and a mark where regx is faster or slower."""
    cells = screen.sizes_across(group)
    told = {(screen.named(line), show(line["size"])): (line.verdict if line.verdict in DIFFERENT else "", screen.interval(line))
            for _, line in group.iterrows() if line.kind == "regx"}  # fmt: skip
    return {"title": screen.titled(group.iloc[0]) + screen.phase_name(group.iloc[0]), "sizes": [*cells.columns],
            "rows": [(name, [(text, *told.get((name, size), ("", ""))) for size, text in line.items()])
                     for name, line in cells.iterrows()]}  # fmt: skip


def draw(group: Frame, colours: dict[str, str], folder: Path) -> Path:
    figure, axes = pyplot.subplots(figsize=(10, 4.6))
    ends = []
    ours = group[group.kind.eq("regx") & group.speed.notna()]
    for at, (row, line) in enumerate(ours.groupby("row", sort=False)):
        line = line.sort_values("size")
        x = line["size"] * 2 ** (0.12 * (at - 0.5 * (ours.row.nunique() - 1)))  # beside one another
        for place, points in zip(x, line.points):
            some = points[:: max(1, len(points) // POINTS)]
            axes.plot(numpy.full(len(some), place), some, ".", color=colours[str(row)], alpha=0.18, markersize=4)
        axes.plot(x, line.speed, color=colours[str(row)], linewidth=1.2)
        axes.errorbar(x, line.speed, [(line.speed - line.low).clip(lower=0).fillna(0), (line.high - line.speed).clip(lower=0).fillna(0)],
                      fmt="o", color=colours[str(row)], markersize=4, capsize=3, linewidth=1.6)
        ends.append((float(line.speed.iloc[-1]), f"regx {row}", colours[str(row)]))
    axes.axhline(1, color="black", linewidth=1)
    axes.axhspan(1 - judge.LEVEL, 1 + judge.LEVEL, color="#eeeeee", zorder=0)
    axes.set_yscale("log", base=2)
    speeds = numpy.concatenate([ours.speed, ours.low.dropna(), ours.high.dropna()])
    axes.set_ylim(max(speeds.min() / 1.15, 1 / 8), min(max(1.15 * speeds.max(), 1.3), 8))
    axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%.2g"))
    axes.set_xscale("log", base=2)
    sizes = sorted(ours["size"].unique())
    axes.set_xticks(sizes, [show(size) for size in sizes], rotation=45, ha="right")
    axes.minorticks_off()
    axes.grid(True, color="#dddddd", linewidth=0.7)
    axes.set_ylabel("speed, best peer = 1")
    axes.set_title(screen.titled(ours.iloc[0]) + screen.phase_name(ours.iloc[0]))
    at_height = 0.0
    for value, text, colour in sorted(ends):
        place = axes.transAxes.inverted().transform(axes.transData.transform((1, value)))[1]
        at_height = max(place, at_height + LABEL_APART)
        axes.text(1.01, at_height, text, transform=axes.transAxes, color=colour, va="center", fontsize=9)
    figure.tight_layout()
    name = "-".join(filter(str.isalnum, f"{screen.titled(ours.iloc[0])} {ours.phase.iloc[0] + 1:.0f}".replace(",", "").split()))
    file = folder / f"plot-{name}.png"
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
    Image.open(file).quantize(64).save(file, optimize=True)  # a quarter of the bytes
    return file
