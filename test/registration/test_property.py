# SPDX-License-Identifier: BSD-3-Clause
"""Random changes of the address space, with transfers in between: no byte may be wrong."""
import os
import resource
from pathlib import Path

import pytest

import device
from launch import Build
from random_runs import STALE, UNAVAILABLE, Run, run

pytestmark = pytest.mark.usefixtures("notifying")

LOCKED = 64 << 20

# Operations; so many times as many with --full. Most mutants are found within a few thousand.
FULL = 20
GUEST = [device.needed, pytest.mark.core]  # it has the module of backend kernel
SINGLE = [("notifier", 8_000), ("hooks+notifier", 5_000), ("hooks", 5_000),
          pytest.param("kernel", 1_000, marks=GUEST)]
STORMS = [("notifier", "glance", 8_000), ("hooks+notifier", "", 5_000), ("hooks", "parts", 5_000),
          ("notifier", "tight", 5_000),
          *(pytest.param("kernel", options, 1_000, marks=GUEST) for options in ("", "glance tight parts")),
          *(pytest.param(*row, marks=pytest.mark.full) for row in [
              ("notifier", "", 25_000), ("hooks", "", 8_000), ("notifier", "glance tight", 8_000),
              ("notifier", "parts", 8_000)])]


@pytest.fixture(scope="session")
def programs(build: Build) -> Path:
    if os.geteuid() != 0 and resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] < LOCKED:
        pytest.skip(f"needs root, or {LOCKED >> 20} MiB that this user may lock")
    return build.programs.parent / "registration"


def judge(done: Run, operations: int, hits: float, capsys: pytest.CaptureFixture[str]) -> None:
    """It went well, and was no idle run."""
    if done.status == UNAVAILABLE:
        pytest.skip(done.output.strip())
    assert done.status == 0, str(done)
    counts = done.counts
    assert counts["changes"] >= operations - 10, str(done)  # of threads: a multiple of them
    assert counts["transfers"] >= operations, str(done)
    assert counts["invalidations"] >= operations / 10, str(done)
    assert counts["hits"] >= hits * counts["transfers"], f"a cache that does not hit\n{done}"
    with capsys.disabled():
        print("", done.command, *(f"{name} {value}" for name, value in counts.items()))


@pytest.mark.parametrize(("backend", "operations"), SINGLE)
def test_random_changes(programs: Path, backend: str, operations: int, full: bool, seed: int,
                        capsys: pytest.CaptureFixture[str]) -> None:
    operations *= FULL if full else 1
    done = run(programs / "property", backend, seed, operations)
    judge(done, operations, 0.2, capsys)
    assert done.counts["refused"] == 0, str(done)


@pytest.mark.parametrize(("backend", "options", "operations"), STORMS)
def test_random_changes_by_many_threads(programs: Path, backend: str, options: str, operations: int,
                                        full: bool, seed: int,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    operations *= FULL if full else 1
    done = run(programs / "storm", backend, seed, operations, *options.split())
    judge(done, operations, 0.05, capsys)
    assert (done.counts["glances"] > 0) == ("glance" in options), str(done)
    assert (done.counts["evictions"] > 0) == ("tight" in options), str(done)


@pytest.mark.parametrize("program", ["property", "storm"])
def test_a_cache_that_is_told_nothing_is_found_out(programs: Path, seed: int, program: str) -> None:
    done = run(programs / program, "unprotected", seed, 10_000)
    if done.status == UNAVAILABLE:
        pytest.skip(done.output.strip())
    assert done.status == STALE, str(done)
