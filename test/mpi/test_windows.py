# SPDX-License-Identifier: BSD-3-Clause
"""Windows from a stock installation's defaults: --mca btl regx, and nothing said about osc.

From 5.0 on Open MPI's osc/rdma has everything done by the target, by messages (mca-params/limits.md):
no put, get or atomic operation comes to regx, and what is asked of those windows is right data."""
from typing import Any

import pytest

from job import Job
from launch import Build, Mpi

MOVING = ["fence", "lock"]
CASES = [*MOVING, "flood", "fetch", "alternate"]


def window(mpi: Mpi, flavour: str, size: int, *cases: str, **how: Any) -> Job:
    return mpi("window", flavour, size, *cases, mca={**mpi.build.osc, **how.pop("mca", {})}, **how)


@pytest.mark.parametrize("flavour,ranks,size", [("create", 2, 4 << 20), ("dynamic", 3, 70_001),
                                                ("create", 4, 1), ("allocate", 4, 1000)])
@pytest.mark.whole
def test_on_a_node_only_atomic_operations_ask_the_target(mpi: Mpi, flavour: str, ranks: int,
                                                         size: int) -> None:
    """The kernel copies what is put and got, also while the target is not inside MPI. Mixed atomic
    operations on the same words, compare-and-swap among them, lose nothing. What is allocated is left
    to Open MPI's osc/sm."""
    ours = mpi.build.osc_asks and flavour != "allocate"
    cases = [*CASES, "mixed", *["alone"] * ours] if flavour != "allocate" else ["mixed"]
    job = window(mpi, flavour, size, *cases, ranks=ranks).checked(ranks)
    assert (0 < job.total("onesided_messages") < job.total("onesided")) == ours, str(job)


def test_without_the_kernels_copy_the_target_copies(mpi: Mpi, build: Build) -> None:
    """The report says why."""
    job = window(mpi, "dynamic", 70_001, *CASES, "mixed", ranks=3,
                 within=[build.programs / "deny", "process_vm"]).checked(3)
    assert job.total("onesided") == job.total("onesided_messages"), str(job)
    assert (job.total("onesided") > 0) == mpi.build.osc_asks, str(job)
    assert not mpi.build.osc_asks or any(reason.startswith("process_vm")
                                         for reason in job.reasons("fallbacks")), str(job)


# How btl and regx are set, and whether regx then has the windows of three processes.
SETTINGS = [
    ({"btl": "regx,vader,self"}, False),
    ({"btl": "regx,vader,self", "regx": {"flags": "send,put,get,fetching-atomics"}}, True),
    ({"btl": None, "regx": {"enable": 1, "exclusivity": 65537}, "mca": {"btl_vader_flags": "send"}}, True)]


@pytest.mark.parametrize("how,ours", SETTINGS, ids=str)
@pytest.mark.whole
def test_vader_has_the_windows_unless_regx_is_given_them(mpi: Mpi, how: dict[str, Any],
                                                         ours: bool) -> None:
    """Puts and gets alone where vader has them: vader of Open MPI 4.1.4 crashes in MPI_Compare_and_swap
    on itself."""
    job = window(mpi, "create", 1000, *(CASES if ours else MOVING), ranks=3, **how).checked(3)
    assert (job.total("onesided") > 0) == (ours and mpi.build.osc_asks), str(job)


def test_a_window_of_one_process_is_right(mpi: Mpi) -> None:
    window(mpi, "create", 1000, *CASES, ranks=1).checked(1)


def test_windows_by_messages_are_right(mpi: Mpi, build: Build) -> None:
    """By osc/pt2pt, which 5.0 has no more."""
    osc = {"osc": "pt2pt,sm"} if build.series == (4, 1) else {"osc": "^ucx"}
    job = window(mpi, "create", 1 << 20, *MOVING, ranks=4, mca=osc,
                 regx={"rendezvous": "pipeline"}).checked(4)
    assert job.total("onesided") == 0, str(job)
    assert sum(job.total(f"bytes_{path}") for path in ("eager", "frag", "pipeline")) > 4 << 20, str(job)
