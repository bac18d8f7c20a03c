# SPDX-License-Identifier: BSD-3-Clause
"""Hazard 26: a bad value is one line, which names the parameter, the value and what is allowed. Of
every parameter: test/unit/btl/test_settings.c. Here is what becomes of the job, and of combinations."""
import os
import re
from pathlib import Path

import pytest

from job import Job
from launch import Build, Mpi, at_ranks, preloading
from namespace import two_hosts
from tables import parameters


def traffic(mpi: Mpi, btl: str, regx: dict[str, str] | None = None, ranks: int = 2, **how) -> Job:
    return mpi("collective", "--sizes", "10,12000,100000", "bcast", ranks=ranks, btl=btl, regx=regx, **how)


def one_line(job: Job, line: str) -> str:
    """The only one; answers what follows."""
    assert len(job.complaints) == 1, str(job)
    match = re.fullmatch(f"regx: btl_regx_{line}(.*)", job.complaints[0])
    assert match, str(job)
    return match[1]


def test_bad_value_alone(mpi: Mpi) -> None:
    """Open MPI ends the job after our line. (4.1.4 does that by a crash of ob1, which starts
    without any BTL: tcp with an if_include of nothing ends in the same way.)"""
    job = traffic(mpi, "regx", {"backend": "magic"})
    assert job.status != 0 and job.stdout == "", str(job)
    one_line(job, "backend=magic is not known; allowed: auto, none, ")


# Backends that are built and not usable here, by what keeps them from it: mpirun's words, the words
# before the program, and what the line says.
NO_HOOKS = {"memory": "^patcher"}
UNUSABLE = [("hooks", "regx,vader,self", NO_HOOKS, [], "Open MPI has no memory hooks here"),
            ("notifier", "regx,vader,self", {}, ["deny", "userfaultfd"], "userfaultfd: "),
            ("kernel", "regx,vader,self", {}, [], "there is no /dev/regx_notify: the module regx_notify is not loaded"),
            ("hooks+notifier", "regx", NO_HOOKS, [], "Open MPI has no memory hooks here")]


@pytest.mark.parametrize("backend,btl,mca,within,why", UNUSABLE)
def test_backend_that_is_not_usable(mpi: Mpi, build: Build, backend: str, btl: str,
                                    mca: dict[str, str], within: list[str], why: str) -> None:
    """Hazards 4 and 12: never another one in silence."""
    if mca == NO_HOOKS and build.series >= (5, 0):
        pytest.skip("Open MPI 5.0 brings UCX, which has hooks")
    words = [build.programs / within[0], *within[1:]] if within else []
    job = traffic(mpi, btl, {"backend": backend}, mca=mca, within=words)
    assert (job.status == 0) == (btl != "regx") and not job.reports, str(job)
    assert len(job.complaints) == 1, str(job)
    match = re.fullmatch(rf"regx: btl_regx_backend={re.escape(backend)} cannot be used: "
                         rf"{re.escape(why)}.*; always possible: (.+)", job.complaints[0])
    assert match, str(job)
    usable = match[1].split(", ")
    assert usable[0] == "none" and backend not in usable, str(job)
    assert not (within and "notifier" in usable), str(job)


# What is refused: a number, a word, of Open MPI's own parameters, and combinations.
REFUSED = [
    ({"chunk_size": "4M"}, "chunk_size=4M is above the cap; allowed: .+"),
    ({"rendezvous": "read\r\x1b[2J"}, r"rendezvous=read\?\?\[2J is not known; allowed: auto, .+"),
    ({"max_send_size": "32769", "slot_size": "32K"}, "max_send_size=32769; allowed: 1024 to 32768"),
    ({"flags": "put,get"}, "flags: send is missing, .+; allowed: .+"),
    ({"transport": "tcp"}, "transport=tcp is not known; allowed: auto, .+"),
    ({"if_include": "lo", "if_exclude": "nosuch0"},
     "if_include and btl_regx_if_exclude are both given; allowed: one"),
    ({"grant": "optimistic"}, "grant=optimistic is not known; allowed: final, revocable"),
    ({"grant": "revocable", "rendezvous": "pipeline", "backend": "hooks", "verify": "1"},
     "grant=revocable is given with btl_regx_verify=1; allowed: 0"),
]


def test_each_rank_says_in_one_line_what_is_refused_there(mpi: Mpi) -> None:
    """And which rank it is, which is not the first of its application. The others use regx among
    themselves."""
    good = 2
    bad = at_ranks({str(good + number): regx for number, (regx, _) in enumerate(REFUSED)})
    job = traffic(mpi, "regx,vader,self", ranks=good + len(REFUSED), within=bad)
    assert job.status == 0 and job.stdout.startswith("checked ") and len(job.reports) == good, str(job)
    assert len(job.complaints) == len(REFUSED), str(job)
    for number, (_, line) in enumerate(REFUSED):
        rank = f"; at rank {good + number} on {job.reports[0]['host']}"
        assert any(re.fullmatch(f"regx: btl_regx_{line}{re.escape(rank)}", said)
                   for said in job.complaints), f"{line}\n{job}"


def test_a_bad_list_with_another_btl(mpi: Mpi) -> None:
    """The job goes on without regx."""
    job = traffic(mpi, "regx,vader,self", {"if_include": "lo,nosuch0"})
    assert job.status == 0 and job.stdout.startswith("checked ") and not job.reports, str(job)
    one_line(job, "if_include=lo,nosuch0: .*; allowed: ")


def late_rank_0(folder: Path) -> list[str]:
    """Words before the program, by which what rank 0 publishes is known three seconds late. Open MPI
    4.1.4 waits two for it before it says that there is nothing."""
    return preloading(folder / "late.so", """
        #include <dlfcn.h>
        #include <stdlib.h>
        #include <unistd.h>
        int PMIx_Commit(void)
        {
            void *pmix = dlopen("libpmix.so.2", RTLD_NOW);
            if (atoi(getenv("OMPI_COMM_WORLD_RANK")) == 0)
                sleep(3);
            return ((int (*)(void))dlsym(pmix, __func__))();
        }""")


@pytest.mark.parametrize("ranks,reports,late", [("1|3", 2, False), ("*", 0, False), ("*", 0, True)])
def test_bad_value_on_one_host(mpi: Mpi, tmp_path: Path, ranks: str, reports: int, late: bool) -> None:
    """Two ranks on each of two: one line of the node that has it, and one if both have."""
    within = [*at_ranks({ranks: {"chunk_size": "4M"}}), *(late_rank_0(tmp_path) if late else [])]
    with two_hosts(tmp_path) as (around, options):
        job = traffic(mpi, "regx,tcp,self", ranks=4, around=around, options=options, within=within)
    assert job.status == 0 and len(job.reports) == reports, str(job)
    assert ("; at rank 1 on " in one_line(job, "chunk_size=4M")) == (ranks != "*"), str(job)


@pytest.mark.parametrize("given,path,other", [
    # What regx lacks is not believed, and what it packs itself is whole where fragments are shorter.
    ({"flags": "send,inplace,put,get,atomics", "max_send_size": "4096"}, "bounce", "frag"),
    ({"rdma_pipeline_send_length": "100000"}, "frag", "bounce")])  # of messages that are put
def test_open_mpis_own_parameters_keep_their_meaning(mpi: Mpi, given: dict[str, str], path: str,
                                                     other: str) -> None:
    job = traffic(mpi, "regx", given | {"rendezvous": "bounce"}).checked(ranks=2)
    assert job.total(f"messages_{path}") > 0 == job.total(f"messages_{other}"), str(job)


def test_defaults_that_are_given_are_valid(mpi: Mpi, build: Build) -> None:
    given = {name: build.parameters[f"btl_regx_{name}"]["value"]
             for name in set(parameters()) - {"if_include", "if_exclude", "report"}}
    traffic(mpi, "regx", {name: value for name, value in given.items() if value}).checked(ranks=2)


@pytest.mark.parametrize("name,instead", [("rendevous", ""), ("costs", " any more, use btl_regx_rendezvous")])
@pytest.mark.parametrize("by", ["mpirun", "environment"])
def test_an_unknown_name_is_told_once_and_the_job_goes_on(mpi: Mpi, by: str, name: str, instead: str) -> None:
    """The names that Open MPI registers for every BTL are known."""
    known = {"flags": "send,inplace,put,get,atomics", "exclusivity": "1024"}
    environment = {f"OMPI_MCA_btl_regx_{name}": "read"} if by == "environment" else {}
    job = traffic(mpi, "regx", known | ({name: "read"} if by == "mpirun" else {}), environment=environment)
    assert job.status == 0 and job.stdout.startswith("checked ") and len(job.reports) == 2, str(job)
    assert one_line(job, f"{name}: no such parameter") == \
        f"{instead} (ompi_info --param btl regx --level 9 lists them)", str(job)


@pytest.mark.parametrize("names,lines", [(["rendevous", "rendevous"], 1), (["", "rendevous"], 1),
                                         (["rendevous", "poolsize"], 2)])
def test_two_applications_tell_of_a_name_once(mpi: Mpi, build: Build, names: list[str], lines: int) -> None:
    """Of one that the second alone was given, too."""
    if build.series == (5, 0):
        pytest.skip("mpirun of Open MPI 5.0 crashes with two applications")
    first, second = (["-x", f"OMPI_MCA_btl_regx_{name}=1"] if name else [] for name in names)
    program = (build.programs / "collective", "--sizes", "100000", "bcast")
    job = mpi(*program, ":", "-n", 1, *second, "--mca", "btl", "regx", *program, ranks=1, options=first)
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    assert len(job.complaints) == lines, str(job)
    assert all(any(line.startswith(f"regx: btl_regx_{name}: no such parameter") for line in job.complaints)
               for name in names if name), str(job)


def test_unwritable_report(mpi: Mpi) -> None:
    """The job is carried and ends well; one line says what could not be written."""
    job = traffic(mpi, "regx", {"report": "/proc/nobody/writes/here"})
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    one_line(job, "report=/proc/nobody/writes/here")


def test_a_report_into_a_pipe_waits_for_no_reader(mpi: Mpi, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    job = traffic(mpi, "regx", {"report": str(tmp_path / "pipe")})
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    one_line(job, f"report={tmp_path}/pipe: No such device or address")
