# SPDX-License-Identifier: BSD-3-Clause
"""Tables of what was measured: a frame in the columns of results.csv, as text.

One table for each benchmark, choice of buffers, number of ranks, metric and phase: only figures
of one phase are ever set in relation to one another, and those across a change are left out.
"""

from pathlib import Path

import numpy
import pandas

from tools.conditions import MIXED, PAGING, PHASES, UNMEASURED
from tools.output import COLUMNS
from tools.report import COUNTS
from tools.rows import PIN_COSTS
from tools.sizes import show
from tools.trouble import Trouble

Frame = pandas.DataFrame
NUMBERS = ("size", "run", "value", "reference", "mailbox", "width", "others", "ranks")
GROUP = ["benchmark", "buffers", "ranks", "pin_cost", "metric", "phase"]
WIDE_FROM = 0.2  # of the median: a spread from run to run that is said
DISTURBED_FROM = 0.15  # of the cores' time; the kernel's own work for a run stays below
# Of a file's greatest width: below, others used a core's second thread. If they always did, that is not seen.
NARROW = 0.9
# Runs of which a bootstrap's 95 % go from the least to the greatest: of five runs 5.8 % of the resamples have the least as
# their median, of six 0.9 %. So up to this number none is drawn.
FEW = 5
ENOUGH = 3  # runs of a peer: it can be the best, however many more a peer has that was measured on to decide
INTERVALS = f"below them their intervals (95 %; of up to {FEW} runs from the least to the greatest)"
RESAMPLED = 2000
NAMED_MOST = 4  # rows in a line about some of them
SHARED = " shared"  # added to the phase
SAME = 0.05  # as fast, for counting wins and losses
REGISTERS_FOR_FREE = "shm"  # the wire on which registering costs nothing


def read(files: list[Path], command: str = "compare") -> Frame:
    """Of a results.csv, or several. Trouble names the file, the line and the column that is wrong."""
    frames = []
    for file in files:
        try:
            frame = pandas.read_csv(file, dtype=str, keep_default_na=False, encoding="utf-8").fillna("")
        except OSError as error:
            raise Trouble(f"{file}: cannot be read: {error.strerror}") from None
        except (ValueError, UnicodeDecodeError) as error:  # pandas' own are ValueErrors
            raise Trouble(f"{file}: cannot be read: {error}".splitlines()[0]) from None
        if "pin_cost" not in frame:  # of a results.csv from before there was any
            frame["pin_cost"] = ""
        if missing := [name for name in COLUMNS if name not in frame]:
            raise Trouble(f"{file}:1: no results.csv of {command}: no column {missing[0]}")
        for name in NUMBERS:
            numbers = pandas.to_numeric(frame[name], errors="coerce")
            _refuse(file, frame, name, (frame[name] != "") & ~numpy.isfinite(numbers), "a number")
            frame[name] = numbers
        _refuse(file, frame, "phase", ~frame.phase.isin([*PHASES, ""]), ", ".join(PHASES))
        narrow = (frame.width < NARROW * frame.width.max()) & ~frame.phase.isin(["sibling", MIXED])
        frame.loc[narrow, "phase"] += SHARED
        frames.append(frame[list(COLUMNS)])
    found = pandas.concat(frames, ignore_index=True)
    twice = values_of(found).duplicated([*GROUP[:5], "row", "size", "run"])
    if len(files) > 1 and twice.any():
        raise Trouble(f"{', '.join(map(str, files))}: row {values_of(found).row[twice].iloc[0]} is in more than one"
                      " of them")
    if found.empty:
        raise Trouble(f"{', '.join(map(str, files))}: no runs in it")
    return found


def _refuse(file: Path, frame: Frame, name: str, wrong: pandas.Series, allowed: str) -> None:
    for at in frame.index[wrong][:1]:
        raise Trouble(f'{file}:{at + 2}: {name}: "{frame[name][at]}": allowed: {allowed}')


def values_of(frame: Frame) -> Frame:
    return frame[~frame.unit.isin(["", "count", "choice"])]


def status(frame: Frame) -> int:
    """0: all contents right, every row of regx measured, and on the path that it names."""
    wrong = frame.metric.eq("wrong data") | frame.metric.eq("failed") & frame.kind.eq("regx")
    return int((wrong | frame.metric.ne("failed") & frame.problem.ne("")).any())


# ---- figures


def number(value: float) -> str:
    """Three digits or more, without an exponent."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def figures(frame: Frame) -> Frame:
    """Of each phase by itself; see related."""
    values = values_of(frame)
    return related(values[values.phase != MIXED], GROUP)


def interval(runs: pandas.Series) -> tuple[float, float]:
    """Where the median of such runs lies, with 95 %, by bootstrap (percentiles; by numpy, since nothing else here needs
    scipy). Of up to FEW runs it is from least to greatest, which holds the median less often: of two in half of the cases."""
    if len(runs) <= FEW:
        return float(runs.min()), float(runs.max())
    again = numpy.random.default_rng(0).choice(runs, (RESAMPLED, len(runs)))  # the same each time
    low, high = numpy.quantile(numpy.median(again, axis=1), (0.025, 0.975))
    return float(low), float(high)


def have_medians_apart(both: Frame, other: str) -> pandas.Series:
    """Whether the intervals of two medians have nothing in common. One run alone has none."""
    intervals = (both.runs > 1) & (both["runs" + other] > 1)
    return intervals & ((both.high < both["low" + other]) | (both.low > both["high" + other]))


def related(values: Frame, group: list[str]) -> Frame:
    """A line for each group, row and size: median, its interval (low, high), and number of runs; speed: beside the
    best peer, above 1 where the row is faster, of the peers with ENOUGH runs or more than half as many as any (one run
    alone may be lucky); few: a peer that has fewer; apart: whether that ratio can be told from 1; wide: the runs vary much;
    reference: of the runs without MPI beside it."""
    keys = [*group, "unit", "row", "kind", "size"]
    found = values.groupby(keys, sort=False).agg(
        median=("value", "median"), interval=("value", interval), spread=("value", numpy.ptp),
        runs=("value", "count"), reference=("reference", "median"),
        problem=("problem", "max")).reset_index()  # fmt: skip
    found[["low", "high"]] = numpy.array(found.interval.to_list(), dtype=float).reshape(-1, 2)
    found["lower"] = ~found.unit.str.contains("/")
    found["order"] = found["median"].where(found.lower, -found["median"])
    peers = found[found.kind == "peer"]
    most = peers.groupby([*group, "size"]).runs.transform("max").reindex(found.index)  # of regx's rows: not a number
    found["few"] = (2 * found.runs <= most) & (found.runs < ENOUGH)
    peers = found[(found.kind == "peer") & ~found.few].sort_values("order")
    peers = peers.drop_duplicates([*group, "size"])[[*group, "size", "row", "median", "low", "high", "runs"]]
    found = found.merge(peers, on=[*group, "size"], how="left", suffixes=("", "_best"))
    ratio = found["median"] / found.median_best
    found["speed"] = ratio.where(~found.lower, 1 / ratio)
    found["apart"] = have_medians_apart(found, "_best")
    found["wide"] = found.spread / found["median"] > WIDE_FROM
    return found


def pair(line: pandas.Series, beside: str = "") -> tuple[str, str]:
    """The median with what stands beside it, and its interval below."""
    return number(line["median"]) + beside, f"{number(line.low)}-{number(line.high)}" if line.runs > 1 else ""


def cells(line: pandas.Series) -> tuple[str, str]:
    """With the speed beside the best peer, and marks."""
    text = ""
    if line.kind == "regx" and line.speed == line.speed:  # not nan
        text += f" {number(line.speed)}x" + ("" if line.apart else "~")
    elif line.row == line.row_best:
        text += " *"
    above, below = pair(line, text + (" ?" if line.problem else ""))
    return above, below + ("!" if line.wide else "")


def layout(columns: dict[str, list[str]], labels: list[str], width: int) -> list[str]:
    """Columns side by side, continued below where the width does not take all of them."""
    frame = Frame(columns, index=labels)
    frame = frame[(frame != "").any(axis=1)]  # of single runs there are no intervals
    return [line.rstrip(" \\") for line in frame.to_string(line_width=width).splitlines()]


def block(group: Frame, counts: Frame, rows: Frame, width: int) -> list[str]:
    """group: the figures of one table; rows: all rows of its benchmark, with what failed."""
    first = group.iloc[0]
    sizes = sorted(group["size"].unique())
    labels = [text for size in sizes for text in (show(size), "")]
    columns: dict[str, list[str]] = {}
    for row, kind, event in zip(rows.row, rows.kind, rows.metric):
        mine = group[group.row == row].set_index("size")
        missing = ("WRONG DATA" if event == "wrong data" else event or "-", "")
        texts = [cells(mine.loc[size]) if size in mine.index else missing for size in sizes]
        columns["regx " * (kind == "regx") + row] = [text for pair in texts for text in pair]
    reference = group.groupby("size").reference.median()
    if reference.notna().any():
        ours = group[group.kind == "regx"].sort_values("order").drop_duplicates("size").set_index("size")
        share = 100 * (reference / ours["median"] if first.lower else ours["median"] / reference)
        columns["reference"] = [
            text for size in sizes for text in (
                f"{number(reference[size])} {share.get(size, 0):.0f}%" if reference[size] > 0 else "-", "")]
    shown = [name for name in (*COUNTS, "came_back", *PAGING.values()) if name in counts.columns]
    for name in shown:
        labels.append(name)
        for row, column in zip(rows.row, columns.values()):
            count = counts[name].get(row)
            column.append(f"{count:.0f}" if count == count and count is not None else "-")
        if "reference" in columns:
            columns["reference"].append("")
    runs = "-".join(dict.fromkeys(f"{n:.0f}" for n in (group.runs.min(), group.runs.max())))
    phase = "phase not measured" if first.phase == UNMEASURED else f"{first.phase} phase"
    details = [f"{first.buffers} buffers"] * (first.buffers not in ("same", ""))
    details += [f"pin cost {first.pin_cost}"] * (first.pin_cost != "")
    details += [f"{first.ranks:.0f} ranks"] * int(first.ranks > 2) + [phase, f"runs {runs}"]
    metric = "" if first.metric in ("latency", "bandwidth") else f" {first.metric}"
    better = "lower" if first.lower else "higher"
    title = f"{first.benchmark}{metric}, {first.unit}, {better} is better ({', '.join(details)})"
    return [title, "", *layout(columns, labels, width), ""]


def counts_of(frame: Frame) -> Frame:
    """By row; where backends are compared, buffers were freed, or memory was too little."""
    counts = frame[frame.unit == "count"].groupby(["row", "metric"]).value.median().unstack()
    kept = ["came_back"] if "came_back" in counts else []
    if frame[frame.backend != ""].backend.nunique() > 1:
        kept += [name for name in COUNTS if name in counts]
    paged = [name for name in PAGING.values() if name in counts]
    if counts[[name for name in paged if name != "major_faults"]].to_numpy().any():
        kept += paged
    return counts[kept]


def render(frame: Frame, width: int) -> str:
    found = figures(frame)
    lines: list[str] = []
    place = GROUP[:4]
    of_place = dict(list(frame.groupby(place, sort=False)))
    for where, group in found.groupby(GROUP, sort=False):
        mine = of_place[where[:4]]
        events = mine[mine.metric.isin(["wrong data", "failed"])].groupby("row").metric.max()
        rows = mine[["row", "kind"]].drop_duplicates()
        rows["metric"] = rows.row.map(events).fillna("")
        lines += block(group, counts_of(mine), rows, width)
    return "\n".join(lines + legend(found) + notes(frame))


# ---- what a reader must know beside the figures


def legend(found: Frame) -> list[str]:
    if found.empty:
        return []
    lines = [f"Medians, {INTERVALS}.  x: speed relative to the best peer (*) of the same size and phase, above 1"
             f" is faster; of the peers with {ENOUGH} runs, or more than half as many as any."]
    if found.reference.notna().any():
        lines.append("reference: two processes without MPI that move the same bytes, run beside each row. This is not an"
                     " upper bound.  %: what regx's best row reaches of it.")
    ratios = found[(found.kind == "regx") & found.speed.notna()]
    if same := int((~ratios.apart).sum()):
        lines.append(f"~ Not told apart: in {same} of {len(ratios)} ratios the medians of regx and of the"
                     " best peer may be the same, or are of one run alone.")
    if found.wide.any():
        lines.append(f"! Spread: {found.wide.sum()} of {len(found)} cells vary by more than"
                     f" {100 * WIDE_FROM:.0f} % of their median from run to run.")
    return lines


def named(frame: Frame) -> pandas.Series:
    """Row and benchmark, with what else tells jobs apart."""
    return frame.row + " " + place_names(frame)


def place_names(frame: Frame) -> pandas.Series:
    return frame.benchmark + frame.buffers.map(lambda text: f" ({text} buffers)" * (
        text not in ("same", ""))) + frame.ranks.map(lambda n: f" ({n:.0f} ranks)" * (n > 2)) + frame.pin_cost.map(
            lambda cost: f" (pin cost {cost})" * (cost != ""))


def notes(frame: Frame) -> list[str]:
    """In plain words; wrong data first."""
    frame = frame.assign(name=named(frame))
    lines = [*events(frame), *proof(frame), *choices(frame)]
    ours = values_of(frame)
    backends = ours[ours.kind == "regx"].backend.nunique() > 1
    lines += pin_costs(frame)
    if backends and ours.wire[ours.pin_cost == ""].eq(REGISTERS_FOR_FREE).any():
        lines.append(f"Registering costs NOTHING on {REGISTERS_FOR_FREE}: the times show what a backend itself"
                     " costs; what it saves elsewhere is the registrations that it avoids.")
    if backends or (frame.metric == "came_back").any():
        lines.append(f"{', '.join(COUNTS)}, came_back: of a run over all sizes and ranks, with warm-up."
                     " came_back: buffers that malloc gave again with their pages.")
    return [*lines, *doubts(frame), "", *frame.about[frame.about != ""].unique()]


def pin_costs(frame: Frame) -> list[str]:
    """What registering was made to cost."""
    lines = []
    for cost in filter(None, frame.pin_cost.unique()):
        call, _, page = PIN_COSTS.get(cost, cost).partition(":")
        spent = f"{call} ns a call and {page} ns a page, spent by spinning" if call else "what io_uring takes"
        lines.append(f"Pin cost {cost}: {spent} (osu-configs/pin-costs.md).")
    return lines


def events(frame: Frame) -> list[str]:
    """What went wrong. frame, here and below: with names."""
    lines = []
    for event in ("wrong data", "failed"):
        of_event = frame[frame.metric == event]
        lines += [f"{event.upper()}: {name}: {why}" for name, why in zip(of_event.name, of_event.problem)]
    return lines


def runs_of(frame: Frame) -> Frame:
    return values_of(frame).drop_duplicates(["name", "run"])


def proof(frame: Frame) -> list[str]:
    """That contents are right and paths are those that the rows name; or not."""
    ran, lines = runs_of(frame), []
    checked = frame.name[frame.metric == "checked"].nunique()
    if checked:
        lines.append(f"Content checked: {checked} of {frame.name[frame.kind != ''].nunique()} rows.")
    if not (unchecked := ran[~ran.name.isin(frame.name[frame.run == 0])]).empty:
        lines.append(f"Content not checked: {', '.join(unchecked.benchmark.unique())}.")
    unproven = frame[frame.problem.ne("") & ~frame.metric.isin(["wrong data", "failed"])]
    lines += [f"Path (?): {name}: {why}" for name, why in dict.fromkeys(zip(unproven.name, unproven.problem))]
    ours = ran[ran.kind == "regx"]
    if unproven.empty and not ours.empty:
        lines.append(f"Path: in all {len(ours)} runs regx's report proves the path that the row names.")
    return lines


def doubts(frame: Frame) -> list[str]:
    ran, lines = runs_of(frame), []
    values = values_of(frame)
    if (mixed := values[values.phase == MIXED]).size:
        names = mixed.name.value_counts()
        more = f" and of {len(names) - NAMED_MOST} other rows" if len(names) > NAMED_MOST else ""
        lines.append(f"Phase: it changed during {len(mixed)} of {len(values)} figures, which are left out:"
                     f" {', '.join(names.index[:NAMED_MOST])}{more}.")
    if (disturbed := ran[ran.others >= DISTURBED_FROM]).size:
        lines.append(f"Load: other programs took up to {100 * disturbed.others.max():.0f} % of the cores' time"
                     f" during {len(disturbed)} of {len(ran)} runs: repeat on a quiet machine.")
    return lines


def choices(frame: Frame) -> list[str]:
    """What auto chose. Its reasons begin with the path's name; those of trials are no outcome."""
    lines = []
    for name, mine in frame[frame.unit == "choice"].groupby("name", sort=False):
        trial = mine.metric.str.endswith("on trial")
        by_reason = mine[~trial].groupby("metric").value.sum().sort_values(ascending=False)
        shown = [f"{reason} ({count:,.0f})" for reason, count in by_reason.items()]
        shown += [f"on trial ({mine[trial].value.sum():,.0f})"] if trial.any() else []
        lines.append(f"Choice: {name}: {', '.join(shown)}")
    return lines
