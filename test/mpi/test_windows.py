# SPDX-License-Identifier: BSD-3-Clause
"""Windows from a stock installation's defaults: --mca btl regx, and nothing said about osc.

From 5.0 on Open MPI's osc/rdma has everything done by the target, by messages (mca-params/limits.md):
no put, get or atomic operation comes to regx, and what is asked of those windows is right data."""
from typing import Any

import pytest

from job import Job
from launch import Build, Mpi

CASES = ["fence", "pscw", "lock", "requests", "flood", "derived", "accumulate", "fetch", "swap",
         "alternate"]
MIXED = ["mixed", "queue"]
MOVING = ["fence", "pscw", "lock", "requests", "derived"]


def window(mpi: Mpi, flavour: str, size: int, *cases: str, **how: Any) -> Job:
    return mpi("window", flavour, size, *cases, mca={**mpi.build.osc, **how.pop("mca", {})}, **how)


@pytest.mark.parametrize("flavour,ranks", [("create", 2), ("dynamic", 3), ("create", 4)])
def test_on_a_node_only_atomic_operations_ask_the_target(mpi: Mpi, flavour: str,
                                                         ranks: int) -> None:
    """The kernel copies what is put and got, also while the target is not inside MPI."""
    alone = ["alone"] if mpi.build.osc_asks else []
    job = window(mpi, flavour, 1000, *CASES, *alone, ranks=ranks).checked(ranks)
    assert (0 < job.total("onesided_messages") < job.total("onesided")) == mpi.build.osc_asks, str(job)


@pytest.mark.parametrize("flavour,ranks", [("create", 2), ("allocate", 2), ("dynamic", 3),
                                           ("create", 4), ("allocate", 4)])
def test_mixed_atomic_operations_lose_nothing(mpi: Mpi, flavour: str, ranks: int) -> None:
    """Compare-and-swap beside all others, on the same words of 4 and of 8 bytes."""
    window(mpi, flavour, 8, *MIXED, ranks=ranks).checked(ranks)


def test_windows_allocated_on_a_node_are_left_to_shared_memory(mpi: Mpi) -> None:
    """Open MPI's osc/sm has them, as before."""
    job = window(mpi, "allocate", 1000, *CASES, ranks=3).checked(3)
    assert job.total("onesided") == 0, str(job)


@pytest.mark.parametrize("size", [1, 70_001, 4 << 20])
def test_long_and_short_puts_and_gets_are_right(mpi: Mpi, size: int) -> None:
    window(mpi, "create", size, *MOVING, ranks=3).checked(3)


@pytest.mark.parametrize("flavour,ranks", [("create", 3), ("dynamic", 4)])
def test_without_the_kernels_copy_the_target_copies(mpi: Mpi, build: Build, flavour: str,
                                                    ranks: int) -> None:
    """The report says why."""
    job = window(mpi, flavour, 70_001, *CASES, *MIXED, ranks=ranks,
                 within=[build.programs / "deny", "process_vm"]).checked(ranks)
    assert job.total("onesided") == job.total("onesided_messages"), str(job)
    assert (job.total("onesided") > 0) == mpi.build.osc_asks, str(job)
    assert not mpi.build.osc_asks or any(reason.startswith("process_vm")
                                         for reason in job.reasons("fallbacks")), str(job)


@pytest.mark.parametrize("ranks", [1, 3])
def test_beside_self_regx_has_the_windows_of_several_processes(mpi: Mpi, ranks: int) -> None:
    """It has the process itself, and nothing else."""
    job = window(mpi, "create", 1000, *CASES, ranks=ranks, btl="regx,self").checked(ranks)
    assert (job.total("onesided") > 0) == (mpi.build.osc_asks and ranks > 1), str(job)


@pytest.mark.parametrize("btl", ["regx,vader,self", None])
def test_vader_has_the_node_and_with_it_the_windows(mpi: Mpi, btl: str | None) -> None:
    """Puts and gets: vader of Open MPI 4.1.4 crashes in MPI_Compare_and_swap on itself."""
    job = window(mpi, "create", 1000, *MOVING, ranks=3, btl=btl,
              regx={"enable": 1}).checked(3)
    assert job.total("onesided") == 0, str(job)


def test_by_its_flags_regx_has_the_windows_beside_vader(mpi: Mpi) -> None:
    job = window(mpi, "create", 1000, *CASES, ranks=3, btl="regx,vader,self",
                 regx={"flags": "send,put,get,fetching-atomics"}).checked(3)
    assert (job.total("onesided") > 0) == mpi.build.osc_asks, str(job)


def test_with_a_workstations_settings_regx_has_the_windows(mpi: Mpi) -> None:
    """There regx has the node."""
    job = window(mpi, "create", 1000, *CASES, ranks=3, btl=None,
              regx={"enable": 1, "exclusivity": 65537}, mca={"btl_vader_flags": "send"}).checked(3)
    assert (job.total("onesided") > 0) == mpi.build.osc_asks, str(job)


def test_a_window_of_one_process_is_right(mpi: Mpi) -> None:
    window(mpi, "create", 1000, *CASES, ranks=1).checked(1)
