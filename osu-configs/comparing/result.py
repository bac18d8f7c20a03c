# SPDX-License-Identifier: BSD-3-Clause
"""What has been measured: checks of content, and runs with their values."""

from dataclasses import dataclass, field

REGX, PEER, LIMIT = "regx", "peer", "limit"


@dataclass(frozen=True)
class Arm:
    """What is compared: one row with one benchmark and one choice of buffers."""

    strategy: str
    kind: str  # REGX, PEER or LIMIT
    benchmark: str  # as the tables name it: osu_bw, or companion_bw
    buffers: str

    @property
    def group(self) -> tuple[str, str]:
        """Arms of one group stand side by side in one table."""
        return self.benchmark, self.buffers

    def __str__(self) -> str:
        buffers = "" if self.buffers == "same" else f" ({self.buffers} buffers)"
        return f"{self.strategy} {self.benchmark}{buffers}"


@dataclass
class Check:
    arm: Arm
    checked_by: str  # the program that compared contents
    line: str
    wrong: bool = False
    problem: str | None = None  # what was checked went another way than the row names
    failed: str | None = None  # why there is no result
    messages: str = ""  # stderr


@dataclass(kw_only=True)
class Conditions:
    """What a run was made under."""

    phase: str
    mailbox: tuple[float | None, float | None]  # us, before and after
    attempts: int
    seconds: float
    others: float  # the share of the cores' time that other programs took


@dataclass(kw_only=True)
class Run(Conditions):
    arm: Arm
    repetition: int
    metric: str
    unit: str
    line: str
    backend: str = ""
    transport: str = ""
    values: dict[int, float] = field(default_factory=dict)
    carried: str = ""  # by which paths of regx
    counts: dict[str, int] = field(default_factory=dict)  # what became of the buffers (path.py)
    problem: str | None = None  # the path was not proven
    failed: str | None = None
    title: str = ""  # the benchmark's own first line, with its version
    messages: str = ""  # stderr


@dataclass
class Results:
    """Everything of one call of compare; the arms in the order of the configuration."""

    arms: list[Arm] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    interrupted: bool = False

    def groups(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys(arm.group for arm in self.arms if arm.kind != LIMIT))

    def failure(self, arm: Arm) -> str | None:
        """Why an arm has no (further) values, if so."""
        for outcome in (*self.checks, *self.runs):
            if outcome.arm == arm and outcome.failed:
                return outcome.failed
        return None

    def is_wrong(self, arm: Arm) -> bool:
        return any(check.wrong for check in self.checks if check.arm == arm)

    def status(self) -> int:
        """0: all contents right, every row of regx measured, and on the path that it names."""
        bad = any(check.wrong for check in self.checks)
        bad |= any(arm.kind == REGX and self.failure(arm) is not None for arm in self.arms)
        bad |= any(outcome.problem is not None for outcome in (*self.checks, *self.runs))
        return 130 if self.interrupted else int(bad)
