# SPDX-License-Identifier: BSD-3-Clause
"""compare's plot."""

import sys
from pathlib import Path

import pytest
from standins import ROWS, Tree


def test_the_plot_has_both_formats(tree: Tree) -> None:
    pytest.importorskip("matplotlib")
    tree.write("python-for-plots", sys.executable)
    done, _ = tree.compare(ROWS)
    output = tree.path / "output"
    assert f"compare: plot: {output}/plot.png {output}/plot.svg\n" in done.stderr
    assert (output / "plot.png").read_bytes().startswith(b"\x89PNG")
    svg = (output / "plot.svg").read_text()
    assert svg.startswith("<?xml") and svg.rstrip().endswith("</svg>")


def test_the_plot_marks_a_path_that_is_not_proven(tree: Tree) -> None:
    pytest.importorskip("matplotlib")
    tree.write("python-for-plots", sys.executable)
    tree.compare(ROWS.replace("MBS=3000", "PATH_TAKEN=direct"))
    svg = (tree.path / "output/plot.svg").read_text()
    assert "<!-- regx bounce (path not proven) -->" in svg  # matplotlib names what it draws


def test_without_matplotlib_one_line_says_how_to_get_it(tree: Tree, tmp_path: Path) -> None:
    # A module of that name, first in the path, which fails as a missing one does.
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "matplotlib.py").write_text(
        "raise ModuleNotFoundError('No module', name='matplotlib')\n"
    )
    tree.write("python-for-plots", sys.executable)
    file = tree.write("rows.conf", ROWS)
    done = tree.run("-f", file, "--osu", tree.path / "osu", PYTHONPATH=str(hidden))
    assert done.returncode == 0 and "3000 1.50x" in done.stdout
    hint = "matplotlib is not installed; as root: apt-get install python3-matplotlib"
    assert f"compare: no plot: {hint}\n" in done.stderr and done.stderr.count("no plot") == 1
