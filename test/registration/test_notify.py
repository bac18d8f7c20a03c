# SPDX-License-Identifier: BSD-3-Clause
"""The kernel module by itself: what it tells, what it refuses, what it leaves."""
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import device
import notify
from launch import Build

pytestmark = [device.needed, pytest.mark.core]

# Changes that leave the pages where they are, or that are not of this memory.
STILL = {"mprotect", "mlock", "MADV_WILLNEED", "clear_refs", "munmap in a child", "write in a child",
         "munmap of the page before", "munmap of the page behind"}
MAY_BE_REFUSED = {"MADV_GUARD_INSTALL"}  # before Linux 6.13
WATCHES = Path("/sys/module/regx_notify/parameters/watches")


@pytest.fixture(scope="module", autouse=True)
def module() -> Iterator[None]:
    with notify.loaded():
        yield


@pytest.fixture(scope="session")
def program(build: Build) -> Path:
    return build.programs.parent / "registration/notify"


def output(program: Path, *words: str) -> list[str]:
    run = subprocess.run([program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                         timeout=900)
    assert run.returncode == 0, f"{run.returncode}: {run.stdout}{run.stderr}"
    return run.stdout.splitlines()


def test_each_change_is_told_and_what_is_none_is_not(program: Path) -> None:
    rows = dict(line.split("\t") for line in output(program, "rows"))
    assert len(rows) == 35
    assert {way for way, told in rows.items() if told == "still"} == STILL
    assert {way for way, told in rows.items() if told not in ("still", "told")} <= MAY_BE_REFUSED, rows


def test_the_device_holds_what_its_header_promises(program: Path) -> None:
    assert output(program, "check")[-1] == "ok under way"


def test_bound_of_watches_and_an_end_with_many(program: Path) -> None:
    """Loaded for as long as it is open. What is left of 10,000 watches, unloading would show."""
    before = WATCHES.read_text()
    WATCHES.write_text("10000")
    try:
        for signal in (False, True):
            run = subprocess.Popen([program, "many"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert run.stdin and run.stdout
            assert run.stdout.readline() == "ok many\n"
            refused = subprocess.run(["rmmod", "regx_notify"], capture_output=True, text=True, check=False,
                                     timeout=60)
            assert refused.returncode != 0 and "in use" in refused.stderr, refused
            if signal:
                run.kill()
            run.stdin.close()
            run.stdout.close()
            assert run.wait(timeout=600) == (-9 if signal else 0)
    finally:
        WATCHES.write_text(before)


def test_random_calls(program: Path, full: bool, seed: int) -> None:
    assert output(program, "fuzz", "600" if full else "10", str(seed)) == ["ok fuzz"]
