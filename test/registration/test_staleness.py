# SPDX-License-Identifier: BSD-3-Clause
"""The table of staleness: as documented, and no staleness that is not."""
from pathlib import Path

import pytest

import staleness
from launch import Build, Mpi

COLUMNS = [(way, backend) for way in staleness.WAYS for backend in staleness.COLUMNS]


@pytest.fixture(scope="session")
def programs(build: Build) -> Path:
    return build.programs.parent / "registration"


def compare(way: str, backend: str, measured: staleness.Cells) -> None:
    """What this machine does not have is left out."""
    expected = staleness.documented()[way][backend]
    found = staleness.column(backend, way, measured)
    assert found.keys() == expected.keys(), "staleness.py makes staleness.md anew"
    differ = {row: (expected[row], cell) for row, cell in found.items()
              if cell not in ("n/a", expected[row]) and expected[row] != "n/a"}
    assert not differ, f"{backend}, {way}: (documented, seen); staleness.py makes it anew"


@pytest.mark.parametrize(("way", "backend"), COLUMNS)
def test_as_documented(programs: Path, way: str, backend: str) -> None:
    try:
        measured = staleness.measure(programs, backend, way)
    except staleness.Unavailable as why:
        pytest.skip(str(why))
    compare(way, backend, measured)


@pytest.mark.parametrize("way", staleness.WAYS)
@pytest.mark.parametrize("backend", ["hooks", "hooks+notifier"])
def test_the_same_in_an_mpi_program(mpi: Mpi, programs: Path, way: str, backend: str) -> None:
    run = mpi(programs / "table_mpi", backend, way, ranks=1, btl="self")
    if run.status == staleness.UNAVAILABLE:
        pytest.skip(f"{backend}: {run.stdout.splitlines()[0]}")
    assert run.status == 0, str(run)
    compare(way, backend, staleness.cells(run.stdout))


@pytest.mark.parametrize("way", staleness.WAYS)
def test_what_is_fresh_was_in_danger(way: str) -> None:
    """Every change that a backend sees or does not keep is one that an unprotected cache was seen to
    get wrong, unless the kernel leaves the pages where they are."""
    harmless = {row for row, cell in staleness.documented()[way]["unprotected"].items()
                if cell == "fresh"}
    assert harmless <= {
        "mremap to more, in place", "MADV_DONTNEED, shared memory", "MADV_FREE", "mprotect",
        "MADV_COLD", "MADV_PAGEOUT", "MADV_POPULATE_WRITE", "MADV_MERGEABLE",
        "fork, the child writes", "vfork", "MADV_DONTFORK, fork", "system()", "free, malloc"}
