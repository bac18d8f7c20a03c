# SPDX-License-Identifier: BSD-3-Clause
"""Hazard 28: a component built for another Open MPI than the one that loads it."""
from launch import Build, Mpi

BUILT_FOR = "3.9.0"  # so says the build of test/mismatched


def test_job_goes_on_without_it(mpi: Mpi, build: Build) -> None:
    job = mpi("collective", "--sizes", "10,100000", "bcast", ranks=4, btl="regx,vader,self",
              environment=build.path(build.mismatched))
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    assert len(job.complaints) == 1, str(job)
    assert BUILT_FOR in job.complaints[0] and "Open MPI" in job.complaints[0], str(job)
    assert not job.reports, str(job)


def test_alone_the_job_ends(mpi: Mpi, build: Build) -> None:
    job = mpi("collective", "--sizes", "10", "bcast", ranks=4,
              environment=build.path(build.mismatched))
    assert job.status != 0 and job.stdout == "", str(job)
    assert len(job.complaints) == 1 and BUILT_FOR in job.complaints[0], str(job)


def test_nothing_is_said_where_nobody_asked(mpi: Mpi, build: Build) -> None:
    job = mpi("collective", "--sizes", "10", "bcast", ranks=4, btl=None,
              environment=build.path(build.mismatched))
    assert job.ended_well().stdout.startswith("checked "), str(job)
