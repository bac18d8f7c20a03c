# SPDX-License-Identifier: BSD-3-Clause
"""Tests that need an RDMA device: they run where one is, and test/machine has one for them."""
from pathlib import Path

import pytest

DEVICES = Path("/sys/class/infiniband")


def is_there() -> bool:
    """Whether a port of some device is active."""
    return any("ACTIVE" in state.read_text() for state in DEVICES.glob("*/ports/*/state"))


needed = pytest.mark.skipif(
    not is_there(), reason="no RDMA device here; test/machine/test_inside.py runs this in its own")
