# SPDX-License-Identifier: BSD-3-Clause
"""Several ports, over which Open MPI stripes, and a port on each of two hosts."""
from pathlib import Path

import pytest

import device
from launch import Mpi, at_ranks
from namespace import command, host_names, wait_until
from softroce import CABLE, SECOND, second_device, two_rdma_hosts

pytestmark = device.needed

AROUND = ["chrt", "-i", "0"]
STRATEGIES = ["bounce", "pipeline", "direct"]
# Small ones in windows, whose order is seen at the receiver; and what is striped.
CASES = [f"{size} 1 4095 contiguous contiguous {pattern} isend irecv {window}"
         for size, window in ((8, 40), (5000, 20), (300_001, 3), ((4 << 20) + 1, 1))
         for pattern in ("pair", "both")]
CASES += ["70001 1 4095 vector contiguous both isend irecv 3",
          "1000 0 0 contiguous contiguous fan send irecv 20"]


def first() -> str:
    return sorted(path.name for path in Path("/sys/class/infiniband").iterdir())[0]


def cases(folder: Path, lines: list[str] | None = None) -> Path:
    (folder / "cases").write_text("\n".join(lines or CASES) + "\n")
    return folder / "cases"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_ports_carry_about_a_half_each(verbs, tmp_path: Path, strategy: str) -> None:
    """None is named, and both are as near: each carries a half, and nothing is out of order."""
    with second_device():
        job = verbs("transfer", "--iterations", 3, cases(tmp_path),
                    regx={"rendezvous": strategy, "backend": "notifier", "rndv_eager_limit": 0})
    job.checked(ranks=2).carried(strategy).over("verbs")
    for report in job.reports:
        ports = report["ports"]
        assert set(ports) == {f"{first()}:1", f"{SECOND}:1"}, str(job)
        assert sum(ports.values()) == report["bytes_verbs"], str(job)
        assert min(ports.values()) > report["bytes_verbs"] // 4, str(job)
        assert report["peers"] == 2, str(job)
        assert strategy == "bounce" or report["hits"] > 0, str(job)


def test_collectives_of_four_ranks_use_both_ports(verbs) -> None:
    with second_device():
        job = verbs("collective", "--sizes", "0,8,5000,300001", "--roots", 1, "bcast",
                    "scatter", "alltoall", ranks=4, regx={"rendezvous": "pipeline"})
    job.checked(ranks=4).over("verbs")
    for report in job.reports:
        assert len(report["ports"]) == 2 and min(report["ports"].values()) > 0, str(job)


def test_threads_exchange_right_messages_by_two_ports(verbs, seed: int) -> None:
    with second_device():
        job = verbs("threads", "--seed", seed, "--rounds", 3, regx={"rendezvous": "pipeline"})
    job.checked(ranks=2).over("verbs")
    assert len(job.reports[0]["ports"]) == 2, str(job)


@pytest.mark.parametrize("setting,used", [
    ({"if_include": "SECOND,FIRST:1"}, ["SECOND", "FIRST"]), ({"if_exclude": "FIRST"}, ["SECOND"])])
def test_only_the_chosen_ports_are_used(verbs, tmp_path: Path, setting: dict[str, str],
                                        used: list[str]) -> None:
    def filled(text: str) -> str:
        return text.replace("FIRST", first()).replace("SECOND", SECOND)

    with second_device():
        job = verbs("transfer", cases(tmp_path, CASES[4:6]),
                    regx={key: filled(value) for key, value in setting.items()})
    job.checked(ranks=2).over("verbs")
    for report in job.reports:
        assert list(report["ports"]) == [f"{filled(name)}:1" for name in used], str(job)
        assert min(report["ports"].values()) > 0, str(job)


def test_ranks_with_different_ports_use_the_one_both_have(verbs, tmp_path: Path) -> None:
    """The one has two, the other one: they meet at one each, and it carries all."""
    with second_device():
        job = verbs("transfer", cases(tmp_path), within=at_ranks({"1": {"if_include": first()}}))
    job.checked(ranks=2).over("verbs")
    assert len(job.rank(0)["ports"]) == 2 and len(job.rank(1)["ports"]) == 1, str(job)
    assert job.rank(0)["ports"][f"{SECOND}:1"] == 0, str(job)


@pytest.mark.core
def test_two_hosts_use_each_its_own_device(mpi: Mpi, tmp_path: Path, full: bool) -> None:
    """A rank on each: everything over verbs, by each host's own device."""
    with two_rdma_hosts(tmp_path) as (around, options, within):
        for strategy in STRATEGIES if full else ["pipeline"]:
            job = mpi("transfer", cases(tmp_path), around=[*around, *AROUND], options=options,
                      within=within,
                      regx={"transport": "verbs", "rendezvous": strategy, "rndv_eager_limit": 0})
            job.checked(ranks=2).carried(strategy).over("verbs")
            assert len({report["host"] for report in job.reports}) == 2, str(job)
            for report in job.reports:
                assert list(report["ports"]) == [f"{report['host']}:1"], str(job)


def move_to_another_network(name: str) -> None:
    """Gives the second host's port an address that no router leads to from the first's."""
    command("ip", "-n", name, "address", "delete", "10.84.0.2/24", "dev", CABLE)
    command("ip", "-n", name, "address", "add", "10.85.0.2/24", "dev", CABLE)
    gids = device.DEVICES / name / "ports/1/gids"
    wait_until(lambda: any(gid.read_text().strip().endswith("0a55:0002") for gid in gids.iterdir()),
               f"{name} does not get its address")


def test_ports_of_separate_networks_are_not_connected(mpi: Mpi, tmp_path: Path) -> None:
    """One line tells at once, where datagrams that are not heard were repeated for ten minutes."""
    with two_rdma_hosts(tmp_path) as (around, options, within):
        move_to_another_network(host_names()[1])
        job = mpi("collective", "--sizes", "10", "bcast", around=[*around, *AROUND],
                  options=options, within=within, timeout=120, regx={"transport": "verbs"})
    assert job.status != 0 and "checked" not in job.stdout, str(job)
    told = [line for line in job.complaints if ": no port that is open here (verbs:" in line]
    assert 1 <= len(told) <= 2, str(job)  # by each rank at most
    for line in told:
        assert "btl_regx_verbs_any_subnet=1" in line, str(job)
