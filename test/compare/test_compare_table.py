# SPDX-License-Identifier: BSD-3-Clause
"""Medians, ratios and phases."""

from pathlib import Path

import pytest

from comparing import columns, phase, table
from comparing.configuration import Case, Row
from comparing.osu import Suite
from comparing.plan import Plan
from comparing.size import Range
from comparing.result import PEER, REFERENCE, REGX, Arm, Check, Results, Run

SIZE = 65536


def arm(strategy: str, kind: str, benchmark: str = "osu_bw") -> Arm:
    return Arm(strategy, kind, benchmark, "same")


def run(
    a: Arm, value: float, mailbox: float = 0.25, after: float | None = None, **more: object
) -> Run:
    latency = a.benchmark == "osu_latency"
    both = (mailbox, mailbox if after is None else after)
    fields = {
        "repetition": 1,
        "metric": "latency" if latency else "bandwidth",
        "unit": "us" if latency else "MB/s",
        "line": "mpirun",
        "phase": phase.name(*both),
        "mailbox": both,
        "attempts": 1,
        "seconds": 1.0,
        "others": 0.0,
        "values": {SIZE: value},
    }
    return Run(arm=a, **{**fields, **more})


def results(*runs: Run) -> Results:
    return Results(arms=list(dict.fromkeys(r.arm for r in runs)), runs=list(runs))


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        (0.05, 0.05, "near"),
        (0.03, 0.045, "near"),
        (0.09, 0.11, "between"),
        (0.15, 0.15, "between"),
        (0.2, 0.2, "far"),
        (0.27, 0.25, "far"),
        (0.05, 0.27, "mixed"),
        (0.27, 0.05, "mixed"),
        (0.20, 0.27, "mixed"),
        (None, 0.2, "unmeasured"),
        (0.2, None, "unmeasured"),
    ],
)
def test_names_of_phases(before: float | None, after: float | None, name: str) -> None:
    assert phase.name(before, after) == name


def test_a_phase_moves_at_thirty_percent() -> None:
    assert not phase.moved(0.20, 0.2599) and not phase.moved(0.2599, 0.20)
    assert phase.moved(0.20, 0.2601) and phase.moved(0.2601, 0.20)


def test_ratio_of_medians_to_the_best_peer() -> None:
    bounce, vader, ucx = arm("bounce", REGX), arm("vader", PEER), arm("ucx", PEER)
    found = results(
        *(run(bounce, v) for v in (30, 33, 1000)),
        *(run(vader, v) for v in (20, 22, 1)),
        *(run(ucx, v) for v in (10, 11, 12)),
    )
    (block,) = table.blocks(found)
    assert block.ratio(bounce, SIZE) == pytest.approx(33 / 20)
    assert block.cell(bounce, SIZE) == ("33.0 1.65x", "30.0-1000!")
    assert block.cell(vader, SIZE) == ("20.0 *", "1.00-22.0!")
    assert block.cell(ucx, SIZE) == ("11.0", "10.0-12.0")


def test_for_latency_the_best_is_the_lowest() -> None:
    bounce, vader, ucx, reference = (
        arm(name, kind, "osu_latency")
        for name, kind in
        (("bounce", REGX), ("vader", PEER), ("ucx", PEER), ("reference", REFERENCE))
    )  # fmt: skip
    (block,) = table.blocks(
        results(run(bounce, 8), run(vader, 10), run(ucx, 20), run(reference, 6, beside="bounce"))
    )
    assert block.ratio(bounce, SIZE) == pytest.approx(0.8)
    assert block.percent_of_reference(SIZE) == pytest.approx(75)
    assert block.cell(reference, SIZE) == ("6.00 75%", "")
    assert "lower is better" in block.title()


def test_the_reference_is_the_one_beside_the_best_strategy() -> None:
    bounce, direct, reference = (
        arm("bounce", REGX), arm("direct", REGX), arm("reference", REFERENCE)
    )  # fmt: skip
    found = results(
        run(bounce, 30), run(reference, 40, beside="bounce"),
        run(direct, 15), run(reference, 10, beside="direct"),
    )  # fmt: skip
    (block,) = table.blocks(found)
    assert block.percent_of_reference(SIZE) == pytest.approx(75)


def test_the_reference_is_set_against_the_run_that_it_was_beside() -> None:
    """Both drift; each pair does not. It is no bound: an arm may be faster."""
    bounce, reference = arm("bounce", REGX), arm("reference", REFERENCE)
    pairs = ((20, 16), (40, 32), (60, 48))
    found = results(
        *(run(bounce, own, repetition=n) for n, (own, _) in enumerate(pairs, 1)),
        *(run(reference, r, repetition=n, beside="bounce") for n, (_, r) in enumerate(pairs, 1)),
    )
    (block,) = table.blocks(found)
    assert block.percent_of_reference(SIZE) == pytest.approx(125)


# ---- what runs do not show


def runs_of(a: Arm, *values: float) -> list[Run]:
    return [run(a, value, repetition=number) for number, value in enumerate(values, 1)]


def test_ranges_that_overlap_are_not_told_apart() -> None:
    bounce, direct, vader = arm("bounce", REGX), arm("direct", REGX), arm("vader", PEER)
    found = results(
        *runs_of(bounce, 30, 31, 32), *runs_of(direct, 20, 22, 23), *runs_of(vader, 21, 22, 22.5)
    )
    (block,) = table.blocks(found)
    assert block.is_told_apart(bounce, SIZE) and not block.is_told_apart(direct, SIZE)
    assert block.cell(bounce, SIZE)[0] == "31.0 1.41x"
    assert block.cell(direct, SIZE)[0] == "22.0 1.00x~"
    text = table.render(found, 160)
    assert "~ Not told apart: in 1 of 2 ratios the runs of regx and of the best peer overlap." in text


def test_a_wide_spread_is_said() -> None:
    bounce, vader = arm("bounce", REGX), arm("vader", PEER)
    found = results(*runs_of(bounce, 30, 31, 38), *runs_of(vader, 20, 21, 22))
    (block,) = table.blocks(found)
    assert block.cell(bounce, SIZE) == ("31.0 1.48x", "30.0-38.0!")
    assert block.cell(vader, SIZE) == ("21.0 *", "20.0-22.0")
    text = table.render(found, 160)
    assert (
        "! Spread: 1 of 2 cells vary by more than 20 % of their median from run to run, most of all"
        " bounce osu_bw at 64 KiB, by 26 %."
    ) in text
    assert "!" not in table.render(results(*runs_of(bounce, 30, 31, 32)), 160)


def test_the_number_of_runs_of_a_median_is_shown() -> None:
    """A change of phase splits them."""
    bounce, vader = arm("bounce", REGX), arm("vader", PEER)
    found = results(*runs_of(bounce, 1, 2, 3), run(bounce, 4, 0.05), *runs_of(vader, 1, 2))
    near, far = table.blocks(found)
    assert near.title().endswith("mailbox 0.05 us, 1 run)")
    assert far.title().endswith("mailbox 0.25 us, 2 to 3 runs)")


def test_options_stand_in_the_head() -> None:
    bounce = arm("bounce", REGX)
    (block,) = table.blocks(results(run(bounce, 30, options="-i 100 -x 10")))
    assert "(options -i 100 -x 10, far phase" in block.title()


# ---- several metrics, ranks and benchmarks


def test_percentiles_of_one_run_have_a_row_each() -> None:
    auto, vader = arm("auto", REGX, "companion_percentiles"), arm("vader", PEER,
                                                                  "companion_percentiles")
    found = results(*(
        run(a, value, metric=metric, unit="us", carried="eager 1 KiB" if a == auto else "")
        for a, p50, p99 in ((auto, 2, 9), (vader, 1, 10))
        for metric, value in (("p50", p50), ("p99", p99))
    ))  # fmt: skip
    one, two = table.blocks(found)
    assert one.title().startswith("companion_percentiles p50, us") and one.ratio(auto, SIZE) == 2
    assert two.title().startswith("companion_percentiles p99, us") and two.ratio(auto, SIZE) == 0.9
    assert "Path: in all 1 runs" in table.render(found, 160)


def ranked(strategy: str, kind: str, ranks: int) -> Arm:
    return Arm(strategy, kind, "osu_allreduce", "same", ranks)


def test_numbers_of_ranks_are_told_apart() -> None:
    found = results(
        *(run(ranked(name, kind, ranks), value, unit="us", metric="latency")
          for name, kind, ranks, value in (("auto", REGX, 2, 1), ("vader", PEER, 2, 2),
                                           ("auto", REGX, 4, 9), ("vader", PEER, 4, 3)))
    )  # fmt: skip
    two, four = table.blocks(found)
    assert two.ratio(ranked("auto", REGX, 2), SIZE) == 0.5 and "ranks" not in two.title()
    assert four.ratio(ranked("auto", REGX, 4), SIZE) == 3 and "(4 ranks, far phase" in four.title()


def test_the_summary_is_of_speed_whatever_the_unit() -> None:
    bw, latency, bibw = "osu_bw", "osu_latency", "osu_bibw"
    found = results(
        *runs_of(arm("auto", REGX, bw), 40, 40), *runs_of(arm("vader", PEER, bw), 20, 10),
        *runs_of(arm("auto", REGX, latency), 4), *runs_of(arm("vader", PEER, latency), 2),
        *runs_of(arm("auto", REGX, bibw), 8), *runs_of(arm("vader", PEER, bibw), 2),
        *runs_of(arm("ucx", PEER, bibw), 1),
    )  # fmt: skip
    lines = table.render(found, 160).splitlines()
    (line,) = [line.split() for line in lines if line.lstrip().startswith("64 KiB") and "(" in line]
    assert line == "64 KiB 3.00 (2.00-4.00) 0.50 (0.50-0.50) 4.00 (4.00-4.00)".split()
    mean = (3 * 0.5 * 4) ** (1 / 3)
    wanted = f"regx auto: geometric mean {mean:.2f} of 3 cells; 2 faster and 1 slower by more than 5 %."
    assert wanted in lines


def test_few_benchmarks_need_no_summary() -> None:
    found = results(run(arm("auto", REGX), 2), run(arm("vader", PEER), 1))
    assert "geometric mean" not in table.render(found, 160)


# ---- counts


def test_what_the_node_paged_stands_below_the_figures() -> None:
    odp, ucx = arm("odp", REGX), arm("ucx", PEER)
    none = {"major_faults": 0, "swapped_in": 0, "swapped_out": 0, "killed": 0}
    found = results(run(odp, 30, counts={"hits": 9, **none}), run(ucx, 20, counts=dict(none)))
    assert "swapped_in" not in table.render(found, 160)
    found.runs[0].counts |= {"major_faults": 5}  # of a file that was read
    assert "major_faults" not in table.render(found, 160)
    found.runs[0].counts |= {"swapped_in": 700}
    lines = table.render(found, 160).splitlines()
    shown = {line.split()[0]: line.split()[1:] for line in lines if line.startswith(" ")}
    assert shown["swapped_in"] == ["700", "0"] and shown["major_faults"] == ["5", "0"]
    assert shown["killed"] == ["0", "0"] and "hits" not in shown  # of one backend
    assert any(line.startswith("major_faults, swapped_in and swapped_out") for line in lines)


def test_buffers_that_came_back_stand_beside_the_hits() -> None:
    hooks, none = arm("hooks", REGX), arm("none", REGX)
    found = results(run(hooks, 30, backend="hooks", counts={"hits": 40, "came_back": 10}),
                    run(none, 20, backend="none", counts={"hits": 0, "came_back": 12}))
    lines = table.render(found, 160).splitlines()
    shown = {line.split()[0]: line.split()[1:] for line in lines if line.startswith(" ")}
    assert shown["hits"] == ["40", "0"] and shown["came_back"] == ["10", "12"]
    assert any(line.startswith("came_back: buffers that malloc gave again") for line in lines)


# ---- what auto chose


def test_the_choice_is_printed_and_can_be_pinned() -> None:
    auto = arm("auto", REGX)
    decisions = {"bounce: on trial": 900, "together: faster when tried": 40, "bounce: not slower": 3}
    found = results(*(run(auto, 1, repetition=n, decisions=decisions) for n in (1, 2)))
    assert (
        "Choice: auto osu_bw: together: faster when tried (80), bounce: not slower (6), on trial"
        " (1,800); to pin together: --mca btl_regx_rendezvous together"
    ) in table.notes(found)


@pytest.mark.parametrize("settled", [False, True])
def test_contents_that_were_checked_in_trials_alone(settled: bool) -> None:
    auto = arm("auto", REGX)
    found = results(run(auto, 1))
    decisions = {"bounce: on trial": 9} | ({"bounce: not slower": 1} if settled else {})
    found.checks = [Check(auto, "companion_bw", "mpirun", decisions=decisions)]
    (note,) = [n for n in table.notes(found) if "trial" in n] or [""]
    assert bool(note) != settled
    if note:
        assert note == ("Content checked in trials alone: auto osu_bw: auto had not chosen yet:"
                        " on trial (9)")


@pytest.mark.parametrize("benchmark", ["osu_reduce_scatter", "osu_put_bw", "osu_bcast"])
def test_a_benchmark_whose_contents_nothing_checks_is_named(benchmark: str) -> None:
    case = Case(benchmark, Range(8, 8), (), "same")
    row = Row("auto", (("btl", "regx"),), (), (), "", 60, (case,), "test:1")
    plan = Plan([row], Suite(None, Path("companion"), {}, ()), 1, False)
    notes = table.notes(Results(arms=[arm("auto", REGX, benchmark)]))
    unchecked = benchmark != "osu_bcast"
    assert [step.kind for step in plan.steps()] == (["run"] if unchecked else ["check", "run"])
    assert any(note.startswith(f"Content not checked: {benchmark}:") for note in notes) == unchecked


def test_ratios_stay_within_a_phase() -> None:
    bounce, vader = arm("bounce", REGX), arm("vader", PEER)
    found = results(
        run(bounce, 60, mailbox=0.05), run(bounce, 30, mailbox=0.25), run(vader, 20, mailbox=0.25)
    )
    near, far = table.blocks(found)
    assert near.phase == "near" and near.ratio(bounce, SIZE) is None
    assert near.cell(bounce, SIZE) == ("60.0", "") and near.cell(vader, SIZE) == ("-", "")
    assert far.phase == "far" and far.ratio(bounce, SIZE) == pytest.approx(1.5)
    assert "near phase, mailbox 0.05 us" in near.title()


def test_a_run_across_a_flip_gets_no_ratio() -> None:
    bounce, vader = arm("bounce", REGX), arm("vader", PEER)
    found = results(run(bounce, 30, 0.05, 0.25), run(vader, 20, 0.05, 0.25))
    (block,) = table.blocks(found)
    assert block.ratio(bounce, SIZE) is None and "no ratios" in block.title()
    assert any("bounce osu_bw, run 1: the mailbox moved" in note for note in table.notes(found))


def test_marks_and_status() -> None:
    bounce, vader = arm("bounce", REGX), arm("vader", PEER)
    good = results(run(bounce, 30, carried="bounce 1 GiB"), run(vader, 20))
    assert good.status() == 0
    assert any(note.startswith("Path: in all 1 runs") for note in table.notes(good))

    unproven = results(run(bounce, 30, problem="path not proven: nothing"), run(vader, 20))
    assert unproven.status() == 1
    assert "30.0 1.50x ?" in table.render(unproven, 160)
    assert "Path: bounce osu_bw (?): path not proven: nothing" in table.notes(unproven)

    failed = results(run(bounce, 30, values={}, failed="it broke"), run(vader, 20))
    assert failed.status() == 1 and "FAILED: bounce osu_bw: it broke" in table.notes(failed)
    # That a peer is not there is said, but is no failure of regx.
    without_peer = results(run(bounce, 30), run(vader, 20, values={}, failed="no such BTL"))
    assert without_peer.status() == 0
    assert "FAILED: vader osu_bw: no such BTL" in table.notes(without_peer)

    disturbed = results(run(bounce, 30, others=0.5), run(vader, 20))
    assert disturbed.status() == 0
    load = "up to 50 % of the cores' time during 1 of 2 runs"
    assert any(load in note for note in table.notes(disturbed))

    wrong = results(run(bounce, 30), run(vader, 20))
    wrong.checks = [Check(vader, "osu_bw", "mpirun", wrong=True)]
    assert wrong.status() == 1
    assert table.notes(wrong)[0].startswith("WRONG DATA: vader osu_bw")
    assert "WRONG DATA" in table.render(wrong, 160).splitlines()[3]


def test_no_line_is_wider_than_asked() -> None:
    arms = [arm(f"strategy-{i}", REGX) for i in range(9)] + [arm("vader", PEER)]
    found = results(*(run(a, 12345.6) for a in arms))
    text = table.blocks(found)[0].render(80)
    assert all(len(line) <= 80 for line in text)
    shown = " ".join(text)
    assert all(f"regx {a.strategy}" in shown for a in arms if a.kind == REGX)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.123, "0.12"), (9.994, "9.99"), (12.34, "12.3"), (123.4, "123"), (25674, "25674")],
)
def test_numbers_are_shown_with_at_least_three_digits(value: float, text: str) -> None:
    assert columns.number(value) == text
