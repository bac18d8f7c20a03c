# SPDX-License-Identifier: BSD-3-Clause
"""The table: for each row, instructions by metric; below, what was counted with what."""

from comparing.columns import MISSING, panels
from comparing.environment import identity_line
from profiling.count import BATCHES, METRICS, SIZE, Count

WIDTH = 160


def render(counts: list[Count], about: dict[str, str]) -> str:
    """about: as identity() says it."""
    arms = list(dict.fromkeys(count.arm for count in counts))
    by_place = {(count.arm, count.metric): count for count in counts}
    columns = []
    for metric in METRICS:
        column = [f"{metric.title}, lowest"], ["mean"]
        for arm in arms:
            for lines, text in zip(column, cells(by_place.get((arm, metric.name)))):
                lines.append(text)
        columns += column
    lines = [f"Instructions of one process, {SIZE}-byte messages between two ranks of a node.", ""]
    lines += panels([""] + [arm.ljust(max(map(len, arms))) for arm in arms], columns, WIDTH)[0]
    lines.append("")
    for count in counts:
        what = count.failed or count.problem
        if what:
            mark = "FAILED" if count.failed else "Path (?)"
            lines.append(f"{mark}: {count.arm}, {count.metric}: {what}")
    lines += [
        f"The lowest and the mean of {BATCHES} batches of messages; the lowest has no noise. All of"
        " a batch have been sent before",
        "the first is received. MPI_Isend: all that is done inside. Received: inside MPI_Irecv and"
        " MPI_Waitall. Idle: inside opal_progress,",
        "without the event library, which Open MPI calls by the clock.",
        "",
        identity_line(about),
    ]
    return "\n".join(lines)


def cells(count: Count | None) -> tuple[str, str]:
    if count is None or count.lowest is None or count.mean is None:
        return ("failed" if count is not None and count.failed else MISSING), ""
    return f"{count.lowest:.1f}" + (" ?" if count.problem else ""), f"{count.mean:.1f}"
