# SPDX-License-Identifier: BSD-3-Clause
"""Jobs that are alive side by side: each of their ranks sleeps in recv of a socket to this command, until it is
asked for a slice. What a job does wrong is Gone, with its name."""

import secrets
import select
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tools.launch import Interrupted, Line, Outcome, Runner, end, start

POLL_SECONDS = 0.5  # how soon Ctrl-C is noticed
END_SECONDS = 20.0  # for a job whose connection is closed to end by itself
LINE_MAX = 4096


class Gone(Exception):
    """The job has died, or did not answer in time. It has been ended."""


class Job:
    """mpirun with its ranks, or another command that answers as they do."""

    def __init__(self, name: str, line: Line, ranks: int, hub: "Hub"):
        self.name, self.ranks, self.hub = name, ranks, hub
        self.token = secrets.token_hex(8)
        self.sockets: dict[int, socket.socket] = {}
        self.said = [tempfile.TemporaryFile("w+", errors="replace") for _ in range(2)]  # stdout and stderr
        self.process: subprocess.Popen[str] | None = None
        self.trouble = ""
        words = tuple(word.replace("HUB NAME", f"{hub.address} {self.token}") if "=HUB NAME " in word
                      else {"HUB": hub.address, "NAME": self.token}.get(word, word) for word in line.words)
        try:
            environment = {name: value.replace("HUB NAME", f"{hub.address} {self.token}") if name == "REGX_PACE" else value
                           for name, value in line.environment.items()}  # another launcher's
            self.process = start(Line(environment, words), *self.said)
        except OSError as error:
            self.trouble = f"{words[0]}: {error.strerror}"

    @property
    def is_ready(self) -> bool:
        return len(self.sockets) == self.ranks and not self.trouble

    def ask(self, text: str, patience: float) -> list[list[str]]:
        """What each rank answers, as words; rank 0's first."""
        for rank in self.sockets.values():
            try:
                rank.sendall(f"{text}\n".encode())
            except OSError:
                self.lose()
        found: dict[socket.socket, bytes] = {rank: b"" for rank in self.sockets.values()}
        until = time.monotonic() + patience
        while waiting := [rank for rank, answer in found.items() if not answer.endswith(b"\n")]:
            ready = self.hub.wait(waiting, until)
            if not ready:
                self.lose(f"no answer within {patience:.0f} s to \"{text}\"")
            for rank in ready:
                got = receive(rank)
                if not got:
                    self.lose()
                found[rank] += got
        return [found[self.sockets[rank]].decode(errors="replace").split() for rank in sorted(self.sockets)]

    def lose(self, why: str = "") -> None:
        """Ends it, and raises Gone: why, or else what it said itself."""
        self.close()
        status = self.ended(0 if why else END_SECONDS)
        self.trouble = why or Outcome(status, *self.output()).failure() or "a rank ended early"
        raise Gone(self.trouble)

    def close(self) -> None:
        for rank in self.sockets.values():
            rank.close()
        self.sockets = {}

    def ended(self, patience: float = END_SECONDS) -> int | None:
        """Its status; None: it had to be killed."""
        if self.process is None:
            return 127
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            end(self.process)
            return None

    def output(self) -> tuple[str, str]:
        texts = []
        for file in self.said:
            file.seek(0)
            texts.append(file.read())
        return texts[0], texts[1]


def receive(rank: socket.socket) -> bytes:
    try:
        return rank.recv(LINE_MAX)
    except OSError:
        return b""


class Hub:
    """Where the ranks connect to: a socket of this node, or of TCP, if they may be on others."""

    def __init__(self, runner: Runner, network: bool = False):
        self.runner = runner
        self.folder = Path(tempfile.mkdtemp(prefix="regx-compare-"))
        if network:
            self.listener = socket.create_server(("", 0))
            self.address = f"tcp:{socket.getfqdn()}:{self.listener.getsockname()[1]}"
        else:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(str(self.folder / "hub"))
            self.listener.listen(1024)
            self.address = f"unix:{self.folder}/hub"

    def wait(self, on: list[socket.socket], until: float) -> list[socket.socket]:
        """Those that have something to read; none: it is late."""
        while True:
            if self.runner.stopping:
                raise Interrupted
            left = until - time.monotonic()
            if ready := select.select(on, [], [], max(0, min(left, POLL_SECONDS)))[0]:
                return ready
            if left <= 0:
                return []

    def gather(self, jobs: list[Job], patience: float) -> None:
        """Returns when each is ready, or has trouble."""
        by_token = {job.token: job for job in jobs}
        until = time.monotonic() + patience
        while waiting := [job for job in jobs if not job.is_ready and not job.trouble]:
            for job in waiting:
                if job.process is not None and job.process.poll() is not None:
                    job.trouble = Outcome(job.process.returncode, *job.output()).failure() or "it ended before it began"
            if self.wait([self.listener], min(until, time.monotonic() + 0.05)):
                self.accept(by_token)
            elif time.monotonic() > until:
                for job in waiting:
                    job.trouble = job.trouble or f"not all ranks were there within {patience:.0f} s"
        for job in jobs:
            if job.trouble:
                job.close()
                job.ended(0)

    def accept(self, by_token: dict[str, Job]) -> None:
        """Who does not say a name of ours is sent away."""
        rank, _ = self.listener.accept()
        rank.settimeout(5)
        words = receive(rank).decode(errors="replace").split()
        job = by_token.get(words[0]) if len(words) == 2 and words[1].isdecimal() else None
        if job is None:
            rank.close()
            return
        rank.settimeout(None)
        job.sockets[int(words[1])] = rank

    def close(self) -> None:
        self.listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def end_all(jobs: list[Job]) -> None:
    """All at the same time: first they are told, then waited for."""
    for job in jobs:
        job.close()
    for job in jobs:
        status = job.ended()
        job.trouble = job.trouble or ("it did not end by itself" if status is None
                                      else Outcome(status, *job.output()).failure())
