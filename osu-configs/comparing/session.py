# SPDX-License-Identifier: BSD-3-Clause
"""A session: carries out the plan step by step and keeps the results, written after each step."""

import re
from collections.abc import Callable
from pathlib import Path

from comparing import osu, path, phase
from comparing.attempts import within_one_phase
from comparing.awake import awake
from comparing.launch import Interrupted, Launcher, Line, Outcome, Runner
from comparing.phase import Mailbox
from comparing.plan import Job, Plan, Step
from comparing.progress import Progress
from comparing.result import CAME_BACK, REFERENCE, Arm, Check, Conditions, Results, Run

PROBE_TIMEOUT = 90
CHECK_PATIENCE = 3  # times a run's timeout, for a check of many messages


class Session:
    def __init__(
        self, plan: Plan, launcher: Launcher, suite: osu.Suite, runner: Runner, reports: Path
    ):
        self.plan = plan
        self.launcher = launcher
        self.suite = suite
        self.runner = runner
        self.reports = reports
        self.mailbox = Mailbox(launcher.installation, runner, launcher.on_this_node)
        self.results = Results(arms=plan.arms())
        self.progress = Progress(plan.steps(), self._is_dropped)

    def carry_out(self, keep: Callable[[Results], None]) -> Results:
        """keep: called after each step, so that whatever happens, what was measured is kept."""
        try:
            with awake():
                for step in self.progress.steps:
                    if self._is_dropped(step):
                        self.progress.drop()
                        continue
                    self.progress.begin(self._phase_note())
                    self._step(step)
                    self.progress.end()
                    keep(self.results)
        except Interrupted:
            self.results.interrupted = True
        self.progress.close()
        return self.results

    def _phase_note(self) -> str:
        last = self.mailbox.last
        return f"{phase.name(last, last)} phase, {last:.3f} us; " if last is not None else ""

    def _is_dropped(self, step: Step) -> bool:
        """What delivered wrong data has no speed, and what failed once is not waited for again."""
        arm = step.job.arm
        return self.results.is_wrong(arm) or self.results.failure(arm) is not None

    def _step(self, step: Step) -> None:
        if step.kind == "check":
            self._check(step.job)
        else:
            self._run(step.job, step.repetition)

    # ---- content

    def _check(self, job: Job) -> None:
        check = self._check_by(job, job.checker)
        if check is None:
            # This version of OSU checks no contents, or does not even know the option.
            companion = self.suite.other_checker(job.case.benchmark, job.case.buffers)
            check = self._check_by(job, companion) if companion else None
        if check is None:
            check = Check(job.arm, job.checker.name, "")
            check.failed = f"contents not checked: this version of {job.checker.name} cannot"
        self.results.checks.append(check)
        if check.wrong:
            self.progress.say(f"WRONG DATA: {job.arm}: {check.line}")
        elif check.failed:
            self.progress.say(f"{job.arm}: {check.failed}")

    def _check_by(self, job: Job, program: osu.Program) -> Check | None:
        """None: inconclusive, and another program may know better."""
        report = self._report_file(job, "check")
        line = self.launcher.line(
            job.row,
            [str(program.path), *check_arguments(job, program, self.launcher)],
            str(report),
            job.case.ranks,
        )
        report.unlink(missing_ok=True)
        outcome = self.runner.run(line, CHECK_PATIENCE * job.row.timeout)
        check = Check(job.arm, program.name, str(line), messages=_tail(outcome.stderr))
        try:
            output = osu.parse(outcome.stdout, job.benchmark.unit)
        except osu.NotOutput as error:
            output = osu.Output("", {}, None)
            check.failed = explain(outcome) or str(error)
        if output.valid and not all(output.valid.values()):
            check.wrong = True
        elif outcome.status is not None and output.valid is None and not program.is_companion:
            return None
        else:
            check.failed = check.failed or explain(outcome) or _gap(output, job)
        if job.row.is_regx and not check.failed:
            proof = self._prove(job, report)
            check.problem, check.carried = proof.problem, proof.carried
            check.decisions = proof.decisions
        return check

    # ---- time

    def _run(self, job: Job, repetition: int) -> None:
        report = self._report_file(job, str(repetition))
        command = [str(job.program.path), *timed_arguments(job)]
        line = self.launcher.line(job.row, command, str(report), job.case.ranks)
        beside: list[Outcome] = []

        def once() -> Outcome:
            report.unlink(missing_ok=True)
            outcome = self.runner.run(line, job.row.timeout)
            if self.plan.has_reference(job) and outcome.status == 0:
                beside[:] = [self.runner.run(reference_line(job, self.launcher), PROBE_TIMEOUT)]
            return outcome

        # Soft-RoCE works in threads of the kernel, which look like other programs.
        outcome, conditions = within_one_phase(self.mailbox, once, not self.launcher.rdma)
        runs = [
            Run(
                **vars(conditions),
                arm=job.arm,
                repetition=repetition,
                metric=column or job.benchmark.metric,
                unit=job.benchmark.unit,
                options=" ".join(job.case.options),
                line=str(line),
                transport=job.row.wire,
                messages=_tail(outcome.stderr),
            )
            for column in job.benchmark.columns
        ]
        self.results.runs += runs
        for run, column in zip(runs, job.benchmark.columns):
            self._take_values(run, job, outcome, column)
        failed = runs[0].failed
        proof = self._prove(job, report) if job.row.is_regx and not failed else None
        for run in runs:
            run.counts |= conditions.paging
            if job.row.is_regx and failed:
                run.problem = "path not proven, for the run did not end well"
            elif proof:
                run.problem, run.carried = proof.problem, proof.carried
                run.transport, run.backend = proof.transport, proof.backend
                run.counts |= proof.counts
                run.decisions = proof.decisions
        if failed:
            self.progress.say(f"{job.arm}: {failed}")
        for outcome in beside:
            self._keep_reference(job, repetition, outcome, conditions)

    @staticmethod
    def _take_values(run: Run, job: Job, outcome: Outcome, column: str) -> None:
        try:
            output = osu.parse(outcome.stdout, run.unit, column)
            run.title = output.title
            if output.came_back is not None:
                run.counts[CAME_BACK] = output.came_back
            wanted = job.case.sizes.sizes()
            run.values = {size: v for size, v in output.values.items() if size in wanted}
            run.failed = explain(outcome) or _gap(output, job)
        except osu.NotOutput as error:
            run.failed = explain(outcome) or str(error)

    def _keep_reference(
        self, job: Job, repetition: int, outcome: Outcome, conditions: Conditions
    ) -> None:
        run = Run(
            **vars(conditions),
            arm=Arm("reference", REFERENCE, *vars(job.arm.group).values()),
            repetition=repetition,
            metric=job.benchmark.metric,
            unit=job.benchmark.unit,
            beside=job.arm.strategy,
            line=str(reference_line(job, self.launcher)),
            transport="shm",
            messages=_tail(outcome.stderr),
        )
        self.results.runs.append(run)
        try:
            run.values = osu.parse(outcome.stdout, run.unit).values
            run.failed = explain(outcome)
        except osu.NotOutput as error:
            run.failed = explain(outcome) or str(error)

    # ---- proof

    def _report_file(self, job: Job, run: str) -> Path:
        ranks = f"-{job.case.ranks}ranks" if job.case.ranks != 2 else ""
        name = f"{job.row.name}-{job.arm.benchmark}-{job.case.buffers}{ranks}-{run}.jsonl"
        return self.reports / name.replace(":", "-")

    def _prove(self, job: Job, report: Path) -> path.Proof:
        strategy = job.row.parameter("btl_regx_rendezvous") or "auto"
        if path.FRAGMENTED.match(job.case.buffers):
            strategy = "frag"
        backend = job.row.parameter("btl_regx_backend") or "auto"
        transport = job.row.parameter("btl_regx_transport") or "auto"
        unknown = job.benchmark.is_collective or job.benchmark.one_sided
        sizes = [] if unknown else job.case.sizes.sizes()
        return path.prove(
            report, strategy, sizes, backend, transport, job.case.ranks, job.benchmark.one_sided
        )


def check_arguments(job: Job, program: osu.Program, launcher: Launcher) -> list[str]:
    """auto tries where both ranks are on one node, and is checked past that."""
    sizes, options = job.case.sizes.option(), job.case.options
    if job.is_auto and launcher.on_this_node:
        return osu.long_check_arguments(program, job.benchmark, sizes, options)
    return osu.check_arguments(program, sizes, options)


def reference_line(job: Job, launcher: Launcher) -> Line:
    probe = str(launcher.installation.probe)
    words = ("fastest", "-s", job.benchmark.metric, "-m", job.case.sizes.option())
    return Line((), (probe, *words))


def timed_arguments(job: Job) -> list[str]:
    return osu.timed_arguments(job.program, job.case.sizes.option(), job.case.options)


def explain(outcome: Outcome) -> str | None:
    """Why a command failed, in one line: what regx or the benchmark said, else what else was."""
    if outcome.status == 0:
        return None
    if outcome.status is None:
        return f"no end within {outcome.seconds:.0f} s: ended by the watchdog"
    prefix = r"(?:\[[^]]*\] *)?"  # of Open MPI: [host:pid]
    said = re.search(rf"^{prefix}((?:regx|companion|probe): .*)", outcome.stderr, re.MULTILINE)
    if said:
        reason = said[1]
    else:
        # Open MPI's messages are paragraphs between lines of dashes.
        paragraphs = re.split(r"\n\s*(?:\n|-{20,})", "\n" + outcome.stderr)
        texts = [" ".join(p.split()) for p in paragraphs if re.search(r"\w", p)]
        reason = re.sub(f"^{prefix}", "", texts[0])[:300] if texts else "it said nothing"
    return f"failed with status {outcome.status}: {reason}"


def _gap(output: osu.Output, job: Job) -> str | None:
    missing = [size for size in job.case.sizes.sizes() if size not in output.values]
    if not missing:
        return None
    return f"it printed no usable value for {len(missing)} sizes, first {missing[0]}"


def _tail(text: str) -> str:
    return text[-4000:]
