# SPDX-License-Identifier: BSD-3-Clause
"""Between hosts: two network namespaces. Shared memory would reach across, and must not."""
import re
from pathlib import Path

import pytest

from launch import Mpi
from namespace import two_hosts

STRATEGIES = ["bounce", "pipeline", "direct", "auto"]
SIZES = [0, 1, 1000, 5000, 70_001, 1 << 20, (9 << 20) + 1]


def cases(folder: Path) -> Path:
    """Lines for the program `transfer`."""
    lines = [f"{size} 1 4095 {send} {receive} {pattern} isend irecv {window}"
             for size in SIZES for pattern, window in (("pair", 1), ("both", 3))
             for send, receive in (("contiguous", "contiguous"), ("vector", "contiguous"))]
    (folder / "cases").write_text("\n".join(lines) + "\n")
    return folder / "cases"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_hosts_use_tcp_alone(mpi: Mpi, tmp_path: Path, strategy: str) -> None:
    """One rank on each: everything by tcp, nothing by shared memory."""
    with two_hosts(tmp_path) as (around, options):
        job = mpi("transfer", cases(tmp_path), around=around, options=options,
                  regx={"rendezvous": strategy}).checked(ranks=2)
    assert len({report["host"] for report in job.reports}) == 2, str(job)
    job.over("tcp")
    job.carried(strategy)


def test_two_ranks_on_each_of_two_hosts_use_both_wires(mpi: Mpi, tmp_path: Path) -> None:
    """On the node by shared memory, between nodes by tcp, in one job."""
    with two_hosts(tmp_path) as (around, options):
        job = mpi("collective", "--sizes", "1,5000,300001", "alltoall", "alltoallv", "bcast",
                  ranks=4, around=around, options=options).checked(ranks=4)
    assert len({report["host"] for report in job.reports}) == 2, str(job)
    for report in job.reports:
        assert report["bytes_tcp"] > 0 and report["bytes_shm"] > 0, str(job)


def test_a_host_that_does_not_use_regx_is_reached_by_another_btl(mpi: Mpi, tmp_path: Path) -> None:
    """Two ranks on each: those of the first talk to each other by regx, and to the others by tcp."""
    second = ["sh", "-c", 'case $OMPI_COMM_WORLD_RANK in 1|3) export OMPI_MCA_btl=tcp,self;; esac; '
              'exec "$@"', "sh"]
    with two_hosts(tmp_path) as (around, options):
        job = mpi("collective", "--sizes", "1,5000,300001", "alltoall", "bcast", ranks=4,
                  btl="regx,tcp,self", around=around, options=options, within=second)
    job.checked(ranks=2)
    assert len({report["host"] for report in job.reports}) == 1, str(job)
    assert job.total("bytes_shm") > 0 == job.total("bytes_tcp"), str(job)


def test_processes_spawned_on_both_hosts_exchange_messages(mpi: Mpi, tmp_path: Path) -> None:
    """Children beside their parents, and on the other host."""
    if mpi.build.series == (5, 0):
        pytest.skip("Open MPI 5.0 cannot spawn on two hosts, with btl/tcp either")
    if mpi.build.series == (6, 0):
        pytest.skip("Open MPI 6.0 cannot map what is spawned on two hosts, with btl/tcp either")
    with two_hosts(tmp_path) as (around, options):
        job = mpi("dynamic", "spawn", 3, ranks=2, around=around, options=options)
    job.checked(ranks=2 + 2 * 3)
    assert len({report["host"] for report in job.reports}) == 2, str(job)
    assert job.total("bytes_tcp") > 0, str(job)


@pytest.mark.parametrize("device", ["regx0", "10.83.0.0/16"])
def test_the_named_network_is_used(mpi: Mpi, tmp_path: Path, device: str) -> None:
    """By name, and by network."""
    with two_hosts(tmp_path) as (around, options):
        job = mpi("transfer", cases(tmp_path), around=around, options=options,
                  regx={"if_include": device}).checked(ranks=2)
    job.over("tcp")


@pytest.mark.parametrize("setting,here", [({"if_include": "lo"}, "posix,tcp"),
                                          ({"if_exclude": "regx0"}, "posix,tcp"),
                                          ({"uct_tls": "posix,sysv"}, "posix")])
def test_hosts_without_a_common_network_end_the_job(mpi: Mpi, tmp_path: Path,
                                                    setting: dict[str, str], here: str) -> None:
    """The job ends with a line of each who looked for a way, and none is taken in silence."""
    with two_hosts(tmp_path) as (around, options):
        job = mpi("transfer", cases(tmp_path), around=around, options=options, regx=setting)
    assert job.status != 0 and job.stdout == "", str(job)
    assert 1 <= len(job.complaints) <= 2, str(job)
    for line in job.complaints:
        assert re.fullmatch(r"regx: rank [01] on regx\d+[ab] cannot be reached "
                            rf"\(open here: {here}\); btl_regx_if_include, btl_regx_if_exclude and "
                            r"btl_regx_uct_tls must leave a network that leads there",
                            line), str(job)
