# SPDX-License-Identifier: BSD-3-Clause
"""A device that refuses or fails in the middle, by a layer between regx and libibverbs."""
import itertools
import json
from pathlib import Path

import pytest

import device
from job import Job
from launch import Build, Mpi

pytestmark = device.needed

AROUND = ["chrt", "-i", "0"]
CHUNKS = 5
ONE_MESSAGE = f"{CHUNKS << 20} 0 0 contiguous contiguous pair send recv 1\n"
OPENING = 2  # registrations of the transport itself: its buffers and the pool


@pytest.fixture
def faulty(mpi: Mpi, build: Build, tmp_path: Path):
    """Sends a message of five chunks each way; with the layer told what to do."""
    layer = build.programs.parent / "verbs" / ".libs" / "layer.so"
    assert layer.exists(), "make mpi-tests builds it"
    cases = tmp_path / "cases"
    cases.write_text(ONE_MESSAGE)

    def start(strategy: str = "pipeline", btl: str = "regx", iterations: int = 1,
              **faults: object) -> Job:
        told = [f"REGX_LAYER_{name.upper()}={value}" for name, value in faults.items()]
        return mpi("transfer", "--iterations", iterations, cases, btl=btl, around=AROUND,
                   regx={"transport": "verbs", "rendezvous": strategy, "backend": "none",
                         "rndv_eager_limit": 0, "chunk_size": "1M"},
                   within=["env", f"LD_PRELOAD={layer}", *told], timeout=300)
    return start


REFUSED = [("pipeline", number) for number in range(1, 2 * CHUNKS + 1)]
REFUSED += [("read", number) for number in (1, CHUNKS, 2 * CHUNKS)]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("strategy,number", REFUSED)
def test_registration_refused(faulty, strategy: str, number: int, rank: int) -> None:
    """The nth of the ten that the two messages take at each end: those bytes bounce."""
    job = faulty(strategy, rank=rank, reg=OPENING + number).checked(ranks=2).over("verbs")
    assert sum(job.reasons("fallbacks").values()) == 1, str(job)
    assert job.total("messages_fallback") == 1, str(job)
    assert job.total("bytes_bounce") > 0 and job.total(f"bytes_{strategy}") > 0, str(job)
    assert job.total("bytes_bounce") + job.total(f"bytes_{strategy}") == 2 * CHUNKS << 20, str(job)
    assert job.total("registrations") == job.total("deregistrations"), str(job)


@pytest.mark.parametrize("number", range(1, OPENING + 1))
def test_refused_at_the_start(faulty, number: int) -> None:
    """Without its buffers the transport is none; the pool is made smaller instead."""
    job = faulty(btl="regx,vader,self", reg=number)
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    if number == 1:
        assert len(job.complaints) == 1 and "cannot register" in job.complaints[0], str(job)
    else:
        assert not job.complaints, str(job)
        assert job.reasons("fallbacks") == {"pool: smaller than asked for": 2}, str(job)


@pytest.mark.parametrize("fault", ["post", "sent"])
@pytest.mark.parametrize("strategy,number", [
    *itertools.product(["bounce", "pipeline", "direct"], [1, 3, 5]), ("read", 3)])
def test_failure_ends_the_job(faulty, strategy: str, number: int, fault: str) -> None:
    """One line names the peer, the operation and the status; then Open MPI ends the job."""
    job = faulty(strategy, iterations=20, rank=0, **{fault: number})
    assert job.status != 0, str(job)
    lost = [line for line in job.complaints if "connection to rank 1" in line]
    assert len(lost) == 1, str(job)
    assert any(f"{what}: " in lost[0] for what in ("SEND", "RDMA WRITE", "RDMA READ")), str(job)
    assert ("Input/output error" if fault == "post" else "remote operation error") in lost[0]
    assert "checked" not in job.stdout, str(job)


def test_nothing_is_left(faulty, tmp_path: Path) -> None:
    """What is made is destroyed before the process ends, registrations of every chunk too."""
    file = tmp_path / "objects"
    faulty(iterations=3, report=file).checked(ranks=2)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 2
    for line in lines:
        assert {name: left for name, (_, left) in line.items()} == dict.fromkeys(line, 0), line
        assert line["mr"][0] == OPENING + 2 * 3 * CHUNKS, line
        assert line["qp"][0] == 2 and line["srq"][0] == line["cq"][0] == 1, line
