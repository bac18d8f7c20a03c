# SPDX-License-Identifier: BSD-3-Clause
"""Hazards 26 and 28: a component built for another Open MPI than the one that loads it; and ranks that
differ, in their build of regx or in btl_regx_flags, by which ob1 would put to one that cannot."""
from pathlib import Path

import pytest

from job import Job
from launch import Build, Mpi, preloading

OTHER = 99  # so says test/otherwire of its control messages
TRAFFIC = ("collective", "--sizes", "10,100000", "bcast", "alltoall")


def refused(job: Job, *words: str, most: int = 1) -> None:
    """The job was carried by another BTL, and so many lines say why."""
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    assert job.total("bytes_shm") == 0 and 1 <= len(job.complaints) <= most, str(job)
    assert len(set(job.complaints)) == len(job.complaints), f"said twice\n{job}"
    assert all(word in line for line in job.complaints for word in words), str(job)


def ended(job: Job, word: str, most: int = 1) -> None:
    """Alone it cannot be carried."""
    assert job.status != 0 and job.stdout == "", str(job)
    assert 1 <= len(job.complaints) <= most and all(word in line for line in job.complaints), str(job)


def pretend(folder: Path, version: str) -> list[str]:
    """Words before the program, for which Open MPI then is of that version."""
    return preloading(folder / "version.so", f'const char opal_version_string[] = "{version}";')


def test_another_release_of_the_series(mpi: Mpi, build: Build, tmp_path: Path) -> None:
    version = ".".join(map(str, (*build.series, "5rc1")))
    job = mpi(*TRAFFIC, within=pretend(tmp_path, version)).checked(ranks=2)
    assert {report["openmpi"] for report in job.reports} == {version}, str(job)


def another(major: int, minor: int) -> str:
    return f"{major}.{minor}1.1"


def test_another_open_mpi_series_is_refused(mpi: Mpi, build: Build, tmp_path: Path) -> None:
    version = another(*build.series)
    refused(mpi(*TRAFFIC, btl="regx,vader,self", within=pretend(tmp_path, version)),
            f"but this is Open MPI {version}: not used")


@pytest.mark.parametrize("btl", ["regx", None])
def test_of_another_series_a_job_of_regx_alone_ends_and_another_hears_nothing(
        mpi: Mpi, build: Build, tmp_path: Path, btl: str | None) -> None:
    job = mpi(*TRAFFIC, btl=btl, within=pretend(tmp_path, another(*build.series)))
    if btl:
        ended(job, "not used")
    else:
        assert job.ended_well().stdout.startswith("checked "), str(job)


def unlike(name: str, value: str) -> list[str]:
    """Rank 0 has that in its environment."""
    return ["sh", "-c", f'[ "$OMPI_COMM_WORLD_RANK" != 0 ] || export {name}="{value}"; exec "$@"', "sh"]


def other_build(build: Build, folder: Path) -> tuple[str, str]:
    """The environment that finds the component whose control messages differ."""
    made = build.programs.parent / "otherwire" / "mca_btl_regx.so"
    (folder / made.name).symlink_to(made)
    return next(iter(build.path(folder).items()))


def test_ranks_of_two_versions_use_another_btl(mpi: Mpi, build: Build, tmp_path: Path) -> None:
    """Each side says so of the other, once."""
    words = unlike(*other_build(build, tmp_path))
    refused(mpi(*TRAFFIC, btl="regx,vader,self", within=words), "another build of regx", str(OTHER), most=2)


def test_two_ranks_of_the_other_version_use_regx(mpi: Mpi, build: Build, tmp_path: Path) -> None:
    """What differs is refused, not what is unknown: the other build works with itself."""
    job = mpi(*TRAFFIC, regx={"rendezvous": "bounce"}, environment=dict([other_build(build, tmp_path)]))
    job.checked(ranks=2).carried("bounce").over("shm")


@pytest.mark.parametrize("flags", ["send,put", "send,get"])
def test_ranks_with_unlike_flags_use_another_btl(mpi: Mpi, flags: str) -> None:
    """Each side says so once, with both values."""
    words = unlike("OMPI_MCA_btl_regx_flags", flags)
    refused(mpi(*TRAFFIC, btl="regx,vader,self", within=words), "btl_regx_flags", f"({flags})",
            "(send,put,get)", most=2)


def test_with_unlike_flags_a_job_of_regx_alone_ends(mpi: Mpi) -> None:
    ended(mpi(*TRAFFIC, within=unlike("OMPI_MCA_btl_regx_flags", "send")), "btl_regx_flags", most=2)
