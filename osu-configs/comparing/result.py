# SPDX-License-Identifier: BSD-3-Clause
"""What has been measured: checks of content, and runs with their values."""

from dataclasses import dataclass, field

# A reference is the same movement by two processes without MPI. It is no bound: MPI's own may be
# faster, by another way of moving.
REGX, PEER, REFERENCE = "regx", "peer", "reference"

CAME_BACK = "came_back"  # the count of freed buffers that malloc gave again with their pages


@dataclass(frozen=True)
class Arm:
    """What is compared: one row with one benchmark and one choice of buffers."""

    strategy: str
    kind: str  # REGX, PEER or REFERENCE
    benchmark: str  # as the tables name it: osu_bw, or companion_bw
    buffers: str
    ranks: int = 2

    @property
    def group(self) -> "Group":
        """Arms of one group stand side by side in one table."""
        return Group(self.benchmark, self.buffers, self.ranks)

    def __str__(self) -> str:
        return f"{self.strategy} {self.group}"


@dataclass(frozen=True)
class Group:
    benchmark: str
    buffers: str
    ranks: int = 2

    def __str__(self) -> str:
        details = [f"{self.buffers} buffers"] if self.buffers != "same" else []
        details += [f"{self.ranks} ranks"] if self.ranks != 2 else []
        return self.benchmark + (f" ({', '.join(details)})" if details else "")


@dataclass
class Check:
    arm: Arm
    checked_by: str  # the program that compared contents
    line: str
    wrong: bool = False
    problem: str | None = None  # what was checked went another way than the row names
    failed: str | None = None  # why there is no result
    messages: str = ""  # stderr
    carried: str = ""  # by which paths of regx
    decisions: dict[str, int] = field(default_factory=dict)  # of auto, by reason


@dataclass(kw_only=True)
class Conditions:
    """What a run was made under."""

    phase: str
    mailbox: tuple[float | None, float | None]  # us, before and after
    attempts: int  # the last of them is this one
    seconds: float
    others: float  # the share of the cores' time that other programs took
    paging: dict[str, int] = field(default_factory=dict)  # of the node (paging.py)


@dataclass(kw_only=True)
class Run(Conditions):
    arm: Arm
    repetition: int
    metric: str
    unit: str
    line: str
    beside: str = ""  # of a reference: the strategy that it was run after
    options: str = ""  # of the benchmark: what differs from its own defaults
    backend: str = ""
    transport: str = ""
    values: dict[int, float] = field(default_factory=dict)
    carried: str = ""  # by which paths of regx
    # What became of the buffers (path.py), and the node's paging.
    counts: dict[str, int] = field(default_factory=dict)
    decisions: dict[str, int] = field(default_factory=dict)  # of auto, by reason
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
    left_out: list[str] = field(default_factory=list)  # benchmarks that are not there
    # Rows that ask for memory or swap of the emulated machine, and did not run with --rdma.
    memory_not_heeded: list[str] = field(default_factory=list)
    interrupted: bool = False
    source: str = ""  # the file that the results were read from again; empty: just measured

    def groups(self) -> list[Group]:
        return list(dict.fromkeys(arm.group for arm in self.arms if arm.kind != REFERENCE))

    def executions(self) -> list[Run]:
        """One run of each start of a program, which may have measured several metrics."""
        first: dict[tuple[Arm, int, str], Run] = {}
        for run in self.runs:
            first.setdefault((run.arm, run.repetition, run.beside), run)
        return list(first.values())

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
