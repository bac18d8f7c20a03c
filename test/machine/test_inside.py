# SPDX-License-Identifier: BSD-3-Clause
"""The tests that need an RDMA device, in machines that are not the usual one. In that one test/run itself
runs them all."""
import os
import subprocess
from pathlib import Path

import pytest

import device
from launch import TOP, Build

RUN = Path(__file__).with_name("run")
PYTEST = ["/usr/bin/python3", "-B", "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rfEs",
          f"--rootdir={TOP}"]


@pytest.fixture(autouse=True, scope="module")
def reason_not_to(build: Build) -> None:
    if device.is_there():
        pytest.skip("they run on the device that is here")
    if os.geteuid() != 0:
        pytest.skip("only root can make the machine")
    if not (build.component / "regx_transport_verbs.so").exists():
        pytest.skip("built without rdma-core")


def inside(tests: list[str], *options: str, timeout: float) -> None:
    """Tests that all pass in a machine with these options."""
    run = subprocess.run([RUN, "--timeout", str(timeout), *options, "--", *PYTEST, *tests],
                         stdin=subprocess.DEVNULL, capture_output=True, text=True,
                         errors="replace", check=False, timeout=timeout + 600)
    assert run.returncode == 0, f"status {run.returncode}\n{run.stdout}\n{run.stderr}"
    assert " passed" in run.stdout and "skipped" not in run.stdout, run.stdout


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_on_older_kernels(suite: str) -> None:
    """Debian 12's and 13's: the same wire, fewer of the kernel's ways to tell of changed memory, and our module."""
    inside(["test/mpi/test_over_verbs.py", "test/registration/test_notify.py", "test/registration/test_property.py",
            "-k", "short or notify or kernel"], "--kernel", suite, timeout=3600)


def test_messages_larger_than_memory() -> None:
    """In a machine that has less memory than they take."""
    inside(["test/hazard/test_working_set.py"], "--memory", "512", "--swap", "1024", timeout=7200)
