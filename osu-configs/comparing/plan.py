# SPDX-License-Identifier: BSD-3-Clause
"""The plan: what will be run, in which order."""

from dataclasses import dataclass

from comparing import osu
from comparing.configuration import Case, Row
from comparing.result import LIMIT, PEER, REGX, Arm
from comparing.size import Range
from comparing.trouble import Trouble


@dataclass(frozen=True)
class Job:
    """An arm, and how to run it."""

    arm: Arm
    row: Row
    case: Case
    program: osu.Program
    checker: osu.Program  # of contents


@dataclass(frozen=True)
class Step:
    kind: str  # "check", "run" or "limit"
    job: Job | None  # None for the limit
    repetition: int  # from 1; 0 for a check

    def __str__(self) -> str:
        what = str(self.job.arm) if self.job else "the same movement without MPI"
        return f"{what}, {f'run {self.repetition}' if self.repetition else 'content check'}"


class Plan:
    def __init__(self, rows: list[Row], suite: osu.Suite, repetitions: int, with_limit: bool):
        self.jobs = [self._job(row, case, suite) for row in rows for case in row.cases]
        for number, job in enumerate(self.jobs):
            if job.arm in [other.arm for other in self.jobs[:number]]:
                raise Trouble(
                    f"{job.row.where}: {job.arm} twice: their runs could not be told apart;"
                    " each benchmark of a row once, and osu_… or companion_…, where OSU is not there"
                )
        self.repetitions = repetitions
        self.limit_groups = self._limit_groups() if with_limit else {}

    @staticmethod
    def _job(row: Row, case: Case, suite: osu.Suite) -> Job:
        program = checker = suite.program(case.benchmark, case.buffers)
        if osu.BENCHMARKS[case.benchmark].has_window:
            # OSU looks at its one buffer once all messages have come into it; the companion's
            # messages have one each.
            checker = suite.companion_program(case.benchmark, case.buffers)
        kind = REGX if row.is_regx else PEER
        return Job(Arm(row.name, kind, program.name, case.buffers), row, case, program, checker)

    def _limit_groups(self) -> dict[Arm, str]:
        """The limit's arms, one per group that it is a limit of, with the metric's unit."""
        return {
            Arm("limit", LIMIT, *job.arm.group): osu.BENCHMARKS[job.case.benchmark].unit
            for job in self.jobs
            if osu.BENCHMARKS[job.case.benchmark].has_limit and job.case.buffers == "same"
        }

    def arms(self) -> list[Arm]:
        return [job.arm for job in self.jobs] + list(self.limit_groups)

    def limit_sizes(self) -> Range:
        cases = [job.case for job in self.jobs if job.case.buffers == "same"]
        return Range(min(c.sizes.first for c in cases), max(c.sizes.last for c in cases))

    def steps(self) -> list[Step]:
        """All checks, then the repetitions. In each, the arms of a group follow one another, so
        that a drift of the machine hits all of them, and each repetition begins with another."""
        steps = [Step("check", job, 0) for job in self.jobs]
        groups = list(dict.fromkeys(job.arm.group for job in self.jobs))
        for repetition in range(1, self.repetitions + 1):
            if self.limit_groups:
                steps.append(Step("limit", None, repetition))
            for group in groups:
                jobs = [job for job in self.jobs if job.arm.group == group]
                first = (repetition - 1) % len(jobs)
                steps += [Step("run", job, repetition) for job in jobs[first:] + jobs[:first]]
        return steps
