# SPDX-License-Identifier: BSD-3-Clause
"""One screen of what was measured: who leads, by how much, what proves it, what to doubt.

Of each size the phase of the machine is shown in which most rows have figures, whether or not others shared
its cores: a few minutes have too few runs to part those too. Where that is not all rows, each figure is first
divided by that of the reference beside it, if it was made in the same phase: two processes that move the same
bytes without MPI.
"""

import textwrap

import numpy
import pandas

from tools import table, verdict
from tools.conditions import MIXED, UNMEASURED
from tools.sizes import show
from tools.table import SAME, Frame
from tools.verdict import spans

PLACE = ["benchmark", "buffers", "ranks", "pin_cost", "metric"]
WIDTH = 120
TABLES = 3  # of as many benchmarks there is a table by sizes; of more, one of geometric means
BY_REFERENCE = "reference"


def in_a_phase(frame: Frame) -> Frame:
    """The figures during which the phase did not change, by phase, whether cores were shared or not."""
    values = table.values_of(frame)
    return values[values.phase != MIXED].assign(phase=values.phase.str.removesuffix(table.SHARED))


def speeds(frame: Frame) -> Frame:
    """As table.related, by place, with how the runs were made comparable: the phase, or BY_REFERENCE."""
    chosen = []
    for _, mine in in_a_phase(frame).groupby([*PLACE, "size"], sort=False):
        phases = mine.groupby("phase").agg(rows=("row", "nunique"), runs=("value", "count"))
        best = phases.sort_values(["rows", "runs"]).index[-1]
        beside = mine[mine.reference.notna()]
        if phases.rows[best] < mine.row.nunique() == beside.row.nunique():
            chosen.append(beside.assign(value=beside.value / beside.reference, how=BY_REFERENCE))
        else:
            chosen.append(mine[mine.phase == best].assign(how=best))
    return table.related(pandas.concat(chosen), [*PLACE, "how"]) if chosen else Frame()


def undecided(frame: Frame) -> set[tuple[str, tuple[str, str, int, str]]]:
    """Rows and places where a row of regx and the best peer are not told apart: there more runs make the medians
    surer."""
    found = speeds(frame)
    if found.empty:
        return set()
    open_ = found[(found.kind == "regx") & found.speed.notna() & ~found.apart]
    return {(row, (line.benchmark, line.buffers, int(line.ranks), line.pin_cost))
            for line in open_.itertuples() for row in (line.row, line.row_best)}


def render(frame: Frame, width: int = WIDTH) -> str:
    """At most 60 lines of 120 columns, as long as nothing failed."""
    frame = frame.assign(name=table.named(frame))
    found = in_order(frame, speeds(frame))
    lines = [line for about in frame.about[frame.about != ""].unique() for line in textwrap.wrap(about, width)] + [""]
    for line in table.events(frame):  # at length in results.csv
        lines += textwrap.wrap(line, width, subsequent_indent="    ", max_lines=2)
    if verdict.answers(found):
        for line in [*verdict.words(found), *table.pin_costs(frame)]:
            lines += textwrap.wrap(line, width, subsequent_indent="    ")
        lines += ["", *verdict.tables(found)]
    elif not found.empty:
        compared = found.speed.notna().any()
        for line in words(found) if compared else []:
            lines += textwrap.wrap(line, width, subsequent_indent="    ")
        lines.append("")
        places = found.groupby(PLACE, sort=False)
        if len(places) > TABLES and compared:
            lines += means(found)
        else:
            for _, group in places:
                lines += by_size(group, width)
    for line in [*table.proof(frame), *doubts(frame, found)]:
        lines += textwrap.wrap(line, width, subsequent_indent="    ")
    return "\n".join(lines)


def in_order(frame: Frame, found: Frame) -> Frame:
    """The rows as the files have them."""
    order = {row: at for at, row in enumerate(frame.row.unique())}
    return found.sort_values("row", key=lambda rows: rows.map(order), kind="stable") if len(found) else found


# ---- in words


def words(found: Frame) -> list[str]:
    """At most five lines."""
    lines = [f"{name}: {sentence(group)}" for name, group in named_groups(found)]
    return lines if len(lines) <= 5 else overall(found)


def named_groups(found: Frame) -> list[tuple[str, Frame]]:
    return [(table.place_names(group).iloc[0] + metric_of(group), group)
            for _, group in found.groupby(PLACE, sort=False)]


def metric_of(group: Frame) -> str:
    metric = group.metric.iloc[0]
    return "" if metric in ("latency", "bandwidth") else f" {metric}"


def sentence(group: Frame) -> str:
    """Who leads at which sizes, by how much: regx by its best row of a size, or the best peer."""
    best = group[(group.kind == "regx") & group.speed.notna()].sort_values("speed")
    best = best.drop_duplicates("size", keep="last").sort_values("size")
    if best.empty:
        return "nothing to compare with"
    clear = best.apart & ((best.speed - 1).abs() > SAME)
    parts = []
    for leads, names, factor in ((clear & (best.speed > 1), "regx " + best.row, best.speed),
                                 (clear & (best.speed < 1), best.row_best, 1 / best.speed)):
        if leads.any():
            leaders = list(names[leads].value_counts().index)
            who = " and ".join(leaders if len(leaders) < 3 else [leaders[0], f"{len(leaders) - 1} others"])
            low, high = factor[leads].min(), factor[leads].max()
            by = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
            parts.append(f"{who} {by} times as fast at {spans(best['size'], leads)}")
    if not clear.all():
        parts.append(f"level at {spans(best['size'], ~clear)}")
    return "; ".join(parts)


def overall(found: Frame) -> list[str]:
    """Of many benchmarks: how fast each row of regx is relative to the best peer."""
    ours = found[(found.kind == "regx") & found.speed.notna()]
    rows = list(ours.groupby("row", sort=False))
    return [f"regx {row}: {geometric(mine.speed):.2f} times as fast as the best peer in the geometric mean of"
            f" {len(mine)} cells; {(mine.apart & (mine.speed > 1 + SAME)).sum()} clearly faster and"
            f" {(mine.apart & (mine.speed < 1 - SAME)).sum()} slower, by more than {100 * SAME:.0f} %"
            for row, mine in rows[:5]]


def geometric(speed: pandas.Series) -> float:
    return float(numpy.exp(numpy.log(speed).mean()))


# ---- as tables


def title(group: Frame) -> str:
    """Of a table by sizes: what its figures are, of which phase, of how many runs."""
    first = group.iloc[0]
    how = " or ".join({BY_REFERENCE: "phase moved: by the reference beside each",
                       UNMEASURED: "phase not measured"}.get(how, f"{how} phase") for how in group.how.unique())  # fmt: skip
    runs = "-".join(dict.fromkeys((str(group.runs.min()), str(group.runs.max()))))
    if group.speed.notna().any():
        what, marks = "speed relative to the best peer", "~ not told apart; "
    else:
        unit = "times the reference's" if first.how == BY_REFERENCE else first.unit
        what, marks = f"{unit}, {'lower' if first.lower else 'higher'} is better", ""
    return f"{named_groups(group)[0][0]}, {what} ({marks}{how}; runs {runs})"


def by_size(group: Frame, width: int) -> list[str]:
    """A line for each row, sizes across; of many sizes, every second, and so on."""
    step = -(-group["size"].nunique() // ((width - max(map(len, labels_of(group)))) // 9))
    return [title(group), *sizes_across(group, step).to_string(col_space=8).splitlines(), ""]


def labels_of(group: Frame) -> list[str]:
    rows = group[["row", "kind"]].drop_duplicates()
    return ["regx " * (kind == "regx") + row for row, kind in zip(rows.row, rows.kind)]


def sizes_across(group: Frame, step: int = 1) -> Frame:
    """Cells of text, a line for each row; of the sizes every so many, the largest among them."""
    columns = {}
    for size in sorted(group["size"].unique())[::-step][::-1]:
        mine = group[group["size"] == size].set_index("row")
        columns[show(size)] = [cell(mine.loc[row]) if row in mine.index else "-" for row in group.row.unique()]
    return Frame(columns, index=labels_of(group))


def cell(line: pandas.Series) -> str:
    if line.speed != line.speed:  # no peer: not a number
        return table.number(line["median"]) + " "
    return f"{line.speed:.2f}" + ("~" if line.kind == "regx" and not line.apart else " ")


def means(found: Frame) -> list[str]:
    ours = found[(found.kind == "regx") & found.speed.notna()]
    if ours.empty:
        return []
    ours = pandas.concat([group.assign(place=name) for name, group in named_groups(ours)])
    frame = ours.pivot_table("speed", "place", "row", aggfunc=geometric, sort=False).round(2)
    frame.index.name = frame.columns.name = None
    return ["Speed over all sizes, best peer = 1.00, higher is better", *frame.to_string(na_rep="-").splitlines(), ""]


def doubts(frame: Frame, found: Frame) -> list[str]:
    lines = table.doubts(frame)
    if not found.empty:
        ours = found[(found.kind == "regx") & found.speed.notna()]
        if same := int((~ours.apart).sum()):
            lines.append(f"Not told apart: in {same} of {len(ours)} ratios the medians of regx and of the best peer may be"
                         " the same, or are of one run alone.")
        cells = table.values_of(frame).drop_duplicates(["name", "metric", "size"])
        if missing := len(cells) - len(found):
            lines.insert(0, f"Phase: not shown are {missing} of {len(cells)} cells, of another phase than most rows have"
                            " at that size; more runs may fill them.")
    return lines
