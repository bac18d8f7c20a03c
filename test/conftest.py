# SPDX-License-Identifier: BSD-3-Clause
"""What all tests share: options of pytest, where the build put things, and MPI jobs."""
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch import TOP, Build, Mpi, Reruns


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--osu", type=Path, metavar="DIR",
                     help="where OSU micro-benchmarks are installed; without it they are not run")
    parser.addoption("--full", action="store_true",
                     help="all sizes and kinds of messages instead of a sample")
    parser.addoption("--seed", type=int, default=1,
                     help="of the samples and of the messages' content (default: 1)")


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    return pytestconfig.getoption("--full")


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    return pytestconfig.getoption("--seed")


@pytest.fixture(scope="session")
def build() -> Build:
    """From the environment, or else from the file that component/config/setup leaves."""
    file = TOP / ".build" / "env"
    known = dict(line.split("=", 1) for line in file.read_text().splitlines()) \
        if file.exists() else {}

    def where(key: str) -> Path:
        value = os.environ.get(key) or known.get(key)
        if not value:
            pytest.fail(f"no {key}: run component/config/setup test first")
        return Path(value)

    build = Build(component=where("REGX_COMPONENT_DIR"), mismatched=where("REGX_MISMATCHED_DIR"),
                  pkglibdir=where("REGX_PKGLIBDIR"), mpirun=where("REGX_MPIRUN"),
                  programs=where("REGX_MPI_TESTS"))
    if not (build.component / "mca_btl_regx.so").exists():
        pytest.fail(f"there is no mca_btl_regx.so in {build.component}")
    return build


@pytest.fixture(scope="session")
def reruns() -> Reruns:
    return Reruns()


@pytest.fixture
def mpi(build: Build, tmp_path: Path, reruns: Reruns,
        record_property: Callable[[str, object], None]) -> Iterator[Mpi]:
    before = len(reruns.commands)
    yield Mpi(build, tmp_path, reruns)
    for command in reruns.commands[before:]:
        record_property("run again", command)  # for test/tally
