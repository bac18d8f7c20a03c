# SPDX-License-Identifier: BSD-3-Clause
"""The table, from recorded results."""

from pathlib import Path

import pytest

from tools import output, plot, table
from tools.trouble import Trouble

HEAD = ",".join(output.COLUMNS)
# Of osu_bw: bounce in three runs beside vader, of which the third is in another phase; a row that
# failed; counts and a choice of auto.
RECORDED = f"""{HEAD}
bounce,regx,osu_bw,same,2,-i 5,checked,,,0,1,,,,,,,,,,regx 1
bounce,regx,osu_bw,same,2,-i 5,bandwidth,MB/s,65536,1,30,40,far,0.25,0.25,1,0.0,none,shm,,regx 1
bounce,regx,osu_bw,same,2,-i 5,bandwidth,MB/s,65536,2,34,40,far,0.25,0.25,1,0.5,none,shm,,regx 1
bounce,regx,osu_bw,same,2,-i 5,bandwidth,MB/s,65536,3,90,95,near,0.05,0.05,1,0.0,none,shm,,regx 1
auto,regx,osu_bw,same,2,-i 5,bandwidth,MB/s,65536,1,21,40,far,0.25,0.25,1,0.0,hooks,shm,,regx 1
auto,regx,osu_bw,same,2,-i 5,hits,count,,1,7,,far,,,,,,,,regx 1
auto,regx,osu_bw,same,2,-i 5,bounce: on trial,choice,,1,900,,far,,,,,,,,regx 1
auto,regx,osu_bw,same,2,-i 5,together: faster when tried,choice,,1,40,,far,,,,,,,,regx 1
vader,peer,osu_bw,same,2,-i 5,bandwidth,MB/s,65536,1,20,,far,0.25,0.25,1,0.0,,,,regx 1
vader,peer,osu_bw,same,2,-i 5,bandwidth,MB/s,65536,2,22,,far,0.25,0.25,1,0.0,,,,regx 1
vader,peer,osu_bw,same,2,-i 5,bandwidth,MB/s,65536,3,99,,mixed,0.25,0.05,4,0.0,,,,regx 1
ucx,peer,osu_bw,same,2,-i 5,failed,,,0,1,,,,,,,,,no such PML,regx 1
"""
WRONG = "ucx,peer,osu_bw,same,2,,wrong data,,,0,1,,,,,,,,,osu_bw -c received other bytes,regx 1\n"
UNPROVEN = RECORDED.replace("1,21,40,far,0.25,0.25,1,0.0,hooks,shm,", "1,21,40,far,,,,,hooks,shm,path not proven: nothing")


def read(tmp_path: Path, text: str) -> table.Frame:
    file = tmp_path / "results.csv"
    file.write_text(text)
    return table.read([file])


def test_medians_ranges_and_ratios_of_each_phase_have_a_table(tmp_path: Path) -> None:
    text = table.render(read(tmp_path, RECORDED), 160)
    far, near = text.split("osu_bw, MB/s, higher is better")[1:]
    assert far.startswith(" (far phase, runs 1-2)") and near.startswith(" (near phase, runs 1)")
    head, values, ranges, hits = (line.split() for line in far.splitlines()[2:6])
    assert head == ["regx", "bounce", "regx", "auto", "vader", "ucx", "reference"]
    assert values == "64 KiB 32.0 1.52x 21.0 1.00x~ 21.0 * failed 40.0 80%".split()
    assert ranges == ["30.0-34.0", "20.0-22.0"] and hits == ["hits", "-", "7", "-", "-"]
    # No peer ran in that phase, and a run across a change of phase is in none.
    assert near.splitlines()[3].split()[:5] == ["64", "KiB", "90.0", "-", "-"] and "99" not in near
    assert "Phase: it changed during 1 of 7 runs, which are left out: vader osu_bw." in text


def test_what_a_reader_must_know_stands_below(tmp_path: Path) -> None:
    frame = read(tmp_path, RECORDED)
    text = table.render(frame, 160)
    for line in ("~ Not told apart: in 1 of 2 ratios", "FAILED: ucx osu_bw: no such PML",
                 "Content checked: 1 of 4 rows.", "Path: in all 4 runs regx's report proves",
                 "Choice: auto osu_bw: together: faster when tried (40), on trial (900)",
                 "Registering costs NOTHING on shm", "Load: other programs took up to 50 %", "regx 1"):
        assert line in text, text
    assert table.status(frame) == 0  # a peer that is not there is no failure of regx
    assert not table.summary(table.figures(frame))  # of one benchmark


@pytest.mark.parametrize(("text", "line"), [
    (RECORDED + WRONG, "WRONG DATA: ucx osu_bw: osu_bw -c received other bytes"),
    (RECORDED.replace("ucx,peer", "ucx,regx"), "FAILED: ucx osu_bw: no such PML"),
    (UNPROVEN, "Path (?): auto osu_bw: path not proven: nothing"),
], ids=["wrong data", "failed", "unproven"])  # fmt: skip
def test_what_is_wrong_is_said_and_fails(tmp_path: Path, text: str, line: str) -> None:
    frame = read(tmp_path, text)
    assert table.status(frame) == 1 and line in table.render(frame, 160).splitlines()


def test_wrong_data_has_no_figures(tmp_path: Path) -> None:
    text = table.render(read(tmp_path, RECORDED + WRONG), 160)
    assert "WRONG DATA" in text.splitlines()[3]


def test_the_summary_is_of_speed_whatever_the_unit(tmp_path: Path) -> None:
    lines = [f"{row},{kind},{benchmark},same,2,,{metric},{unit},8,1,{value},,far,,,,,,,,regx 1"
             for benchmark, metric, unit, ours in (("a", "bandwidth", "MB/s", 40), ("b", "latency", "us", 40),
                                                   ("c", "latency", "us", 5))
             for row, kind, value in (("auto", "regx", ours), ("vader", "peer", 10))]  # fmt: skip
    text = table.render(read(tmp_path, "\n".join([HEAD, *lines]) + "\n"), 160)
    mean = (4 * 0.25 * 2) ** (1 / 3)
    assert f"regx auto: {mean:.2f} of 3 cells; 2 faster and 1 slower by more than 5 %." in text


def test_the_plot_is_drawn(tmp_path: Path) -> None:
    plot.draw(read(tmp_path, RECORDED), tmp_path)
    assert (tmp_path / "plot.png").stat().st_size > 1000 and "regx bounce" in (tmp_path / "plot.svg").read_text()


@pytest.mark.parametrize(("text", "complaint"), [
    ("", ": cannot be read: No columns"),
    ("row,value\n", ":1: no results.csv of compare: no column kind"),
    (HEAD + "\n", ": no runs in it"),
    (RECORDED.replace("65536,2,34", "eight,2,34"), ':4: size: "eight": allowed: a number'),
    (RECORDED.replace("40,far", "40,odd", 1), ':3: phase: "odd": allowed: near, between, far'),
    (None, ": cannot be read: No such file"),
], ids=["empty", "column", "no line", "number", "phase", "gone"])  # fmt: skip
def test_a_csv_of_another_kind_is_refused_in_a_line(tmp_path: Path, text: str | None, complaint: str) -> None:
    file = tmp_path / "odd.csv"
    if text is not None:
        file.write_text(text)
    with pytest.raises(Trouble) as trouble:
        table.read([file])
    assert str(trouble.value).startswith(f"{file}{complaint}") and "\n" not in str(trouble.value)
