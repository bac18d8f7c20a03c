# SPDX-License-Identifier: BSD-3-Clause
"""Launching: the exact lines that run a benchmark, and running them under a watchdog."""

import os
import re
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.installation import Installation
from tools.rows import Row
from tools.trouble import Trouble

POLL_SECONDS = 0.5  # how soon Ctrl-C is noticed; rarely enough not to disturb a measurement
GRACE_SECONDS = 5.0  # for mpirun to end its ranks after SIGTERM


@dataclass(frozen=True)
class Line:
    """A command and the environment that it needs on top of the user's."""

    environment: dict[str, str]
    words: tuple[str, ...]

    def __str__(self) -> str:
        """As a person can paste it into a shell."""
        settings = [f"{name}={value}" for name, value in self.environment.items()]
        return shlex.join((["env", *settings] if settings else []) + list(self.words))


def cores() -> list[int]:
    """A thread of each core that this process may use: mpirun counts cores, and binds to them."""
    threads = {}
    for number in sorted(os.sched_getaffinity(0)):
        siblings = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        threads.setdefault(siblings.read_text() if siblings.exists() else str(number), number)
    return list(threads.values())


def own_launcher(hostfile: Path | None, launcher: str | None) -> tuple[str, ...]:
    """The words of --launcher; Trouble says what is wrong with it, or with --hostfile."""
    try:
        words = tuple(shlex.split(launcher)) if launcher is not None else ()
    except ValueError as error:
        raise Trouble(f"--launcher: {error}") from None
    if launcher is not None and not words:
        raise Trouble('--launcher: wanted: a command, for example "srun --mpi=pmix"')
    if hostfile and words:
        raise Trouble("--hostfile is mpirun's; a launcher has options of its own for that")
    if hostfile and not os.access(hostfile, os.R_OK):
        raise Trouble(f"--hostfile: {hostfile} cannot be read")
    return words


class Launcher:
    """How ranks are started: by mpirun on this node or on a hostfile's, or as the user says."""

    def __init__(self, installation: Installation, hostfile: Path | None = None,
                 launcher: str | None = None, rdma: bool = False):
        self.installation, self.hostfile, self.rdma = installation, hostfile, rdma
        self.cores = len(cores())
        self.own = own_launcher(hostfile, launcher)

    @property
    def on_this_node(self) -> bool:
        """All ranks run here, each of two on its own core."""
        return not self.hostfile and not self.own and not self.rdma and self.cores >= 2

    @property
    def network(self) -> bool:
        """Ranks may run on other nodes."""
        return bool(self.hostfile or self.own)

    def line(self, row: Row, command: list[str], report: Path | str, ranks: int = 2) -> Line:
        """report: where regx writes its counters, for a row of regx."""
        mca, environment, ranks_have = dict(row.mca), {}, dict(row.environment)
        if row.is_regx:
            environment["OMPI_MCA_opal_mca_base_component_path"] = self.installation.component_path
            mca["btl_regx_report"] = str(report)
        command = [*limited(row.memlock), *command]
        if self.own:
            # The launcher knows nothing of --mca and -x: all goes by the environment.
            environment |= {f"OMPI_MCA_{name}": value for name, value in mca.items()} | ranks_have
            return Line(environment, (*self.own, "-n", str(ranks), *command))
        as_root = ["--allow-run-as-root"] * (os.geteuid() == 0)
        words = [self.installation.mpirun, *as_root, "-n", str(ranks)]
        if self.hostfile:
            words += ["--hostfile", str(self.hostfile), "--map-by", "node", "--bind-to", "core"]
        elif self.cores >= ranks:
            words += ["--map-by", "core", "--bind-to", "core"]
        elif self.cores >= 2:
            # Which ranks share a core would else be the kernel's choice, anew in each run.
            words += ["--map-by", "core:OVERSUBSCRIBE", "--bind-to", "core:overload-allowed",
                      "--mca", "mpi_yield_when_idle", "1"]  # fmt: skip
        else:
            words += ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
        for name, value in mca.items():
            words += ["--mca", name, value]
        for name, value in ranks_have.items():
            words += ["-x", f"{name}={value}"]
        return Line(environment, (*words, *command))


def limited(memlock: str) -> list[str]:
    """The words that begin a command which may lock so much, as any user's may: root, as long as
    it has CAP_IPC_LOCK, is not limited."""
    as_user = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"] * (os.geteuid() == 0)
    return [*as_user, "prlimit", f"--memlock={memlock}:{memlock}"] if memlock else []


@dataclass(frozen=True)
class Outcome:
    status: int | None  # None: ended by the watchdog
    stdout: str
    stderr: str
    seconds: float = 0

    def failure(self) -> str:
        """Why the command failed, in one line: what regx or the benchmark said, else what else was."""
        if self.status == 0:
            return ""
        if self.status is None:
            return f"no end within {self.seconds:.0f} s: ended by the watchdog"
        # Of Open MPI: [host:pid], or [host][[job,1],rank][file:line:function].
        prefix = r"(?:\[(?:[^][]|\[[^]]*\])*\] *)*"
        ours = "regx|companion|probe|messages|registration"
        reason = re.search(rf"^{prefix}((?:{ours}): .*)", self.stderr, re.MULTILINE)
        # Open MPI's messages are paragraphs between lines of dashes.
        texts = re.split(r"\n\s*(?:\n|-{20,})", "\n" + self.stderr)
        words = [" ".join(text.split()) for text in texts if re.search(r"\w", text)]
        other = re.sub(f"^{prefix}", "", words[0])[:300] if words else "it said nothing"
        return f"failed with status {self.status}: {reason[1] if reason else other}"


class Interrupted(Exception):
    """The user wants to stop. What was running has been ended."""


class Runner:
    """Runs lines one at a time. After stop(), which a signal handler may call, runs no more."""

    def __init__(self) -> None:
        self.stopping = False

    def heed_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.stop)

    def stop(self, *_: object) -> None:
        self.stopping = True

    def run(self, line: Line, timeout: float) -> Outcome:
        if self.stopping:
            raise Interrupted
        started = time.monotonic()
        try:
            process = start(line, subprocess.PIPE, subprocess.PIPE)
        except OSError as error:
            return Outcome(127, "", f"{line.words[0]}: {error.strerror}")
        while True:
            try:
                stdout, stderr = process.communicate(timeout=POLL_SECONDS)
                return Outcome(process.returncode, stdout, stderr, time.monotonic() - started)
            except subprocess.TimeoutExpired:
                late = time.monotonic() - started > timeout
            if late or self.stopping:
                stdout, stderr = end(process)
                if self.stopping:
                    raise Interrupted
                return Outcome(None, stdout, stderr, time.monotonic() - started)


def start(line: Line, stdout: Any, stderr: Any) -> subprocess.Popen[str]:
    """In a session of its own: Ctrl-C in the terminal reaches this process alone."""
    return subprocess.Popen(line.words, env={**os.environ, **line.environment}, stdin=subprocess.DEVNULL, stdout=stdout,
                            stderr=stderr, text=True, errors="replace", start_new_session=True)


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """mpirun ends its ranks when it is asked to; what is left of its session is killed."""
    try:
        os.killpg(process.pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    # Ranks have process groups of their own, but not sessions.
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(entry.read_text().rpartition(")")[2].split()[3]) == process.pid:
                os.kill(int(entry.parent.name), signal.SIGKILL)
        except OSError:
            continue  # it has just ended
    return process.communicate()
