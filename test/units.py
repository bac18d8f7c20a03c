# SPDX-License-Identifier: BSD-3-Clause
"""Unit tests as pytest sees them: each program of cmocka's is one test. runner.py builds them, and leaves
in each build's `programs` which ones are to run there."""
from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import job
import skips

TOP = Path(__file__).resolve().parent.parent
BUILDS = ("asan", "tsan", "plain")
PATIENCE = 900  # seconds; only a hang takes so long
# cmocka 1.1 reports a skipped test as "not ok 3 # SKIP name"; why is what the test printed before.
PLAN = re.compile(r"^1\.\.(\d+)(?: # SKIP ?(.*))?$", re.M)
RESULT = re.compile(r"^(not )?ok \d+ (?:- (.*)|# SKIP (.*))$", re.M)
NOT_TRIED = re.compile(r"^not tried: (.*)$", re.M)
LOG_LINES = 80


class Bad(Exception):
    """A unit test failed; what it printed."""


class Program(pytest.Item):
    """One program, in one build."""

    def __init__(self, *, program: Path, **more: object) -> None:
        super().__init__(**more)  # type: ignore[arg-type]
        self.program = program

    @property
    def needs_device(self) -> bool:
        """One that has a twin on a device in memory runs on a real one."""
        return self.program.with_name(f"{self.program.name}_fake").exists()

    def runtest(self) -> None:
        process = subprocess.Popen(
            [self.program], env={**os.environ, "CMOCKA_MESSAGE_OUTPUT": "TAP"}, text=True,
            errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True)
        try:
            out, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            stacks = job.stacks([process.pid])
            self.end(process)
            out, _ = process.communicate()
            raise Bad(f"watchdog: not done after {PATIENCE} s\n{stacks}\n{out}") from None
        finally:
            if process.poll() is None:  # pytest itself was interrupted
                self.end(process)
        self.judge(out, process.returncode)

    @staticmethod
    def end(process: subprocess.Popen[str]) -> None:
        """With its children, or one that hangs would keep the pipe open."""
        os.killpg(process.pid, signal.SIGKILL)

    def judge(self, out: str, status: int) -> None:
        log = "\n".join(out.splitlines()[-LOG_LINES:])
        plan = PLAN.search(out)
        if plan and plan[2] is not None and status == 0:
            pytest.skip(plan[2] or "no reason given")
        found = list(RESULT.finditer(out))
        failed = [its[2] for its in found if its[1] and its[3] is None]
        if failed:
            raise Bad(f"failed: {', '.join(failed)}\n{log}")
        if status != 0 or not plan or len(found) != int(plan[1]):
            raise Bad(f"did not run to its end: status {status}\n{log}")
        skipped = [its for its in found if its[3] is not None]
        reasons = [self.reason(out[:its.start()]) for its in skipped]
        for its, reason in zip(skipped, reasons):
            because = skips.because(f"{self.nodeid}::{its[3]}", reason)
            if because is None:
                raise Bad(f"{its[3]} was skipped, which test/skips.py does not expect: {reason}")
            if len(skipped) < len(found):
                self.user_properties.append(("part", because))
        if skipped and len(skipped) == len(found):
            pytest.skip(reasons[0])

    @staticmethod
    def reason(before: str) -> str:
        return ([*NOT_TRIED.findall(before)] or ["no reason given"])[-1]

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException],
                     style: object = None) -> object:
        return str(excinfo.value) if isinstance(excinfo.value, Bad) \
            else super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name


class Source(pytest.File):
    """The file of a unit test; with a twin on a device in memory it makes two programs."""

    def collect(self) -> Iterator[Program]:
        name = str(self.path.relative_to(TOP).with_suffix(""))
        for build in BUILDS:
            for program in (name, f"{name}_fake"):
                if program in programs(build):
                    folder = TOP / ".build" / ("obj" if build == "plain" else build)
                    fake = "fake-" if program.endswith("_fake") else ""
                    yield Program.from_parent(self, name=f"{fake}{build}", program=folder / program)


def programs(build: str) -> list[str]:
    """Those that are to run in that build."""
    file = TOP / ".build" / build / "programs"
    return file.read_text().split() if file.exists() else []
