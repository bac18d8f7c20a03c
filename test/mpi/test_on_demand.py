# SPDX-License-Identifier: BSD-3-Clause
"""On-demand paging on a device: what is not pinned, and may not be there."""
import re
from pathlib import Path

import pytest

import device
import sample
from job import Job
from launch import Mpi
from sample import MIB, PAGE, Case

pytestmark = [device.needed,
              pytest.mark.skipif(device.is_there() and not device.pages_on_demand(),
                                 reason="the device has no on-demand paging")]

AROUND = ["chrt", "-i", "0"]
CHUNKS = 3
SIZE = CHUNKS * MIB
UNALIGNED = "odp: pinned, not where a page begins"


@pytest.fixture
def odp(mpi: Mpi):
    """Starts jobs over the device."""
    def start(*arguments: object, prefetch: str = "touch", strategy: str = "pipeline",
              **regx: object) -> Job:
        return mpi(*arguments, around=AROUND, timeout=300,
                   regx={"transport": "verbs", "backend": "odp", "rendezvous": strategy,
                         "odp_prefetch": prefetch, "admit": "first", "chunk_size": "1M",
                         "rndv_eager_limit": 0, **regx})
    return start


def large(tmp_path: Path, *cases: Case) -> str:
    return sample.write(list(cases), tmp_path)


@pytest.mark.parametrize("prefetch", ["touch", "none"])
def test_nothing_is_registered_twice(odp, tmp_path: Path, seed: int, prefetch: str) -> None:
    """Every chunk at both ends is acquired once for each use, prefetched in the way that was asked
    for, and registered once in all."""
    job = odp("transfer", "--seed", seed, "--iterations", 4, large(tmp_path, Case(SIZE)),
              prefetch=prefetch)
    job.checked(ranks=2).carried("pipeline").over("verbs")
    uses = 2 * CHUNKS * job.total("messages_pipeline")
    assert job.total("puts") == uses / 2, str(job)
    assert job.total("hits") + job.total("misses") == uses, str(job)
    assert job.total("misses") == job.total("registrations") < uses, str(job)
    assert job.total("prefetch_touched") == (uses if prefetch == "touch" else 0), str(job)
    assert job.total("prefetch_advised") == 0, str(job)


def test_where_no_page_begins(odp, tmp_path: Path, seed: int) -> None:
    """A device that errs there pins instead; every byte is checked in any case."""
    sizes = [PAGE + 1, 70_001, SIZE + 5]
    job = odp("transfer", "--seed", seed, "--iterations", 2, large(
        tmp_path, *(Case(size, 5, 6) for size in sizes), *(Case(size, 0, 6) for size in sizes),
        *(Case(size, 8, 0) for size in sizes)))
    job.checked(ranks=2).over("verbs")
    assert job.total("messages_fallback") == job.total("messages_bounce") == 0, str(job)
    reasons = job.reasons("fallbacks")
    assert set(reasons) <= {UNALIGNED}, str(job)
    assert reasons.get(UNALIGNED, 0) == job.total("uncached"), str(job)


@pytest.mark.parametrize("prefetch", ["touch", "none"])
def test_every_kind_of_memory(odp, tmp_path: Path, prefetch: str) -> None:
    odp("memory", tmp_path, 65_536, 3_000_000, prefetch=prefetch).checked(ranks=2).over("verbs")


@pytest.mark.parametrize("strategy,prefetch,offset", [
    ("pipeline", "touch", 8 * PAGE), ("pipeline", "none", SIZE - 8 * PAGE),
    ("direct", "none", 8 * PAGE), ("direct", "touch", SIZE - 8 * PAGE)])
@pytest.mark.parametrize("side", ["send", "receive"])
def test_gone_before_the_transfer(odp, side: str, strategy: str, prefetch: str,
                                  offset: int) -> None:
    """It goes around what is not there, and the next one is fresh."""
    job = odp("vanish", side, offset, SIZE, prefetch=prefetch, strategy=strategy)
    job.ended_well().over("verbs")
    assert job.stdout.startswith("checked "), str(job)
    end = "sender" if side == "send" else "receiver"
    reasons = job.reasons("fallbacks")
    assert reasons.pop(f"{end}: registration refused", 0) >= 1, str(job)
    assert set(reasons) <= {"sender: buffer unmapped in mid-transfer",
                            "receiver: buffer unmapped in mid-transfer"}, str(job)
    assert job.total("messages_fallback") == 1, str(job)
    assert job.total(f"messages_{strategy}") + job.total("messages_bounce") == 2, str(job)
    assert job.total(f"bytes_{strategy}") >= SIZE, str(job)


def test_nothing_is_gone(odp) -> None:
    """The control."""
    odp("vanish", "neither", 8 * PAGE, SIZE).checked(ranks=2).carried("pipeline").over("verbs")


@pytest.mark.parametrize("side,part", [("send", "part"), ("receive", "part"), ("send", "all")])
def test_gone_in_mid_transfer(odp, tmp_path: Path, side: str, part: str) -> None:
    """The device cannot go on, so that the connection and the job end, and one line says why."""
    job = odp("inuse", side, part, 16 * MIB, tmp_path / "shared", strategy="direct")
    assert job.status != 0 and "checked" not in job.stdout, str(job)
    lost = [line for line in job.complaints if "connection to rank " in line]
    assert 1 <= len(lost) <= 2 and len(job.complaints) == len(lost), str(job)
    assert re.search(r"\((?:RDMA WRITE|queue pair|SEND): ", lost[0]), str(job)
