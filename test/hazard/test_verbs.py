# SPDX-License-Identifier: BSD-3-Clause
"""An RDMA device that refuses, a peer that ends, and settings that cannot be."""

import itertools

import pytest

import device
import openmpi
from job import Job
from launch import AT_ONCE, Build, Mpi, limited
from softroce import SECOND, layer, no_device, second_device
from test_killed import HIDDEN, lost, told

pytestmark = device.needed
COLLECTIVE = ["collective", "--sizes", "10,100000", "bcast"]
LARGE = ["collective", "--sizes", "4000000", "alltoall"]
AROUND = ["chrt", "-i", "0"]
STRATEGIES = ["bounce", "pipeline", "direct", "read"]


def device_name() -> str:
    return min(path.name for path in device.DEVICES.iterdir())


def test_open_mpis_own_crash_can_be_told_from_others_here(build: Build) -> None:
    """Else a job that ends by it, as one in some hundreds does, fails a test."""
    assert openmpi.callbacks(build.pkglibdir)


def refused(mpi: Mpi, says: str, **regx: object) -> None:
    """One line; the job goes on where its list of BTLs allows it."""
    job = mpi(*COLLECTIVE, btl="regx,vader,self", regx={"transport": "verbs", **regx})
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    job.warned(f"btl_regx_{says}")


@pytest.mark.parametrize("name,value,says", [
    ("if_include", "DEVICE:9", 'there is no RDMA device or port "DEVICE:9" that can be used; there '
     "are: DEVICE:1"),
    ("if_exclude", "DEVICE", "leaves no port that can be used; there are: DEVICE:1"),
    ("verbs_gid_index", "255", "port DEVICE:1 has no such GID; there are: 0"),
    ("verbs_pkey", "0x1234", "port DEVICE:1 is in no such partition; there are: 0xffff")])
def test_a_setting_that_cannot_be_is_refused_in_one_line(mpi: Mpi, name: str, value: str,
                                                         says: str) -> None:
    value, says = (text.replace("DEVICE", device_name()) for text in (value, says))
    refused(mpi, f"{name}={value}: {says}", **{name: value})


def why(mpi: Mpi, regx: dict[str, object]) -> dict[str, str]:
    """Which transport each rank reports, and the reason."""
    reports = mpi(*COLLECTIVE, regx=regx, around=AROUND).ended_well().reports
    return {report["transport"]: report["transport_reason"] for report in reports}


def test_without_a_device_verbs_is_refused_and_auto_takes_shm(mpi: Mpi) -> None:
    with no_device():
        refused(mpi, "transport=verbs: this machine has no RDMA device")
        job = mpi(*COLLECTIVE, btl="regx,self", regx={"transport": "verbs"})
        assert why(mpi, {}) == {"shm": "no RDMA device here"}
    assert why(mpi, {}) == {"shm": "at the start all processes were on this node"}
    assert why(mpi, {"transport": "shm"}) == {"shm": "asked for"}
    assert why(mpi, {"transport": "verbs"}) == {"verbs": "asked for"}
    assert job.status != 0 and job.stdout == "", f"it runs by another way\n{job}"


def test_a_port_that_is_down_is_refused_if_named_else_left_out(mpi: Mpi) -> None:
    """It is an error if it is named, and else not one of those that are used."""
    with second_device(up=False):
        refused(mpi, f'if_include={device_name()},{SECOND}: there is no RDMA device or port "{SECOND}" '
                f"that can be used; there are: {device_name()}:1, {SECOND}:1 (is down)",
                if_include=f"{device_name()},{SECOND}")
        job = mpi(*COLLECTIVE, regx={"transport": "verbs"}, around=AROUND)
    job.ended_well().over("verbs")
    assert list(job.reports[0]["ports"]) == [f"{device_name()}:1"], str(job)


def test_where_fork_init_is_needed_it_comes_before_registering(verbs, build: Build) -> None:
    """Nothing can be registered before it."""
    job = verbs(*COLLECTIVE, regx={"rendezvous": "pipeline"}, within=layer(build, fork="needed"))
    job.ended_well().over("verbs")
    assert job.total("registrations") > 0, str(job)


def test_fork_init_that_fails_refuses_verbs_in_one_line(mpi: Mpi, build: Build) -> None:
    """One line, and not a job whose children would spoil its data."""
    job = mpi(*COLLECTIVE, btl="regx,vader,self", regx={"transport": "verbs"},
              within=layer(build, fork="refused"))
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    job.warned("set RDMAV_FORK_SAFE=1")


@pytest.fixture
def writable(mpi: Mpi) -> Mpi:
    """Where an ordinary user may write the report."""
    return mpi.for_any_user()


@pytest.mark.parametrize("kib", [64, 1024])
def test_too_little_locked_memory_to_start_is_said_in_one_line(writable: Mpi, kib: int) -> None:
    job = writable(*COLLECTIVE, btl="regx,vader,self", regx={"transport": "verbs"}, ranks=4,
                   around=AROUND + limited(kib))
    assert job.status == 0, str(job)
    job.warned("ulimit -l", f"is {kib} KiB", "limits.d", "LimitMEMLOCK")


def said(job: Job, kib: int) -> Job:
    """Once in the job where the limit is less than what is wanted, at the start; answers the job
    without that line."""
    return job.warned("ulimit -l", f"is {kib} KiB, and ", "limits.d", "LimitMEMLOCK")


# 8 MiB of pool, four chunks of 1 MiB, and 2 of the transport's own.
@pytest.mark.parametrize("kib,less,regx", [
    (8 << 10, True, {}), (12 << 10, True, {}), (16 << 10, False, {}),
    (12 << 10, False, {"pool_size": "4M"}), (16 << 10, True, {"chunk_depth": 16})])
def test_limit_of_locked_memory_is_told(writable: Mpi, kib: int, less: bool,
                                        regx: dict[str, object]) -> None:
    job = writable(*COLLECTIVE, ranks=3, regx={"transport": "verbs", **regx}, around=AROUND + limited(kib))
    (said(job, kib) if less else job).checked(ranks=3).over("verbs")


@pytest.mark.parametrize("strategy,mib", [
    *itertools.product(["bounce", "pipeline", "direct"], [4, 8, 128]), ("read", 8)])
def test_what_a_limit_of_locked_memory_refuses_bounces(writable: Mpi, mib: int,
                                                       strategy: str) -> None:
    """What cannot be registered bounces; nothing hangs."""
    job = writable(*LARGE, ranks=3, regx={"transport": "verbs", "rendezvous": strategy},
                   around=AROUND + limited(mib << 10))
    (said(job, mib << 10) if mib <= 8 else job).ended_well().over("verbs")
    assert job.stdout.startswith("checked "), str(job)
    if strategy == "direct" and mib < 8:
        assert job.total("messages_fallback") == job.total("messages_bounce") > 0, str(job)
        assert "receiver: over the limit of locked memory" in job.reasons("fallbacks"), str(job)
    assert set(job.reasons("fallbacks")) <= {
        "pool: smaller than asked for", "sender: over the limit of locked memory",
        "the sender lets nothing be read",
        "receiver: over the limit of locked memory",
        "sender: no memory to register", "receiver: no memory to register"}, str(job)  # the later
    if mib == 128:
        assert job.total("messages_fallback") == 0, str(job)


@pytest.mark.parametrize("strategy", ["bounce", "pipeline", "direct", "read"])
@pytest.mark.parametrize("how,statuses", [("abort", {7}), ("kill", {128 + 9, 255})])
def test_an_aborted_or_killed_job_is_over_at_all_ranks(verbs, how: str, statuses: set[int], strategy: str) -> None:
    job = verbs("ending", how, ranks=3, regx={"rendezvous": strategy})
    assert job.status in statuses, str(job)
    assert job.stdout == "", str(job)


@pytest.mark.parametrize("strategy,backend", [
    ("bounce", "none"), ("pipeline", "notifier"), ("direct", "hooks"), ("read", "none")])
def test_survivors_tell_whom_they_have_lost(verbs, build: Build, strategy: str, backend: str) -> None:
    """Hazard 24: where mpirun lets the others live when one is killed. A rank whose device finds out, also
    while it only waits, says whom it has lost, once."""
    job = verbs("ending", "kill", ranks=3, mca=AT_ONCE, within=[*HIDDEN, *layer(build, timeout=14)],
                regx={"rendezvous": strategy, "backend": backend})
    told(job)
    assert job.status != 0 and job.stdout == "", str(job)
    assert len(lost(job)) == len(job.complaints) < 3, str(job)


def test_a_job_ends_well_though_its_messages_are_not_received(verbs) -> None:
    verbs("finalize", "unread", 16384, 40, ranks=3).ended_well().over("verbs")


def test_what_a_child_sent_before_it_ended_arrives(verbs) -> None:
    """More than the receive queue holds, from a process that ends, to one that is outside MPI."""
    verbs("finalize", "child", 4000, 600, ranks=1).checked(ranks=2).over("verbs")
