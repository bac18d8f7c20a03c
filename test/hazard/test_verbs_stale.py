# SPDX-License-Identifier: BSD-3-Clause
"""Hazard 1 on a device, which really sends the pages that it was given when memory was registered.

The same address, new pages: an application unmaps a buffer, maps another at its address, and sends
or receives again. Who learns of that sends the new bytes. Who does not (hooks, of raw system calls)
is seen to send the old ones: that is what all backends are for, and that this test would notice."""
import itertools
import random

import pytest

import device
import notify
from job import Job
from launch import Mpi

pytestmark = [device.needed, pytest.mark.usefixtures("notifying")]

SIZE = 100_000
USES = 3  # of either buffer in a round
BACKENDS = ["none", "hooks", "notifier", "hooks+notifier", "kernel", "odp"]
BLIND = {("hooks", "raw")}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All, or one that is seen to go wrong and one other of each backend that keeps."""
    if "choice" not in metafunc.fixturenames:
        return
    choices = list(itertools.product(BACKENDS, ["libc", "raw"], ["send", "receive"]))
    if not metafunc.config.getoption("--full"):
        lots = random.Random(metafunc.config.getoption("--seed"))
        blind = [choice for choice in choices if choice[:2] in BLIND]
        choices = [lots.choice(blind)] + [lots.choice([choice for choice in choices if choice[0] == backend and
                                                       choice not in blind]) for backend in BACKENDS[1:]]
    metafunc.parametrize("choice", choices, ids=lambda choice: "-".join(choice))


@pytest.mark.core
def test_auto_takes_the_module_and_goes_on_without(mpi: Mpi) -> None:
    """With a file that is no such device in its place the notifier is taken, and the report says why."""
    if not notify.DEVICE.exists():
        pytest.skip("there is no /dev/regx_notify")

    def play() -> set[tuple[str, str]]:
        job = mpi("stale", "raw", "send", 10, SIZE, around=["chrt", "-i", "0"],
                  regx={"transport": "verbs", "rendezvous": "direct", "backend": "auto"}).checked(ranks=2)
        return {(report["backend"], report["backend_reason"]) for report in job.reports}

    assert play() == {("kernel", "passed its self-test")}
    aside = notify.DEVICE.with_name("aside")
    notify.DEVICE.rename(aside)
    try:
        notify.DEVICE.touch()
        assert play() == {("notifier", "kernel: /dev/regx_notify: Inappropriate ioctl for device")}
    finally:
        aside.rename(notify.DEVICE)


@pytest.mark.core
def test_same_address_new_pages(mpi: Mpi, full: bool, choice: tuple[str, str, str]) -> None:
    backend, how, side = choice
    if backend == "kernel" and not notify.DEVICE.exists():
        pytest.skip("there is no /dev/regx_notify")
    rounds = 300 if full else 40

    def play(strategy: str) -> Job:
        return mpi("stale", how, side, rounds, SIZE, around=["chrt", "-i", "0"],
                   regx={"transport": "verbs", "rendezvous": strategy, "backend": backend})

    job = play("direct")
    if (backend, how) in BLIND:
        assert job.status != 0 and "a buffer whose pages are new" in job.stderr, \
            f"old bytes were to be seen\n{job}"
        return
    job.checked(ranks=2).carried("direct").over("verbs")
    changing, fixed = (job.rank(rank) for rank in ((0, 1) if side == "send" else (1, 0)))
    uses = 2 * USES * rounds
    for report in (changing, fixed):
        assert report["hits"] + report["misses"] + report["uncached"] == uses, str(job)
    if backend == "none":
        assert changing["uncached"] == changing["deregistrations"] == uses, str(job)
    elif backend == "odp":  # nothing has changed for it
        assert changing["misses"] == fixed["misses"] == 2, str(job)
        assert changing["hits"] == fixed["hits"] == uses - 2, str(job)
    else:
        assert changing["misses"] + changing["uncached"] >= rounds + 1, str(job)
        assert changing["hits"] >= USES * rounds, f"the control\n{job}"
        assert fixed["hits"] >= 0.99 * uses, f"the side that changes nothing\n{job}"
    if full:  # what is sent is exposed and read, what is received is read into the buffer
        play("read").checked(ranks=2).carried("read").over("verbs")
