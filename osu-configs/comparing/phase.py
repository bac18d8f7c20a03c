# SPDX-License-Identifier: BSD-3-Clause
"""The machine's phase: how far apart its two cores are at the moment.

On some machines a cache line passes between two cores in 0.05 us at times and in 0.27 us at
others, and this flips on its own. Figures of different phases cannot be compared.
"""

from comparing import osu
from comparing.installation import Installation
from comparing.launch import Line, Runner

NEAR_BELOW, FAR_FROM = 0.1, 0.2  # us
MOVED_BY = 0.3
RESOLUTION = 0.02  # us; how well a mailbox repeats
NEAR, BETWEEN, FAR = "near", "between", "far"
MIXED = "mixed"  # it changed while the run was measured
UNMEASURED = "unmeasured"  # the ranks are not both on this node, or share a core
PHASES = (NEAR, BETWEEN, FAR, UNMEASURED, MIXED)


class Mailbox:
    """Measures what tells the phase: the one-way time of a cache line between the two cores."""

    def __init__(self, installation: Installation, runner: Runner, usable: bool):
        self.runner = runner
        self.line = Line((), (str(installation.probe), "mailbox")) if usable else None
        self.last: float | None = None

    def measure(self) -> float | None:
        self.last = None
        if self.line is not None:
            outcome = self.runner.run(self.line, timeout=60)
            try:
                values = osu.parse(outcome.stdout, "us").values
            except osu.NotOutput:
                values = {}
            self.last = next(iter(values.values()), None)
        return self.last


def moved(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return False
    return abs(after - before) > max(MOVED_BY * min(before, after), RESOLUTION)


def name(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return UNMEASURED
    if moved(before, after):
        return MIXED
    mean = (before + after) / 2
    return NEAR if mean < NEAR_BELOW else FAR if mean >= FAR_FROM else BETWEEN


def note(phases: list[str]) -> list[str]:
    """What a table says that has runs of all phases in its medians."""
    found = [name for name in PHASES if name in phases]
    if not found:
        return []
    counts = ", ".join(f"{name} in {phases.count(name)}" for name in found)
    doubt = "; figures of different phases cannot be compared" if len(found) > 1 else ""
    return [f"Phase: {counts} of {len(phases)} runs{doubt}."]
