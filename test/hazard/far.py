# SPDX-License-Identifier: BSD-3-Clause
"""Hosts that are far from each other: network namespaces with delay and loss between them.

The kernel's own means for that (netem) are seldom there, so this file is also a program: an Ethernet
switch that keeps each frame for a while and drops one of so many.

    far.py DELAY EVERY NAME...

Makes a tap device of each NAME, says "ready", and switches until its input ends. Then it says how many
frames it has passed on, and how many dropped. DELAY in milliseconds; of EVERY frames one is dropped.
"""
import collections
import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from namespace import command, refusal, words_for

TUNSETIFF = 0x400454ca
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
FRAME = 65536
STDIN = 0


def open_tap(name: str) -> int:
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


@dataclass
class Switch:
    taps: list[int]
    delay: float
    every: int
    homes: dict[bytes, int] = field(default_factory=dict)  # of addresses
    kept: collections.deque[tuple[float, int, bytes]] = field(default_factory=collections.deque)
    passed: int = 0
    dropped: int = 0

    def take(self, tap: int) -> None:
        """All that a host has sent."""
        while True:
            try:
                frame = os.read(tap, FRAME)
            except BlockingIOError:
                return
            self.homes[frame[6:12]] = tap
            if (self.passed + self.dropped + 1) % self.every == 0:
                self.dropped += 1
                continue
            self.passed += 1
            home = self.homes.get(frame[:6])
            due = time.monotonic() + self.delay
            for to in self.taps if home is None else [home]:
                if to != tap:
                    self.kept.append((due, to, frame))

    def give(self) -> float:
        """What has been kept long enough. Milliseconds until there is more."""
        while self.kept:
            wait = self.kept[0][0] - time.monotonic()
            if wait > 0:
                return wait * 1000
            _, to, frame = self.kept.popleft()
            try:
                os.write(to, frame)
            except OSError:  # not up yet, or full, as a real one may be
                pass
        return 1000

    def run(self) -> None:
        poll = select.poll()
        for source in [STDIN, *self.taps]:
            poll.register(source, select.POLLIN)
        while True:
            for source, _ in poll.poll(self.give()):
                if source == STDIN:
                    return
                self.take(source)


@dataclass
class Network:
    around: list[str]  # the words before mpirun
    options: list[str]  # mpirun's
    passed: int = 0  # frames, when all is over
    dropped: int = 0


@contextmanager
def far_hosts(folder: Path, count: int, delay: float, every: int) -> Iterator[Network]:
    names = [f"regx{os.getpid()}{side}" for side in "abcdefgh"[:count]]
    hosts = {name: f"10.84.{os.getpid() % 250}.{i + 1}" for i, name in enumerate(names)}
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        pytest.skip("no tap device")
    why = refusal("ip", "netns", "add", names[0])
    if why:
        pytest.skip(f"no network namespace: {why}")
    switch = None
    try:
        for name in names[1:]:
            command("ip", "netns", "add", name)
        switch = subprocess.Popen([sys.executable, __file__, str(delay), str(every), *names],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                  env={**os.environ, "PYTHONPATH": ":".join(sys.path)})
        assert switch.stdin and switch.stdout
        assert switch.stdout.readline() == "ready\n", "the switch does not start"
        for name, host in hosts.items():
            command("ip", "link", "set", name, "netns", name, "name", "regx0")
            command("ip", "-n", name, "addr", "add", f"{host}/24", "dev", "regx0")
            command("ip", "-n", name, "link", "set", "regx0", "up")
            command("ip", "-n", name, "link", "set", "lo", "up")
        network = Network(*words_for(folder, hosts))
        yield network
        switch.stdin.close()
        network.passed, network.dropped = map(int, switch.stdout.readline().split())
    finally:
        if switch is not None:
            switch.kill()
            switch.wait()
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def main() -> None:
    delay, every, names = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    switch = Switch([open_tap(name) for name in names], delay / 1000, every)
    print("ready", flush=True)
    switch.run()
    print(switch.passed, switch.dropped, flush=True)


if __name__ == "__main__":
    main()
