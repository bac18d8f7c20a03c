# SPDX-License-Identifier: BSD-3-Clause
"""Hazard 28: a component built for another Open MPI than the one that loads it."""
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from launch import Build, Mpi

BUILT_FOR = "3.9.0"  # so says the build of test/mismatched


def test_alone_the_job_ends(mpi: Mpi, build: Build) -> None:
    job = mpi("collective", "--sizes", "10", "bcast", ranks=4,
              environment=build.path(build.mismatched))
    assert job.status != 0 and job.stdout == "", str(job)
    assert len(job.complaints) == 1 and BUILT_FOR in job.complaints[0], str(job)


def test_nothing_is_said_where_nobody_asked(mpi: Mpi, build: Build) -> None:
    job = mpi("collective", "--sizes", "10", "bcast", ranks=4, btl=None,
              environment=build.path(build.mismatched))
    assert job.ended_well().stdout.startswith("checked "), str(job)


def pretend(folder: Path, version: str) -> list[str]:
    """Words before the program, for which Open MPI then is of that version."""
    library = folder / "version.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], check=True,
                   text=True, input=f'const char opal_version_string[] = "{version}";')
    return ["env", f"LD_PRELOAD={library}"]


def test_another_release_of_the_series(mpi: Mpi, build: Build, tmp_path: Path) -> None:
    version = ".".join(map(str, (*build.series, "5rc1")))
    job = mpi("collective", "--sizes", "10,100000", "bcast", ranks=4,
              within=pretend(tmp_path, version)).checked(ranks=4)
    assert {report["openmpi"] for report in job.reports} == {version}, str(job)


OTHERS = [lambda major, minor: f"{major}.{minor}1.1", lambda major, minor: f"{major + 1}.{minor}.0"]


@pytest.mark.parametrize("other", OTHERS, ids=["minor", "major"])
def test_another_open_mpi_series_is_refused(mpi: Mpi, build: Build, tmp_path: Path,
                                            other: Callable[[int, int], str]) -> None:
    version = other(*build.series)
    job = mpi("collective", "--sizes", "10,100000", "bcast", ranks=4, btl="regx,vader,self",
              within=pretend(tmp_path, version))
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    assert not job.reports and len(job.complaints) == 1, str(job)
    assert f"but this is Open MPI {version}: not used" in job.complaints[0], str(job)
