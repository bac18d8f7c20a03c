# SPDX-License-Identifier: BSD-3-Clause
"""transport=auto on real ports: the node by shared memory, other nodes by verbs.

test_transport_auto.py has what needs no device.
"""
from pathlib import Path

import pytest

import device
from launch import Mpi
from softroce import two_rdma_hosts

pytestmark = device.needed

AROUND = ["chrt", "-i", "0"]


@pytest.mark.parametrize("btl,strategy", [("regx", "auto"), ("regx", "bounce"), ("regx", "pipeline"),
                                          ("regx", "together"), ("regx,vader,self", "auto")])
def test_two_ranks_on_each_of_two_hosts(mpi: Mpi, tmp_path: Path, btl: str, strategy: str) -> None:
    """Each wire carries its part; beside vader, which has the node, verbs alone."""
    with two_rdma_hosts(tmp_path) as (around, options, within):
        job = mpi("collective", "--sizes", "1,5000,300001", "alltoall", "bcast", ranks=4, btl=btl,
                  around=[*around, *AROUND], options=options, within=within,
                  regx={"rendezvous": strategy, "transport": "auto" if btl == "regx" else "verbs"})
    for report in job.checked(ranks=4).reports:
        assert list(report["ports"]) == [f"{report['host']}:1"], str(job)
        assert report["bytes_verbs"] > 300_001, str(job)
        assert (report["bytes_shm"] > 300_001) == (btl == "regx"), str(job)
        if btl == "regx":
            assert report["transport"] == "shm,verbs" and report["peers"] == 4, str(job)
            assert report["transport_reason"] == "verbs between nodes", str(job)
    assert strategy == "auto" or job.total(f"bytes_{strategy}") > 0, str(job)


def test_little_locked_memory_leaves_other_nodes_to_open_mpis_tcp(mpi: Mpi, tmp_path: Path) -> None:
    """Too little for a port's own buffers: why not is in the report, and printed nowhere."""
    with two_rdma_hosts(tmp_path) as (around, options, within):
        limited = ["prlimit", "--memlock=65536", "setpriv", "--bounding-set=-ipc_lock",
                   "--inh-caps=-ipc_lock", *within]
        job = mpi("collective", "--sizes", "1,5000,300001", "alltoall", ranks=4,
                  around=[*around, *AROUND], options=options, within=limited,
                  btl="regx,tcp,self")
    job.checked(ranks=4)
    for report in job.reports:
        assert report["transport"] == "shm" and report["bytes_shm"] > 300_001, str(job)
        assert "locked memory" in report["transport_reason"], str(job)
