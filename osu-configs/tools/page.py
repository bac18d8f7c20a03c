# SPDX-License-Identifier: BSD-3-Clause
"""The page: what was measured as one HTML file that needs no network, with its plots inside."""

import base64
import html
from pathlib import Path

from tools import output, screen, table
from tools.table import Frame

STYLE = """body { font: 15px/1.5 sans-serif; margin: 2em auto; max-width: 1200px; padding: 0 1em }
pre { background: #f4f4f4; padding: 1em; overflow-x: auto; font-size: 12px; line-height: 1.35 }
img { max-width: 100% } th, td { text-align: left; padding: 0.1em 1em 0.1em 0; vertical-align: top }"""


def write(frame: Frame, folder: Path, plots: list[Path], command: str) -> Path:
    def text(value: object) -> str:
        return html.escape(str(value))

    images = "".join(f'<p><img alt="{text(plot.stem)}" src="data:image/png;base64,'
                     f'{base64.b64encode(plot.read_bytes()).decode()}"></p>\n' for plot in plots)  # fmt: skip
    rows = "".join("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in line) + "</tr>\n" for line in paths(frame))
    file = folder / "page.html"
    output.replace(file, f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>regx compare</title><style>{STYLE}</style></head><body>
<h1>regx compare</h1>
<p>{"<br>".join(map(text, frame.about[frame.about != ""].unique()))}</p>
<pre>{text(command)}</pre>
<pre>{text(screen.render(frame))}</pre>
{images}<h2>What each row ran on</h2>
<table><tr><th>row</th><th>runs</th><th>content</th><th>wire</th><th>backend</th><th>path</th></tr>
{rows}</table>
<h2>All figures</h2>
<pre>{text(table.render(frame, 200))}</pre>
</body></html>
""")
    return file


def paths(frame: Frame) -> list[tuple[object, ...]]:
    """Of each row and benchmark: runs, whether contents were checked, and what regx's report proves."""
    found = []
    for name, mine in frame.assign(name=table.named(frame)).groupby("name", sort=False):
        runs = table.values_of(mine)
        bad = [problem for problem in mine.problem.unique() if problem]
        events = mine.metric[mine.metric.isin(["wrong data", "failed"])].unique()
        proven = "as named" if len(runs) and mine.kind.iloc[0] == "regx" else ""
        found.append((name, runs.run.nunique(), "right" if (mine.metric == "checked").any() else "",
                      ", ".join(filter(None, runs.wire.unique())), ", ".join(filter(None, runs.backend.unique())),
                      "; ".join([*events, *bad]) or proven))  # fmt: skip
    return found
