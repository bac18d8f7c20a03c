# SPDX-License-Identifier: BSD-3-Clause
"""transport=auto where an RDMA device is: the node by shared memory, other nodes by verbs.

The device is a pretence (test/fabric): a transport named verbs that sends by tcp, and a folder
where the kernel lists such devices. Messages are checked, and their wires counted.
"""
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from job import Job
from launch import Build, Mpi
from namespace import two_hosts

# Before the program, in a mount namespace of its own: the kernel shows a device.
DEVICE = ["unshare", "--mount", "sh", "-c", """
    net=$(mktemp -d) && mount --bind /sys/class/net $net && mount -t tmpfs tmpfs /sys/class &&
    mkdir -p /sys/class/net /sys/class/infiniband/fake0 /sys/class/infiniband/fake1 &&
    mount --move $net /sys/class/net && rmdir $net || exit 99
    exec "$@" """, "sh"]
SIZES = "8,5000,300001"
TRAFFIC = ("collective", "--sizes", SIZES, "alltoall", "bcast")


class Fabric:
    """Two hosts, each with the pretended device."""

    def __init__(self, mpi: Mpi, folder: Path, around: list[str], options: list[str]) -> None:
        self.mpi = mpi
        self.path = mpi.build.path(folder)
        self.around = around
        self.options = options

    def __call__(self, ranks: int = 4, device: bool = True, within: list[str] | None = None,
                 environment: dict[str, str] | None = None, regx: dict[str, Any] | None = None,
                 program: tuple[object, ...] = TRAFFIC, **how: Any) -> Job:
        name, *arguments = program
        return self.mpi(str(name), *arguments, ranks=ranks, around=self.around, options=self.options,
                        within=[*(DEVICE if device else []), *(within or [])],
                        environment={**self.path, **(environment or {})}, regx=regx, **how)


@pytest.fixture
def plugins(build: Build, tmp_path: Path) -> Path:
    """The component and its transports, of which verbs is the pretended one."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    fake = build.mismatched.parents[1] / "fabric" / ".libs" / "regx_transport_verbs.so"
    for made in (build.component / "mca_btl_regx.so", build.component / "regx_transport_uct.so",
                 fake):
        (folder / made.name).symlink_to(made)
    return folder


@pytest.fixture
def fabric(mpi: Mpi, plugins: Path, tmp_path: Path) -> Iterator[Fabric]:
    with two_hosts(tmp_path) as (around, options):
        yield Fabric(mpi, plugins, around, options)


def by_ports(report: dict[str, Any]) -> int:
    return sum(report["ports"].values())


def without_verbs(job: Job, reason: str) -> None:
    """Everything by uct, and why is in the report."""
    for report in job.reports:
        assert report["transport"] == "uct" and report["transport_reason"] == reason, str(job)
        assert by_ports(report) == 0, str(job)


def test_the_node_goes_by_shared_memory_and_others_by_verbs(fabric: Fabric) -> None:
    """Two ranks on each of two hosts: each wire carries its part, and none the other's."""
    job = fabric(mca={"btl_base_verbose": 20}).checked(ranks=4)
    size = sum(map(int, SIZES.split(",")))
    for report in job.reports:
        assert report["transport"] == "uct,verbs", str(job)
        assert report["transport_reason"] == "verbs between nodes", str(job)
        assert report["peers"] == 4, str(job)
        assert report["bytes_shm"] >= size, str(job)
        assert by_ports(report) >= 2 * size, str(job)
    traced = [line.partition("btl:regx: ")[2] for line in job.stderr.splitlines()]
    assert any("(verbs:fake0:1): on another node" in line for line in traced), str(job)
    assert any("(verbs:fake0:1): another transport takes it" in line for line in traced), str(job)
    assert any(": shm (" in line and line.endswith(": on this node") for line in traced), str(job)


@pytest.mark.parametrize("strategy", ["bounce", "pipeline", "direct", "together"])
def test_each_strategy_carries_messages_on_and_between_nodes(fabric: Fabric, strategy: str) -> None:
    """together is for the node; between nodes another one takes its place."""
    job = fabric(regx={"rendezvous": strategy}).checked(ranks=4)
    assert job.total(f"bytes_{strategy}") > 0, str(job)
    assert all(by_ports(report) > 0 for report in job.reports), str(job)


def test_backend_is_for_verbs_alone(fabric: Fabric) -> None:
    """Shared memory registers for nothing: auto keeps nothing there, and what it may keep is not
    divided."""
    job = fabric(mca={"btl_base_verbose": 10},
                 regx={"rendezvous": "pipeline", "cache_bytes": "64M"}).checked(ranks=4)
    for report in job.reports:
        assert report["backend"] == "notifier", str(job)
        assert report["backend_reason"] == "passed its self-test", str(job)
        assert report["misses"] + report["hits"] + report["uncached"] > 0, str(job)
    assert job.stderr.count("btl:regx: transport uct keeps no registrations") == 4, str(job)


def test_one_rank_on_each_host_has_a_small_pool_on_the_node(fabric: Fabric) -> None:
    job = fabric(ranks=2, mca={"btl_base_verbose": 10}).checked(ranks=2)
    assert job.stderr.count("transport uct: posix,tcp, a pool of 2097152 bytes") == 2, str(job)
    assert job.stderr.count("verbs:fake0:1, a pool of 8388608 bytes") == 2, str(job)
    assert all(report["bytes_tcp"] > 0 for report in job.reports), str(job)


def test_registered_pool_is_not_locked_as_well(fabric: Fabric, tmp_path: Path) -> None:
    """The kernel would count it twice."""
    job = fabric(program=("process", tmp_path / "state")).checked(ranks=4)
    for report in job.reports:
        states = json.loads((tmp_path / f"state.{report['rank']}").read_text())
        locked = states["running"]["locked"] - states["before"]["locked"]
        assert locked == 8 << 20, f"{locked} bytes are locked\n{job}"
        assert report["pool_pinned_bytes"] == report["pool_bytes"] == 16 << 20, str(job)


def test_pool_that_was_given_is_divided(fabric: Fabric) -> None:
    job = fabric(regx={"pool_size": "4M"}, environment={"REGX_TEST_PORTS": "fake0:1@a,fake1:1@a"},
                 mca={"btl_base_verbose": 10}).checked(ranks=4)
    assert job.stderr.count("transport uct: posix,tcp, a pool of 2097152 bytes") == 4, str(job)
    for port in ("fake0:1", "fake1:1"):
        assert job.stderr.count(f"verbs:{port}, a pool of 1048576 bytes") == 4, str(job)
    assert all(report["pool_bytes"] == 4 << 20 for report in job.reports), str(job)


def test_two_ports_share_what_goes_between_nodes(fabric: Fabric) -> None:
    """ob1 stripes over the ports, and over these alone."""
    job = fabric(environment={"REGX_TEST_PORTS": "fake0:1@a,fake1:1@b"}).checked(ranks=4)
    for report in job.reports:
        assert set(report["ports"]) == {"fake0:1", "fake1:1"}, str(job)
        assert min(report["ports"].values()) > 0, str(job)
        assert report["bytes_shm"] > 0, str(job)


@pytest.mark.parametrize("ports", ["fake0:1@$(hostname | tail -c 2)", ""])
def test_peers_that_verbs_does_not_reach_are_reached_by_tcp(fabric: Fabric, ports: str) -> None:
    """Each host on a fabric of its own; or without a port on one of them."""
    choose = f'REGX_TEST_PORTS="{ports}"' if ports else \
        'case $(hostname) in *a) REGX_TEST_UNUSABLE="no port is active" ;; esac; ' \
        "export REGX_TEST_UNUSABLE; REGX_TEST_PORTS=fake0:1@a"
    job = fabric(within=["sh", "-c", f'{choose}; export REGX_TEST_PORTS; exec "$@"', "sh"])
    job.checked(ranks=4)
    for report in job.reports:
        assert by_ports(report) == 0 and report["bytes_tcp"] > 0, str(job)
        assert report["bytes_shm"] > 0, str(job)
    reasons = {report["transport_reason"] for report in job.reports}
    assert reasons == ({"verbs between nodes"} if ports else
                       {"verbs between nodes", "no port is active"}), str(job)


def test_unusable_device_is_not_worth_a_word(fabric: Fabric) -> None:
    job = fabric(environment={"REGX_TEST_UNUSABLE": "no port of an RDMA device is active"})
    without_verbs(job.checked(ranks=4), "no port of an RDMA device is active")


def test_without_a_device_all_goes_by_uct(fabric: Fabric) -> None:
    without_verbs(fabric(device=False).checked(ranks=4), "no RDMA device here")


def test_a_job_on_one_node_does_not_open_verbs(mpi: Mpi, plugins: Path) -> None:
    """Verbs is not even opened."""
    job = mpi(*TRAFFIC, within=DEVICE, environment=mpi.build.path(plugins)).checked(ranks=2)
    without_verbs(job.over("shm"), "all processes are on this node")


@pytest.mark.parametrize("setting,transports", [
    ({"if_include": "fake0"}, "uct,verbs"), ({"if_include": "fake0:1,regx0"}, "uct,verbs"),
    ({"if_include": "regx0"}, "uct"), ({"if_exclude": "lo"}, "uct,verbs")])
def test_each_name_of_a_list_is_for_its_own_transport(fabric: Fabric, setting: dict[str, str],
                                                      transports: str) -> None:
    """One list for both: the names of RDMA devices are for verbs, all others for tcp."""
    job = fabric(regx=setting).checked(ranks=4)
    assert {report["transport"] for report in job.reports} == {transports}, str(job)
    assert all((by_ports(report) > 0) == (transports != "uct") for report in job.reports), str(job)


def test_a_list_that_names_no_port_is_said_once_on_each_host(fabric: Fabric) -> None:
    """Said once on each host; the job goes on with another BTL."""
    job = fabric(regx={"if_include": "fake1"}, environment={"REGX_TEST_PORTS": "fake0:1@a"},
                 btl="regx,tcp,self")
    assert job.status == 0 and not job.reports, str(job)
    said = "regx: btl_regx_if_include=fake1: names no port"
    here, there = sorted(job.complaints)
    assert here == said and there.startswith(f"{said}, on regx"), str(job)


def test_auto_agrees_with_a_host_that_was_told_its_transport(fabric: Fabric) -> None:
    """One host is told verbs, and then uct; the other finds out."""
    for transport, ports in (("verbs", True), ("uct", False)):
        only = f"case $(hostname) in *a) export OMPI_MCA_btl_regx_transport={transport} ;; esac; "
        job = fabric(within=["sh", "-c", f'{only} exec "$@"', "sh"]).checked(ranks=4)
        assert {report["transport"] for report in job.reports} == {"uct,verbs", transport}, str(job)
        assert all((by_ports(report) > 0) == ports for report in job.reports), str(job)
