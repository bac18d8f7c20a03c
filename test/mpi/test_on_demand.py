# SPDX-License-Identifier: BSD-3-Clause
"""On-demand paging on a device: what is not pinned, and may not be there."""
import re
from pathlib import Path
from typing import Any

import pytest

import device
import sample
from job import Job
from launch import Build, Mpi, limited
from sample import MIB, PAGE, Case
from softroce import SECOND, layer, second_device

pytestmark = [device.needed,
              pytest.mark.skipif(device.is_there() and not device.pages_on_demand(),
                                 reason="the device has no on-demand paging")]

AROUND = ["chrt", "-i", "0"]
CHUNKS = 3
SIZE = CHUNKS * MIB
UNALIGNED = "odp: pinned, not where a page begins"


@pytest.fixture
def odp(verbs, build: Build):
    """Starts jobs over the device; with the layer told what it is to say of it."""
    def start(*arguments: object, strategy: str = "pipeline", told: dict[str, str] | None = None,
              regx: dict[str, object] | None = None, **how: Any) -> Job:
        return verbs(*arguments, within=layer(build, **told) if told else [], **how,
                     regx={"backend": "odp", "rendezvous": strategy, "chunk_size": "1M",
                           "rndv_eager_limit": 0, **(regx or {})})
    return start


def large(tmp_path: Path, *cases: Case) -> str:
    return sample.write(list(cases), tmp_path)


@pytest.mark.core
def test_nothing_is_registered_twice(odp, tmp_path: Path, seed: int) -> None:
    """Every chunk at both ends is acquired once for each use, touched, since Soft-RoCE's library takes no
    advice, and registered once in all."""
    job = odp("transfer", "--seed", seed, "--iterations", 4, large(tmp_path, Case(SIZE)))
    job.checked(ranks=2).carried("pipeline").over("verbs")
    uses = 2 * CHUNKS * job.total("messages_pipeline")
    assert job.total("puts") == uses / 2, str(job)
    assert job.total("hits") + job.total("misses") == uses, str(job)
    assert job.total("misses") == job.total("registrations") < uses, str(job)
    assert job.total("prefetch_touched") == uses, str(job)


@pytest.mark.parametrize("advise", ["kernel", "refused"])
def test_the_device_is_asked_ahead_of_each_use(odp, tmp_path: Path, seed: int, advise: str) -> None:
    """Where it lets itself be asked, which Soft-RoCE does for what is to be written alone; and every byte
    is right, also where that is refused: it was only an advice."""
    job = odp("transfer", "--seed", seed, "--iterations", 4, large(tmp_path, Case(SIZE)),
              told={"advise": advise})
    job.checked(ranks=2).over("verbs")
    uses = CHUNKS * job.total("messages_pipeline")  # at either end
    assert advise == "refused" or job.total("prefetch_touched") in (0, uses), str(job)
    reasons = job.reasons("fallbacks")
    assert (reasons.pop("odp: advice refused, no prefetch", 0) > 0) == (advise == "refused"), str(job)
    assert not reasons and job.total("messages_fallback") == 0, str(job)


@pytest.mark.parametrize("paging,says", [
    ("none", "has no on-demand paging"),
    ("receive", "has on-demand paging, but not for RDMA WRITE over reliable connections")])
def test_device_that_cannot(odp, tmp_path: Path, seed: int, paging: str, says: str) -> None:
    """One line, and the job goes over the next transport."""
    job = odp("transfer", "--seed", seed, large(tmp_path, Case(8)), btl="regx,vader,self",
              told={"paging": paging})
    job.left_out("btl_regx_backend=odp cannot be used: ", f"{says}; always possible: none")


def test_device_that_does_not_read(odp, tmp_path: Path, seed: int) -> None:
    """One of two ranks can neither be read nor read. What it is sent bounces, and is tried once; what it sends
    is written."""
    cases = large(tmp_path, Case(SIZE, send="send", receive="recv"))
    job = odp("transfer", "--seed", seed, "--iterations", 4, cases, strategy="read",
              told={"paging": "write", "rank": "1"})
    job.checked(ranks=2).over("verbs")
    assert job.total("messages_read") == job.total("gets") == 0, str(job)
    messages = job.total("messages_bounce")
    assert messages == job.total("messages_pipeline") == job.total("messages_fallback") / 2 > 1, str(job)
    assert job.rank(0)["fallbacks"] == {"the sender lets nothing be read": messages}, str(job)
    assert job.rank(1)["fallbacks"] == {
        "sender: registration refused": messages, "receiver: registration refused": 1,
        "read: impossible with this peer before": messages - 1}, str(job)


def test_unaligned_buffers_on_demand_are_right(odp, tmp_path: Path, seed: int) -> None:
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


def test_packets_that_are_too_small(odp, tmp_path: Path) -> None:
    """For Soft-RoCE, which errs but where pages begin."""
    with second_device(mtu=1500):
        job = odp("transfer", large(tmp_path, Case(SIZE)), btl="regx,vader,self",
                  regx={"if_include": SECOND})
    job.left_out(f"{SECOND}:1 is Soft-RoCE, which errs on demand in packets of 1024 bytes")


def test_locked_memory_is_not_needed(odp, mpi: Mpi, tmp_path: Path, seed: int) -> None:
    """What the pool leaves of the limit is less than one buffer."""
    mpi.for_any_user()
    job = odp("transfer", "--seed", seed, "--iterations", 2, large(tmp_path, Case(8 * MIB)),
              strategy="direct", around=AROUND + limited(8192))
    job.warned("ulimit -l", "is 8192 KiB").checked(ranks=2).carried("direct").over("verbs")
    assert job.most("registered_high") >= 8 * MIB, str(job)


@pytest.mark.parametrize("side,strategy", [("send", "pipeline"), ("send", "direct"), ("receive", "pipeline"),
                                           ("receive", "direct"), ("receive", "read")])
@pytest.mark.parametrize("offset", [8 * PAGE, SIZE - 8 * PAGE])
def test_memory_unmapped_before_the_transfer_ends_the_job(odp, side: str, strategy: str,
                                  offset: int) -> None:
    """One line names the buffer."""
    job = odp("inuse", side, "early", SIZE, offset, strategy=strategy).lost(side, "not mapped")
    assert len(job.complaints) == 1, str(job)


@pytest.mark.parametrize("side,why", [("send", "sender: not readable"),
                                      ("receive", "receiver: not writable")])
def test_protected_since_it_was_registered(odp, side: str, why: str) -> None:
    """Touching finds out, and the job ends with a line that names the buffer."""
    job = odp("inuse", side, "protect-later", SIZE, 8 * PAGE).lost(side, why.partition(": ")[2])
    assert len(job.complaints) == 1, str(job)


def test_memory_that_stays_is_carried_by_the_device(odp) -> None:
    """The control."""
    odp("inuse", "neither", "early", SIZE, 8 * PAGE).checked(ranks=2).carried("pipeline").over("verbs")


@pytest.mark.parametrize("side,part,strategy", [
    ("send", "part", "direct"), ("receive", "part", "direct"), ("send", "all", "direct"),
    ("send", "all", "read"), ("receive", "all", "read")])
def test_memory_unmapped_in_mid_transfer_ends_the_job_with_one_line(odp, tmp_path: Path, side: str,
                                                                    part: str, strategy: str) -> None:
    """The device cannot go on, so that the connection and the job end, and one line says why."""
    job = odp("inuse", side, part, 64 * MIB, tmp_path / "shared", strategy=strategy)
    assert job.status != 0 and "checked" not in job.stdout, str(job)
    lost = [line for line in job.complaints if "connection to rank " in line]
    assert 1 <= len(lost) <= 2 and len(job.complaints) == len(lost), str(job)
    assert re.search(r"\((?:RDMA WRITE|RDMA READ|queue pair|SEND): ", lost[0]), str(job)
