# SPDX-License-Identifier: BSD-3-Clause
"""The kernel module by itself: what it tells, what it refuses, what it leaves."""
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import device
import notify
from launch import Build

pytestmark = [device.needed, pytest.mark.core]

# No false alarms: of these nothing may be told. Of what else leaves the pages right it may.
STILL = {"mprotect", "mremap to more, in place", "MADV_COLD", "MADV_POPULATE_WRITE", "fork, the child writes", "vfork",
         "MADV_DONTFORK, fork", "system()", "free, malloc", "mseal (Linux 6.10), munmap is refused"}
WATCHES = Path("/sys/module/regx_notify/parameters/watches")
SLAB = Path("/sys/kernel/slab/regx_notify")


@pytest.fixture(scope="module", autouse=True)
def module() -> Iterator[None]:
    with notify.loaded():
        yield


@pytest.fixture(scope="session")
def program(build: Build) -> Path:
    return build.programs.parent / "registration/notify"


def output(program: Path, *words: str, timeout: float = 900) -> list[str]:
    run = subprocess.run([program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                         timeout=timeout)
    assert run.returncode == 0, f"{run.returncode}: {run.stdout}{run.stderr}"
    return run.stdout.splitlines()


def test_each_change_is_told_and_what_is_none_is_not(program: Path) -> None:
    """Those of the table of staleness, as far as this kernel has them."""
    rows = [line.split("\t") for line in output(program, "rows")]
    assert len(rows) == len({name for name, *_ in rows}) > 40
    there = {name: told for name, _, told in rows if told != "refused"}
    assert len(there) > 35, rows
    assert {told for name, kind, told in rows if kind == "stale" and name in there} == {"told"}, rows
    assert {there[name] for name in STILL & there.keys()} == {"still"}, rows


def test_the_device_holds_what_its_header_promises(program: Path) -> None:
    lines = output(program, "check")
    assert lines[-1] == "ok many under way"
    print(*[line for line in lines if line.startswith("ok beside")], sep="\n")


def watches_kept() -> tuple[int, int]:
    """How many, and the bytes that the kernel has set aside for them. A slab keeps some that are free, until it is
    told to give them back."""
    (SLAB / "shrink").write_text("1")
    line, = [line.split() for line in Path("/proc/slabinfo").read_text().splitlines() if line.startswith("regx_notify ")]
    return int(line[1]), int(line[14]) * int(line[5]) * os.sysconf("SC_PAGESIZE")


def pages_are_kept() -> bool:
    """Any that a file of the device has in the kernel's addresses."""
    return "[regx_notify]" in Path("/proc/vmallocinfo").read_text()


def test_bound_of_watches_and_an_end_with_many(program: Path) -> None:
    """Loaded for as long as it is open; a watch takes at most 256 bytes of the kernel; nothing is left."""
    assert watches_kept() == (0, 0) and not pages_are_kept()
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
            kept, size = watches_kept()
            assert kept >= 10000 and size <= kept * 256, (kept, size)
            print(f"{kept} watches: {size / kept:.1f} bytes each")
            assert pages_are_kept()
            if signal:
                run.kill()
            run.stdin.close()
            run.stdout.close()
            assert run.wait(timeout=600) == (-9 if signal else 0)
            assert watches_kept() == (0, 0) and not pages_are_kept()
    finally:
        WATCHES.write_text(before)


def test_random_calls(program: Path, full: bool, seed: int) -> None:
    seconds = 3600 if full else 60
    assert output(program, "fuzz", str(seconds), str(seed), timeout=seconds + 600) == ["ok fuzz"]
