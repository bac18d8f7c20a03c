# SPDX-License-Identifier: BSD-3-Clause
"""Hazard 7: a buffer is unmapped while a transfer uses it. It is said once, and the registration is not used
again. The transfer ends and the job goes on, unless bytes are lost by it: then the job ends with a line that
names the buffer.

By registered chunks, on a node; a slot's copy is made by the processor, in user space, and crashes
on an unmapped buffer like any copy of the application's own."""
from pathlib import Path

import pytest

from job import Job
from launch import Mpi

SIZE = 64 << 20
RANKS = {"send": 0, "receive": 1}


def run(mpi: Mpi, folder: Path, backend: str, side: str, part: str, **regx: str) -> Job:
    # Another thread's arena does not fit into the room that the program leaves for others.
    return mpi("inuse", side, part, SIZE, folder / "shared",
               environment={"MALLOC_ARENA_MAX": "1"}, regx={
                   "rendezvous": "direct", "backend": backend, "cache_bytes": "1G", **regx})


def ended(job: Job) -> Job:
    """Whatever was said."""
    assert job.status == 0, str(job)
    assert job.stdout.startswith("checked "), str(job)
    assert job.total("malformed") == 0, str(job)
    return job


@pytest.mark.parametrize("backend,side", [
    ("hooks", "send"), ("notifier", "receive"), ("hooks+notifier", "send"),
    ("hooks+notifier", "receive")], indirect=["backend"])
def test_a_buffer_unmapped_in_use_is_warned_of_once(mpi: Mpi, tmp_path: Path, backend: str,
                                                    side: str) -> None:
    """Its bytes have been moved."""
    job = ended(run(mpi, tmp_path, backend, side, "arrived"))
    report, other = job.rank(RANKS[side]), job.rank(1 - RANKS[side])
    assert other["inuse_changes"] == 0, str(job)
    assert report["inuse_changes"] == 1 and report["invalidations"] == 1, str(job)
    job.warned("btl_regx_inuse", f"rank {RANKS[side]} ")
    # The second message, from or to new memory, finds no region; the other side's is the same.
    assert report["hits"] == 0 and report["misses"] == 2, str(job)
    assert other["hits"] == 1 and other["misses"] == 1, f"the control\n{job}"


@pytest.mark.parametrize("backend,side,part", [
    ("hooks", "send", "part"), ("notifier", "receive", "all"), ("hooks+notifier", "send", "all"),
    ("hooks+notifier", "receive", "part")], indirect=["backend"])
def test_bytes_that_are_lost_by_it_end_the_job(mpi: Mpi, tmp_path: Path, backend: str, side: str,
                                               part: str) -> None:
    job = run(mpi, tmp_path, backend, side, part).lost(side, "not mapped")
    warnings = [line for line in job.complaints if "btl_regx_inuse" in line]  # if there was time
    assert len(warnings) <= 1 and len(job.complaints) == 1 + len(warnings), str(job)


@pytest.mark.parametrize("backend,side,strategy", [
    ("notifier", "send", "pipeline"), ("none", "receive", "read"), ("hooks", "receive", "together")],
    indirect=["backend"])
def test_bytes_lost_between_chunks_are_told(mpi: Mpi, tmp_path: Path, backend: str, side: str,
                                               strategy: str) -> None:
    """Some chunks are done when it happens, some in flight, and some not yet granted. That a buffer in use
    was unmapped is to be ignored; that bytes did not arrive is not."""
    job = run(mpi, tmp_path, backend, side, "all", rendezvous=strategy, inuse="ignore")
    job.lost(side, "not mapped")
    assert len(job.complaints) == 1, str(job)


@pytest.mark.parametrize("backend", ["notifier"], indirect=True)
def test_inuse_abort_ends_the_job(mpi: Mpi, tmp_path: Path, backend: str) -> None:
    job = run(mpi, tmp_path, backend, "receive", "part", inuse="abort")
    assert job.status != 0, str(job)
    job.warned("btl_regx_inuse")


@pytest.mark.parametrize("backend", ["hooks+notifier"], indirect=True)
def test_without_unmapping_nothing_is_said(mpi: Mpi, tmp_path: Path, backend: str) -> None:
    """The same program, unmapping nothing."""
    job = run(mpi, tmp_path, backend, "neither", "part").checked(ranks=2).carried("direct")
    assert job.total("inuse_changes") == 0, str(job)
    assert all(report["hits"] == 1 for report in job.reports), str(job)


@pytest.mark.parametrize("backend", ["hooks", "hooks+notifier"], indirect=True)
@pytest.mark.parametrize("inuse", ["abort", "drain"])
def test_a_call_that_takes_nothing_away_is_no_change(mpi: Mpi, tmp_path: Path, backend: str,
                                                     inuse: str) -> None:
    """Its length is 0, or more than there is, or it detaches no segment: hooks report it all the same."""
    job = run(mpi, tmp_path, backend, "send", "nothing", inuse=inuse).checked(ranks=2).carried("direct")
    assert job.total("inuse_changes") == job.total("drain_waits") == 0, str(job)
    assert job.total("invalidations") == 0 and job.rank(0)["hits"] == 1, str(job)


# That a call waits until the message is through: mpi/test_shadow.py. That it does not wait for ever:
# unit/registration/test_drain.c, too; here that is five seconds.
@pytest.mark.full
def test_drain_waits_no_longer_than_it_may(mpi: Mpi, tmp_path: Path) -> None:
    """The other side grants no further chunk before the call has returned."""
    job = ended(run(mpi, tmp_path, "hooks", "send", "arrived", rendezvous="pipeline", inuse="drain"))
    report = job.rank(0)
    expired = "inuse=drain: the transfer lasts too long, as warn"
    assert report["drain_waits"] == report["fallbacks"][expired] == 1, str(job)
    assert len(job.complaints) <= 1, f"as warn, if a chunk was in flight\n{job}"


def test_drain_without_hooks_is_counted_and_as_warn(mpi: Mpi, tmp_path: Path) -> None:
    job = run(mpi, tmp_path, "none", "neither", "part", rendezvous="pipeline",
              inuse="drain").checked(ranks=2)
    for report in job.reports:
        assert report["fallbacks"] == {"inuse=drain: needs hooks, as warn": 1}, str(job)
        assert report["drain_waits"] == 0, str(job)
