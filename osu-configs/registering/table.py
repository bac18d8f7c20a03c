# SPDX-License-Identifier: BSD-3-Clause
"""The table: per metric and subject the median, its ratio, and min-max."""

from comparing import load, phase
from comparing.columns import MISSING, number, panels
from comparing.environment import identity_line
from registering.metrics import GROUPS, SUBJECTS, Group, Metric
from registering.result import Results


def cell(results: Results, subject: str, metric: Metric) -> tuple[str, str]:
    values = results.values(subject, metric.name)
    median = results.median(subject, metric.name)
    if median is None:
        return MISSING, ""
    text = number(median)
    if (ratio := results.ratio(subject, metric)) is not None:
        text += f" {ratio:.2f}x"
    elif metric.base == subject:
        text += " *"
    spread = f"{number(min(values))}-{number(max(values))}" if len(values) > 1 else ""
    return text, spread


def render_group(results: Results, group: Group, width: int) -> list[str]:
    metrics = [m for m in group.metrics if any(results.values(s, m.name) for s in SUBJECTS)]
    if not metrics:
        return []
    titles = [f"{m.title}, {m.unit}" if m.unit else m.title for m in metrics]
    wide = max(map(len, titles))
    first = [""] + [line for title in titles for line in (title.ljust(wide), "")]
    columns = []
    for subject in results.subjects():
        column = [subject]
        for metric in metrics:
            column += cell(results, subject, metric)
        columns.append(column)
    lines = [group.title]
    for panel in panels(first, columns, width):
        lines += [""] + [line for line in panel if line]
    return lines + [""]


def query_notes(results: Results) -> list[str]:
    """What the look-up's questions to the kernel cost, in null system calls."""
    lines = []
    for name, never, what in (("notifier", "notifier-never", "the query"),
                              ("hooks+notifier", "hooks+notifier-never", "the query"),
                              ("notifier-scan", "notifier-never", "query and scan")):
        null_call, query = results.median(name, "null_call"), results.median(name, "query")
        if query is not None and null_call:
            lines.append(f"{name}: the query costs {query / null_call:.2f} null system calls.")
        calls = []
        for metric in ("hit_1", "hit_100", "hit_10000"):
            with_it, without = results.median(name, metric), results.median(never, metric)
            if with_it is not None and without is not None and null_call:
                calls.append(f"{(with_it - without) / null_call:.2f}")
        if calls:
            lines.append(f"{name}: {what} in a hit costs as much as {', '.join(calls)} null system"
                         " calls, with 1, 100, 10,000 regions and one thread.")
    if lines:
        lines.append("The query is an ioctl, and the return to the caller behind it; what else can be"
                     " asked costs more or tells less: component/registration/monitor/notifier.c.")
    return lines


def notes(results: Results) -> list[str]:
    lines = query_notes(results)
    lines += [f"{subject}: cannot be had here: {why}" for subject, why in results.missing.items()]
    lines += [f"FAILED: {subject}: {why}" for subject, why in results.failures().items()]
    lines += load.notes([run.others for run in results.runs])
    lines += phase.note([run.phase for run in results.runs])
    if results.interrupted:
        lines.append(f"INTERRUPTED: {len(results.runs)} runs were complete.")
    return lines


def render(results: Results, width: int, about: dict[str, str]) -> str:
    """about: as identity() says it."""
    lines = [line for group in GROUPS for line in render_group(results, group, width)]
    if results.runs:
        repetitions = max(run.repetition for run in results.runs)
        lines.append(
            f"Medians of up to {repetitions} runs, below them min-max.  x: relative to *, or, where"
            " there is none, to the line above that says the same of memory not registered."
        )
    return "\n".join([*lines, *notes(results), "", identity_line(about)])
