# SPDX-License-Identifier: BSD-3-Clause
"""The module of component/kernel, in the emulated machine: its kernel is the one that it was built for."""
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skips import NOTIFY as MODULE

DEVICE = Path("/dev/regx_notify")
TROUBLE = re.compile(r"WARNING|BUG|Oops|INFO: task|remaining|still has objects|lockup|stall")


def command(*words: str) -> None:
    run = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    assert run.returncode == 0, f"{' '.join(words)}: {run.stderr}"


def log() -> list[str]:
    """Of the kernel."""
    return subprocess.run(["dmesg"], capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()


@contextmanager
def loaded_if_there() -> Iterator[None]:
    """For tests of which some need it."""
    if MODULE.exists():
        with loaded():
            yield
    else:
        yield


@contextmanager
def loaded() -> Iterator[None]:
    """Then it can be unloaded, which fails while anything is left open, and the kernel has complained of
    nothing, such as memory of the module's that is left."""
    if not MODULE.exists():
        pytest.skip("no module for this kernel")
    before = set(log())
    command("insmod", str(MODULE))
    try:
        yield
    finally:
        command("rmmod", "regx_notify")
    complaints = [line for line in log() if line not in before and TROUBLE.search(line)]
    assert not complaints, "\n".join(complaints)
