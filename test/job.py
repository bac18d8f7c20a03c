# SPDX-License-Identifier: BSD-3-Clause
"""One mpirun of a test: its command, its watchdog, and what came out of it."""
import json
import os
import re
import shlex
import signal
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import skips
from tables import paths as all_paths, strategies

# Carried by the environment of every process of a job, however it was started.
MARK = "REGX_TEST_JOB"
ENDS = 60  # seconds that daemons, and what is killed, may take to end
# What a job says of wrong bytes, of a crash, or under a sanitizer.
BAD = re.compile(r"wrong|stale|lost|Sanitizer|runtime error|received signal|Assertion", re.I)
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@dataclass(frozen=True)
class Job:
    """A job that has ended, and what each rank reported."""
    command: str
    status: int
    stdout: str
    stderr: str
    reports: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([
            f"$ {self.command}", f"status {self.status}", "stdout:", self.stdout[-3000:],
            "stderr:", self.stderr[-6000:], *(json.dumps(report) for report in self.reports)])

    @property
    def unheard(self) -> bool:
        """It ended well, but a rank's PMIx_Finalize waited two seconds in vain for mpirun to answer, and then
        mpirun saw that process end: on a busy machine its PMIx may read the farewell too late."""
        return self.status == 1 and "exiting improperly" in self.stderr and bool(self.reports) \
            and re.fullmatch(r"(?:checked \d+ bytes\n)+", self.stdout) is not None

    @property
    def sound(self) -> bool:
        """It ended well and complained of no content: what may still be wrong is a count or a line. Processes
        left behind and missing reports fail by pytest.fail, which is never excused."""
        return (self.status == 0 or self.unheard) and self.total("malformed") == 0 \
            and not BAD.search(self.stderr + self.stdout)

    @property
    def complaints(self) -> list[str]:
        """What regx said to the user. mpirun of 5.0 may put a blank or a NUL before it. Where a signal ended a
        rank, another may have noticed that before mpirun ended it, or not."""
        died = "exited on signal" in self.stderr
        return [line.lstrip(" \0") for line in self.stderr.splitlines()
                if "regx: " in line and "btl:regx: " not in line  # the latter was asked for
                and not (died and " lost (the process has ended" in line)]

    def total(self, key: str) -> int:
        return sum(report[key] for report in self.reports)

    def most(self, key: str) -> int:
        return max(report[key] for report in self.reports)

    def reasons(self, key: str) -> dict[str, int]:
        """fallbacks or ports of all ranks together."""
        total: dict[str, int] = {}
        for report in self.reports:
            for reason, count in report[key].items():
                total[reason] = total.get(reason, 0) + count
        return total

    def ways(self) -> dict[str, int]:
        """Of all ranks: messages by way and reason; of each rank they are those that the counters have."""
        total: Counter[str] = Counter()
        for report in self.reports:
            counted: Counter[str] = Counter()
            for row in report["explain"]:
                total[f"{row['way']}: {row['why']}"] += row["messages"]
                for path in [row["way"]] + ["fallback"] * row["why"].startswith("fallback"):
                    counted.update({f"messages_{path}": row["messages"], f"bytes_{path}": row["bytes"]})
            assert all(counted[key] == report[key] for path in all_paths()
                       for key in (f"messages_{path}", f"bytes_{path}")), f"{counted}\n{self}"
        return total

    def rank(self, rank: int) -> dict[str, Any]:
        found = [report for report in self.reports if report["rank"] == rank]
        if len(found) != 1:
            pytest.fail(f"{len(found)} reports of rank {rank}\n{self}")
        return found[0]

    def warned(self, *words: str) -> "Job":
        """It said one line, with these words; answers the job without that."""
        assert len(self.complaints) == 1, str(self)
        assert all(word in self.complaints[0] for word in words), str(self)
        return replace(self, stderr=self.stderr.replace(self.complaints[0], ""))

    def left_out(self, *words: str) -> None:
        """It ended well without regx, which said one line, with these words."""
        assert self.status == 0 and not self.reports, str(self)
        self.warned(*words)

    def lost(self, side: str, *words: str) -> "Job":
        """Bytes could not be read from that side's buffer, or written to it (send, receive): one line names
        the buffer and has these words, and the job ended."""
        assert self.status != 0 and "checked" not in self.stdout, str(self)
        lines = [line for line in self.complaints if f"the {side} buffer at 0x" in line]
        assert len(lines) == 1 and all(word in lines[0] for word in words), str(self)
        return self

    def ended_well(self) -> "Job":
        assert self.status == 0, str(self)
        assert not self.complaints, str(self)
        return self

    def checked(self, ranks: int) -> "Job":
        """It ended well, every byte was right, every rank reported, and nothing else was said."""
        self.ended_well()
        match = re.fullmatch(r"(?:checked (\d+) bytes\n)+", self.stdout)
        assert match and int(match[1]) > 0, f"more or less on stdout than one line\n{self}"
        if len(self.reports) != ranks:
            pytest.fail(f"{len(self.reports)} reports of {ranks}\n{self}")
        assert self.total("malformed") == 0, str(self)
        return self

    def carried(self, strategy: str, bytes_: range | None = None, but: tuple[str, ...] = ()) -> "Job":
        """That strategy carried bytes (so many) of large messages, and no other did; with auto
        any may, each for a reason. No other fallback was counted, but for those that begin so."""
        paths = strategies() if strategy == "auto" else [strategy]
        carried = sum(self.total(f"bytes_{path}") for path in paths)
        if strategy == "remap" and carried == 0 and skips.pages_cannot_be_moved():
            pytest.skip("no UFFDIO_MOVE here")
        assert carried > 0, f"nothing went by {strategy}\n{self}"
        assert bytes_ is None or carried in bytes_, \
            f"{carried}, not {bytes_}, by {strategy}\n{self}"
        for other in {*all_paths()} - {"eager", "frag", *paths}:
            assert self.total(f"messages_{other}") == 0, f"some went by {other}\n{self}"
        assert all(reason.startswith(but) for reason in self.reasons("fallbacks")), str(self)
        asked = {way for way in self.ways() if way.endswith(": asked for")} - {f"{strategy}: asked for"}
        assert not asked, str(self)
        return self

    def over(self, wire: str) -> "Job":
        """All of it went over that wire: shm or verbs."""
        assert self.total(f"bytes_{wire}") > 0, f"nothing went over {wire}\n{self}"
        for other in {"shm", "verbs"} - {wire}:
            assert self.total(f"bytes_{other}") == 0, f"some went over {other}\n{self}"
        return self


def marked(mark: str) -> list[int]:
    """Processes of that job that still live."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:  # gone meanwhile, or another user's
                pass
    return found


def kill(mark: str) -> None:
    """Ends what is left of a job, by id, until nothing is, or the kernel does not let one go."""
    end = time.monotonic() + ENDS
    while (pids := marked(mark)) and time.monotonic() < end:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)


def stacks(pids: Sequence[int]) -> str:
    """Of all threads of these processes."""
    shown = []
    for pid in pids:
        try:
            shown.append(subprocess.run(["eu-stack", "-p", str(pid)], capture_output=True, text=True,
                                        errors="replace", check=False, timeout=60).stdout)
        except (OSError, subprocess.TimeoutExpired) as problem:
            shown.append(f"no stack of {pid}: {problem}")
    return "\n".join(shown)


def left_behind(mark: str) -> list[int]:
    """Daemons of a job end a moment after mpirun; what does not is killed, and answered."""
    end = time.monotonic() + ENDS
    while pids := marked(mark):
        if time.monotonic() > end:
            kill(mark)
            return pids
        time.sleep(0.02)
    return []


def run(command: Sequence[str | Path], environment: Mapping[str, str], report: Path,
        timeout: float, start: Mapping[str, str]) -> Job:
    """Runs a command with a watchdog over all its descendants. start: of the environment what changes no
    result, and is not shown."""
    mark = uuid.uuid4().hex
    words = [str(word) for word in command]
    shown = " ".join(
        [f"{key}={shlex.quote(value)}" for key, value in environment.items()] + [shlex.join(words)])
    # The user's own settings must not change the tests.
    inherited = {key: value for key, value in os.environ.items()
                 if not key.startswith(("OMPI_", "UCX_", "PMIX_"))}
    process = subprocess.Popen(
        words, env={**inherited, **ROOT, **start, **environment, MARK: mark}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        start_new_session=True)
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        where = stacks(marked(mark))
        kill(mark)
        stdout, stderr = process.communicate(timeout=ENDS)
        pytest.fail(f"watchdog: not done after {timeout} s\n"
                    f"{Job(shown, process.returncode, stdout, stderr)}\n{where}")
    finally:
        if process.poll() is None:  # pytest itself was interrupted
            kill(mark)
    lines = report.read_text().splitlines() if report.exists() else []
    stdout = stdout.replace("\0", "")  # mpirun of 5.0 puts one before some lines
    job = Job(shown, process.returncode, stdout, stderr, [json.loads(line) for line in lines])
    left = left_behind(mark)
    if left:
        pytest.fail(f"processes {left} were left behind\n{job}")
    return job
