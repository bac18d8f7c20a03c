# SPDX-License-Identifier: BSD-3-Clause
"""libregx-registration: its example, which compares what arrives, in buffers that are unmapped and mapped
again where they were: on a device in memory, and on an RDMA device."""
import re
import subprocess
from pathlib import Path

import pytest

import device
from launch import Build

BUFFERS, USES = 20, 10  # as in component/library/example.c
PROGRAMS = ["example_fake", pytest.param("example", marks=device.needed)]


def run(build: Build, program: str, backend: str) -> subprocess.CompletedProcess[str]:
    path: Path = build.programs.parent / "registration" / program
    if not path.exists():
        pytest.skip("built without rdma-core")
    return subprocess.run([path, backend], capture_output=True, text=True, timeout=120, check=False)


def figures(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(re.findall(r"^(\w+) (.*)$", done.stdout, re.M))


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_example_registers_each_buffer_once(build: Build, program: str) -> None:
    done = run(build, program, "notifier")
    if "backend=notifier cannot be used" in done.stderr:
        pytest.skip(done.stderr.strip())
    seen = figures(done)
    assert seen["backend"] == "notifier"
    # Both buffers of each round are registered once. A use may be registered for itself alone where a
    # change of memory is just under way.
    assert int(seen["registrations"]) >= 2 * BUFFERS
    assert int(seen["registrations"]) + int(seen["hits"]) == 2 * BUFFERS * USES
    assert int(seen["hits"]) >= BUFFERS * USES


def test_the_example_says_what_is_allowed(build: Build) -> None:
    done = run(build, "example_fake", "nonsense")
    assert done.returncode == 1
    assert done.stderr == ("example: backend=nonsense is not known; allowed: auto, none, hooks, notifier, "
                           "hooks+notifier, kernel, retain\n")
