# SPDX-License-Identifier: BSD-3-Clause
"""Messages that are more than the machine's memory, over an RDMA device: the job ends by itself, with
every byte right, and what it had pinned is bounded. test/machine/test_inside.py brings a machine with
512 MiB and swap space; elsewhere nothing would be shown.
"""
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import device
from job import Job
from launch import Mpi
from sample import MIB

MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
SWAPS = Path("/proc/swaps")
COUNT, SIZE, RANKS = 48, 4 * MIB, 2
WORKING_SET = 2 * RANKS * COUNT * SIZE  # sent and received
OWN = 32 * MIB  # pool and buffers of the transport, at the most
SHARE = MEMORY // 4 // RANKS  # of what is kept, and of what is not, by default
BOUND = SHARE + SHARE // 4 + SHARE + OWN
EIGHTH = WORKING_SET // 8

pytestmark = [device.needed,
              pytest.mark.skipif(MEMORY > WORKING_SET or len(SWAPS.read_text().splitlines()) < 2,
                                 reason="this machine has as much memory, or no swap space")]


def counted(name: str) -> int:
    """By the kernel, since it was booted."""
    lines = Path("/proc/vmstat").read_text().splitlines()
    return int(dict(line.split() for line in lines)[name])


def swapped_in() -> int:
    return counted("pswpin") * os.sysconf("SC_PAGESIZE")


@pytest.fixture
def job(mpi: Mpi) -> Iterator:
    """Starts jobs, of which every process may pin so much at the most, and none is killed."""
    before = counted("oom_kill")

    def start(backend: str, strategy: str, pinned: int, memlock: int | None = None, **regx) -> Job:
        within: list[str] = []
        if memlock is not None:
            within = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock",
                      "prlimit", f"--memlock={memlock}:{memlock}"]
        read = swapped_in()
        regx |= {"transport": "verbs", "backend": backend, "rendezvous": strategy}
        done = mpi("working_set", COUNT, SIZE, 1, pinned, around=["chrt", "-i", "0"],
                   within=within, timeout=1200, regx=regx)
        done.checked(ranks=RANKS).over("verbs")
        assert swapped_in() - read > MEMORY // 4, f"the control: nothing was swapped\n{done}"
        return done

    yield start
    log = subprocess.run(["dmesg"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert counted("oom_kill") == before, log[-3000:]


@pytest.mark.parametrize("memlock", [EIGHTH, None])
def test_on_demand_pins_nothing(job, memlock: int | None) -> None:
    """All of it goes by registrations, and no message by bounce, whatever may be locked."""
    done = job("odp", "pipeline", OWN, memlock)
    assert done.total("messages_pipeline") == RANKS * COUNT, str(done)
    assert done.total("messages_bounce") == done.total("messages_fallback") == 0, str(done)


@pytest.mark.parametrize("strategy", ["direct", "pipeline"])
def test_without_a_cache_what_finds_no_room_bounces(job, strategy: str) -> None:
    done = job("none", strategy, BOUND)
    reasons = done.reasons("fallbacks")
    assert any(reason.endswith(": over btl_regx_once_bytes") for reason in reasons), str(done)
    assert done.total("messages_fallback") > 0, str(done)
    assert 0 < done.most("registered_high") <= SHARE, str(done)


@pytest.mark.parametrize("backend", ["notifier", "none"])
def test_an_eighth_may_be_locked(job, backend: str) -> None:
    """The limit alone says what may be pinned: by default regx stays below it here."""
    done = job(backend, "pipeline", EIGHTH, EIGHTH, once_bytes="unlimited")
    reasons = done.reasons("fallbacks")
    why = ": over the limit of locked memory"
    assert any(reason.endswith(why) for reason in reasons), str(done)
    assert 0 < done.most("registered_high") < EIGHTH, str(done)
