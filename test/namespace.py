# SPDX-License-Identifier: BSD-3-Clause
"""Jobs in namespaces of their own: with another /dev/shm, on two hosts of one machine."""
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from job import Job

PATIENCE = 600  # seconds; only what hangs takes so long

# Root of its own namespaces, where it is not root of the machine.
UNSHARE = ["unshare", "--mount", "--ipc"] + ([] if os.geteuid() == 0 else ["--map-root-user"])


def command(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout


def refusal(*words: str) -> str:
    """Why the machine refuses that command, or nothing."""
    run = subprocess.run(words, check=False, capture_output=True, text=True, timeout=PATIENCE)
    return run.stderr.strip() or "no reason given" if run.returncode else ""


def need(what: str, *words: str) -> None:
    """Skips where the machine refuses that command, for want of that."""
    why = refusal(*words)
    if why:
        pytest.skip(f"no {what}: {why}")


class SharedMemory:
    """A /dev/shm, and SysV segments, that no other job sees."""

    def __init__(self, folder: Path, size: str = "1G", sysv: bool = True,
                 patience: int = 60) -> None:
        self.listing = folder / "left"
        need("mount namespace", *UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
        setup = f"mount -t tmpfs -o size={size} tmpfs /dev/shm"
        if not sysv:
            setup += " && echo 1 >/proc/sys/kernel/shmmax"
        # Killed processes take a moment to go, and what they held goes with the last of them. A segment
        # that was never attached (no lpid) has been left by one that was killed before it could mark
        # it: component/transport/shm/segment.h.
        script = f"""
            list() {{ ls -A /dev/shm; awk 'NR > 1 && $6 > 0' /proc/sysvipc/shm; }}
            {setup} || exit 99
            "$@"; status=$?
            rounds={patience * 50}
            while [ $rounds -gt 0 ] && [ -n "$(list)" ]; do
                sleep 0.02; rounds=$((rounds - 1))
            done
            list >'{self.listing}'
            exit $status"""
        self.around = [*UNSHARE, "sh", "-c", script, "sh"]

    def left(self) -> str:
        """What the job left behind there."""
        return self.listing.read_text()

    def must_be_empty(self, job: Job) -> None:
        """Else the test fails, and is not tried once more."""
        if self.left():
            pytest.fail(f"left: {self.left()}\n{job}")


def wait_until(so: Callable[[], bool], why_not: str) -> None:
    end = time.monotonic() + PATIENCE
    while not so():
        assert time.monotonic() < end, why_not
        time.sleep(0.01)


def words_for(folder: Path, hosts: dict[str, str]) -> tuple[list[str], list[str]]:
    """For a job in those namespaces, each with its address: the words before mpirun, and its options.

    Open MPI's daemons on all but the first are started by a script in the place of ssh.
    """
    # Each gets a host name of its own, or Open MPI takes them for one node.
    enter = 'exec ip netns exec {} unshare --uts sh -c \'hostname {}; exec "$@"\' sh "$@"\n'
    for name in hosts:
        (folder / name).write_text("#!/bin/sh\n" + enter.format(name, name))
        (folder / name).chmod(0o700)
    choices = "".join(f"{host}) name={folder / name};;\n" for name, host in hosts.items())
    agent = folder / "agent"
    agent.write_text(f'#!/bin/sh\ncase $1 in\n{choices}esac\nshift\nexec "$name" sh -c "$*"\n')
    agent.chmod(0o700)
    return [str(folder / next(iter(hosts)))], [
        "--host", ",".join(f"{host}:8" for host in hosts.values()), "--map-by", "node",
        "--mca", "plm_rsh_agent", str(agent)]


def host_names() -> list[str]:
    """Of this process's two hosts, which are their namespaces'."""
    return [f"regx{os.getpid()}{side}" for side in "ab"]


@contextmanager
def two_hosts(folder: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Two network namespaces, joined by one cable: the words before mpirun, and its options. (The
    parameters that Debian's Open MPI 6.0 comes with leave btl/tcp the loopback device alone.)"""
    names = host_names()
    hosts = [f"10.83.{os.getpid() % 250}.{number}" for number in (1, 2)]
    need("network namespace", "ip", "netns", "add", names[0])
    try:
        need("network namespace", "ip", "netns", "exec", names[0], "true")
        command("ip", "netns", "add", names[1])
        command("ip", "link", "add", "regx0", "netns", names[0], "type", "veth",
                "peer", "name", "regx0", "netns", names[1])
        for name, host in zip(names, hosts):
            command("ip", "-n", name, "addr", "add", f"{host}/24", "dev", "regx0")
            command("ip", "-n", name, "link", "set", "regx0", "up")
            command("ip", "-n", name, "link", "set", "lo", "up")
        # A cable carries a moment after both its ends are up.
        wait_until(lambda: all("state UP" in command("ip", "-n", name, "link", "show", "regx0")
                               for name in names), "the cable between the namespaces does not come up")
        around, options = words_for(folder, dict(zip(names, hosts)))
        yield around, [*options, "--mca", "btl_tcp_if_include", "regx0"]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
