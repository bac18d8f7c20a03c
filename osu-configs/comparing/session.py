# SPDX-License-Identifier: BSD-3-Clause
"""A session: carries out the plan step by step and keeps the results, written after each step."""

import re
from collections.abc import Callable
from pathlib import Path

from comparing import osu, path, phase
from comparing.awake import awake
from comparing.launch import Interrupted, Launcher, Line, Outcome, Runner
from comparing.load import Load
from comparing.phase import Mailbox
from comparing.plan import Job, Plan, Step
from comparing.progress import Progress
from comparing.result import Check, Conditions, Results, Run

ATTEMPTS = 1 + 3  # a run across which the phase changed is repeated at most three times
PROBE_TIMEOUT = 90


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
        if step.job is None:
            return False
        arm = step.job.arm
        return self.results.is_wrong(arm) or self.results.failure(arm) is not None

    def _step(self, step: Step) -> None:
        if step.job is None:
            self._limit(step.repetition)
        elif step.kind == "check":
            self._check(step.job)
        else:
            self._run(step.job, step.repetition)

    # ---- content

    def _check(self, job: Job) -> None:
        check = self._check_by(job, job.checker)
        if check is None:
            # This version of OSU checks no contents, or does not even know the option.
            companion = self.suite.companion_program(job.case.benchmark, job.case.buffers)
            check = self._check_by(job, companion)
        assert check is not None  # the companion always says
        self.results.checks.append(check)
        if check.wrong:
            self.progress.say(f"WRONG DATA: {job.arm}: {check.line}")
        elif check.failed:
            self.progress.say(f"{job.arm}: {check.failed}")

    def _check_by(self, job: Job, program: osu.Program) -> Check | None:
        """None: inconclusive, and another program may know better."""
        arguments = osu.check_arguments(program, job.case.sizes.option(), job.case.options)
        report = self._report_file(job, "check")
        line = self.launcher.line(job.row, [str(program.path), *arguments], str(report))
        report.unlink(missing_ok=True)
        outcome = self.runner.run(line, job.row.timeout)
        check = Check(job.arm, program.name, str(line), messages=_tail(outcome.stderr))
        try:
            output = osu.parse(outcome.stdout, osu.BENCHMARKS[job.case.benchmark].unit)
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
            check.problem = self._prove(job, report).problem
        return check

    # ---- time

    def _run(self, job: Job, repetition: int) -> None:
        benchmark = osu.BENCHMARKS[job.case.benchmark]
        sizes = job.case.sizes.option()
        arguments = osu.timed_arguments(job.program, sizes, job.case.options)
        report = self._report_file(job, str(repetition))
        line = self.launcher.line(job.row, [str(job.program.path), *arguments], str(report))

        def once() -> Outcome:
            report.unlink(missing_ok=True)
            return self.runner.run(line, job.row.timeout)

        outcome, conditions = self._within_one_phase(once)
        run = Run(
            **vars(conditions),
            arm=job.arm,
            repetition=repetition,
            metric=benchmark.metric,
            unit=benchmark.unit,
            line=str(line),
            transport=job.row.wire,
            messages=_tail(outcome.stderr),
        )
        self.results.runs.append(run)
        try:
            output = osu.parse(outcome.stdout, benchmark.unit)
            run.title = output.title
            wanted = job.case.sizes.sizes()
            run.values = {size: v for size, v in output.values.items() if size in wanted}
            run.failed = explain(outcome) or _gap(output, job)
        except osu.NotOutput as error:
            run.failed = explain(outcome) or str(error)
        if job.row.is_regx and run.failed:
            run.problem = "path not proven, for the run did not end well"
        elif job.row.is_regx:
            proof = self._prove(job, report)
            run.problem, run.carried = proof.problem, proof.carried
            run.transport, run.backend = proof.transport, proof.backend
            run.counts = proof.counts
        if run.failed:
            self.progress.say(f"{job.arm}: {run.failed}")

    def _within_one_phase(self, once: Callable[[], Outcome]) -> tuple[Outcome, Conditions]:
        """Runs, and again when the machine's phase changed meanwhile, but not for ever."""
        before = self.mailbox.last if self.mailbox.last is not None else self.mailbox.measure()
        for attempt in range(1, ATTEMPTS + 1):
            load = Load()
            outcome = once()
            # Soft-RoCE works in threads of the kernel, which look like other programs.
            others = load.others() if not self.launcher.rdma else 0.0
            after = self.mailbox.measure()
            if outcome.status != 0 or not phase.moved(before, after) or attempt == ATTEMPTS:
                break
            before = after
        return outcome, Conditions(
            phase=phase.name(before, after),
            mailbox=(before, after),
            attempts=attempt,
            seconds=outcome.seconds,
            others=others,
        )

    def _limit(self, repetition: int) -> None:
        """What two processes reach without MPI, in the same repetition as the arms."""
        probe = str(self.launcher.installation.probe)
        line = Line((), (probe, "fastest", "-m", self.plan.limit_sizes().option()))
        outcome, conditions = self._within_one_phase(lambda: self.runner.run(line, PROBE_TIMEOUT))
        for arm, unit in self.plan.limit_groups.items():
            run = Run(
                **vars(conditions),
                arm=arm,
                repetition=repetition,
                metric="latency" if unit == "us" else "bandwidth",
                unit=unit,
                line=str(line),
                transport="shm",
                messages=_tail(outcome.stderr),
            )
            self.results.runs.append(run)
            try:
                run.values = osu.parse(outcome.stdout, unit).values
                run.failed = explain(outcome)
            except osu.NotOutput as error:
                run.failed = explain(outcome) or str(error)

    # ---- proof

    def _report_file(self, job: Job, run: str) -> Path:
        name = f"{job.row.name}-{job.arm.benchmark}-{job.case.buffers}-{run}.jsonl"
        return self.reports / name.replace(":", "-")

    def _prove(self, job: Job, report: Path) -> path.Proof:
        strategy = job.row.parameter("btl_regx_rendezvous") or "auto"
        if path.FRAGMENTED.match(job.case.buffers):
            strategy = "frag"
        backend = job.row.parameter("btl_regx_backend") or "auto"
        transport = job.row.parameter("btl_regx_transport") or "auto"
        return path.prove(report, strategy, job.case.sizes.sizes(), backend, transport)


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
