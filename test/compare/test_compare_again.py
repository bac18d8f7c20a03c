# SPDX-License-Identifier: BSD-3-Clause
"""Tables that compare makes again from a results.csv."""

import csv
from pathlib import Path

import pytest
from standins import ROWS, TOP, Tree

# Not those of other commands of ours.
PUBLISHED = [file for file in sorted((TOP / "osu-configs/results").glob("*.csv"))
             if file.read_text().startswith("strategy,")]


def test_tables_are_made_again_from_a_csv_without_a_run(tree: Tree) -> None:
    tree.write("mailbox", "0.25 0.25 0.25 0.05")  # two phases
    done, _ = tree.compare(ROWS)
    file = tree.path / "output/results.csv"
    calls = tree.calls()
    again = tree.run("--from", file)
    assert again.returncode == 0, again.stderr
    assert "far phase" in again.stdout and "near phase" in again.stdout
    figures = done.stdout.partition("\nContent checked")[0]
    assert figures and again.stdout.startswith(figures)
    assert f"From {file}: what was checked, and what failed, stands in" in again.stdout
    assert tree.calls() == calls


def test_tables_are_made_from_a_csv_of_an_older_version(tree: Tree) -> None:
    """Without the columns that came later, and with the limit that the reference was once."""
    lines = ["strategy,backend,transport,benchmark,buffers,size,metric,unit,repetition,value"]
    for repetition in (1, 2):
        lines += [f"limit,,shm,probe,same,65536,bandwidth,MB/s,{repetition},4000",
                  f"bounce,none,uct/shm,osu_bw,same,65536,bandwidth,MB/s,{repetition},3000",
                  f"vader,,vader,osu_bw,same,65536,bandwidth,MB/s,{repetition},2000"]  # fmt: skip
    file = tree.write("old.csv", "\n".join(lines) + "\n")
    done = tree.run("--from", file)
    assert done.returncode == 0, done.stderr
    assert "osu_bw, MB/s, higher is better (phase not measured, 2 runs)" in done.stdout
    assert "3000 1.50x" in done.stdout and "4000 75%" in done.stdout


@pytest.mark.parametrize("file", PUBLISHED, ids=str)
def test_each_published_csv_can_be_read(tree: Tree, file: Path) -> None:
    with file.open() as lines:
        unproven = any(row.get("problem") for row in csv.DictReader(lines))
    done = tree.run("--from", file)
    assert done.returncode == unproven, done.stderr
    assert " is better (" in done.stdout and f"From {file}: " in done.stdout
    assert ("(?): path not proven" in done.stdout) == unproven


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", ":1: no results.csv of compare: no column strategy"),
        ("arm,value\n", ":1: no results.csv of compare: no column strategy"),
        ("{columns}\na,b,c,osu_bw,same,eight,bandwidth,MB/s,1,2\n", ':2: size: "eight": allowed: a whole number from 0 on'),
        ("{columns},phase\na,b,c,osu_bw,same,8,bandwidth,MB/s,1,2,odd\n",
         ':2: phase: "odd": allowed: near, between, far, unmeasured, mixed'),
        ("{columns}\n", ": no runs in it"),
    ],
)  # fmt: skip
def test_a_csv_of_another_kind_is_refused(tree: Tree, text: str, complaint: str) -> None:
    columns = "strategy,backend,transport,benchmark,buffers,size,metric,unit,repetition,value"
    file = tree.write("odd.csv", text.replace("{columns}", columns))
    done = tree.run("--from", file)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"compare: {file}{complaint}") and done.stderr.count("\n") == 1
