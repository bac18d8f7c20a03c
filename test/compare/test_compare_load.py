# SPDX-License-Identifier: BSD-3-Clause
"""The share of the cores' time that other programs took."""

import subprocess
import sys

import pytest
from standins import WATCHDOG

from comparing import load


@pytest.mark.parametrize(
    ("busy", "ours", "share"),
    [(4.0, 1.0, 0.75), (4.0, 4.0, 0.0), (0.0, 0.5, 0.0), (2.0, 1.0, 0.25)],
)
def test_time_that_is_not_ours_is_counted_as_others(
    monkeypatch: pytest.MonkeyPatch, busy: float, ours: float, share: float
) -> None:
    clocks = {"now": 0.0, "busy": 0.0, "ours": 0.0}
    monkeypatch.setattr(load.time, "monotonic", lambda: clocks["now"])
    monkeypatch.setattr(load, "_busy_seconds", lambda: clocks["busy"])
    monkeypatch.setattr(load, "_our_seconds", lambda: clocks["ours"])
    monkeypatch.setattr(load.os, "sched_getaffinity", lambda _: {0, 1})
    measured = load.Load()
    clocks.update(now=2.0, busy=busy, ours=ours)
    assert measured.others() == share


def test_our_own_load_is_told_from_that_of_others() -> None:
    before = load._our_seconds(), load._busy_seconds()
    spin = "import time\nwhile time.process_time() < 1: pass"
    subprocess.run([sys.executable, "-c", spin], check=True, timeout=WATCHDOG)
    assert load._our_seconds() - before[0] >= 1
    assert load._busy_seconds() - before[1] >= 0.9
