# SPDX-License-Identifier: BSD-3-Clause
"""Hazard 26: two builds of regx whose control messages differ meet in one job."""
from pathlib import Path

import pytest

from launch import Build, Mpi

OTHER = 99  # so says the build of test/otherwire


@pytest.fixture
def other(build: Build, tmp_path: Path) -> Path:
    """A folder with that component."""
    folder = tmp_path / "other"
    folder.mkdir()
    made = build.mismatched.parents[1] / "otherwire" / ".libs" / "mca_btl_regx.so"
    (folder / made.name).symlink_to(made)
    return folder


def chosen_by_rank(build: Build, other: Path) -> list[str]:
    """Rank 0 finds the one build, all others the other."""
    name, path = next(iter(build.path(other).items()))
    return ["sh", "-c", f'[ "$OMPI_COMM_WORLD_RANK" = 0 ] || export {name}="{path}"; exec "$@"',
            "sh"]


def test_ranks_of_two_versions_use_another_btl(mpi: Mpi, build: Build, other: Path) -> None:
    """Each side says so of the other, once, and another BTL carries the messages."""
    job = mpi("collective", "--sizes", "10,100000", "bcast", ranks=2, btl="regx,vader,self",
              within=chosen_by_rank(build, other))
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    assert 1 <= len(job.complaints) <= 2, str(job)
    assert len(set(job.complaints)) == len(job.complaints), f"said twice\n{job}"
    for line in job.complaints:
        assert "another build of regx" in line and str(OTHER) in line, str(job)
    for report in job.reports:
        assert report["bytes_shm"] == 0, str(job)


def test_two_ranks_of_the_other_version_use_regx(mpi: Mpi, build: Build, other: Path) -> None:
    """What differs is refused, not what is unknown: the other build works with itself."""
    job = mpi("collective", "--sizes", "10,100000", "bcast", ranks=2,
              regx={"rendezvous": "bounce"}, environment=build.path(other))
    job.checked(ranks=2).carried("bounce").over("shm")
