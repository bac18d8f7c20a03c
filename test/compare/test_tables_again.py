# SPDX-License-Identifier: BSD-3-Clause
"""--from of counts, instructions, registration and startup: the table of a results.csv, again."""

import csv
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from standins import Tree

ROWS = """\
[defaults]
benchmark = companion_latency
sizes = 8:8
[auto]
mca = --mca pml ob1 --mca btl regx --mca btl_regx_transport verbs
[vader]
mca = --mca pml ob1 --mca btl vader,self
"""
UNPROVEN = ROWS.replace("[auto]", "[auto]\nenvironment = ACT=no-report")
FAILING = UNPROVEN.replace("[vader]", "[vader]\nenvironment = ACT=fail")


@dataclass(frozen=True)
class Tool:
    name: str
    number: str  # a column of numbers
    options: tuple[str, ...] = ()
    timed: bool = False


TOOLS = (
    Tool("counts", "value"),
    Tool("instructions", "lowest"),
    Tool("registration", "value", ("-n", "2"), timed=True),
    Tool("startup", "init_ms", ("-n", "2"), timed=True),
)
each_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)


def measured(tree: Tree, tool: Tool, rows: str = ROWS) -> subprocess.CompletedProcess[str]:
    """And its files in the tree's output."""
    tree.has_device()
    files = ("-f", tree.write("rows.conf", rows)) if tool.name != "registration" else ()
    return tree.run(*files, *tool.options, "--output", tree.path / "output", tool=tool.name)


def saved(tree: Tree) -> Path:
    return tree.path / "output/results.csv"


def changed(tree: Tree, column: str, value: str | None) -> Path:
    """The results.csv with another value in its first line, or without that column."""
    with saved(tree).open() as lines:
        rows = list(csv.DictReader(lines))
    for row in rows if value is None else rows[:1]:
        row.pop(column)
        row |= {column: value} if value is not None else {}
    file = tree.path / "changed.csv"
    columns = [name for name in csv.DictReader(saved(tree).open()).fieldnames or () if name in rows[0]]
    with file.open("w", newline="") as out:
        table = csv.DictWriter(out, columns)
        table.writeheader()
        table.writerows(rows)
    return file


@each_tool
def test_the_table_is_printed_again_without_a_run(tree: Tree, tool: Tool) -> None:
    tree.write("mailbox", "0.25 0.25 0.25 0.05")  # two phases, and a run across both made again
    done = measured(tree, tool)
    assert done.returncode == 0, done.stderr
    calls = tree.calls()
    again = tree.run("--from", saved(tree), tool=tool.name)
    assert again.returncode == 0, again.stderr
    assert again.stdout == done.stdout == (tree.path / "output/table.txt").read_text()
    assert tree.calls() == calls
    last = done.stdout.splitlines()[-1]
    assert last.startswith("regx ") and "Open MPI 4.1.4, UCX " in last and ", at 2" in last
    with saved(tree).open() as lines:
        rows = list(csv.DictReader(lines))
    assert {row["openmpi"] for row in rows} == {"4.1.4"} and all(row["date"] for row in rows)
    assert {row["attempt"] for row in rows} == ({"1", "2"} if tool.timed else {"1"})
    if tool.timed:
        assert {row["phase"] for row in rows} == {"near", "far"}
        assert "; figures of different phases cannot be compared." in done.stdout


@each_tool
def test_what_failed_is_said_again(tree: Tree, tool: Tool) -> None:
    tree.write("breaks-hooks", "")  # of registration
    tree.write("cannot-ucs_rcache", "")
    done = measured(tree, tool, FAILING)
    assert done.returncode == 1 and "FAILED: " in done.stdout
    said = "cannot be had here: " if tool.name == "registration" else "Path (?): auto, "
    assert said in done.stdout
    again = tree.run("--from", saved(tree), tool=tool.name)
    assert again.returncode == 1 and again.stdout == done.stdout, again.stderr


@each_tool
def test_a_csv_that_is_none_of_its_gets_one_line(tree: Tree, tool: Tool) -> None:
    assert measured(tree, tool).returncode == 0
    with saved(tree).open() as lines:
        columns = csv.DictReader(lines).fieldnames or []
    first = f":1: no results.csv of {tool.name}: no column {columns[0]}; wanted: {', '.join(columns)}"
    without = first.replace(f"no column {columns[0]}", "no column attempt")
    other = tree.write("other.csv", "strategy,backend\nbounce,none\n")
    broken = [
        (changed(tree, "attempt", None), without),
        (other, first),
        (tree.write("empty.csv", ""), first),
        (tree.write("header.csv", ",".join(columns) + "\n"), ": no runs in it"),
        (tree.path / "none.csv", ": cannot be read: No such file or directory"),
    ]
    for file, complaint in broken:
        done = tree.run("--from", file, tool=tool.name)
        assert done.returncode == 2 and done.stdout == "", done.stdout
        assert done.stderr == f"{tool.name}: {file}{complaint}\n"


@each_tool
def test_a_value_that_is_not_allowed_is_named_with_what_is(tree: Tree, tool: Tool) -> None:
    assert measured(tree, tool).returncode == 0
    broken = [(tool.number, "many", "a number"), (tool.number, "nan", "a number"),
              ("attempt", "0", "a whole number from 1 on")]  # fmt: skip
    broken += [("phase", "odd", "near, between, far, unmeasured, mixed")] if tool.timed else []
    broken += {
        "counts": [("size", "8 B", "a whole number from 0 on"), ("count", "bits", "packets, sends, ")],
        "instructions": [("metric", "send", "isend, receive, idle"), ("batches", "63", "64")],
        "registration": [("metric", "hit", "null_call, query, hit_1, "), ("unit", "us", "ns"),
                         ("subject", "odp", "none, hooks, "), ("repetition", "", "a whole number"),
                         ("interrupted", "maybe", "no, yes")],
        "startup": [("ranks", "-2", "a whole number from 1 on"),
                    ("job", "1.5", "a whole number from 1 on")],
    }[tool.name]  # fmt: skip
    for column, value, allowed in broken:
        file = changed(tree, column, value)
        done = tree.run("--from", file, tool=tool.name)
        assert done.returncode == 2 and done.stdout == "", (column, done.stdout)
        assert done.stderr.startswith(f'{tool.name}: {file}:2: {column}: "{value}": allowed: {allowed}')
        assert done.stderr.count("\n") == 1


@each_tool
def test_lines_of_two_measurements_are_no_table(tree: Tree, tool: Tool) -> None:
    assert measured(tree, tool).returncode == 0
    done = tree.run("--from", changed(tree, "openmpi", "5.0.7"), tool=tool.name)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.endswith(':3: openmpi: "4.1.4": allowed: 5.0.7\n'), done.stderr
