# SPDX-License-Identifier: BSD-3-Clause
"""Measuring: which jobs there are, in which order they run, and what becomes of each as records
(output.COLUMNS), written after each step."""

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tools import osu, report
from tools.conditions import paging, phase, with_load
from tools.launch import Interrupted, Launcher, Line, Outcome, Runner, probe
from tools.rows import Case, Row
from tools.trouble import Trouble

PROBE_TIMEOUT = 90
PHASE_BYTES = 4096  # that phase.so maps
CHECK_PATIENCE = 3  # times a run's timeout, for a check of many messages
# auto tries each way before it chooses one (component/rendezvous): in some rounds, of which each ends
# when no message is under way, as it is at the end of each iteration of a check. So it has chosen
# after a few iterations, however many messages each of them has.
PAST_TRIAL, LONE_PAST_TRIAL = 24, 64
ROUNDS = 3  # that all jobs have, before only what is undecided is run again
CHECKED_WINDOW = 16  # messages at a time in such a check


@dataclass(frozen=True, eq=False)
class Job:
    """One benchmark of a row, with one choice of buffers and ranks."""

    row: Row
    case: Case
    program: osu.Program
    checker: osu.Program  # of contents

    @property
    def benchmark(self) -> osu.Benchmark:
        return osu.BENCHMARKS[self.case.benchmark]

    @property
    def group(self) -> tuple[str, str, int, str]:
        """Jobs of one group stand side by side in one table."""
        return self.program.name, self.case.buffers, self.case.ranks, self.row.pin_cost

    def __str__(self) -> str:
        name, buffers, ranks, cost = self.group
        details = f" ({buffers} buffers)" * (buffers != "same") + f" ({ranks} ranks)" * (ranks != 2)
        details += f" (pin cost {cost})" * (cost != "")
        return f"{self.row.name} {name}{details}"

    def sizes(self) -> str:
        return f"{self.case.sizes[0]}:{self.case.sizes[-1]}"

    def timed(self) -> list[str]:
        return [*self.program.words, "-m", self.sizes(), *self.case.options]

    def checked(self, launcher: Launcher) -> list[str]:
        """A short pass whose contents are checked; checking would spoil the times of a long one. Of the
        options it has the window alone. Where auto tries ways, on a node, it goes on past that."""
        options = self.case.options
        window = list(options[options.index("-W"):][:2]) if "-W" in options else []
        iterations = 2
        if self.row.is_regx and self.row.regx("rendezvous") == "auto" and launcher.on_this_node:
            iterations = PAST_TRIAL if self.benchmark.window else LONE_PAST_TRIAL
            if self.benchmark.window:
                least = min([CHECKED_WINDOW, *(int(n) for n in window[1:] if n.isdecimal())])
                window = ["-W", str(least)]
        return [*self.checker.words, "-m", self.sizes(), "-i", str(iterations), "-x", "0", *window, "-c"]

    def reference(self, launcher: Launcher) -> Line | None:
        """The same movement by two processes without MPI, run beside each run."""
        if not (launcher.on_this_node and self.benchmark.reference and self.case.buffers == "same"):
            return None
        return Line({}, (*probe(launcher.installation), self.benchmark.metric, "-m", self.sizes()))

    def claim(self) -> report.Claim:
        return report.Claim(
            self.row.regx("rendezvous"), self.case.sizes if self.benchmark.own_sizes else (),
            backend=self.row.regx("backend"), transport=self.row.regx("transport"),
            ranks=self.case.ranks, one_sided=self.benchmark.one_sided)


def jobs_of(rows: list[Row], suite: osu.Suite) -> list[Job]:
    """Of what can be run; what cannot is named."""
    jobs: dict[tuple, Job] = {}
    left_out = set()
    for row in rows:
        for case in row.cases:
            if not suite.has(case.benchmark):
                left_out.add(case.benchmark)
                continue
            name, buffers = case.benchmark, case.buffers
            of_cost = replace(row, mca=row.mca | {"btl_regx_pin_cost": case.pin_cost}) if case.pin_cost else row
            job = Job(of_cost, case, suite.program(name, buffers), suite.checker(name, buffers))
            if (row.name, job.group) in jobs:
                raise Trouble(f"{row.where}: {job} twice: their runs could not be told apart; each"
                              " benchmark of a row once, and osu_… or companion_…, where OSU is not there")
            jobs[row.name, job.group] = job
    if not jobs:
        raise Trouble(f"no OSU here, and nothing else has {', '.join(sorted(left_out))}", 1)
    if left_out:
        print(f"left out, for there is no OSU here: {', '.join(sorted(left_out))}", file=sys.stderr)
    return list(jobs.values())


@dataclass
class Plan:
    """What is run next: all contents are checked, as run 0, then there are rounds. In each, the jobs of a
    group follow one another, so that a drift of the machine hits all of them, and each round begins with
    another.

    runs: as many rounds; else as many as fit into the seconds of budget, from the first check on: ROUNDS
    of all jobs, then of those that are not told apart (undecided), as long as there are any: their medians
    become surer."""

    jobs: list[Job]
    runs: int = 0
    budget: float = 0
    undecided: Callable[[], set] = set
    clock: Callable[[], float] = time.monotonic
    cut: str = ""  # why not all jobs were run once

    def __post_init__(self) -> None:
        self.started = self.clock()
        self.done = 0
        self.seconds: dict[Job, float] = {}  # of each job's last run
        self.rounds: Counter[tuple] = Counter()  # that each group has had
        self.checks = [job for job in self.jobs if not job.benchmark.unchecked]

    def steps(self) -> Iterator[tuple[Job, int]]:
        for job in self.checks:
            yield from self.step(job, 0)
        run = 1
        while (group := self.round(run)) and not self.cut:
            for job in group:
                yield from self.step(job, run)
            run += 1

    def step(self, job: Job, run: int) -> Iterator[tuple[Job, int]]:
        before = self.clock()
        if not self.runs and run < 2 and before - self.started >= self.budget:
            total = (before - self.started) / max(self.done, 1) * self.least() / 60
            self.cut = self.cut or (f"{self.budget / 60:g} minutes are too short for one run of each row, which takes"
                                    f" about {total:.0f}; {self.done} of {self.least()} steps were made")
            return
        yield job, run
        self.done += 1
        if run:
            self.seconds[job] = self.clock() - before

    def least(self) -> int:
        """Steps: the checks and a run of each job."""
        return len(self.checks) + len(self.jobs)

    def round(self, run: int) -> list[Job]:
        """The jobs of a round, empty at the end. A group is left out that would not end in time. First come those
        that had fewest rounds, and of these the long ones: else the short ones would leave them no time."""
        if self.runs and run > self.runs:
            return []
        chosen = self.jobs
        if not self.runs and run > ROUNDS and (wanted := self.undecided()):
            chosen = [job for job in self.jobs if (job.row.name, job.group) in wanted] or self.jobs
        jobs, left = [], self.budget - (self.clock() - self.started)
        groups: dict[tuple, list[Job]] = {}
        for job in chosen:
            groups.setdefault(job.group, []).append(job)
        takes = {group: sum(self.seconds.get(job, 0) for job in groups[group]) for group in groups}
        for group in sorted(groups, key=lambda group: (self.rounds[group], -takes[group])):
            of_group = groups[group]
            if self.runs or run == 1 or takes[group] <= left:
                first = (run - 1) % len(of_group)
                jobs += of_group[first:] + of_group[:first]
                left -= takes[group]
                self.rounds[group] += 1
        return jobs

    def left(self) -> float:
        """Seconds."""
        elapsed = self.clock() - self.started
        steps = len(self.checks) + self.runs * len(self.jobs) if self.runs else self.least()
        projected = elapsed / max(self.done, 1) * steps
        early = self.done < steps / 10
        return max(0, (projected if self.runs else self.budget if early else max(self.budget, projected)) - elapsed)


class Session:
    def __init__(self, launcher: Launcher, runner: Runner, reports: Path, about: str):
        self.launcher, self.runner, self.reports = launcher, runner, reports
        reports.mkdir(exist_ok=True)
        self.records: list[dict] = []
        self.shared = os.memfd_create("phase")  # by the ranks of a run; of this process's life
        self.given_up: set[Job] = set()  # wrong data has no speed; what failed is not waited for again
        self.about = about

    def carry_out(self, plan: Plan, keep: Callable[[list[dict]], None]) -> bool:
        """keep: called after each step, so that whatever happens, what was measured is kept. Returns
        whether it came to its end."""
        try:
            for job, run in plan.steps():
                print(f"{job}, {f'run {run}' if run else 'content check'}"
                      + (f"; about {plan.left():.0f} s left" if plan.done else ""), file=sys.stderr, flush=True)
                if job not in self.given_up:
                    self.run(job, run) if run else self.check(job)
                    keep(self.records)
        except Interrupted:
            return False
        return True

    def record(self, job: Job, run: int, metric: str, value: float, **more: object) -> None:
        name, buffers, ranks, cost = job.group
        kind = "regx" if job.row.is_regx else "peer"
        self.records.append({"row": job.row.name, "kind": kind, "benchmark": name, "buffers": buffers,
                             "ranks": ranks, "pin_cost": cost, "options": " ".join(job.case.options), "metric": metric,
                             "run": run, "value": value, "about": self.about, **more})  # fmt: skip

    def give_up(self, job: Job, run: int, event: str, why: str) -> None:
        self.given_up.add(job)
        self.record(job, run, event, 1, problem=why)
        print(f"{event.upper()}: {job}: {why}", file=sys.stderr)

    def line(self, job: Job, run: int) -> tuple[Line, Path]:
        """With where regx reports to."""
        file = self.reports / "-".join(map(str, filter(None, (job.row.name, *job.group)))).replace(":", "-")
        file = file.with_name(f"{file.name}-{run}.jsonl")
        file.unlink(missing_ok=True)
        command = job.timed() if run else job.checked(self.launcher)
        phase = f"/proc/{os.getpid()}/fd/{self.shared}" if run and self.launcher.tells_phase(job.case.ranks) else ""
        return self.launcher.line(job.row, command, file, job.case.ranks, phase), file

    def check(self, job: Job) -> None:
        line, file = self.line(job, 0)
        outcome = self.runner.run(line, CHECK_PATIENCE * job.row.timeout)
        output, failed = parsed(outcome, job, "")
        if output.valid and not all(output.valid.values()):
            self.give_up(job, 0, "wrong data", f"{job.checker.name} -c received other bytes than were sent")
        elif failed:
            self.give_up(job, 0, "failed", failed)
        elif output.valid is None:
            self.give_up(job, 0, "failed", f"contents not checked: this {job.checker.name} cannot")
        else:
            proof = report.prove(file, job.claim()) if job.row.is_regx else report.Proof("")
            self.record(job, 0, "checked", 1, problem=proof.problem)

    def run(self, job: Job, run: int) -> None:
        line, file = self.line(job, run)
        paged = paging()
        os.truncate(self.shared, 0)
        os.truncate(self.shared, PHASE_BYTES)
        outcome, others = with_load(partial(self.runner.run, line, job.row.timeout))
        counts = {name: count - paged[name] for name, count in paging().items()}
        reference = job.reference(self.launcher) if outcome.status == 0 else None
        without = parsed(self.runner.run(reference, PROBE_TIMEOUT), job, "")[0] if reference else osu.Output({}, None)
        proof = report.prove(file, job.claim()) if job.row.is_regx else report.Proof("")
        # Soft-RoCE works in threads of the kernel, and other launchers' ranks are no children of this process.
        under = {"problem": proof.problem, "backend": proof.backend, "wire": proof.wire,
                 "others": 0 if self.launcher.rdma or self.launcher.own else others}
        for column in job.benchmark.columns:
            output, failed = parsed(outcome, job, column)
            if failed:
                self.give_up(job, run, "failed", failed)
                return
            for size in job.case.sizes:
                around = output.mailbox[size]
                alike = phase(without.mailbox.get(size, [])) == phase(around)
                self.record(job, run, column or job.benchmark.metric, output.values[size], size=size,
                            unit=job.benchmark.unit, phase=phase(around),
                            reference=without.values.get(size) if alike else None,
                            mailbox=max((time for time, _ in around), default=None),
                            width=min((width for _, width in around), default=None), **under)
        counts |= proof.counts
        if output.came_back is not None:
            counts["came_back"] = output.came_back
        for unit, found in (("count", counts), ("choice", proof.decisions)):
            for name, count in found.items():
                self.record(job, run, name, count, unit=unit)


def parsed(outcome: Outcome, job: Job, column: str) -> tuple[osu.Output, str]:
    """With why it is not what was asked for, if so."""
    try:
        output = osu.parse(outcome.stdout, job.benchmark.unit, column)
    except osu.NotOutput as error:
        return osu.Output({}, None), outcome.failure() or str(error)
    missing = [size for size in job.case.sizes if size not in output.values]
    gap = f"it printed no usable value for {len(missing)} sizes, first {missing[0]}" if missing else ""
    return output, outcome.failure() or gap
