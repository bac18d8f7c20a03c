# SPDX-License-Identifier: BSD-3-Clause
"""Each backend of registration: named in the report with its reason, and it keeps what it may. Which
change each sees: test/registration, with Open MPI's own hooks too."""
import subprocess

import pytest

from job import Job
from launch import Mpi

SIZE = 1 << 20
USES = 10  # of one buffer, by the program `tools`
WITHOUT = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"]


def kept(mpi: Mpi, backend: str, size: int = SIZE, opened: int = 0, **regx: object) -> Job:
    job = mpi("tools", opened, size, regx={"rendezvous": "direct", "backend": backend, **regx})
    if any("btl_regx_backend" in line for line in job.complaints):
        pytest.skip(" ".join(job.complaints))
    return job.checked(ranks=2)


@pytest.mark.parametrize("backend,opened", [("hooks", 0), ("notifier", 0), ("hooks+notifier", 3), ("retain", 1)])
def test_a_buffer_left_alone_is_registered_once(mpi: Mpi, backend: str, opened: int) -> None:
    """Also if a tool has read the parameters before MPI_Init, which starts nothing (hazard 27)."""
    for report in kept(mpi, backend, opened=opened).reports:
        assert (report["backend"], report["backend_reason"]) == (backend, "asked for"), report
        assert report["hits"] == USES - 1 and report["registrations"] == 1, report


@pytest.mark.parametrize("backend,reason", [("none", "asked for"), ("auto", "not needed")])
def test_registrations_that_are_not_kept_are_made_anew(mpi: Mpi, backend: str, reason: str) -> None:
    for report in kept(mpi, backend).reports:
        assert report["backend"] == "none" and report["backend_reason"] == reason, report
        assert report["hits"] == report["misses"] == 0, report
        assert report["registrations"] == report["deregistrations"] == USES, report


@pytest.mark.parametrize("given", [False, True])
def test_leave_pinned_0_means_backend_none(mpi: Mpi, given: bool) -> None:
    """Open MPI's way to say none, unless a backend is given; said once."""
    job = mpi("tools", 0, SIZE, mca={"mpi_leave_pinned": 0},
              regx={"rendezvous": "direct", **({"backend": "hooks"} if given else {})})
    assert job.status == 0 and len(job.reports) == 2, str(job)
    said = "regx: mpi_leave_pinned=0: registrations are not kept; btl_regx_backend overrides this"
    assert job.complaints == [said] * (not given), str(job)
    expected = "asked for" if given else "mpi_leave_pinned=0"
    assert {report["backend_reason"] for report in job.reports} == {expected}, str(job)


def test_the_cache_keeps_what_fits(mpi: Mpi) -> None:
    for report in kept(mpi, "notifier", cache_bytes=SIZE // 2).reports:
        assert report["hits"] == 0 and report["registered_bytes"] == 0, report
        assert report["registered_high"] >= SIZE, report


@pytest.mark.parametrize("size,fits,limited", [(3 << 19, True, WITHOUT), ((3 << 19) + 65536, False, WITHOUT),
                                               ((3 << 19) + 65536, False, ["unshare", "--map-root-user"])])
def test_the_cache_stays_within_the_limit_of_locked_memory(mpi: Mpi, size: int, fits: bool,
                                                           limited: list[str]) -> None:
    """The pool has half of the 6M, kept registrations half of the rest, which is for transfers under
    way. (root is not limited unless it gives that up, or is it in a namespace alone.)"""
    if limited != WITHOUT and subprocess.run([*limited, "true"], check=False).returncode != 0:
        pytest.skip("no user namespace")
    job = mpi("tools", 0, size, around=["prlimit", "--memlock=6291456:6291456", *limited],
              regx={"rendezvous": "direct", "backend": "hooks"}).checked(ranks=2)
    for report in job.reports:
        assert report["hits"] == (USES - 1 if fits else 0), str(job)
        assert report["uncached"] == (0 if fits else USES), str(job)
