# SPDX-License-Identifier: BSD-3-Clause
"""transport=auto where an RDMA device is: the node by shared memory, other nodes by verbs.

The device is a pretence (fabric.py). Messages are checked, and their wires counted."""
from pathlib import Path
from typing import Any

import pytest

from fabric import DEVICE, Fabric
from job import Job
from launch import AT_ONCE, Mpi
from test_process import read

SIZES = "8,5000,300001"
TRAFFIC = ("collective", "--sizes", SIZES, "alltoall", "bcast")


def by_ports(report: dict[str, Any]) -> int:
    return sum(report["ports"].values())


def without_verbs(job: Job, reason: str) -> None:
    """Everything by shared memory, and why is in the report."""
    for report in job.reports:
        assert report["transport"] == "shm" and report["transport_reason"] == reason, str(job)
        assert by_ports(report) == 0, str(job)


@pytest.mark.parametrize("strategy", [
    "bounce", "pipeline", pytest.param("direct", marks=pytest.mark.full), "together"])
def test_the_node_goes_by_shared_memory_and_others_by_verbs(fabric: Fabric, strategy: str) -> None:
    """Two ranks on each of two hosts: each wire carries its part, and none the other's. together is for
    the node; between nodes another one takes its place. The backend is for verbs alone, and what it may
    keep is not divided."""
    job = fabric(*TRAFFIC, regx={"rendezvous": strategy, "cache_bytes": "64M"}).checked(ranks=4)
    size = sum(map(int, SIZES.split(",")))
    assert job.total(f"bytes_{strategy}") > 0, str(job)
    for report in job.reports:
        assert report["transport"] == "shm,verbs", str(job)
        assert report["transport_reason"] == "verbs between nodes", str(job)
        assert report["peers"] == 4, str(job)
        assert report["bytes_shm"] >= size, str(job)
        assert by_ports(report) >= 2 * size, str(job)
        assert report["backend"] == "notifier", str(job)
        assert report["backend_reason"] == "passed its self-test", str(job)
        uses = report["misses"] + report["hits"] + report["uncached"]
        assert uses > 0 or strategy != "pipeline", str(job)


def test_registered_pool_is_not_locked_as_well(fabric: Fabric, tmp_path: Path) -> None:
    """The kernel would count it twice."""
    job = fabric("process", tmp_path / "state").checked(ranks=4)
    for report in job.reports:
        states = read(tmp_path / f"state.{report['rank']}")
        locked = states["running"].locked - states["before"].locked
        assert locked == 8 << 20, f"{locked} bytes are locked\n{job}"
        assert report["pool_pinned_bytes"] == report["pool_bytes"] == 16 << 20, str(job)


def test_two_ports_share_what_goes_between_nodes(fabric: Fabric) -> None:
    """ob1 stripes over the ports, and over these alone."""
    job = fabric(*TRAFFIC, environment={"REGX_TEST_PORTS": "fake0:1@a,fake1:1@b"}).checked(ranks=4)
    for report in job.reports:
        assert set(report["ports"]) == {"fake0:1", "fake1:1"}, str(job)
        assert min(report["ports"].values()) > 0, str(job)
        assert report["bytes_shm"] > 0, str(job)


@pytest.mark.parametrize("ports", ["fake0:1@$(hostname | tail -c 2)", ""])
def test_peers_that_verbs_does_not_reach_are_left_to_tcp(fabric: Fabric, ports: str) -> None:
    """Each host on a fabric of its own; or without a port on one of them."""
    choose = f'REGX_TEST_PORTS="{ports}"' if ports else \
        'case $(hostname) in *a) REGX_TEST_UNUSABLE="no port is active" ;; esac; ' \
        "export REGX_TEST_UNUSABLE; REGX_TEST_PORTS=fake0:1@a"
    within = ["sh", "-c", f'{choose}; export REGX_TEST_PORTS; exec "$@"', "sh"]
    job = fabric(*TRAFFIC, within=within, btl="regx,tcp,self").checked(ranks=4)
    for report in job.reports:
        assert by_ports(report) == 0 and report["bytes_shm"] > 0, str(job)
    reasons = {report["transport_reason"] for report in job.reports}
    assert reasons == ({"verbs between nodes"} if ports else
                       {"verbs between nodes", "no port is active"}), str(job)
    job = fabric(*TRAFFIC, within=within, mca=AT_ONCE)
    assert job.status != 0 and 1 <= len(job.complaints) <= 4, str(job)
    for line in job.complaints:  # of each rank that has met it
        assert line.partition(" cannot be reached: ")[2].startswith(
            "no port that is open here (verbs:fake0:1) leads to one of its: " if ports else
            ("no port is active. Open", "it has opened no RDMA device. Open")), str(job)


def test_unusable_device_is_not_worth_a_word(fabric: Fabric) -> None:
    job = fabric(*TRAFFIC, environment={"REGX_TEST_UNUSABLE": "no port of an RDMA device is active"},
                 btl="regx,tcp,self")
    without_verbs(job.checked(ranks=4), "no port of an RDMA device is active")


def test_a_job_on_one_node_does_not_open_verbs(mpi: Mpi, plugins: Path) -> None:
    """Verbs is not even opened."""
    job = mpi(*TRAFFIC, within=DEVICE, environment=mpi.build.path(plugins)).checked(ranks=2)
    without_verbs(job.over("shm"), "at the start all processes were on this node")


def test_listed_devices_are_used(fabric: Fabric) -> None:
    job = fabric(*TRAFFIC, regx={"if_include": "fake0"}).checked(ranks=4)
    assert all(by_ports(report) > 0 for report in job.reports), str(job)


def test_a_list_that_names_no_port_is_said_once(fabric: Fabric) -> None:
    """By the first host alone, as the other has nothing else to say; the job goes on with another BTL."""
    job = fabric(*TRAFFIC, regx={"if_include": "fake1"}, environment={"REGX_TEST_PORTS": "fake0:1@a"},
                 btl="regx,tcp,self")
    assert job.status == 0 and not job.reports, str(job)
    assert job.complaints == ["regx: btl_regx_if_include=fake1: names no port"], str(job)


def test_auto_agrees_with_a_host_that_was_told_its_transport(fabric: Fabric) -> None:
    """One host is told verbs, and then shm; the other finds out."""
    for transport, ports in (("verbs", True), ("shm", False)):
        only = f"case $(hostname) in *a) export OMPI_MCA_btl_regx_transport={transport} ;; esac; "
        job = fabric(*TRAFFIC, within=["sh", "-c", f'{only} exec "$@"', "sh"],
                     btl="regx,tcp,self").checked(ranks=4)
        assert {report["transport"] for report in job.reports} == {"shm,verbs", transport}, str(job)
        assert all((by_ports(report) > 0) == ports for report in job.reports), str(job)
