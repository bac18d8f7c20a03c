# SPDX-License-Identifier: BSD-3-Clause
"""The table of staleness: as documented, and no staleness that is not."""
from pathlib import Path

import pytest

import staleness
from launch import Build, Mpi

DEVICE = "io_uring"
COLUMNS = [(way, backend) for way in staleness.WAYS
           for backend in staleness.DEVICES[DEVICE].backends]


def test_the_seven_steps_end_as_documented(programs: Path) -> None:
    """Start here: why a cache has to be told of changes."""
    try:
        staleness.seven_steps(programs, DEVICE)
    except staleness.Unavailable as why:
        pytest.skip(str(why))


@pytest.mark.parametrize(("way", "backend"), COLUMNS)
def test_staleness_is_as_documented(build: Build, programs: Path, way: str, backend: str) -> None:
    if build.series >= (5, 0) and (way, backend) == ("libc", "hooks"):
        pytest.skip("Open MPI 5.0 brings UCX, which has patched libc; only the program of MPI takes its hooks")
    try:
        measured = staleness.measure(programs, DEVICE, backend, way)
    except staleness.Unavailable as why:
        pytest.skip(str(why))
    assert {row for row, _ in measured} == staleness.documented().tables[way][backend].keys()
    staleness.compare(way, backend, measured)


@pytest.mark.parametrize("way", staleness.WAYS)
@pytest.mark.parametrize("backend", ["hooks", "hooks+notifier"])
def test_staleness_in_an_mpi_program_is_as_documented(mpi: Mpi, programs: Path, way: str, backend: str) -> None:
    run = mpi(programs / "table_mpi", backend, way, ranks=1, btl="self")
    if run.status == staleness.UNAVAILABLE:
        pytest.skip(f"{backend}: {run.stdout.splitlines()[0]}")
    assert run.status == 0, str(run)
    staleness.compare(way, backend, staleness.cells(run.stdout), by_ucx=mpi.build.series == (5, 0))


@pytest.mark.parametrize("way", ["libc", "raw"])
@pytest.mark.parametrize("backend", ["none", "hooks", "notifier", "hooks+notifier"])
@pytest.mark.whole
def test_messages_over_pinned_are_as_documented(mpi: Mpi, programs: Path, backend: str, way: str) -> None:
    """Each change between two messages: wrong bytes where the backend is blind, and nowhere else. By the system
    call itself hooks see nothing, and are a cache without protection."""
    job = mpi(programs / "table_messages", way, ranks=2, regx={
        "transport": "pinned", "rendezvous": "direct", "rndv_eager_limit": 1024, "backend": backend})
    assert job.status == 0 and job.total("bytes_pinned") > 0, str(job)
    assert (job.total("hits") > 0) == (backend != "none"), str(job)
    measured = staleness.cells(job.stdout)
    there = {row for (row, _), cell in measured.items() if cell != "n/a"}
    blind = {row for row, cell in staleness.documented().tables[way][backend].items() if cell == "blind"}
    if mpi.build.series == (5, 0) and (backend, way) == ("hooks", "libc"):
        blind -= staleness.ONTO
    assert "munmap" in there and "ftruncate" in there, str(job)
    for direction in "send", "receive":
        assert {row for row in there if measured[row, direction] == "stale"} == blind & there, str(job)


@pytest.mark.parametrize("way", staleness.WAYS)
def test_each_documented_change_misleads_an_unprotected_cache(way: str) -> None:
    """Unless the kernel leaves the pages where they are. Else a probe that changes nothing would be written
    down as seen by every backend."""
    unprotected = staleness.documented().tables[way]["unprotected"]
    harmless = {row for row, cell in unprotected.items() if cell == "fresh"}
    assert harmless <= {
        "mremap to more, in place", "MADV_DONTNEED, shared memory", "MADV_FREE", "mprotect",
        "MADV_COLD", "MADV_PAGEOUT", "MADV_POPULATE_WRITE", "MADV_MERGEABLE", "MADV_COLLAPSE",
        "mseal (Linux 6.10), munmap is refused", "fork, the child writes", "vfork",
        "MADV_DONTFORK, fork", "system()", "free, malloc"}
