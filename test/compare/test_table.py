# SPDX-License-Identifier: BSD-3-Clause
"""The table, from recorded results."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tools import output, page, plot, screen, table
from tools.trouble import Trouble

HEAD = ",".join(output.COLUMNS)
# Of osu_bw: bounce in three runs beside vader, of which the third is in another phase; a row that
# failed; counts and a choice of auto.
RECORDED = f"""{HEAD}
bounce,regx,osu_bw,same,2,-i 5,checked,,,0,1,,,,,,,,,regx 1
bounce,regx,osu_bw,same,2,-i 5,bandwidth,MB/s,65536,1,30,40,far,0.25,3,0.0,none,shm,,regx 1
bounce,regx,osu_bw,same,2,-i 5,bandwidth,MB/s,65536,2,34,40,far,0.25,2.9,0.5,none,shm,,regx 1
bounce,regx,osu_bw,same,2,-i 5,bandwidth,MB/s,65536,3,90,95,near,0.05,3,0.0,none,shm,,regx 1
auto,regx,osu_bw,same,2,-i 5,bandwidth,MB/s,65536,1,21,40,far,0.25,3,0.0,hooks,shm,,regx 1
auto,regx,osu_bw,same,2,-i 5,hits,count,,1,7,,far,,,,,,,regx 1
auto,regx,osu_bw,same,2,-i 5,bounce: on trial,choice,,1,900,,far,,,,,,,regx 1
auto,regx,osu_bw,same,2,-i 5,together: faster when tried,choice,,1,40,,far,,,,,,,regx 1
vader,peer,osu_bw,same,2,-i 5,bandwidth,MB/s,65536,1,20,,far,0.25,3,0.0,,,,regx 1
vader,peer,osu_bw,same,2,-i 5,bandwidth,MB/s,65536,2,22,,far,0.25,3,0.0,,,,regx 1
vader,peer,osu_bw,same,2,-i 5,bandwidth,MB/s,65536,3,99,,mixed,0.25,3,0.0,,,,regx 1
vader,peer,osu_bw,same,2,,bandwidth,MB/s,65536,4,19.5,,far,0.25,1.7,0.0,,,,regx 1
ucx,peer,osu_bw,same,2,-i 5,failed,,,0,1,,,,,,,,no such PML,regx 1
"""
WRONG = "ucx,peer,osu_bw,same,2,,wrong data,,,0,1,,,,,,,,osu_bw -c received other bytes,regx 1\n"
UNPROVEN = RECORDED.replace("1,21,40,far,0.25,3,0.0,hooks,shm,", "1,21,40,far,,,,hooks,shm,path not proven: nothing")


def read(tmp_path: Path, text: str) -> table.Frame:
    file = tmp_path / "results.csv"
    file.write_text(text)
    return table.read([file])


def test_medians_ranges_and_ratios_of_each_phase_have_a_table(tmp_path: Path) -> None:
    text = table.render(read(tmp_path, RECORDED), 160)
    far, near, shared = text.split("osu_bw, MB/s, higher is better")[1:]
    assert far.startswith(" (far phase, runs 1-2)") and near.startswith(" (near phase, runs 1)")
    assert shared.startswith(" (far shared phase, runs 1)") and "19.5" in shared and "19.5" not in far + near
    head, values, ranges, hits = (line.split() for line in far.splitlines()[2:6])
    assert head == ["regx", "bounce", "regx", "auto", "vader", "ucx", "reference"]
    assert values == "64 KiB 32.0 1.52x 21.0 1.00x~ 21.0 * failed 40.0 80%".split()
    assert ranges == ["30.0-34.0", "20.0-22.0"] and hits == ["hits", "-", "7", "-", "-"]
    # No peer ran in that phase, and a figure across a change of phase is in none.
    assert near.splitlines()[3].split()[:5] == ["64", "KiB", "90.0", "-", "-"] and "99" not in near
    assert "Phase: it changed during 1 of 8 figures, which are left out: vader osu_bw." in text


def test_where_nothing_was_measured_the_screen_says_what_failed(tmp_path: Path) -> None:
    nothing = read(tmp_path, HEAD + "\n" + RECORDED.splitlines()[-1] + "\n")
    for text in (table.render(nothing, 160), screen.render(nothing, 100)):
        assert "FAILED: ucx osu_bw: no such PML" in text


def test_of_many_runs_one_that_was_disturbed_does_not_widen_the_interval(tmp_path: Path) -> None:
    line = "{row},{kind},osu_bw,same,2,,bandwidth,MB/s,65536,{run},{value},,far,,,,none,shm,,regx 1\n"
    runs = {"auto": ("regx", [30, 31, 32, 33, 30, 31, 32, 33, 5]), "vader": ("peer", [20, 21, 22, 20, 21, 22, 20, 21, 90])}
    text = HEAD + "\n" + "".join(line.format(row=row, kind=kind, run=run, value=value)
                                 for row, (kind, values) in runs.items() for run, value in enumerate(values))
    _, values, intervals = (line.split() for line in table.render(read(tmp_path, text), 160).splitlines()[2:5])
    assert values[2:6] == ["31.0", "1.48x", "21.0", "*"] and intervals == ["30.0-33.0!", "20.0-22.0!"], (values, intervals)


def test_of_many_rows_whose_phase_changed_a_few_are_named(tmp_path: Path) -> None:
    changed = "".join(f"row{n},regx,osu_bw,same,2,-i 5,bandwidth,MB/s,65536,1,9,,mixed,0.25,3,0.0,none,shm,,regx 1\n"
                      for n in range(6))
    assert ("which are left out: vader osu_bw, row0 osu_bw, row1 osu_bw, row2 osu_bw and of 3 other rows."
            in table.render(read(tmp_path, RECORDED + changed), 160))


def test_one_run_alone_is_not_told_apart(tmp_path: Path) -> None:
    one_each = "".join(line for line in RECORDED.splitlines(True) if "65536,2," not in line and "65536,4," not in line)
    text = table.render(read(tmp_path, one_each), 160)
    assert text.split("(far phase, runs 1)")[1].splitlines()[3].split()[2:4] == ["30.0", "1.50x~"], text
    assert "~ Not told apart: in 2 of 2 ratios" in text


def test_a_ratio_above_1_is_faster_of_times_too(tmp_path: Path) -> None:
    text = table.render(read(tmp_path, RECORDED.replace("bandwidth,MB/s", "latency,us")), 160)
    values = text.split("(far phase, runs 1-2)")[1].splitlines()[3]
    assert values.split()[:7] == "64 KiB 32.0 0.66x 21.0 1.00x~ 21.0".split()


def test_what_a_reader_must_know_stands_below(tmp_path: Path) -> None:
    frame = read(tmp_path, RECORDED)
    text = table.render(frame, 160)
    for line in ("~ Not told apart: in 1 of 2 ratios", "FAILED: ucx osu_bw: no such PML",
                 "Content checked: 1 of 4 rows.", "Path: in all 4 runs regx's report proves",
                 "Choice: auto osu_bw: together: faster when tried (40), on trial (900)",
                 "Registering costs NOTHING on shm", "Load: other programs took up to 50 %", "regx 1"):
        assert line in text, text
    assert table.status(frame) == 0  # a peer that is not there is no failure of regx


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


def lines_of(values: dict[tuple[str, str, int, int], tuple[float, str, float]], unit: str = "us") -> str:
    """A results.csv of {(row, kind, size, run): (value, phase, reference)}."""
    return "\n".join([HEAD, *(
        f"{row},{kind},osu_latency,same,2,,latency,{unit},{size},{run},{value},{reference},{phase},,,,,,,regx 1"
        for (row, kind, size, run), (value, phase, reference) in values.items())]) + "\n"


def test_the_screen_says_who_leads_in_words_and_as_a_table(tmp_path: Path) -> None:
    values = {(row, kind, size, run): (us + run / 100, "far", 1.0)
              for row, kind, times in (("auto", "regx", (2, 4, 8, 5)), ("vader", "peer", (4, 8, 8, 4)),
                                       ("ucx", "peer", (9, 9, 9, 9)))
              for size, us in zip((8, 16, 32, 64), times) for run in (1, 2)}  # fmt: skip
    text = screen.render(read(tmp_path, lines_of(values)))
    assert ("osu_latency: regx auto 1.99 to 2.00 times as fast at 8 B-16 B; vader 1.25 times as fast at 64 B; level"
            " at 32 B") in text.replace("\n    ", " ")  # fmt: skip
    table_lines = [line.split() for line in text.splitlines() if line.startswith(("regx auto ", "vader  "))]
    assert table_lines == [["regx", "auto", "1.99", "2.00", "1.00~", "0.80"], ["vader", *["1.00"] * 4]]
    assert "far phase; runs 2" in text and "Not told apart: in 1 of 4 ratios" in text


def test_a_peer_with_few_runs_is_not_the_best(tmp_path: Path) -> None:
    for many, few, best in ((2, 1, "vader"), (7, 2, "vader"), (7, 3, "ucx")):
        values = {(row, kind, 8, run): (us, "far", 1.0) for row, kind, us, runs in (
            ("auto", "regx", 2.0, 1), ("vader", "peer", 4.0, many), ("ucx", "peer", 1.0, few)) for run in range(runs)}
        (ours,) = (line for line in table.figures(read(tmp_path, lines_of(values))).itertuples() if line.row == "auto")
        assert (ours.row_best, ours.speed) == (best, {"vader": 2.0, "ucx": 0.5}[best])


def test_where_the_phase_moved_each_run_is_compared_by_its_reference(tmp_path: Path) -> None:
    """Both are twice as slow as the reference, but ran in different phases."""
    values = {("auto", "regx", 8, 1): (2.0, "far", 1.0), ("vader", "peer", 8, 1): (0.4, "near", 0.2)}
    text = screen.render(read(tmp_path, lines_of(values)))
    assert "osu_latency: level at 8 B" in text and "phase moved" in text
    without = lines_of(values).replace(",0.4,0.2,near", ",0.4,,near")
    assert "Phase: not shown are 1 of 2 cells" in screen.render(read(tmp_path, without))


def test_one_run_and_a_row_that_failed_leave_a_screen_of_60_lines(tmp_path: Path) -> None:
    text = screen.render(read(tmp_path, RECORDED.replace("such PML", "such PML" + 80 * " far")))
    assert "FAILED: ucx osu_bw: no such PML" in text and "far [...]" in text
    # Beside all runs of vader far, shared or not.
    assert "osu_bw: regx bounce 1.60 times as fast at 64 KiB" in text
    assert len(text.splitlines()) <= 60 and max(map(len, text.splitlines())) <= 120
    assert "WRONG DATA: ucx osu_bw" in screen.render(read(tmp_path, RECORDED + WRONG))


def test_more_runs_go_where_medians_are_not_told_apart(tmp_path: Path) -> None:
    assert screen.undecided(read(tmp_path, RECORDED)) == {(row, ("osu_bw", "same", 2, "")) for row in ("auto", "vader")}


def test_of_many_benchmarks_there_is_a_table_of_geometric_means(tmp_path: Path) -> None:
    lines = [f"{row},{kind},{benchmark},same,2,,{metric},{unit},8,1,{value},,far,,,,,,,regx 1"
             for benchmark, metric, unit, ours in (("a", "bandwidth", "MB/s", 40), ("b", "latency", "us", 40),
                                                   ("c", "latency", "us", 5), ("d", "latency", "us", 5))
             for row, kind, value in (("auto", "regx", ours), ("vader", "peer", 10))]  # fmt: skip
    text = screen.render(read(tmp_path, "\n".join([HEAD, *lines]) + "\n"))
    rows = [line.split() for line in text.splitlines() if line[:2] in ("a ", "b ", "c ", "d ")]
    assert rows == [["a", "4.00"], ["b", "0.25"], ["c", "2.00"], ["d", "2.00"]]


def test_rows_without_a_peer_are_shown_by_their_figures(tmp_path: Path) -> None:
    frame = read(tmp_path, "".join(line for line in RECORDED.splitlines(True) if ",peer," not in line))
    text = screen.render(frame)
    assert "osu_bw, MB/s, higher is better (far phase; runs 1-2)" in text and " 32.0" in text
    assert len(plot.draw(frame, tmp_path)) == 1


# Of a message of 1 and of 2 MiB, in us, in two runs each: fresh buffers first, then the same one.
COSTS = {"bounce": ((10, 20), (10, 20)), "pipeline-none": ((40, 50), (40, 50)), "direct-none": ((30, 70), (30, 70)),
         "pipeline-hooks": ((41, 51), (5, 19.5)), "read-none": ((90, 90), (90, 90))}  # fmt: skip


def of_costs() -> str:
    lines = [f"{row},regx,companion_latency,{buffers},2,,latency,us,{size},{run},{value + run},,far,,,,none,pinned,,regx 1,{cost}"
             for cost in ("none", "nic") for row, kinds in COSTS.items()
             for buffers, values in zip(("fresh", "same"), kinds) for size, value in zip((1 << 20, 2 << 20), values)
             for run in (0, 1)]  # fmt: skip
    counts = [f"pipeline-hooks,regx,companion_latency,same,2,,{name},count,,1,{value},,,,,,,,,regx 1,nic"
              for name, value in (("registering_us", 777), ("registered_high", 4444))]
    return "\n".join([HEAD, *lines, *counts]) + "\n"


def test_the_screen_says_when_a_cache_a_pipeline_and_bounce_pay(tmp_path: Path) -> None:
    text = " ".join(screen.render(read(tmp_path, of_costs())).split())
    for cost in ("none", "nic"):
        for line in ("a cache (the best row that keeps registrations, relative to the best that registers each time) pay?"
                     " a new buffer each time: slower (0.73) at 1 MiB, not told apart at 2 MiB; the same buffer: faster"
                     " (2.52 to 5.55) at 1 MiB-2 MiB.",
                     "a pipeline (pipeline-none relative to direct-none) pay? a new buffer each time: slower (0.75) at 1 MiB,"
                     " faster (1.40) at 2 MiB;",
                     "bounce (relative to the best row that registers) pay? a new buffer each time: faster (2.46 to 2.90) at"
                     " 1 MiB-2 MiB; the same buffer: slower (0.52) at 1 MiB, not told apart at 2 MiB."):
            assert f"Pin cost {cost}, when does {line}" in text, (line, text)
    assert "Pin cost nic: 93000 ns a call and 375 ns a page, spent by spinning (osu-configs/pin-costs.md)." in text
    assert "Pin cost none: what io_uring takes" in text and "(~ not told apart; far; runs 2)" in text
    lines = [line.split() for line in screen.render(read(tmp_path, of_costs())).splitlines()
             if line.startswith(("the same buffer", "a new buffer"))]
    assert lines == 2 * [["a", "new", "buffer", "each", "time", "bounce", "2.90", "bounce", "2.46"],
                         ["the", "same", "buffer", "pipeline-hooks", "1.91", "pipeline-hooks", "1.02~"]]


def test_each_head_names_the_cost_and_costs_are_never_mixed(tmp_path: Path) -> None:
    text = table.render(read(tmp_path, of_costs()), 160)
    heads = [line for line in text.splitlines() if line.startswith("companion_latency")]
    assert sorted(line.partition("(")[2] for line in heads) == sorted(
        f"{buffers}pin cost {cost}, far phase, runs 2)" for cost in ("none", "nic") for buffers in ("fresh buffers, ", ""))
    assert "Pin cost nic: 93000 ns" in text and "Registering costs NOTHING" not in text


def test_the_picture_of_registering_is_drawn_first(tmp_path: Path) -> None:
    files = plot.draw(read(tmp_path, of_costs()), tmp_path)
    assert files[0].name == "plot-registration.png" and len(files) == 5 and files[0].stat().st_size > 1000
    # Without the rows that answer, the screen and the plots are those of any comparison.
    few = read(tmp_path, "".join(line for line in of_costs().splitlines(True) if "direct-none" not in line))
    assert "when does" not in screen.render(few) and len(plot.draw(few, tmp_path)) == 4


def test_a_table_from_before_there_were_costs_is_read(tmp_path: Path) -> None:
    old = "\n".join(line.rpartition(",")[0] for line in of_costs().replace(",none\n", ",\n").splitlines()
                    if not line.endswith(",nic")) + "\n"
    assert set(read(tmp_path, old).pin_cost) == {""}


def test_the_same_row_in_two_files_is_refused(tmp_path: Path) -> None:
    read(tmp_path, RECORDED)
    with pytest.raises(Trouble, match="row bounce is in more than one of them"):
        table.read(2 * [tmp_path / "results.csv"])


def test_the_page_holds_plots_tables_and_what_each_row_ran_on(tmp_path: Path) -> None:
    frame = read(tmp_path, RECORDED + WRONG)
    plots = plot.draw(frame, tmp_path)
    assert [file.name for file in plots] == ["plot-auto.png", "plot-osu_bw.png"]
    assert all(file.stat().st_size > 1000 for file in plots)
    text = page.write(frame, tmp_path, plots, "compare -f <file>").read_text()
    assert "compare -f &lt;file&gt;" in text and text.count('src="data:image/png;base64,') == 2
    assert "<td>bounce osu_bw</td><td>3</td><td>right</td><td>shm</td><td>none</td><td>as named</td>" in text
    assert 'src="http' not in text and "href" not in text and "<td>failed; wrong data; no such PML" in text


def test_the_page_begins_with_who_leads(tmp_path: Path) -> None:
    text = page.write(read(tmp_path, RECORDED), tmp_path, [], "compare").read_text()
    order = [text.index(word) for word in ("osu_bw: regx bounce 1.60 times as fast", "Content checked: 1 of 4 rows.",
                                           '<th>regx bounce</th><td class="faster">1.60 </td>', "<summary>")]  # fmt: skip
    assert order == sorted(order)
    assert '<th>regx auto</th><td class="">1.05~</td>' in text


def test_at_a_glance_auto_is_beside_the_best_of_each_family(tmp_path: Path) -> None:
    values = {(row, kind, 8, run): (us * run, "near", 1.0) for row, kind, us in (
        ("auto", "regx", 2.0), ("bounce", "regx", 1.0), ("vader-cma", "peer", 4.0), ("tcp", "peer", 9.0),
        ("ucx", "peer", 8.0), ("ucx-posix", "peer", 9.0)) for run in (1, 3)}  # fmt: skip
    values |= {("vader-cma", "peer", 8, 5): (1.0, "far", 1.0),  # alone there: no panel
               ("vader-copy", "peer", 8, 1): (1.0, "near", 1.0)}  # lucky once: not the best
    found = plot.families(read(tmp_path, lines_of(values)))
    assert {*found.phase} == {"near"}
    lines = {line.row: (line.slowest, line.speed, line.fastest) for line in found.itertuples()}
    assert lines == {"auto": (4 / 3, 2.0, 4.0), "vader-cma": (2 / 3, 1.0, 2.0), "ucx": (1 / 3, 0.5, 1.0)}


def test_a_browser_shows_the_page(tmp_path: Path) -> None:
    if shutil.which("chromium") is None:
        pytest.skip("needs chromium")
    frame = read(tmp_path, RECORDED)
    file = page.write(frame, tmp_path, plot.draw(frame, tmp_path), "compare")
    # Without a network, as an ordinary page; what the browser made of it becomes the title.
    file.write_text(file.read_text().replace("</body>", """<script>document.title = [document.images.length,
        [...document.images].every(image => image.naturalWidth > 400 && image.clientWidth <= innerWidth),
        document.querySelectorAll(".text td").length, document.querySelectorAll("pre").length,
        performance.getEntriesByType("resource").filter(entry => !entry.name.startsWith("data:")).length]</script></body>"""))
    shown = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
                            f"--user-data-dir={tmp_path}/user", file.as_uri()],
                           capture_output=True, text=True, timeout=600, check=True)  # fmt: skip
    assert f"<title>2,true,{6 * frame.groupby(['row', 'benchmark']).ngroups},1,0</title>" in shown.stdout


@pytest.mark.parametrize(("text", "complaint"), [
    ("", ": cannot be read: No columns"),
    ("row,value\n", ":1: no results.csv of compare: no column kind"),
    (HEAD + "\n", ": no runs in it"),
    (RECORDED.replace("65536,2,34", "eight,2,34"), ':4: size: "eight": allowed: a number'),
    (RECORDED.replace("40,far", "40,odd", 1), ':3: phase: "odd": allowed: sibling, near, between, far'),
    (None, ": cannot be read: No such file"),
], ids=["empty", "column", "no line", "number", "phase", "gone"])  # fmt: skip
def test_a_csv_of_another_kind_is_refused_in_a_line(tmp_path: Path, text: str | None, complaint: str) -> None:
    file = tmp_path / "odd.csv"
    if text is not None:
        file.write_text(text)
    with pytest.raises(Trouble) as trouble:
        table.read([file])
    assert str(trouble.value).startswith(f"{file}{complaint}") and "\n" not in str(trouble.value)
