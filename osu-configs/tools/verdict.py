# SPDX-License-Identifier: BSD-3-Clause
"""When does a cache of registrations pay, when does a pipeline, when does bounce? In words and as a table, of rows
that are called STRATEGY or STRATEGY-BACKEND and go over a device whose registrations cost something."""

import re

import pandas

from tools.sizes import show
from tools.table import SAME, Frame, have_medians_apart

KEEPS_NOTHING = ("bounce", "none")
BUFFERS = {"same": "the same buffer", "fresh": "a new buffer each time", "rotate": "in turn, more than are kept",
           "freed": "freed and allocated again"}  # fmt: skip


def answers(found: Frame) -> bool:
    """Whether these rows answer it."""
    return "pin_cost" in found and bool((found.pin_cost != "").all()) and {"bounce", "pipeline-none",
                                                                           "direct-none"} <= {*found.row}  # fmt: skip


def called(buffers: str) -> str:
    return BUFFERS.get(buffers.partition(":")[0], f"{buffers} buffers")


def best(rows: Frame) -> Frame:
    """The fastest row of each size."""
    return rows.sort_values("order").drop_duplicates("size").set_index("size").sort_index()


def kept(rows: Frame) -> Frame:
    return rows[~rows.row.str.rpartition("-")[2].isin(KEEPS_NOTHING)]


def registered_each_time(rows: Frame) -> Frame:
    return rows[rows.row.str.endswith("-none")]


def strategy(rows: Frame, name: str) -> Frame:
    return rows[rows.row.str.partition("-")[0] == name]


QUESTIONS = {
    "a cache (the best row that keeps registrations, relative to the best that registers each time)":
        (kept, registered_each_time),
    "a pipeline (pipeline-none relative to direct-none)":
        (lambda rows: strategy(registered_each_time(rows), "pipeline"),
         lambda rows: strategy(registered_each_time(rows), "direct")),
    "bounce (relative to the best row that registers)":
        (lambda rows: strategy(rows, "bounce"), lambda rows: rows[rows.row != "bounce"]),
}  # fmt: skip


# Of the plot, beside bounce.
LINES = {"kept in a cache": kept, "pipeline": lambda rows: strategy(registered_each_time(rows), "pipeline"),
         "direct": lambda rows: strategy(registered_each_time(rows), "direct"),
         "read": lambda rows: strategy(registered_each_time(rows), "read")}  # fmt: skip


def winner(rows: Frame) -> str:
    """The line of the plot, or bounce, that leads at most sizes."""
    lines = {text: best(mine) for text, choose in LINES.items() if len(mine := choose(rows))}
    lines |= {"bounce": best(bounce)} if len(bounce := strategy(rows, "bounce")) else {}
    by_size = Frame({text: line.order for text, line in lines.items()})
    return str(by_size.idxmin(axis=1).mode()[0]) if by_size.size else "not measured"


def beside(one: Frame, other: Frame) -> Frame:
    """By size: speed, above 1 where one is faster, its interval, and whether the medians are apart."""
    one, other = best(one), best(other)
    both = one.join(other, rsuffix="_other", how="inner")
    lower = both.lower.astype(bool)

    def speed(mine: str) -> pandas.Series:
        return (both.median_other / both[mine]).where(lower, both[mine] / both.median_other)

    return Frame({"speed": speed("median"), "low": speed("low"), "high": speed("high"),
                  "apart": have_medians_apart(both, "_other")})


def in_words(compared: Frame) -> str:
    """Losses first."""
    clear = compared.apart & ((compared.speed - 1).abs() > SAME)
    sizes = compared.index.to_series()
    parts = []
    for what, chosen in (("slower", clear & (compared.speed < 1)), ("faster", clear & (compared.speed > 1))):
        if chosen.any():
            low, high = (f"{value:.2f}" for value in (compared.speed[chosen].min(), compared.speed[chosen].max()))
            by = low if low == high else f"{low} to {high}"
            parts.append(f"{what} ({by}) at {spans(sizes, chosen)}")
    if not clear.all():
        parts.append(f"not told apart at {spans(sizes, ~clear)}")
    return ", ".join(parts) or "not measured"


def spans(sizes: pandas.Series, chosen: pandas.Series) -> str:
    """The chosen ones of sizes, neighbours as a range."""
    runs = (chosen != chosen.shift()).cumsum()
    ends = [(mine.iloc[0], mine.iloc[-1]) for _, mine in sizes[chosen].groupby(runs[chosen])]
    return ", ".join(show(first) if first == last else f"{show(first)}-{show(last)}" for first, last in ends)


def words(found: Frame) -> list[str]:
    """A line for each question and cost, of one message at a time where there are such."""
    if (alone := found[found.metric == "latency"]).size:
        found = alone
    lines = []
    for cost, of_cost in found.groupby("pin_cost", sort=False):
        for question, (one, other) in QUESTIONS.items():
            parts = [f"{called(buffers)}: {in_words(beside(one(rows), other(rows)))}"
                     for buffers, rows in of_cost.groupby("buffers", sort=False)]
            lines.append(f"Pin cost {cost}, when does {question} pay? {'; '.join(parts)}.")
    return lines


def tables(found: Frame) -> list[str]:
    """Who is the fastest, for each kind of buffers and size, and how many times as fast as the best row of another
    strategy."""
    lines = []
    for (benchmark, cost, metric), mine in found.groupby(["benchmark", "pin_cost", "metric"], sort=False):
        columns: dict[str, list[str]] = {show(size): [] for size in sorted(mine["size"].unique())}
        kinds = list(dict.fromkeys(mine.buffers))
        for buffers in kinds:
            rows = mine[mine.buffers == buffers]
            for size in sorted(mine["size"].unique()):
                columns[show(size)].append(leader(rows[rows["size"] == size]))
        runs, phases = "-".join(sorted({str(mine.runs.min()), str(mine.runs.max())})), " or ".join(mine.how.unique())
        lines += [f"{benchmark}, pin cost {cost}: the fastest row, and its speed relative to the best of another strategy"
                  f" (~ not told apart; {phases}; runs {runs})",
                  *Frame(columns, index=[called(buffers) for buffers in kinds]).to_string().splitlines(), ""]  # fmt: skip
    return lines


def leader(rows: Frame) -> str:
    if rows.empty:
        return "-"
    first = best(rows).row.iloc[0]
    own = re.match(r"[^-]*", first)
    others = rows[rows.row.str.partition("-")[0] != (own[0] if own else "")]
    if others.empty:
        return str(first)
    compared = beside(rows[rows.row == first], others)
    return f"{first} {compared.speed.iloc[0]:.2f}" + ("" if compared.apart.iloc[0] else "~")
