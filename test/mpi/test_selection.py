# SPDX-License-Identifier: BSD-3-Clause
"""Who carries a job: regx only where it was asked for, and then it says what it does not carry."""
from typing import Any

import pytest

from launch import Mpi
from job import Job

UCX = {"pml_ucx_tls": "any", "pml_ucx_devices": "any"}
UNUSED = 'regx: named in btl, but pml "ucx" carries this job; add --mca pml ob1'


def traffic(mpi: Mpi, **how: Any) -> Job:
    job = mpi("collective", "--sizes", "10,100000", "alltoall", **how)
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    return job


LARGE = 2 * 100_000  # bytes of all large messages

# sm of Open MPI 5.0, which has this name too, neither puts nor gets by the kernel's copy.
HINDERED = "regx: btl_regx_exclusivity=65537: beside vader, Open MPI sends large messages in " \
    "fragments; leave vader out of btl, or set btl_vader_flags=send"


def hindered(mpi: Mpi) -> list[str]:
    return [HINDERED] if mpi.build.series == (4, 1) else []


def test_regx_carries_everything_when_named(mpi: Mpi) -> None:
    """It carries everything, what is large by rendezvous; its exclusivity is above tcp's."""
    job = traffic(mpi, btl="regx,tcp,self", regx={"rendezvous": "bounce"}).checked(ranks=2)
    assert job.total("bytes_bounce") >= LARGE, str(job)


def test_higher_exclusivity_takes_the_node(mpi: Mpi) -> None:
    """Beside a vader with atomics Open MPI sends fragments, which is said."""
    regx = {"exclusivity": 65537, "rendezvous": "bounce"}
    job = traffic(mpi, btl="regx,vader,self", regx=regx)
    assert job.complaints == hindered(mpi), str(job)
    path, other = ("frag", "bounce") if hindered(mpi) else ("bounce", "frag")
    assert job.total(f"bytes_{path}") >= LARGE, str(job)
    assert job.total(f"bytes_{other}") == 0, str(job)
    job = traffic(mpi, btl="regx,vader,self", regx=regx, mca={"btl_vader_flags": "send"}).checked(ranks=2)
    assert job.total("bytes_bounce") >= LARGE, str(job)


def test_enabled_by_the_administrator(mpi: Mpi) -> None:
    """Without naming btl: offered, and vader has the node until the exclusivity is higher."""
    job = traffic(mpi, btl=None, regx={"enable": 1}).checked(ranks=2)
    assert job.total("bytes_shm") == 0, str(job)
    job = traffic(mpi, btl=None, regx={"enable": 1, "exclusivity": 65537})
    assert job.complaints == hindered(mpi) and job.total("bytes_shm") > LARGE, str(job)


@pytest.mark.parametrize("btl", ["regx", None])
def test_that_ucx_carries_is_said_on_rank_0_if_regx_was_named(mpi: Mpi, btl: str | None) -> None:
    job = traffic(mpi, btl=btl, pml="ucx", mca=UCX)
    assert job.complaints == ([UNUSED] if btl else []), str(job)
