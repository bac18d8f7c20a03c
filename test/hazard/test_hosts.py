# SPDX-License-Identifier: BSD-3-Clause
"""Between hosts without an RDMA device: two network namespaces. Shared memory would reach across, and
must not; Open MPI's own tcp carries what regx leaves to it."""
import re
from pathlib import Path

import pytest

from launch import Mpi
from namespace import two_hosts

TRAFFIC = ("collective", "--sizes", "1,5000,300001", "alltoall", "bcast")


def test_beside_tcp_regx_has_the_node(mpi: Mpi, tmp_path: Path) -> None:
    """Two ranks on each of two hosts: on the host by shared memory, and nothing is said."""
    with two_hosts(tmp_path) as (around, options):
        job = mpi(*TRAFFIC, ranks=4, btl="regx,tcp,self", around=around, options=options).checked(ranks=4)
    assert len({report["host"] for report in job.reports}) == 2, str(job)
    for report in job.reports:
        assert report["transport"] == "shm" and report["bytes_shm"] > 300_001, str(job)
        assert report["transport_reason"] == "no RDMA device here", str(job)


@pytest.mark.parametrize("btl,transport,why", [
    ("regx,vader,self", "auto", "no RDMA device here"),
    ("regx,self", "shm", "btl_regx_transport=shm is for the node alone")])
def test_regx_alone_says_why_and_the_job_ends(mpi: Mpi, tmp_path: Path, btl: str, transport: str,
                                              why: str) -> None:
    """One line of the job: who, why, and what can be done."""
    with two_hosts(tmp_path) as (around, options):
        job = mpi(*TRAFFIC, ranks=4, btl=btl, regx={"transport": transport}, around=around,
                  options=options)
    assert job.status != 0 and job.stdout == "", str(job)
    assert len(job.complaints) == 1, str(job)
    assert re.fullmatch(r"regx: ranks on other nodes than regx\d+a cannot be reached: "
                        rf"{why}\. Open MPI's own tcp can: --mca btl regx,tcp,self",
                        job.complaints[0]), str(job)


def test_a_host_that_does_not_use_regx_is_reached_by_another_btl(mpi: Mpi, tmp_path: Path) -> None:
    """Two ranks on each: those of the first talk to each other by regx, and to the others by tcp."""
    second = ["sh", "-c", 'case $OMPI_COMM_WORLD_RANK in 1|3) export OMPI_MCA_btl=tcp,self;; esac; exec "$@"', "sh"]
    with two_hosts(tmp_path) as (around, options):
        job = mpi(*TRAFFIC, ranks=4, btl="regx,tcp,self", around=around, options=options, within=second)
    job.checked(ranks=2)
    assert len({report["host"] for report in job.reports}) == 1, str(job)
    assert job.total("bytes_shm") > 0, str(job)


def test_processes_spawned_on_both_hosts_exchange_messages(mpi: Mpi, tmp_path: Path) -> None:
    """Children beside their parents, and on the other host."""
    if mpi.build.series == (5, 0):
        pytest.skip("Open MPI 5.0 cannot spawn on two hosts, with btl/tcp either")
    if mpi.build.series == (6, 0):
        pytest.skip("Open MPI 6.0 cannot map what is spawned on two hosts, with btl/tcp either")
    with two_hosts(tmp_path) as (around, options):
        job = mpi("dynamic", "spawn", 3, ranks=2, btl="regx,tcp,self", around=around,
                  options=options)
    job.checked(ranks=2 + 2 * 3)
    assert len({report["host"] for report in job.reports}) == 2, str(job)
    assert job.total("bytes_shm") > 0, str(job)
