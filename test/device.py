# SPDX-License-Identifier: BSD-3-Clause
"""Tests that need an RDMA device: they run where one is, and test/machine has one for them."""
import subprocess

import pytest

from runner import has_device as is_there  # noqa: F401 (whether a port of some device is active)
from skips import INFINIBAND as DEVICES  # noqa: F401


def pages_on_demand() -> bool:
    """Whether it can write from and to memory that is not pinned."""
    shown = subprocess.run(["ibv_devinfo", "-v"], capture_output=True, text=True, check=True, timeout=60).stdout
    return "SUPPORT_WRITE" in shown.partition("rc_odp_caps:")[2].partition("uc_odp_caps:")[0]


needed = pytest.mark.device  # conftest.py: the emulated machine has one
