# SPDX-License-Identifier: BSD-3-Clause
"""The machine gives a command a verbs device, and gives back how it ended."""
import os
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make the guest's root")


def shell(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([RUN, "--", "sh", "-c", script], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False, timeout=900)


def test_device_and_status() -> None:
    run = shell("ibv_devinfo; rdma link; echo complaint >&2; exit 7")
    assert run.returncode == 7, run
    assert "PORT_ACTIVE" in run.stdout, run
    assert "link rxe0/1 state ACTIVE" in run.stdout, run
    assert "complaint\n" in run.stderr, run
    assert "complaint" not in run.stdout, run


def test_guest_that_dies_while_the_command_runs() -> None:
    run = shell("echo before; echo c >/proc/sysrq-trigger")
    assert run.returncode == 125, run
    assert run.stdout == "before\n", run
    assert "died while the command ran" in run.stderr, run
