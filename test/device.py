# SPDX-License-Identifier: BSD-3-Clause
"""Tests that need an RDMA device: they run where one is, and test/machine has one for them."""
import subprocess
from pathlib import Path

import pytest

DEVICES = Path("/sys/class/infiniband")


def is_there() -> bool:
    """Whether a port of some device is active."""
    return any("ACTIVE" in state.read_text() for state in DEVICES.glob("*/ports/*/state"))


def pages_on_demand() -> bool:
    """Whether it can write from and to memory that is not pinned."""
    shown = subprocess.run(["ibv_devinfo", "-v"], capture_output=True, text=True, check=True,
                           timeout=60).stdout
    return "SUPPORT_WRITE" in shown.partition("rc_odp_caps:")[2].partition("uc_odp_caps:")[0]


needed = pytest.mark.device  # conftest.py: the emulated machine has one
