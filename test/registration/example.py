# SPDX-License-Identifier: BSD-3-Clause
"""Runs the example of libregx-registration, which compares what arrives, and judges what it says."""
import re
import subprocess
from pathlib import Path

import pytest

from launch import Build

BUFFERS, USES = 20, 10  # as in component/library/example.c


def run(build: Build, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path: Path = build.programs.parent / "registration" / program
    if not path.exists():
        pytest.skip("built without rdma-core")
    return subprocess.run([path, *arguments], capture_output=True, text=True, timeout=120, check=False)


def figures(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(re.findall(r"^(\w+) (.*)$", done.stdout, re.M))


def check_notifier(done: subprocess.CompletedProcess[str]) -> None:
    if "backend=notifier cannot be used" in done.stderr:
        pytest.skip(done.stderr.strip())
    seen = figures(done)
    assert seen["backend"] == "notifier"
    # Both buffers of each round are registered once. A use may be registered for itself alone where a
    # change of memory is just under way.
    assert int(seen["registrations"]) >= 2 * BUFFERS
    assert int(seen["registrations"]) + int(seen["hits"]) == 2 * BUFFERS * USES
    assert int(seen["hits"]) >= BUFFERS * USES


def check_none(done: subprocess.CompletedProcess[str]) -> None:
    seen = figures(done)
    assert (seen["backend"], seen["why"]) == ("none", "asked for")
    assert int(seen["registrations"]) == 2 * BUFFERS * USES
    assert seen["hits"] == "0"
