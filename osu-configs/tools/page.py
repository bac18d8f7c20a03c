# SPDX-License-Identifier: BSD-3-Clause
"""The page: what was measured as one HTML file that needs no network, with its plots inside."""

import base64
from pathlib import Path
from typing import Any

import jinja2

from tools import output, screen, table
from tools.table import SAME, Frame

TEMPLATES = Path(__file__).parent


def write(frame: Frame, folder: Path, plots: list[Path], command: str) -> Path:
    """page.html: who leads, the plots, what to doubt, then tables."""
    frame = frame.assign(name=table.named(frame))
    found = screen.in_order(frame, screen.speeds(frame))
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True,
                                     undefined=jinja2.StrictUndefined, keep_trailing_newline=True)  # fmt: skip
    events = table.events(frame)
    compared = not found.empty and found.speed.notna().any()
    text = environment.get_template("page.html.j2").render(
        words=[*events, *(screen.words(found) if compared else [])] or ["There is nothing to compare with."],
        about=frame.about[frame.about != ""].unique(), command=command,
        plots=[{"name": plot.stem, "base64": base64.b64encode(plot.read_bytes()).decode()} for plot in plots],
        doubts=[*table.proof(frame), *screen.doubts(frame, found)],
        tables=[by_size(group) for _, group in screen.named_groups(found)] if len(found) else [],
        paths=paths(frame), figures=table.render(frame, 200))  # fmt: skip
    file = folder / "page.html"
    output.replace(file, text)
    return file


def by_size(group: Frame) -> dict[str, Any]:
    """A table with sizes across, each cell with a mark where regx is clearly faster or slower."""
    cells = screen.sizes_across(group)
    marks = group[group.kind.eq("regx") & group.apart & (group.speed - 1).abs().gt(SAME)]
    marked = {("regx " + line.row, screen.show(line.size_)): "faster" if line.speed > 1 else "slower"
              for line in marks.rename(columns={"size": "size_"}).itertuples()}  # fmt: skip
    return {"title": screen.title(group), "sizes": [*cells.columns],
            "rows": [(name, [(text, marked.get((name, size), "")) for size, text in line.items()])
                     for name, line in cells.iterrows()]}  # fmt: skip


def paths(frame: Frame) -> list[tuple[object, ...]]:
    """Of each row and benchmark (named in `frame`): runs, whether contents were checked, and what regx's report proves."""
    found = []
    for name, mine in frame.groupby("name", sort=False):
        runs = table.values_of(mine)
        bad = [problem for problem in mine.problem.unique() if problem]
        events = mine.metric[mine.metric.isin(["wrong data", "failed"])].unique()
        proven = "as named" if len(runs) and mine.kind.iloc[0] == "regx" else ""
        found.append((name, runs.run.nunique(), "right" if (mine.metric == "checked").any() else "",
                      ", ".join(filter(None, runs.wire.unique())), ", ".join(filter(None, runs.backend.unique())),
                      "; ".join([*events, *bad]) or proven))  # fmt: skip
    return found
