# SPDX-License-Identifier: BSD-3-Clause
"""Launching: the exact lines that run a benchmark, and running them under a watchdog."""

import os
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from comparing.configuration import Row
from comparing.installation import Installation
from comparing.trouble import Trouble

POLL_SECONDS = 0.5  # how soon Ctrl-C is noticed; rarely enough not to disturb a measurement
GRACE_SECONDS = 5.0  # for mpirun to end its ranks after SIGTERM
COMPONENT_PATH = "OMPI_MCA_opal_mca_base_component_path"


@dataclass(frozen=True)
class Line:
    """A command and the environment that it needs on top of the user's."""

    environment: tuple[tuple[str, str], ...]
    words: tuple[str, ...]

    def __str__(self) -> str:
        """As a person can paste it into a shell."""
        settings = [f"{name}={value}" for name, value in self.environment]
        return shlex.join((["env", *settings] if settings else []) + list(self.words))


def cores() -> int:
    """Of how many cores this process may use a thread: mpirun counts them, and binds to them."""
    threads = set()
    for number in os.sched_getaffinity(0):
        topology = Path(f"/sys/devices/system/cpu/cpu{number}/topology")
        siblings = topology / "thread_siblings_list"
        threads.add(siblings.read_text() if siblings.exists() else str(number))
    return len(threads)


class Launcher:
    """How ranks are started: by mpirun on this node or on a hostfile's, or as the user says."""

    def __init__(
        self,
        installation: Installation,
        hostfile: Path | None = None,
        launcher: str | None = None,
        rdma: bool = False,
    ):
        self.installation = installation
        self.rdma = rdma
        self.hostfile = hostfile
        self.cores = cores()
        try:
            self.own = tuple(shlex.split(launcher)) if launcher is not None else ()
        except ValueError as error:
            raise Trouble(f"--launcher: {error}") from None
        if launcher is not None and not self.own:
            raise Trouble('--launcher: wanted: a command, for example "srun --mpi=pmix"')
        if hostfile and self.own:
            raise Trouble("--hostfile is mpirun's; a launcher has options of its own for that")
        if hostfile and not os.access(hostfile, os.R_OK):
            raise Trouble(f"--hostfile: {hostfile} cannot be read")

    @property
    def on_this_node(self) -> bool:
        """Whether both ranks run here, each on its own core, and talk by memory, as the probe's
        processes do."""
        return not self.hostfile and not self.own and not self.rdma and self.cores >= 2

    def line(self, row: Row, command: list[str], report: str | None, ranks: int = 2) -> Line:
        """report: where regx writes its counters, for a row of regx."""
        mca = list(row.mca)
        environment: list[tuple[str, str]] = []
        if row.is_regx:
            environment.append((COMPONENT_PATH, self.installation.component_path))
            if report:
                mca.append(("btl_regx_report", report))
        command = [*limited(row.memlock), *command]
        if self.own:
            # The launcher knows nothing of --mca and -x: all goes by the environment.
            environment += [(f"OMPI_MCA_{name}", value) for name, value in mca]
            environment += row.environment
            return Line(tuple(environment), (*self.own, "-n", str(ranks), *command))
        words = [self.installation.mpirun]
        if os.geteuid() == 0:
            words.append("--allow-run-as-root")
        words += ["-n", str(ranks)]
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
        for name, value in mca:
            words += ["--mca", name, value]
        for name, value in row.environment:
            words += ["-x", f"{name}={value}"]
        return Line(tuple(environment), (*words, *command))


def limited(memlock: str) -> list[str]:
    """The words that begin a command which may lock so much, as any user's may: root, as long as
    it has CAP_IPC_LOCK, is not limited."""
    if not memlock:
        return []
    words = ["prlimit", f"--memlock={memlock}:{memlock}"]
    if os.geteuid() == 0:
        words = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", *words]
    return words


@dataclass(frozen=True)
class Outcome:
    status: int | None  # None: ended by the watchdog
    stdout: str
    stderr: str
    seconds: float


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
            process = subprocess.Popen(
                line.words,
                env={**os.environ, **dict(line.environment)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C in the terminal reaches us alone
            )
        except OSError as error:
            return Outcome(127, "", f"{line.words[0]}: {error.strerror}", 0.0)
        while True:
            try:
                stdout, stderr = process.communicate(timeout=POLL_SECONDS)
                return Outcome(process.returncode, stdout, stderr, time.monotonic() - started)
            except subprocess.TimeoutExpired:
                pass
            late = time.monotonic() - started > timeout
            if late or self.stopping:
                stdout, stderr = _end(process)
                if self.stopping:
                    raise Interrupted
                return Outcome(None, stdout, stderr, time.monotonic() - started)


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """mpirun ends its ranks when it is asked to; whoever is left of its session is killed."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    for pid in _session(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return process.communicate()


def _session(leader: int) -> list[int]:
    """The processes of a session: ranks have process groups of their own, but not sessions."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            if int(fields[3]) == leader:
                members.append(int(entry.name))
    return members
