# SPDX-License-Identifier: BSD-3-Clause
"""The plan: what will be run, in which order."""

import dataclasses
from dataclasses import dataclass

from comparing import osu
from comparing.configuration import Case, Row
from comparing.result import PEER, REFERENCE, REGX, Arm
from comparing.trouble import Trouble


@dataclass(frozen=True)
class Job:
    """An arm, and how to run it."""

    arm: Arm
    row: Row
    case: Case
    program: osu.Program
    checker: osu.Program  # of contents

    @property
    def benchmark(self) -> osu.Benchmark:
        return osu.BENCHMARKS[self.case.benchmark]

    @property
    def is_auto(self) -> bool:
        return self.row.is_regx and self.row.parameter("btl_regx_rendezvous") in (None, "auto")


@dataclass(frozen=True)
class Step:
    kind: str  # "check" or "run"
    job: Job
    repetition: int  # from 1; 0 for a check

    def __str__(self) -> str:
        what = f"run {self.repetition}" if self.repetition else "content check"
        return f"{self.job.arm}, {what}"


def available(rows: list[Row], suite: osu.Suite) -> tuple[list[Row], list[str]]:
    """The rows without the benchmarks that are not there, and the names of those."""
    left_out = [case.benchmark for row in rows for case in row.cases if not suite.has(case.benchmark)]
    kept = [
        dataclasses.replace(
            row, cases=tuple(case for case in row.cases if case.benchmark not in left_out)
        )
        for row in rows
    ]
    return [row for row in kept if row.cases], list(dict.fromkeys(left_out))


class Plan:
    def __init__(self, rows: list[Row], suite: osu.Suite, repetitions: int, with_reference: bool):
        self.jobs = [self._job(row, case, suite) for row in rows for case in row.cases]
        for number, job in enumerate(self.jobs):
            if job.arm in [other.arm for other in self.jobs[:number]]:
                raise Trouble(
                    f"{job.row.where}: {job.arm} twice: their runs could not be told apart;"
                    " each benchmark of a row once, and osu_… or companion_…, where OSU is not there"
                )
        self.repetitions = repetitions
        self.with_reference = with_reference

    @staticmethod
    def _job(row: Row, case: Case, suite: osu.Suite) -> Job:
        program = suite.program(case.benchmark, case.buffers)
        checker = suite.checker(case.benchmark, case.buffers)
        kind = REGX if row.is_regx else PEER
        arm = Arm(row.name, kind, program.name, case.buffers, case.ranks)
        return Job(arm, row, case, program, checker)

    def has_reference(self, job: Job) -> bool:
        return self.with_reference and job.benchmark.has_reference and job.case.buffers == "same"

    def arms(self) -> list[Arm]:
        references = [
            Arm("reference", REFERENCE, *dataclasses.astuple(job.arm.group))
            for job in self.jobs
            if self.has_reference(job)
        ]
        return [job.arm for job in self.jobs] + list(dict.fromkeys(references))

    def steps(self) -> list[Step]:
        """All checks, then the repetitions. In each, the arms of a group follow one another, so
        that a drift of the machine hits all of them, and each repetition begins with another."""
        steps = [Step("check", job, 0) for job in self.jobs if not job.benchmark.unchecked]
        groups = list(dict.fromkeys(job.arm.group for job in self.jobs))
        for repetition in range(1, self.repetitions + 1):
            for group in groups:
                jobs = [job for job in self.jobs if job.arm.group == group]
                first = (repetition - 1) % len(jobs)
                steps += [Step("run", job, repetition) for job in jobs[first:] + jobs[:first]]
        return steps
