# SPDX-License-Identifier: BSD-3-Clause
"""One screen of what was measured: who is fastest, by how much, what to set; then tables, losses, what proves it, and
what to doubt."""

import re
import textwrap

import numpy
import pandas

from tools import judge
from tools.judge import DIFFERENT, LEVEL, PLACE, Frame
from tools.rows import PIN_COSTS
from tools.sizes import show
from tools.table import number

WIDTH = 120
BANDS = {"short": 8 << 10, "middle": 128 << 10, "long": 1 << 60}  # messages up to so many bytes
PATTERNS = {"latency": "one message at a time", "bw": "many one way", "bibw": "many both ways", "p99": "the slowest of a hundred",
            "sendrecv": "Sendrecv around a ring", "halo": "exchange with neighbours"}  # fmt: skip
DISTURBED_FROM = 0.15  # of the cores' time; the kernel's own work stays below
NAMED_MOST = 6
AUTO = "auto"
SLOWED = re.compile(r"\+\d+%$")  # a row of --self-check: so much slower


def render(frame: Frame, width: int = WIDTH, details: bool = False) -> str:
    values = judge.values_of(frame)
    every = judge.judged(values)
    found = judge.main_phase(every)
    order = {row: at for at, row in enumerate(frame.row.unique())}  # as the files have them
    every, found = (part.sort_values("row", key=lambda rows: rows.map(order), kind="stable") if len(part) else part
                    for part in (every, found))
    lines = [*texts(frame, "about"), "", *failures(frame)]
    if len(found):
        lines += [*words(found), *to_set(frame, found), *auto_beside_fixed(values), ""]
        for _, group in (every if details else found).groupby([*PLACE, "phase"], sort=False):
            lines += [*by_size(group, width, details), ""]
        lines += [*losses(found), *strange(found), *self_check(found)]
    lines += [*proof(frame), *doubts(frame, values), *decided(found)]
    return "\n".join(part for line in lines for part in (
        [line] if line.startswith(" ") else textwrap.wrap(line, width, subsequent_indent="    ") or [""]))


def texts(frame: Frame, event: str) -> list[str]:
    return list(frame.text[frame.event.eq(event)].unique())


def named(line: pandas.Series) -> str:
    return "regx " * (line.kind == "regx") + line.row


def titled(line: pandas.Series) -> str:
    """A place in words."""
    suite, _, test = line.benchmark.partition("_")
    parts = [PATTERNS.get(test, test) + (f" (OSU's {line.benchmark})" if suite == "osu" else "")]
    parts += [f"{line.buffers} buffers"] if line.buffers != "same" else []
    parts += [f"{line.ranks:.0f} ranks"] if line.ranks > 2 else []
    parts += [f"pin cost {line.pin_cost}"] if line.pin_cost else []
    return ", ".join(parts)


# ---- in words


def bands_of(group: Frame) -> dict[str, Frame]:
    """Of a place: short, middle and long messages, as far as there are figures."""
    found, below = {}, 0
    for name, most in BANDS.items():
        band = group[(group["size"] > below) & (group["size"] <= most)]
        below = most
        if len(band) and band.speed.notna().any():
            found[name] = band
    return found


def words(found: Frame) -> list[str]:
    """A line for each place: the fastest row of short, middle and long messages."""
    lines = []
    for _, group in found.groupby(PLACE, sort=False):
        parts = []
        for name, band in bands_of(group).items():
            sizes = band["size"]
            span = show(sizes.min()) + (f" to {show(sizes.max())}" if sizes.min() < sizes.max() else "")
            parts.append(f"{name} messages ({span}): {fastest(band)}")
        if parts:
            title = titled(group.iloc[0])
            lines.append(f"{title[0].upper()}{title[1:]}. {'; '.join(parts)}.")
    return lines


def leader(band: Frame) -> str:
    """The row with the highest speed over all sizes of the band, of those that have all."""
    logs = numpy.log(band.assign(log=1).pivot_table("speed", "row", "size", sort=False)).dropna()
    return str(logs.mean(axis=1).idxmax()) if len(logs) else str(band.row.iloc[0])


def fastest(band: Frame) -> str:
    first = leader(band)
    mine = band[band.row == first]
    if mine.kind.iloc[0] == "peer":
        ours = band[band.kind == "regx"]
        if ours.speed.notna().any():
            mine = ours[ours.row == leader(ours)]
            return f"{first}; {named(mine.iloc[0])} has {by(mine)} of the best peer's speed"
        return first
    perhaps = "perhaps " if (mine.verdict == "open").any() else ""
    return f"{perhaps}{named(mine.iloc[0])}, {by(mine)} times as fast as the best peer"


def by(lines: Frame) -> str:
    if lines.verdict.eq("level").all():
        return "1.00 (level)"
    low, high = number(lines.speed.min()), number(lines.speed.max())
    return low if low == high else f"{low} to {high}"


def to_set(frame: Frame, found: Frame) -> list[str]:
    """Of the rows of regx that are named above."""
    ours = found[found.kind.eq("regx")]
    leads = {leader(band) for _, group in ours.groupby(PLACE) for band in bands_of(group).values()}
    sets = frame[frame.event.eq("set") & frame.row.isin(leads)].drop_duplicates("row")
    return [f"To set: {row}: {text}" for row, text in zip(sets.row, sets.text)]


def auto_beside_fixed(values: Frame) -> list[str]:
    """How the choice of auto stands to the best fixed one."""
    ours = values[values.kind.eq("regx")]
    fixed = [row for row in ours.row.unique() if row != AUTO and not SLOWED.search(row)]
    if AUTO not in set(ours.row) or not fixed:
        return []
    found = judge.main_phase(judge.judged(ours, fixed))
    found = found[found.row.eq(AUTO) & found.speed.notna()]
    parts = [f"{titled(group.iloc[0])} {by(group)}" for _, group in found.groupby(PLACE, sort=False)]
    return [f"regx auto, of the speed of the best fixed choice: {'; '.join(parts)}."] if parts else []


# ---- as tables


def phase_name(line: pandas.Series) -> str:
    return "" if line.phase == 0 else f"; phase {line.phase + 1:.0f}"


def by_size(group: Frame, width: int, details: bool = False) -> list[str]:
    """A line for each row, sizes across."""
    first = group.iloc[0]
    title = f"{titled(first)[0].upper()}{titled(first)[1:]}: speed, best peer = 1 (~ open{phase_name(first)})"
    cells = sizes_across(group)
    lines = [title, *cells.to_string(col_space=8).splitlines()]
    if details:
        unit = first.unit
        lines += [f"  {named(line)} {show(line.size_)}: {number(line.median)} {unit}; {number(line.speed)}"
                  f" ({interval(line)}) of {line.best}, {line.verdict or 'peer'}, {line.rounds} rounds of {line.jobs} jobs"
                  for line in group.rename(columns={"size": "size_"}).itertuples()]
    return lines


def sizes_across(group: Frame) -> Frame:
    columns = {}
    rows = list(group.row.unique())
    for size in sorted(group["size"].unique()):
        mine = group[group["size"] == size].set_index("row")
        columns[show(size)] = [cell(mine.loc[row]) if row in mine.index else "-" for row in rows]
    kinds = group.drop_duplicates("row").set_index("row").kind
    return Frame(columns, index=["regx " * (kinds[row] == "regx") + row for row in rows])


def cell(line: pandas.Series) -> str:
    if line.speed != line.speed:  # not a number
        return f"{number(line['median'])} "
    return number(line.speed) + ("~" if line.verdict == "open" else " ")


def interval(line: pandas.Series) -> str:
    return f"{number(line.low)} to {number(line.high)}" if line.low == line.low else "no interval yet"


# ---- losses, and what is strange


def losses(found: Frame) -> list[str]:
    slower = found[found.verdict.eq("slower")].sort_values("speed")
    if slower.empty:
        return []
    lines = [f"Losses: {len(slower)} of {found.kind.eq('regx').sum()} cells. The worst of each row:"]
    for _, line in slower.drop_duplicates("row").head(NAMED_MOST).iterrows():
        lines.append(f"  {named(line)}, {titled(line)}, {show(line['size'])}: {number(line.speed)} ({interval(line)}) of"
                     f" {line.best}; slower in {slower.row.eq(line.row).sum()} cells")
    return lines


def strange(found: Frame) -> list[str]:
    lines = []
    two = found[found.speeds.notna()]
    if len(two):
        parts = [f"{named(line)}, {titled(line)}, {show(line['size'])}: {line.speeds[0]:.2f} in {100 * line.speeds[1]:.0f} % and"
                 f" 1 in {100 * line.speeds[2]:.0f} % of rounds" for _, line in two.head(NAMED_MOST).iterrows()]
        lines.append(f"Two speeds: {'; '.join(parts)}{more(len(two))}.")
    differ = found[found.jobs_to > found.jobs_from].assign(ratio=lambda lines: lines.jobs_from / lines.jobs_to)
    if len(differ):
        worst = differ.sort_values("ratio").drop_duplicates("row")
        parts = [f"{named(line)} {line.ratio:.2f} to 1.00 ({titled(line)}, {show(line['size'])})"
                 for _, line in worst.head(NAMED_MOST).iterrows()]
        lines.append(f"Their jobs differ: {'; '.join(parts)}{more(len(worst))}.")
    return lines


def self_check(found: Frame) -> list[str]:
    """What was found of rows whose truth is known."""
    lines = []
    for row in filter(SLOWED.search, found.row.unique()):
        mine = found[found.row.eq(row)]
        known = mine.verdict.ne("open")
        lines.append(f"Self-check: {row}: called different in {mine.verdict.isin(DIFFERENT).sum()} of {len(mine)} cells"
                     f" ({mine.verdict.eq('slower').sum()} slower), level in {mine.verdict.eq('level').sum()}; decided {known.sum()}.")
    return lines


def more(count: int) -> str:
    return f"; and {count - NAMED_MOST} more" if count > NAMED_MOST else ""


# ---- what a reader must know beside the figures


def failures(frame: Frame) -> list[str]:
    """Wrong data first."""
    lines = []
    for event in ("wrong data", "failed", "behind"):
        mine = frame[frame.event.eq(event)].drop_duplicates(["row", "text"])
        lines += [f"{event.upper()}: {line.row}{where(line)}: {line.text}" for _, line in mine.iterrows()]
    return lines


def where(line: pandas.Series) -> str:
    return f", {titled(line)}, {show(line['size'])}" if line.benchmark else ""


def proof(frame: Frame) -> list[str]:
    """That contents are right and paths are those that the rows name; or not."""
    lines = []
    checked = frame[frame.event.eq("checked")]
    if len(checked):
        cells = frame[frame.event.eq("")].drop_duplicates([*PLACE, "row", "size"])
        right = checked.drop_duplicates([*PLACE, "row", "size"])
        measured = cells.merge(right[[*PLACE, "row", "size"]])
        lines.append(f"Content checked: every byte right in {len(measured)} of {len(cells)} cells of {cells.row.nunique()} rows.")
    paths = frame[frame.event.eq("path")]
    bad = paths[paths.text.ne("")].drop_duplicates(["row", "text"])
    lines += [f"Path (?): {line.row}: {line.text}" for line in bad.itertuples()]
    if bad.empty and len(paths):
        lines.append(f"Path: in all {len(paths)} jobs regx's report proves the path that the row names.")
    counts = frame[frame.event.eq("count")]
    if counts.row.nunique() > 1 and frame[frame.event.eq("ran")].text.nunique() > 1 or counts.text.eq("freed").any():
        totals = counts.groupby(["row", "text"], sort=False).value.sum().unstack()
        lines += ["", "Of all jobs:", *(f" {line}" for line in totals.fillna(0).astype(int).to_string().splitlines())]
    for cost in filter(None, frame.pin_cost.unique()):
        call, _, page = PIN_COSTS.get(cost, cost).partition(":")
        spent = f"{call} ns a call and {page} ns a page, spent by spinning" if call else "what io_uring takes"
        lines.append(f"Pin cost {cost}: {spent} (osu-configs/pin-costs.md).")
    return lines


def doubts(frame: Frame, values: Frame) -> list[str]:
    lines = [f"Doubt: {text}." for text in texts(frame, "doubt")]
    rounds = frame[frame.event.eq("")].drop_duplicates([*PLACE, "size", "round"])
    if rounds.line.notna().any():
        phases = values.drop_duplicates([*PLACE, "size", "round"]).groupby("phase")
        parts = [f"a line takes {mine.line.median():.0f} ns, copies {mine['copy'].median():.1f} GB/s in {len(mine)} rounds"
                 for _, mine in phases]
        lines.append(f"Phases: {'; '.join(parts[:3])}; the first one is shown. {int(rounds.moved.sum())} of {len(rounds)} rounds, in"
                     " which it changed, are left out.")
    load = frame.value[frame.event.eq("load")]
    if len(load) and load.max() >= DISTURBED_FROM:
        lines.append(f"Load: other programs took up to {100 * load.max():.0f} % of the cores' time: repeat on a quiet machine.")
    return lines


def decided(found: Frame) -> list[str]:
    ours = found[found.kind.eq("regx")] if len(found) else found
    if not len(ours):
        return ["Decided: 0 of 0 cells"]
    counts = ours.verdict.value_counts()
    return [f"Decided: {(ours.verdict != 'open').sum()} of {len(ours)} cells: "
            + ", ".join(f"{counts.get(name, 0)} {name}" for name in (*DIFFERENT, "level", "open"))
            + f" (level: within {100 * LEVEL:.0f} %; 95 %)"]


def status(frame: Frame) -> int:
    """0: all contents right, every row of regx measured, and on the path that it names."""
    bad = frame.event.eq("wrong data") | frame.event.eq("failed") & frame.kind.eq("regx") | frame.event.eq("path") & frame.text.ne("")
    return int(bad.any())
