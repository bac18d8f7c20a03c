# SPDX-License-Identifier: BSD-3-Clause
"""What the rounds say: which rows are faster or slower than the best peer, which are level, and what is open.

A peer is a row without regx; where there is none, the first row. The speed of a row in a round is divided by that of the
best peer in the same round, which was chosen by the rounds of all other generations of jobs, so that no luck is counted.
Of each generation the median of these ratios counts, and their mean over generations is the speed; its 95 %
interval is the wider one of a bootstrap of the generations (BCa) and of Student's t, as a bootstrap of few is too
narrow. So the differences between jobs are in it, and those between rounds. Of all cells that are called different
5 % may be wrong (Benjamini and Hochberg).
"""

import warnings

import numpy
import pandas
from scipy import cluster, stats

Frame = pandas.DataFrame
PLACE = ["benchmark", "buffers", "ranks", "pin_cost"]
LEVEL, SLIGHT = 0.03, 0.015  # as fast; a difference that is not called one, however sure it is
FALSE = 0.05  # of the cells that are called different
FEWEST = 3  # generations, of which there is an interval
RESAMPLED = 1000
CONTENDS = 0.8  # of the best peer's speed: such a peer may be the best
ALIKE = 0.3  # of the logarithm: looks at the phase that are of one
JOBS_DIFFER = 1.05  # times, between two jobs of a row
SPEEDS_APART, SPEED_SHARE, SPEED_ROUNDS = 1.25, 0.15, 12  # of two speeds of a row: times, rounds of each, rounds
DIFFERENT = ("faster", "slower")


def values_of(frame: Frame) -> Frame:
    """The figures of rounds in which the phase did not change, with their phase: 0 is that of most rounds."""
    values = frame[frame.event.eq("") & frame.moved.ne(1)].copy()
    values["log"] = numpy.log(values.value) * numpy.where(values.unit.isin(["us", "s"]), -1, 1)
    values["phase"] = phases(values)
    return values


def phases(values: Frame) -> pandas.Series:
    """Looks whose line times and copying speeds are alike are of one phase."""
    looks = values[["line", "copy"]]
    known = looks.dropna().round({"line": 0, "copy": 1}).drop_duplicates()
    if len(known) < 2:
        return pandas.Series(0, values.index)
    points = numpy.log(known.to_numpy(dtype=float).clip(0.1))
    known = known.assign(phase=cluster.hierarchy.fclusterdata(points, ALIKE, "distance", metric="chebyshev", method="average"))
    found = looks.round({"line": 0, "copy": 1}).merge(known, on=["line", "copy"], how="left").phase.fillna(0)
    order = {phase: at for at, phase in enumerate(found.value_counts().index)}
    return pandas.Series(found.map(order).to_numpy(), values.index)


def judged(values: Frame, base: list[str] | None = None) -> Frame:
    """A line for each row, place, size and phase: speed, its interval (low, high), the verdict, and what it is by. base:
    rows in place of the peers."""
    if values.empty:
        return Frame()
    peers = base or list(values.row[values.kind.eq("peer")].unique()) or [values.row.iloc[0]]
    lines = [line for cell, mine in values.groupby([*PLACE, "size", "phase"], sort=False)
             for line in of_cell(dict(zip([*PLACE, "size", "phase"], cell)), mine, peers)]
    found = Frame(lines)
    return found if found.empty else found.assign(verdict=verdicts(found))


def of_cell(cell: dict, mine: Frame, peers: list[str]) -> list[dict]:
    table = mine.set_index(["job", "round", "row"]).log.unstack()
    jobs = table.index.get_level_values("job").to_numpy()
    there = [row for row in table if row in peers]
    best = {job: others.idxmax() for job in dict.fromkeys(jobs) if len(others := table[jobs != job][there].median().dropna())}
    beside = numpy.full(len(table), numpy.nan)  # the best peer's
    for job, peer in best.items():
        beside[jobs == job] = table[peer][jobs == job]
    medians = mine.groupby("row").value.median()
    lines = []
    for row in dict.fromkeys(mine.row):
        logs = table[row].to_numpy()
        lines.append({**cell, "row": row, "kind": "peer" if row in there else "regx", "rounds": int(numpy.isfinite(logs).sum()),
                      "median": medians[row], "unit": mine.unit.iloc[0], "best": max(best.values(), key=[*best.values()].count, default=""),
                      "speeds": two_speeds(logs[numpy.isfinite(logs)]), **of_jobs(logs, jobs),
                      **summary(logs - beside, jobs, row not in there)})
    return lines


def by_job(logs: numpy.ndarray, jobs: numpy.ndarray) -> list[numpy.ndarray]:
    known = numpy.isfinite(logs)
    return [logs[known & (jobs == job)] for job in dict.fromkeys(jobs[known])]


def summary(ratios: numpy.ndarray, jobs: numpy.ndarray, judged: bool) -> dict:
    medians = numpy.array([numpy.median(rounds) for rounds in by_job(ratios, jobs)])
    found = {"jobs": len(medians), "points": numpy.exp(ratios[numpy.isfinite(ratios)]), "p": 1.0,
             "speed": numpy.exp(medians.mean()) if len(medians) else numpy.nan, "low": numpy.nan, "high": numpy.nan}
    if judged and len(medians) >= FEWEST:
        low, high = interval(medians)
        found |= {"low": numpy.exp(low), "high": numpy.exp(high)}
        found["p"] = float(stats.ttest_1samp(medians, 0).pvalue) if numpy.ptp(medians) > 0 else float(medians[0] == 0)
    return found


def interval(values: numpy.ndarray) -> tuple[float, float]:
    """95 %, of the mean."""
    if numpy.ptp(values) == 0:
        return float(values[0]), float(values[0])
    low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of values that are too much alike it says nan
        again = stats.bootstrap((values,), numpy.mean, n_resamples=RESAMPLED, method="BCa", random_state=0).confidence_interval
    return float(numpy.nanmin([low, again.low])), float(numpy.nanmax([high, again.high]))


def verdicts(found: Frame) -> pandas.Series:
    """In each phase by itself."""
    ours = found.kind.eq("regx")
    verdict = pandas.Series("open", found.index).where(ours, "")
    told = pandas.Series(False, found.index)
    for _, mine in found[ours].groupby("phase"):
        told[mine.index] = discovered(mine.p.to_numpy())
    verdict[ours & (found.low > 1 - LEVEL) & (found.high < 1 + LEVEL)] = "level"
    verdict[ours & told & (found.low > 1) & (found.speed > 1 + SLIGHT)] = "faster"
    verdict[ours & told & (found.high < 1) & (found.speed < 1 - SLIGHT)] = "slower"
    return verdict


def discovered(p: numpy.ndarray) -> numpy.ndarray:
    """Benjamini and Hochberg: scipy has it from 1.11."""
    order = numpy.argsort(p)
    passed = numpy.flatnonzero(p[order] <= FALSE * (numpy.arange(len(p)) + 1) / len(p))
    found = numpy.zeros(len(p), dtype=bool)
    found[order[: passed[-1] + 1 if len(passed) else 0]] = True
    return found


def two_speeds(logs: numpy.ndarray) -> tuple[float, float, float] | None:
    """Of the rounds of a row: the slower one beside the faster one, and the share of rounds of each, if they fall into
    two groups with a gap between them."""
    values = numpy.sort(logs)
    if len(values) < SPEED_ROUNDS:
        return None
    least = int(numpy.ceil(SPEED_SHARE * len(values)))
    gaps = numpy.diff(values)[least - 1:len(values) - least]
    at = least + int(gaps.argmax())
    slow, fast = values[:at], values[at:]
    apart = numpy.median(fast) - numpy.median(slow)
    wide = max(numpy.subtract(*numpy.quantile(part, (0.75, 0.25))) for part in (slow, fast))
    if apart < numpy.log(SPEEDS_APART) or gaps.max() < 0.25 * apart or wide > 0.3 * apart:
        return None
    return float(numpy.exp(-apart)), len(slow) / len(values), len(fast) / len(values)


def of_jobs(logs: numpy.ndarray, jobs: numpy.ndarray) -> dict[str, float]:
    """The slowest job's and the fastest job's speed beside the median job's, if they differ more than rounds do."""
    of_each = [rounds for rounds in by_job(logs, jobs) if len(rounds) >= 3]
    found = {"jobs_from": 1.0, "jobs_to": 1.0}
    if len(of_each) >= FEWEST:
        medians = numpy.array([numpy.median(rounds) for rounds in of_each])
        slowest, fastest = numpy.exp(numpy.array([medians.min(), medians.max()]) - numpy.median(medians))
        if fastest / slowest > JOBS_DIFFER and stats.kruskal(*of_each).pvalue < 0.01:
            found = {"jobs_from": float(slowest), "jobs_to": float(fastest)}
    return found


def main_phase(found: Frame) -> Frame:
    """The cells of the screen: those of the phase that most rounds had."""
    return found[found.phase.eq(0)] if len(found) else found


def open_in(frame: Frame) -> set[tuple[str, tuple[str, str, int, str], int]]:
    """What more rounds are to decide: rows that are open, or were not measured in the phase of most rounds, and the peers
    that may be the best of these cells."""
    every = judged(values_of(frame))
    if every.empty:
        return set()
    wanted = set()
    for _, cell in every.groupby([*PLACE, "size"], sort=False):
        there = main_phase(cell)
        chosen = cell if there.empty else there[there.verdict.eq("open") | there.kind.eq("peer") & ~(there.speed < CONTENDS)]
        if there.empty or there.verdict.eq("open").any():
            wanted |= {(line.row, (line.benchmark, line.buffers, int(line.ranks), line.pin_cost), int(line.size))
                       for line in chosen.itertuples()}
    return wanted
