# SPDX-License-Identifier: BSD-3-Clause
"""Hazard 26: a bad value is one line, which names the parameter, the value and what is allowed. Of
every parameter: test/unit/btl/test_settings.c. Here is what becomes of the job, and of combinations."""
import re
from pathlib import Path

import pytest

from job import Job
from launch import Build, Mpi
from namespace import two_hosts
from tables import gone, parameters


def job_of_four(mpi: Mpi, btl: str, regx: dict[str, str] | None = None, **how) -> Job:
    return mpi("collective", "--sizes", "10,100000", "bcast", ranks=4, btl=btl, regx=regx, **how)


def one_line(job: Job, name: str, value: str) -> str:
    """The only one, of the value or of what is wrong in a list; answers what is allowed."""
    assert len(job.complaints) == 1, str(job)
    named = "|".join(map(re.escape, {value, value.split(",")[-1]}))
    match = re.fullmatch(rf"regx: btl_regx_{name}=(?:{named})(?=[ :;]).*"
                         r"(?:; allowed: |; there are: | such as )(.+)", job.complaints[0])
    assert match, str(job)
    return match[1]


@pytest.mark.parametrize("name,value", [
    ("rendezvous", "teleport"), ("if_include", "lo,nosuch0")])
def test_bad_value_with_another_btl(mpi: Mpi, name: str, value: str) -> None:
    """The job goes on without regx."""
    job = job_of_four(mpi, "regx,vader,self", {name: value})
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    one_line(job, name, value)
    assert not job.reports, f"regx took part\n{job}"


def test_bad_value_alone(mpi: Mpi) -> None:
    """Open MPI ends the job after our line. (4.1.4 does that by a crash of ob1, which starts
    without any BTL: tcp with an if_include of nothing ends in the same way.)"""
    job = job_of_four(mpi, "regx", {"backend": "magic"})
    assert job.status != 0 and job.stdout == "", str(job)
    one_line(job, "backend", "magic")


# Backends that are built and not usable here, by what keeps them from it: mpirun's words, the words
# before the program, and what the line says.
NO_HOOKS = {"memory": "^patcher"}
UNUSABLE = [("hooks", "regx,vader,self", NO_HOOKS, [], "Open MPI has no memory hooks here"),
            ("notifier", "regx,vader,self", {}, ["deny", "userfaultfd"], "userfaultfd: "),
            ("hooks+notifier", "regx", NO_HOOKS, [], "Open MPI has no memory hooks here")]


@pytest.mark.parametrize("backend,btl,mca,within,why", UNUSABLE)
def test_backend_that_is_not_usable(mpi: Mpi, build: Build, backend: str, btl: str,
                                    mca: dict[str, str], within: list[str], why: str) -> None:
    """Hazards 4 and 12: never another one in silence."""
    words = [build.programs / within[0], *within[1:]] if within else []
    job = job_of_four(mpi, btl, {"backend": backend}, mca=mca, within=words)
    assert (job.status == 0) == (btl != "regx") and not job.reports, str(job)
    assert len(job.complaints) == 1, str(job)
    match = re.fullmatch(rf"regx: btl_regx_backend={re.escape(backend)} cannot be used: "
                         rf"{re.escape(why)}.*; usable here: (.+)", job.complaints[0])
    assert match, str(job)
    usable = match[1].split(", ")
    assert usable[0] == "none" and backend not in usable, str(job)
    assert not (within and "notifier" in usable), str(job)


def test_same_line_from_everywhere(mpi: Mpi, tmp_path: Path) -> None:
    """Environment, parameter file and --tune, as from the command line."""
    name, value = "chunk_size", "4M"
    full_name = f"btl_regx_{name}"
    (tmp_path / "parameters").write_text(f"{full_name} = {value}\n")
    (tmp_path / "tune").write_text(f"--mca {full_name} {value}\n")
    ways = [{"environment": {f"OMPI_MCA_{full_name}": value}},
            {"environment": {"OMPI_MCA_mca_base_param_files": str(tmp_path / "parameters")}},
            {"options": ["--tune", str(tmp_path / "tune")]}]
    lines = set()
    for way in ways:
        job = job_of_four(mpi, "regx,vader,self", **way)
        assert job.status == 0, str(job)
        one_line(job, name, value)
        lines.update(job.complaints)
    assert len(lines) == 1, lines


def at(ranks: str, name: str, value: str) -> list[str]:
    """Words before the program: the environment of these ranks (1|3) alone has that value."""
    return ["sh", "-c", f'case $OMPI_COMM_WORLD_RANK in {ranks}) export '
            f'OMPI_MCA_btl_regx_{name}={value};; esac; exec "$@"', "sh"]


def test_bad_value_at_one_rank(mpi: Mpi) -> None:
    """Not the first of its application, nor of its node: it says so, and which it is. The others
    use regx among themselves."""
    job = job_of_four(mpi, "regx,vader,self", within=at("3", "chunk_size", "4M"))
    assert job.status == 0 and len(job.reports) == 3, str(job)
    assert one_line(job, "chunk_size", "4M").endswith(f"; at rank 3 on {job.reports[0]['host']}"), \
        str(job)


@pytest.mark.parametrize("ranks,reports", [("1|3", 2), ("*", 0)])
def test_bad_value_on_one_host(mpi: Mpi, tmp_path: Path, ranks: str, reports: int) -> None:
    """Two ranks on each of two: one line of the node that has it, and one if both have."""
    with two_hosts(tmp_path) as (around, options):
        job = job_of_four(mpi, "regx,tcp,self", around=around, options=options,
                          within=at(ranks, "chunk_size", "4M"))
    assert job.status == 0 and len(job.reports) == reports, str(job)
    assert ("; at rank 1 on " in one_line(job, "chunk_size", "4M")) == (ranks != "*"), str(job)


@pytest.mark.parametrize("name,value,path,other", [
    ("flags", "65535", "bounce", "frag"),  # capabilities that regx lacks are not believed
    ("rdma_pipeline_send_length", "100000", "frag", "bounce")])  # of messages that are put
def test_open_mpis_own_parameters_keep_their_meaning(mpi: Mpi, name: str, value: str, path: str,
                                                     other: str) -> None:
    job = job_of_four(mpi, "regx", {name: value, "rendezvous": "bounce"}).checked(ranks=4)
    assert job.total(f"messages_{path}") > 0 == job.total(f"messages_{other}"), str(job)


# What is refused, of Open MPI's own parameters and for other reasons than one bad word.
REFUSED = [
    ({"max_send_size": "32769", "slot_size": "32K"}, "max_send_size=32769; allowed: 1024 to 32768"),
    ({"transport": "tcp"}, "transport=tcp: Open MPI's own tcp carries what no RDMA device does: --mca "
     "btl regx,tcp,self"),
    ({"if_include": "lo", "if_exclude": "nosuch0"},
     "if_include and btl_regx_if_exclude are both given; allowed: one"),
    ({"grant": "synchronous", "rendezvous": "pipeline", "backend": "hooks", "verify": "1"},
     "grant=synchronous is given with btl_regx_verify=1; allowed: 0"),
]


@pytest.mark.parametrize("regx,line", REFUSED, ids=lambda value: str(value)[:40])
def test_bad_combinations_are_refused_with_one_line(mpi: Mpi, regx: dict[str, str], line: str) -> None:
    """With this line and no other; the job goes on without regx."""
    job = mpi("collective", "--sizes", "1", "bcast", ranks=2, btl="regx,vader,self", regx=regx)
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    assert job.complaints == [f"regx: btl_regx_{line}"] and not job.reports, str(job)


def test_parameters_that_went_are_named_and_ignored(mpi: Mpi) -> None:
    """One line of each, and the job is carried; none is among those that there are."""
    job = job_of_four(mpi, "regx", {name: "1" for name in gone()})
    assert job.status == 0 and job.stdout.startswith("checked ") and len(job.reports) == 4, str(job)
    assert sorted(job.complaints) == sorted(
        f"regx: btl_regx_{name} is gone and has no effect: {text}"
        for name, text in gone().items()), str(job)
    assert not set(gone()) & set(parameters()), gone()


def test_unwritable_report(mpi: Mpi) -> None:
    """The job is carried and ends well; one line says what could not be written."""
    job = job_of_four(mpi, "regx", {"report": "/proc/nobody/writes/here"})
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    assert len(job.complaints) == 1, str(job)
    assert "btl_regx_report=/proc/nobody/writes/here" in job.complaints[0], str(job)


def test_defaults_are_valid(mpi: Mpi, build: Build) -> None:
    """Given explicitly, they are accepted."""
    given = {name: build.parameters[f"btl_regx_{name}"]["value"]
             for name in set(parameters()) - {"if_include", "if_exclude", "report"}}
    job_of_four(mpi, "regx", {name: value for name, value in given.items() if value}) \
        .checked(ranks=4)
