# SPDX-License-Identifier: BSD-3-Clause
"""compare --recommend: what becomes of recorded results, and that nothing is written of half a measurement."""

from pathlib import Path

import pytest
from test_commands import run

from tools import costs, output, rows, table
from tools.trouble import Trouble

HEAD = ",".join(output.COLUMNS)
LINE = "{row},regx,{benchmark},same,2,,{metric},{unit},{size},{run},{value},,far,,,,none,shm,,regx 1\n"


def line(row: str, size: int, run: int, value: float, benchmark: str = "osu_bw") -> str:
    metric, unit = ("latency", "us") if benchmark.endswith("latency") else ("bandwidth", "MB/s")
    return LINE.format(row=row, size=size, run=run, value=value, benchmark=benchmark, metric=metric, unit=unit)


def frame(tmp_path: Path, text: str) -> table.Frame:
    (tmp_path / "results.csv").write_text(HEAD + "\n" + text)
    return table.read([tmp_path / "results.csv"])


def test_of_each_benchmark_the_median_counts(tmp_path: Path) -> None:
    text = costs.text(frame(tmp_path, "".join([
        *(line("eager.l3", 8192, run, value, "osu_latency") for run, value in enumerate([2, 900, 1])),  # us
        *(line("eager.l3", 8192, run, value) for run, value in enumerate([1024, 1024, 1])),
        line("read.l3", 8192, 1, 4, "osu_latency"), line("read.l3", 8192, 1, 1024), line("read.l3", 8192, 1, 512, "osu_bibw"),
        line("eager.l3", 8192, 1, 3, "companion_latency"),
        line("staged.node", 65536, 1, 8192), line("staged.node", 1 << 20, 1, 16384)])), "7.8")
    lines = text.splitlines()
    assert lines[:3] == ["regx-costs 3", "regx 7.8", f"processor {costs.processor()}"] and lines[-1] == "end"
    assert "# regx 1" in lines
    assert [line for line in lines[3:-1] if line[0] != "#"] == [
        "l3 8K single 2000 - - 4000", "l3 8K touched 3000 - - -", "l3 8K stream 8000 - - 8000", "l3 8K exchange - - - 16000",
        "node 64K stream - 8000 - -", "node 1M stream - 64000 - -", "any 64K stream - 8000 - -", "any 1M stream - 64000 - -"]
    assert len(costs.processor().split()) >= 2


def test_each_row_runs_between_two_cores_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = {0: {"l2": "0", "l3": "0-2", "package": "0"}, 1: {"l2": "1", "l3": "0-2", "package": "0"},
              2: {"l2": "2", "l3": "0-2", "package": "0"}, 3: {"l2": "3", "l3": "3", "package": "0"},
              4: {"l2": "4", "l3": "4", "package": "1"}}
    monkeypatch.setattr(costs, "cores", lambda: [*shared])
    monkeypatch.setattr(costs, "sharing", shared.__getitem__)
    assert costs.pairs() == {"l3": (0, 1), "package": (0, 3), "node": (0, 4)}
    wanted = costs.between_neighbours(rows.read([costs.ROWS]))
    assert [(row.name, row.cores) for row in wanted[:5]] == [
        ("eager.l3", (0, 1)), ("staged.l3", (0, 1)), ("together.l3", (0, 1)), ("read.l3", (0, 1)), ("eager.package", (0, 3))]
    assert len(wanted) == 12
    with pytest.raises(Trouble, match="no row read, staged, together"):
        costs.between_neighbours(rows.read([costs.ROWS])[:1])
    monkeypatch.setattr(costs, "cores", lambda: [0])
    with pytest.raises(Trouble, match="there is one core here"):
        costs.between_neighbours(rows.read([costs.ROWS]))


def test_of_half_a_measurement_nothing_is_written(tmp_path: Path) -> None:
    if len(costs.cores()) < 2:
        pytest.skip("one core alone")
    done = run("compare", "--no-build", "--recommend", tmp_path / "costs", "--minutes", 0.001,
               "--output", tmp_path / "output")  # fmt: skip
    assert done.returncode == 1 and f"{tmp_path}/costs is not written" in done.stderr, done.stdout + done.stderr
    assert not (tmp_path / "costs").exists()


def test_it_is_of_this_node_by_rows_of_its_own(tmp_path: Path) -> None:
    done = run("compare", "--no-build", "--recommend", tmp_path / "costs", "-f", "strategies.conf")
    assert done.returncode == 2 and "--recommend: not with -f" in done.stderr
