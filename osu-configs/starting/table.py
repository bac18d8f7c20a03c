# SPDX-License-Identifier: BSD-3-Clause
"""The table: for each number of ranks a block, a line per row; below, what was measured with what."""

from statistics import median

from comparing import phase
from comparing.columns import MISSING, number, panels
from comparing.environment import identity_line
from starting.measure import METRICS, Start

WIDTH = 160
TITLES = {
    "init_ms": "MPI_Init, ms",
    "finalize_ms": "MPI_Finalize, ms",
    "both_ms": "both, ms",
    "pss_mib": "PSS per rank, MiB",
}


def render(starts: list[Start], about: dict[str, str]) -> str:
    """about: as identity() says it."""
    lines = ["The begin and the end of a job; times of the slowest rank, memory of a rank on average."]
    for ranks in dict.fromkeys(start.ranks for start in starts):
        block = [start for start in starts if start.ranks == ranks]
        first = [f"{ranks} ranks", *(start.arm for start in block)]
        columns = [[TITLES[m], *(cell(start, m) for start in block)] for m in METRICS]
        wide = max(map(len, first))
        lines += ["", *panels([text.ljust(wide) for text in first], columns, WIDTH)[0]]
    lines.append("")
    for start in starts:
        what = start.failed or start.problem
        if what:
            mark = "FAILED" if start.failed else "Path (?)"
            lines.append(f"{mark}: {start.arm}, {start.ranks} ranks: {what}")
    jobs = max((len(start.jobs) for start in starts), default=0)
    lines += [
        f"Medians of up to {jobs} interleaved jobs (min-max). MPI_Init counts from the begin of main."
        " PSS is read by all ranks",
        "between two barriers, and shares a page among all processes that map it.",
        *phase.note([job.phase for start in starts for job in start.jobs]),
        "",
        identity_line(about),
    ]
    return "\n".join(lines)


def cell(start: Start, metric: str) -> str:
    if not start.jobs:
        return "failed" if start.failed else MISSING
    values = start.values(metric)
    mark = " ?" if start.problem else ""
    return f"{number(median(values))} ({number(min(values))}-{number(max(values))}){mark}"
