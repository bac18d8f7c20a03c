# SPDX-License-Identifier: BSD-3-Clause
"""Progress: which step is under way and how long the rest will take, on stderr."""

import shutil
import sys
import time
from collections.abc import Callable

from comparing.plan import Job, Step

FIRST_GUESS = 2.0  # seconds of a step, before any was measured


class Progress:
    def __init__(self, steps: list[Step], is_dropped: Callable[[Step], bool]):
        self.steps = steps
        self.is_dropped = is_dropped
        self.done = 0
        self.started = time.monotonic()
        self.known: dict[tuple[str, Job], float] = {}  # seconds by kind and job
        self.on_terminal = sys.stderr.isatty()

    def begin(self, note: str) -> None:
        step = self.steps[self.done]
        self._show(f"[{self.done + 1}/{len(self.steps)}] {step}; {note}{_clock(self._left())} left")
        self.started = time.monotonic()

    def end(self) -> None:
        step = self.steps[self.done]
        self.known[step.kind, step.job] = time.monotonic() - self.started
        self.done += 1

    def drop(self) -> None:
        self.done += 1

    def say(self, text: str) -> None:
        """A line that stays."""
        if self.on_terminal:
            self._show("")
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.on_terminal:
            self._show("")

    def _show(self, text: str) -> None:
        if self.on_terminal:
            fits = text[: shutil.get_terminal_size().columns - 1]  # what wraps cannot be erased
            print(f"\r\033[K{fits}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def _left(self) -> float:
        rest = self.steps[self.done :]
        return sum(self._expected(step) for step in rest if not self.is_dropped(step))

    def _expected(self, step: Step) -> float:
        """As this arm took before, else as others took for the same benchmark, or kind of step."""
        if (step.kind, step.job) in self.known:
            return self.known[step.kind, step.job]
        alike = {job: seconds for (kind, job), seconds in self.known.items() if kind == step.kind}
        closer = {
            job: seconds
            for job, seconds in alike.items()
            if job.case.benchmark == step.job.case.benchmark
        }
        times = list((closer or alike).values())
        return sum(times) / len(times) if times else FIRST_GUESS


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"about {minutes} min {seconds:02} s" if minutes else f"about {seconds} s"
