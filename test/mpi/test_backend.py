# SPDX-License-Identifier: BSD-3-Clause
"""Each backend of registration: named in the report with its reason, and it keeps what it may.

What Open MPI's own hooks see and what they do not is shown here, change by change, since they exist
in MPI programs alone. All backends against all changes: test/registration."""
import re

import pytest

from launch import Mpi
from job import Job

SIZE = 1 << 20
CACHING = ["hooks", "notifier", "hooks+notifier", "retain"]
# The whole lists: the head of component/registration/monitor/hooks.c promises the first and excepts the
# second. (sbrk and brk come last: after them malloc gives no mappings.)
SEEN = ["munmap", "munmap-thread", "munmap-part", "munmap-byte", "mmap-fixed", "mremap-move",
        "mremap-shrink", "mremap-dontunmap", "dontneed", "madv-free", "madv-remove", "shmdt",
        "shm-remap", "free", "realloc", "trim", "sbrk", "brk"]
BLIND = ["munmap-raw", "process-madvise", "mremap-onto", "dontneed-locked", "guard", "punch",
         "truncate"]
SHARED = ["punch", "truncate", "madv-remove"]  # memory that the notifier does not keep

Counts = dict[str, int]  # of the sender, whose buffer changes between the second and third of four uses
KEPT = {"hits": 3, "misses": 1, "uncached": 0, "invalidations": 0}
CHANGED = {"hits": 2, "misses": 2, "uncached": 0, "invalidations": 1}
NOT_KEPT = {"hits": 0, "misses": 0, "uncached": 4, "invalidations": 0}


def kinds(mpi: Mpi, kind: str, backend: str, **regx: object) -> Job:
    """Four sends from one buffer, which changes after the second."""
    job = mpi("kinds", kind, SIZE, regx={"rendezvous": "direct", "backend": backend, **regx})
    if any("btl_regx_backend" in line for line in job.complaints):
        pytest.skip(" ".join(job.complaints))
    return job.checked(ranks=2)


def counts(job: Job) -> dict[str, Counts]:
    """By each kind that this kernel has."""
    lines = re.findall(r"^kind (\S+) (.*)$", job.stderr, re.M)
    return {kind: {name: int(value) for name, value in re.findall(r"(\w+) (\d+)", text)}
            for kind, text in lines}


def compare(mpi: Mpi, backend: str, wanted: dict[str, Counts]) -> None:
    job = kinds(mpi, ",".join(wanted), backend)
    found = counts(job)
    absent = {*wanted} - {*found}
    assert absent <= {"guard", "process-madvise", "dontneed-locked"}, str(job)
    assert absent == {*re.findall(r"^absent (\S+)", job.stderr, re.M)}, str(job)
    wrong = {kind: values for kind, values in found.items() if values != wanted[kind]}
    assert not wrong, f"{wrong}\n{job}"
    assert all(report["backend"] == backend and report["backend_reason"] == "asked for"
               for report in job.reports), str(job)
    assert job.rank(1)["hits"] == 3 * len(wanted), f"the side that changes nothing\n{job}"
    assert set(job.reasons("fallbacks")) <= {"not watched: shared memory"}, str(job)


def test_what_open_mpis_hooks_see_and_miss(mpi: Mpi) -> None:
    """As documented. (Nothing is wrong all the same: on a node nothing is registered with a device.)"""
    compare(mpi, "hooks", {"nothing": KEPT, **{kind: KEPT for kind in BLIND},
                           **{kind: CHANGED for kind in SEEN}})


def watched(told_by_hooks: bool) -> dict[str, Counts]:
    """What the notifier makes of each change: it sees all but two, and keeps no shared memory."""
    wanted = {"nothing": KEPT}
    for kind in [*BLIND, *SEEN]:
        wanted[kind] = NOT_KEPT if kind in SHARED else CHANGED
    # Shared until it is detached; private then.
    wanted["shmdt"] = {**NOT_KEPT, "uncached": 2, "misses": 1, "hits": 1}
    wanted["guard"] = KEPT
    wanted["shm-remap"] = {**wanted["shmdt"], "invalidations": 1} if told_by_hooks else KEPT
    return wanted


def test_what_the_notifier_sees_and_misses(mpi: Mpi) -> None:
    compare(mpi, "notifier", watched(told_by_hooks=False))


def test_what_hooks_beside_the_notifier_see_and_miss(mpi: Mpi) -> None:
    compare(mpi, "hooks+notifier", watched(told_by_hooks=True))


def test_with_retain_malloc_keeps_its_memory(mpi: Mpi) -> None:
    """What malloc gave stays where it was. (sbrk takes it away behind malloc's back: not seen.)"""
    found = counts(kinds(mpi, "free,realloc,trim,sbrk", "retain"))
    assert len(found) == 4 and all(values["invalidations"] == 0 and values["hits"] >= 2
                                   for values in found.values()), found


@pytest.mark.parametrize("backend,reason", [("none", "asked for"), ("auto", "not needed")])
def test_registrations_that_are_not_kept_are_made_anew(mpi: Mpi, backend: str, reason: str) -> None:
    for report in kinds(mpi, "nothing", backend).reports:
        assert report["backend"] == "none" and report["backend_reason"] == reason, report
        assert report["hits"] == report["misses"] == 0, report
        assert report["registrations"] == report["deregistrations"] == 4, report


@pytest.mark.parametrize("given", [False, True])
def test_leave_pinned_0_means_backend_none(mpi: Mpi, given: bool) -> None:
    """Open MPI's way to say none, unless a backend is given; said once."""
    job = mpi("kinds", "nothing", SIZE, mca={"mpi_leave_pinned": 0},
              regx={"rendezvous": "direct", **({"backend": "hooks"} if given else {})})
    assert job.status == 0 and len(job.reports) == 2, str(job)
    said = "regx: mpi_leave_pinned=0: registrations are not kept; btl_regx_backend overrides this"
    assert job.complaints == [said] * (not given), str(job)
    expected = "asked for" if given else "mpi_leave_pinned=0"
    assert {report["backend_reason"] for report in job.reports} == {expected}, str(job)


@pytest.mark.parametrize("backend", ["hooks", "notifier"])
def test_a_cache_smaller_than_a_buffer_keeps_nothing(mpi: Mpi, backend: str) -> None:
    for report in kinds(mpi, "nothing", backend, cache_bytes=SIZE // 2).reports:
        assert report["hits"] == 0 and report["registered_bytes"] == 0, report
        assert report["registered_high"] >= SIZE, report


@pytest.mark.parametrize("size,kept", [(3 << 19, True), ((3 << 19) + 65536, False)])
def test_the_cache_stays_within_the_limit_of_locked_memory(mpi: Mpi, size: int, kept: bool) -> None:
    """The pool has half of the 6M, kept registrations half of the rest, which is for transfers under
    way. (root is not limited unless it gives that up.)"""
    limited = ["prlimit", "--memlock=6291456:6291456",
               "setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"]
    job = mpi("kinds", "nothing", size, around=limited,
              regx={"rendezvous": "direct", "backend": "hooks"}).checked(ranks=2)
    for report in job.reports:
        assert report["hits"] == (3 if kept else 0), str(job)
        assert report["uncached"] == (0 if kept else 4), str(job)


def test_an_unlimited_cache_keeps_everything(mpi: Mpi) -> None:
    job = kinds(mpi, "nothing", "hooks+notifier", cache_bytes="unlimited")
    assert all(report["hits"] == 3 for report in job.reports), str(job)


@pytest.mark.parametrize("backend,times", [("hooks+notifier", 3), ("retain", 1)])
def test_reading_parameters_before_init_starts_nothing(mpi: Mpi, backend: str, times: int) -> None:
    """Hazard 27: reading the parameters starts nothing; what they say holds in MPI_Init after."""
    job = mpi("tools", times, SIZE, regx={"rendezvous": "direct", "backend": backend})
    if any("btl_regx_backend" in line for line in job.complaints):
        pytest.skip(" ".join(job.complaints))
    for report in job.checked(ranks=2).reports:
        assert report["backend"] == backend and report["hits"] == 9, str(job)
