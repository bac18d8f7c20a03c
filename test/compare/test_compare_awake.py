# SPDX-License-Identifier: BSD-3-Clause
"""Holding the cores awake, by the kernel's interface, or doing without."""

import struct
from pathlib import Path

import pytest

from comparing import awake


def test_no_latency_is_allowed_while_it_lasts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(awake, "LATENCY", tmp_path / "latency")
    with awake.awake() as held:
        assert held
        assert (tmp_path / "latency").read_bytes() == struct.pack("i", 0)


def test_power_saving_that_may_not_be_stopped_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(awake, "LATENCY", tmp_path / "no" / "latency")
    with awake.awake() as held:
        assert not held
