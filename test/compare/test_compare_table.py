# SPDX-License-Identifier: BSD-3-Clause
"""Medians, ratios and phases."""

import pytest

from comparing import phase, table
from comparing.result import LIMIT, PEER, REGX, Arm, Check, Results, Run

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


def test_thirty_percent_and_no_less() -> None:
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
    assert block.cell(bounce, SIZE) == ("33.0 1.65x", "30.0-1000")
    assert block.cell(vader, SIZE) == ("20.0 *", "1.00-22.0")
    assert block.cell(ucx, SIZE) == ("11.0", "10.0-12.0")


def test_for_latency_the_best_is_the_lowest() -> None:
    bounce, vader, ucx, limit = (
        arm(name, kind, "osu_latency")
        for name, kind in (("bounce", REGX), ("vader", PEER), ("ucx", PEER), ("limit", LIMIT))
    )
    (block,) = table.blocks(results(run(bounce, 8), run(vader, 10), run(ucx, 20), run(limit, 6)))
    assert block.ratio(bounce, SIZE) == pytest.approx(0.8)
    assert block.percent_of_limit(SIZE) == pytest.approx(75)
    assert block.cell(limit, SIZE) == ("6.00 75%", "")
    assert "lower is better" in block.title()


def test_the_limit_is_that_of_the_best_strategy() -> None:
    bounce, direct, limit = arm("bounce", REGX), arm("direct", REGX), arm("limit", LIMIT)
    (block,) = table.blocks(results(run(bounce, 30), run(direct, 15), run(limit, 40)))
    assert block.percent_of_limit(SIZE) == pytest.approx(75)


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
def test_numbers(value: float, text: str) -> None:
    assert table.number(value) == text
