# SPDX-License-Identifier: BSD-3-Clause
"""Further Soft-RoCE devices: a second port, and two hosts of one machine with a port each."""
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import device
from launch import Build
from namespace import command, host_names, need, two_hosts, wait_until

SECOND = "rxe1"
CABLE = "fabric0"


def wait_until_active(name: str) -> None:
    state = device.DEVICES / name / "ports/1/state"
    wait_until(lambda: "ACTIVE" in state.read_text(), f"{name} does not come up")


def delete(*words: str) -> None:
    subprocess.run(words, check=False, capture_output=True)


@contextmanager
def second_device(up: bool = True, mtu: int = 9000) -> Iterator[None]:
    """A device rxe1, on a network of its own, beside what is there."""
    need("second network", "ip", "link", "add", "d1", "type", "dummy")
    try:
        command("ip", "address", "add", "10.74.0.1/24", "dev", "d1")
        command("ip", "link", "set", "d1", "mtu", str(mtu), "up")
        command("rdma", "link", "add", SECOND, "type", "rxe", "netdev", "d1")
        wait_until_active(SECOND)
        if not up:
            command("ip", "link", "set", "d1", "down")
        yield
    finally:
        delete("rdma", "link", "delete", SECOND)
        delete("ip", "link", "delete", "d1")


@contextmanager
def no_device() -> Iterator[None]:
    """What is there is taken away."""
    links = [line.split() for line in command("rdma", "link", "show").splitlines()]
    if not all(words[1].startswith("rxe") for words in links):
        pytest.skip("a device that cannot be taken away")
    there = [(words[1].split("/")[0], words[words.index("netdev") + 1]) for words in links]
    try:
        for name, _ in there:
            command("rdma", "link", "delete", name)
        yield
    finally:
        for name, network in there:
            command("rdma", "link", "add", name, "type", "rxe", "netdev", network)
            wait_until_active(name)


@contextmanager
def two_rdma_hosts(folder: Path) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """As two_hosts, each with a device that has the host's name; and words before the program.

    The kernel shows every device to both, so each rank is told to use its host's own. The devices
    are joined by a cable of their own: when it is cut, Open MPI's daemons still hear each other.
    """
    with two_hosts(folder) as (around, options):
        names = host_names()
        try:
            command("ip", "link", "add", CABLE, "netns", names[0], "type", "veth",
                    "peer", "name", CABLE, "netns", names[1])
            for number, name in enumerate(names, 1):
                command("ip", "-n", name, "address", "add", f"10.84.0.{number}/24", "dev", CABLE)
                command("ip", "-n", name, "link", "set", CABLE, "up")
            for name in names:
                command("ip", "netns", "exec", name, "rdma", "link", "add", name, "type", "rxe",
                        "netdev", CABLE)
                wait_until_active(name)
            own = 'OMPI_MCA_btl_regx_if_include=$(hostname) exec "$@"'
            yield around, options, ["sh", "-c", own, "sh"]
        finally:
            for name in names:
                delete("rdma", "link", "delete", name)


def layer(build: Build, **told: object) -> list[str]:
    """The words before a program that is to be under the layer between regx and libibverbs (test/verbs)."""
    file = build.programs.parent / "verbs" / "layer.so"
    assert file.exists(), "make mpi-tests builds it"
    return ["env", f"LD_PRELOAD={file}", *(f"REGX_LAYER_{name.upper()}={value}"
                                           for name, value in told.items())]
