# SPDX-License-Identifier: BSD-3-Clause
"""Each backend of registration: named in the report with its reason, and it keeps what it may.

What Open MPI's own hooks see and what they do not is shown here, change by change, since they exist
in MPI programs alone. All backends against all changes: test/registration."""
import pytest

from launch import Mpi
from job import Job

SIZE = 4 << 20
CACHING = ["hooks", "notifier", "hooks+notifier", "retain"]
# The whole lists: the head of component/registration/monitor/hooks.c promises the first and excepts the
# second.
SEEN = ["munmap", "munmap-thread", "munmap-part", "munmap-byte", "mmap-fixed", "mremap-move",
        "mremap-shrink", "mremap-dontunmap", "dontneed", "madv-free", "madv-remove", "sbrk", "brk",
        "shmdt", "shm-remap", "free", "realloc", "trim"]
BLIND = ["munmap-raw", "process-madvise", "mremap-onto", "dontneed-locked", "guard", "punch",
         "truncate"]
SHARED = ["shmdt", "punch", "truncate", "madv-remove"]  # is not kept by the notifier


def kinds(mpi: Mpi, kind: str, backend: str, size: int = SIZE, **regx: object) -> Job:
    """Four sends from one buffer, which changes after the second."""
    job = mpi("kinds", kind, size, regx={"rendezvous": "direct", "backend": backend, **regx})
    if any("btl_regx_backend" in line for line in job.complaints):
        pytest.skip(" ".join(job.complaints))
    if "kinds: " in job.stderr:
        pytest.skip(f"not on this kernel: {job.stderr}")
    job.checked(ranks=2)
    assert job.rank(0)["messages_direct"] == 4, str(job)
    assert set(job.reasons("fallbacks")) <= {"not watched: shared memory"}, str(job)
    return job


@pytest.mark.parametrize("backend", CACHING)
def test_a_buffer_used_again_is_a_cache_hit(mpi: Mpi, backend: str) -> None:
    job = kinds(mpi, "nothing", backend)
    for report in job.reports:
        assert report["backend"] == backend and report["backend_reason"] == "asked for", str(job)
        assert report["hits"] == 3 and report["misses"] == 1, str(job)
        assert report["registrations"] == 1 and report["uncached"] == 0, str(job)


@pytest.mark.parametrize("backend,reason", [("none", "asked for"), ("auto", "not needed")])
def test_registrations_that_are_not_kept_are_made_anew(mpi: Mpi, backend: str, reason: str) -> None:
    job = kinds(mpi, "nothing", backend)
    for report in job.reports:
        assert report["backend"] == "none" and report["backend_reason"] == reason, str(job)
        assert report["hits"] == report["misses"] == 0, str(job)
        assert report["registrations"] == report["deregistrations"] == 4, str(job)


@pytest.mark.parametrize("value", [0, 1, -1])
def test_leave_pinned_0_means_backend_none(mpi: Mpi, value: int) -> None:
    """Open MPI's way to say none, unless a backend is given; said once."""
    for backend in (None, "hooks"):
        regx = {"rendezvous": "direct"} if backend is None else {"backend": backend}
        job = mpi("kinds", "nothing", SIZE, mca={"mpi_leave_pinned": value}, regx=regx)
        assert job.status == 0 and len(job.reports) == 2, str(job)
        none = value == 0 and backend is None
        said = "regx: mpi_leave_pinned=0: registrations are not kept; " \
               "btl_regx_backend overrides this"
        assert job.complaints == [said] * none, str(job)
        expected = "mpi_leave_pinned=0" if none else "not needed" if backend is None else \
            "asked for"
        assert {report["backend_reason"] for report in job.reports} == {expected}, str(job)


@pytest.mark.parametrize("kind", SEEN)
def test_open_mpis_hooks_see_the_change(mpi: Mpi, kind: str) -> None:
    sender = kinds(mpi, kind, "hooks").rank(0)
    assert sender["invalidations"] == 1, sender
    assert sender["hits"] == 2 and sender["misses"] == 2, sender


@pytest.mark.parametrize("kind", BLIND)
def test_open_mpis_hooks_miss_the_change(mpi: Mpi, kind: str) -> None:
    """Documented. (Here nothing is wrong all the same: this wire registers with no device.)"""
    sender = kinds(mpi, kind, "hooks").rank(0)
    assert sender["invalidations"] == 0 and sender["hits"] == 3, sender


@pytest.mark.parametrize("kind", [kind for kind in SEEN + BLIND
                                  if kind not in [*SHARED, "shm-remap", "guard"]])
def test_the_notifier_sees_the_change(mpi: Mpi, kind: str) -> None:
    """Whatever call it is. (Just after it the news may not be logged: then what is sent is
    registered, and not kept.)"""
    sender = kinds(mpi, kind, "notifier").rank(0)
    assert sender["invalidations"] == 1, sender
    assert 1 <= sender["hits"] <= 2 and sender["misses"] + sender["uncached"] >= 2, sender


def test_the_notifier_misses_guard_pages(mpi: Mpi) -> None:
    """Documented, as SHM_REMAP below."""
    sender = kinds(mpi, "guard", "notifier").rank(0)
    assert sender["invalidations"] == 0 and sender["hits"] == 3, sender


@pytest.mark.parametrize("kind,missed", [("munmap", 0), ("dontneed", 0), ("mremap-move", 0),
                                         ("brk", 0), ("free", 0), ("trim", 0), ("munmap-raw", 1),
                                         ("mremap-onto", 1), ("dontneed-locked", 1)])
def test_what_hooks_missed_is_counted(mpi: Mpi, kind: str, missed: int) -> None:
    sender = kinds(mpi, kind, "hooks+notifier").rank(0)
    assert sender["invalidations"] == 1, sender
    assert (sender["hooks_missed"] > 0) == bool(missed), sender


def test_a_segment_attached_over_private_memory_is_seen(mpi: Mpi) -> None:
    """The notifier hears nothing of it, but can ask; hooks hear of it."""
    for backend, check, seen in (("hooks+notifier", "always", True), ("notifier", "scan", True),
                                 ("notifier", "always", False)):
        sender = kinds(mpi, "shm-remap", backend, notifier_check=check).rank(0)
        assert (sender["hits"] < 3) == seen, (backend, check, sender)


@pytest.mark.parametrize("kind", SHARED)
def test_the_notifier_does_not_keep_shared_memory(mpi: Mpi, kind: str) -> None:
    for backend in ("notifier", "hooks+notifier"):
        sender = kinds(mpi, kind, backend).rank(0)
        assert sender["uncached"] >= 2 and sender["hits"] <= 1, sender
        assert sender["fallbacks"]["not watched: shared memory"] >= 2, sender


@pytest.mark.parametrize("kind", ["free", "realloc", "trim", "sbrk"])
def test_with_retain_malloc_keeps_its_memory(mpi: Mpi, kind: str) -> None:
    """What malloc gave stays where it was. (sbrk takes it away behind malloc's back: not seen.)"""
    sender = kinds(mpi, kind, "retain").rank(0)
    assert sender["invalidations"] == 0 and sender["hits"] >= 2, sender


def test_a_cache_smaller_than_a_buffer_keeps_nothing(mpi: Mpi) -> None:
    for backend in CACHING:
        job = kinds(mpi, "nothing", backend, cache_bytes="1M")
        for report in job.reports:
            assert report["hits"] == 0 and report["registered_bytes"] == 0, str(job)
            assert report["registered_high"] >= SIZE, str(job)


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
    for backend in CACHING:
        job = kinds(mpi, "nothing", backend, cache_bytes="unlimited", cache_count="unlimited")
        assert all(report["hits"] == 3 for report in job.reports), str(job)


@pytest.mark.parametrize("backend", CACHING)
@pytest.mark.parametrize("times", [1, 3])
def test_reading_parameters_before_init_starts_nothing(mpi: Mpi, backend: str, times: int) -> None:
    """Hazard 27: reading the parameters starts nothing; what they say holds in MPI_Init after."""
    job = mpi("tools", times, SIZE, regx={"rendezvous": "direct", "backend": backend})
    if any("btl_regx_backend" in line for line in job.complaints):
        pytest.skip(" ".join(job.complaints))
    for report in job.checked(ranks=2).reports:
        assert report["backend"] == backend and report["hits"] == 9, str(job)
