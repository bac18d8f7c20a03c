# SPDX-License-Identifier: BSD-3-Clause
"""Memory that the program itself brings in (a collector's, a pager's): the kernel's copy is refused there, and
what a load or store of the program's would bring in arrives whole."""
import platform
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import device
import skips
from job import Job
from launch import Mpi, preloading
from tables import strategies

# Below and above what goes eagerly, by stages, in one chunk and in several.
SIZES = (3_000, 16_385, 32_769, 65_536, 65_537, 131_072, 131_073, 600_001, 1_048_576, 3_000_000)
WINDOWS = (8, 5_000, 70_001, 1_048_577)
HOWS = ("protected", "guarded", "cut", "pager", "child")
KERNEL = tuple(int(number) for number in platform.release().split(".")[:2])


@pytest.fixture(autouse=True)
def memory_can_be_so(request: pytest.FixtureRequest) -> None:
    """A pager (also a child, or a swapper, which tests of a pager start) has a userfaultfd."""
    name = request.node.name
    if "guarded" in name and KERNEL < (6, 13):
        pytest.skip("no guard pages: MADV_GUARD_INSTALL is of Linux 6.13")
    if ("pager" in name or "child" in name) and skips.userfaultfd_is_refused():
        pytest.skip("userfaultfd is refused here")


@pytest.mark.parametrize("strategy", [*strategies(), "auto"])
@pytest.mark.parametrize("side", ["send", "receive"])
@pytest.mark.parametrize("how", HOWS)
def test_what_the_program_brings_in_arrives(mpi: Mpi, how: str, side: str, strategy: str) -> None:
    """Each byte is checked, and that something had to be brought in."""
    mpi("paged", how, side, *SIZES, regx={"rendezvous": strategy}).checked(2)


@pytest.mark.parametrize("strategy", [*strategies(), "auto"])
def test_pages_that_are_open_before_they_are_filled_arrive_filled(mpi: Mpi, strategy: str) -> None:
    """While the sender's handler fills them the kernel copies nothing, however long that takes. (So many of a
    size that the sender begins before it is asked.)"""
    mpi("paged", "slow", "send", *[40_000] * 60, regx={"rendezvous": strategy}).checked(2)


@pytest.mark.parametrize("strategy", ["read", "together", "auto"])
def test_what_nobody_brings_in_does_not_end_as_a_success(mpi: Mpi, strategy: str) -> None:
    """A line names the receive buffer, and a store to it ends the process before MPI_Recv returns."""
    job = mpi("paged", "closed", "receive", 1_000_000, regx={"rendezvous": strategy}).lost("receive", "not writable")
    assert "Segmentation fault" in job.stderr and "instead of 0x" not in job.stderr, str(job)


@pytest.mark.parametrize("backend,grant", [
    ("none", "final"), ("notifier", "final"), ("hooks", "final"), ("notifier", "revocable"),
    ("hooks+notifier", "revocable")], indirect=["backend"])
@pytest.mark.parametrize("how", ["protected", "pager"])
def test_so_it_does_with_each_backend_and_grant(mpi: Mpi, how: str, backend: str, grant: str) -> None:
    for side in ("send", "receive"):
        mpi("paged", how, side, *SIZES, regx={
            "rendezvous": "pipeline", "backend": backend, "grant": grant}).checked(2)


@pytest.mark.parametrize("transport,strategy", [
    *(("pinned", strategy) for strategy in ("pipeline", "direct", "read")),
    *(pytest.param("verbs", strategy, marks=device.needed) for strategy in ("bounce", "pipeline"))])
@pytest.mark.parametrize("side", ["send", "receive"])
@pytest.mark.parametrize("how", [*HOWS, "owned"])
def test_over_a_device_what_cannot_be_registered_arrives_too(mpi: Mpi, verbs: Callable[..., Job], how: str, side: str,
                                                             transport: str, strategy: str) -> None:
    """The device refuses such memory, so it bounces; that reads and writes it, too."""
    start = verbs if transport == "verbs" else mpi
    sizes = SIZES[1:] if how == "owned" else SIZES  # from a page on
    job = start("paged", how, side, *sizes, regx={"transport": transport, "rendezvous": strategy}).checked(2)
    assert {report["transport"] for report in job.reports} == {transport}, str(job)
    assert job.total("bytes_bounce") > 0, str(job)


@pytest.mark.parametrize("strategy", ["together", "pipeline", "direct", "auto"])
def test_the_sender_does_not_write_behind_a_pager(mpi: Mpi, strategy: str) -> None:
    """What the kernel writes to pages that it has looked up is lost with a page that is taken away meanwhile."""
    job = mpi("paged", "swapper", "receive", *[1_000_000] * 30, *SIZES, regx={"rendezvous": strategy}).checked(2)
    assert job.total("chunks_sender") == job.total("messages_pipeline") == job.total("messages_direct") == 0, str(job)
    instead = "bounce" if strategy in ("pipeline", "direct") else "read"
    assert f"{instead}: fallback: receiver: a userfaultfd may watch its buffer" in job.ways(), str(job)


@pytest.mark.parametrize("backend", ["notifier"], indirect=True)
def test_the_notifier_is_no_pager(mpi: Mpi, backend: str) -> None:
    """It watches by userfaultfd what has been registered."""
    job = mpi("paged", "none", "receive", *[1_000_000] * 4, regx={"rendezvous": "pipeline", "backend": backend}
              ).checked(2).carried("pipeline")
    assert not job.reasons("fallbacks"), str(job)


@pytest.mark.parametrize("side", ["put", "get"])
@pytest.mark.parametrize("how", HOWS)
def test_a_window_in_such_memory_is_right(mpi: Mpi, how: str, side: str) -> None:
    mpi("paged", how, side, *WINDOWS, mca=mpi.build.osc).checked(2)


def test_a_put_does_not_write_behind_a_pager(mpi: Mpi) -> None:
    """Of memory that was paged when it was made a window; the target itself puts there."""
    job = mpi("paged", "swapper", "put", *[1_000_000] * 4, mca=mpi.build.osc).checked(2)
    assert (job.total("onesided_messages") > 0) == mpi.build.osc_asks, str(job)


@pytest.mark.parametrize("strategy", ["pipeline", "read", "together", "auto"])
@pytest.mark.parametrize("side", ["send", "receive"])
def test_memory_of_mpi_may_be_protected_too(mpi: Mpi, side: str, strategy: str) -> None:
    """Of MPI_Alloc_mem, which peers map: what they see there is not what the program sees."""
    mpi("paged", "owned", side, *SIZES[1:], regx={"rendezvous": strategy}).checked(2)


def test_no_message_asks_the_loader_whose_handler_it_is(mpi: Mpi, tmp_path: Path) -> None:
    """Its lock is held while a library's constructor runs, which may wait for that message."""
    within = preloading(tmp_path / "loader.so", """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        static int calls;
        int dladdr(const void *address, Dl_info *info)
        {
            static int (*next)(const void *, Dl_info *);
            if (next == NULL)
                next = dlsym(RTLD_NEXT, "dladdr");
            calls++;
            return next(address, info);
        }
        __attribute__((destructor)) static void tell(void)
        {
            fprintf(stderr, "dladdr: %d calls\\n", calls);
        }""", "-ldl")
    job = mpi("paged", "owned", "send", *[70_000] * 60, regx={"rendezvous": "read"}, within=within).checked(2)
    calls = [int(number) for number in re.findall(r"dladdr: (\d+) calls", job.stderr)]
    assert len(calls) >= 2 and max(calls) < 20, str(job)


@pytest.mark.parametrize("side", ["send", "receive", "put", "get"])
def test_the_control_needs_nothing_brought_in(mpi: Mpi, side: str) -> None:
    job = mpi("paged", "none", side, *WINDOWS, regx={"rendezvous": "direct"}, mca=mpi.build.osc).checked(2)
    assert not job.reasons("fallbacks"), str(job)
