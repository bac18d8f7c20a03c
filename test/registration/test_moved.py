# SPDX-License-Identifier: BSD-3-Clause
"""What a program notices if pages of a buffer are moved into shared memory: as documented."""
import platform
import re
from pathlib import Path

import pytest

import staleness
from launch import Build

FILE = staleness.TOP / "osu-configs" / "moved.md"
GUARD = "MADV_GUARD_INSTALL, _REMOVE"
Table = list[list[str]]


def documented() -> Table:
    table = FILE.read_text().partition("| change |")[2].partition("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]


@pytest.fixture(scope="module")
def measured(build: Build) -> Table:
    try:
        output = staleness.run(build.programs.parent / "registration/moved")
    except staleness.Unavailable as why:
        pytest.skip(str(why))
    return [line.split("\t") for line in output.splitlines()]


def knows_guards() -> bool:
    """In memory that is shared, too."""
    version = re.match(r"(\d+)\.(\d+)", platform.release())
    return version is not None and (int(version[1]), int(version[2])) >= (6, 15)


@pytest.mark.parametrize("row", [cells[0] for cells in documented()])
def test_what_the_program_notices_is_as_documented(measured: Table, row: str) -> None:
    if row == GUARD and not knows_guards():
        pytest.skip("this kernel has no MADV_GUARD_INSTALL for shared memory (Linux 6.15)")
    assert [cells for cells in measured if cells[0] == row] == \
        [cells for cells in documented() if cells[0] == row]


def test_private_memory_is_as_it_was_and_no_way_keeps_all(measured: Table) -> None:
    ways = {way: {row: cells[number] for row, *cells in measured[1:]}
            for number, way in enumerate(measured[0][1:])}
    private = {row for row, cell in ways.pop("private").items() if cell != "as before"}
    assert private <= (set() if knows_guards() else {GUARD})
    for way, cells in ways.items():
        assert set(cells.values()) > {"as before"}, way
        assert [row for row, cell in cells.items() if "bytes" in cell], way
