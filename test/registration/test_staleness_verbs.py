# SPDX-License-Identifier: BSD-3-Clause
"""Start here: a program sends a buffer, frees it, and sends another at the same address, over an RDMA
device. First with a cache that is not told of changes, then with each backend; then all ways of
changing memory."""
import random
from pathlib import Path

import pytest

import device
import staleness

pytestmark = [device.needed, pytest.mark.usefixtures("notifying")]

DEVICE = "verbs"
COLUMNS = [(way, backend) for way in staleness.WAYS
           for backend in staleness.DEVICES[DEVICE].backends]


@pytest.fixture(scope="session")
def turns(seed: int) -> dict[staleness.Row, str]:
    """Each change in one of the ways, by lot."""
    lots = random.Random(seed)
    ways = staleness.documented().tables
    return {row: lots.choice([way for way in ways if row in ways[way]["none"]])
            for row in ways["libc"]["none"]}


def test_the_seven_steps_end_as_documented(programs: Path) -> None:
    staleness.seven_steps(programs, DEVICE)


def test_on_demand_the_seventh_step_brings_the_new_buffer(programs: Path) -> None:
    """The region is still there, and is of the new buffer."""
    try:
        steps = staleness.run(programs / staleness.DEVICES[DEVICE].steps, "odp")
    except staleness.Unavailable as why:
        pytest.skip(str(why))
    assert steps.splitlines()[-1] == \
        "  7. B is sent: its address is registered already; the peer gets B"


@pytest.mark.parametrize(("way", "backend"), COLUMNS)
def test_staleness_is_as_documented(programs: Path, full: bool, turns: dict[staleness.Row, str], way: str,
                       backend: str) -> None:
    """Each change with each backend, in both directions; with --full in each of the ways."""
    expected = staleness.documented().tables[way][backend]
    rows = [row for row in expected if full or turns[row] == way]
    try:
        measured = staleness.measure(programs, DEVICE, backend, way, rows)
    except staleness.Unavailable as why:
        pytest.skip(str(why))
    assert {row for row, _ in measured} == set(rows)
    staleness.compare(way, backend, measured)
