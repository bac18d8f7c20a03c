# SPDX-License-Identifier: BSD-3-Clause
"""What all tests share: options of pytest, the phases of a run, where the build put things, MPI jobs."""
from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import device
import notify
import skips
import start
import units
from job import Job
from launch import TOP, Build, Mpi, Reruns

sys.path.insert(0, str(TOP / "osu-configs"))  # for its tools

MARKS = {
    "full": "what a run with --full does in addition, with the reason in a comment beside it",
    "alone": "measures, or builds the component anew: nothing may run beside it",
    "device": "needs an RDMA device; the emulated machine has one. In a run with --full only, but for",
    "whole": "every run does all combinations of its parameters, rather than each value of each once",
    "core": "those of the emulated machine, and of what is marked full, that every run does",
}

# Tests whose jobs mostly start, wait and end, and of which nothing that is asserted depends on what runs beside them.
BESIDE = ["test_collective", "test_dynamic", "test_ending", "test_finalize", "test_hosts", "test_killed",
          "test_memory", "test_neighbours", "test_parameter", "test_process", "test_refusal", "test_report",
          "test_selection", "test_site", "test_trace", "test_transport_auto", "test_truncate",
          "test_variables", "test_verify", "test_version", "test_windows", "test_yama"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--osu", type=Path, metavar="DIR",
                     help="where OSU micro-benchmarks are installed; without it they are not run")
    parser.addoption("--full", action="store_true",
                     help="all sizes and kinds of messages instead of a sample, and the tests marked full")
    parser.addoption("--seed", type=int, default=1,
                     help="of the samples and of the messages' content (default: 1)")
    parser.addoption("--phase", help="only the tests of that phase of test/run")
    parser.addoption("--named", action="store_true",
                     help="with --phase: the files were named by the user, and run as a whole")
    parser.addoption("--sanitizer", help="whose build of the unit tests is to run (default: each)")
    parser.addoption("--require-all", action="store_true",
                     help="a skip for want of a package is a failure")


def pytest_configure(config: pytest.Config) -> None:
    for mark, what in MARKS.items():
        config.addinivalue_line("markers", f"{mark}: {what}")
    skips.RUN = skips.Run(full=config.getoption("--full"), osu=bool(config.getoption("--osu")),
                          all_packages=config.getoption("--require-all"))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".c" and file_path.name.startswith("test_"):
        return units.Source.from_parent(parent, path=file_path)
    return None


def phase(item: pytest.Item) -> str:
    """Of test/run (runner.py)."""
    if isinstance(item, units.Program):
        return "guest" if item.needs_device else "units"
    if item.get_closest_marker("device"):
        return "guest"
    if item.path.is_relative_to(TOP / "test/machine"):
        return "machines"
    if item.get_closest_marker("alone") or \
            ("mpi" in getattr(item, "fixturenames", ()) and item.path.stem not in BESIDE):
        return "jobs"
    return "processes"


def is_core(item: pytest.Item) -> bool:
    """Whether a run without --full does it."""
    if item.get_closest_marker("core"):
        return True
    return phase(item) != "guest" and not item.get_closest_marker("full")


def each_value_once(items: list[pytest.Item], files: set[Path]) -> list[pytest.Item]:
    """Of a test's combinations of parameters as few as have each value of each parameter once; all of a
    test that is marked whole, or in these files."""
    seen: set[tuple[object, ...]] = set()
    kept: set[int] = set()

    def values(item: pytest.Item) -> set[tuple[object, ...]]:
        spec = getattr(item, "callspec", None)
        return {(item.path, item.originalname, name, repr(value))  # type: ignore[attr-defined]
                for name, value in spec.params.items()} if spec else set()

    def may_be_left_out(item: pytest.Item) -> bool:
        return bool(values(item)) and item.path not in files and not item.get_closest_marker("whole")

    for enough in (set.isdisjoint, lambda new, old: not new <= old):
        for item in items:
            if not may_be_left_out(item) or enough(values(item), seen):
                kept.add(id(item))
                seen |= values(item)
    return [item for item in items if id(item) in kept]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted, full = config.getoption("--phase"), config.getoption("--full")
    files = {config.invocation_params.dir / word.partition("::")[0] for word in config.args} \
        if wanted is None or config.getoption("--named") \
        else set()  # all of a file that is named, rather than a folder
    sanitizer = config.getoption("--sanitizer")
    kept: list[pytest.Item] = []
    for item in items:
        goes = (wanted is None or phase(item) == wanted) \
            and (full or item.path in files or is_core(item)) \
            and not (sanitizer and isinstance(item, units.Program) and sanitizer not in item.name)
        if goes:
            kept.append(item)
        item.user_properties.append(("node", item.nodeid))
    if not full:
        kept = each_value_once(kept, files)
    chosen = {id(item) for item in kept}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
    items[:] = kept


def pytest_runtest_setup(item: pytest.Item) -> None:
    if phase(item) == "guest" and not device.is_there():
        pytest.skip("no RDMA device")


def excuse(item: pytest.Item, call: pytest.CallInfo[object]) -> str:
    """The first line of a failure that is a counter or a line only: every job of the test ended well
    and found every byte right."""
    mpi = getattr(item, "funcargs", {}).get("mpi")
    if mpi is None or not mpi.done or call.excinfo is None \
            or not call.excinfo.errisinstance(AssertionError) or not all(job.sound for job in mpi.done):
        return ""
    return str(call.excinfo.value).split("\n")[0] or "assertion"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item,
                              call: pytest.CallInfo[object]) -> Iterator[None]:
    report = (yield).get_result()  # type: ignore[misc]
    if report.skipped and isinstance(report.longrepr, tuple):
        because = skips.because(item.nodeid, report.longrepr[2])
        if because is not None:
            item.user_properties.append(("because", because))
    elif report.failed:
        said = excuse(item, call) if report.when == "call" else ""
        if said:
            item.user_properties.append(("excusable", said))


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    return pytestconfig.getoption("--full")


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    return pytestconfig.getoption("--seed")


@pytest.fixture(scope="session")
def build() -> Iterator[Build]:
    """From the environment, or else from the file that component/config/setup leaves."""
    file = TOP / ".build" / "env"
    known = dict(line.split("=", 1) for line in file.read_text().splitlines()) \
        if file.exists() else {}

    def where(key: str) -> Path:
        value = os.environ.get(key) or known.get(key)
        if not value:
            pytest.fail(f"no {key}: run component/config/setup test first")
        return Path(value)

    build = Build(component=where("REGX_COMPONENT_DIR"), pkglibdir=where("REGX_PKGLIBDIR"),
                  mpirun=where("REGX_MPIRUN"), programs=where("REGX_MPI_TESTS"))
    if not (build.component / "mca_btl_regx.so").exists():
        pytest.fail(f"there is no mca_btl_regx.so in {build.component}")
    with start.cheap(build.series) as environment:
        yield replace(build, start=environment)


@pytest.fixture(scope="session")
def programs(build: Build) -> Path:
    """Those of test/registration."""
    return build.programs.parent / "registration"


@pytest.fixture(scope="module")
def notifying() -> Iterator[None]:
    """The module is loaded, if there is one."""
    with notify.loaded_if_there():
        yield


@pytest.fixture(scope="session")
def reruns() -> Reruns:
    return Reruns()


@pytest.fixture
def mpi(build: Build, tmp_path: Path, reruns: Reruns,
        record_property: Callable[[str, object], None]) -> Iterator[Mpi]:
    before = len(reruns.commands)
    yield Mpi(build, tmp_path, reruns)
    for command in reruns.commands[before:]:
        record_property("run again", command)  # results.py names it


@pytest.fixture
def verbs(mpi: Mpi) -> Callable[..., Job]:
    """Starts jobs over the device. Soft-RoCE works in threads of the kernel, which polling processes would
    starve."""
    def start(*program: object, regx: Mapping[str, object] | None = None, **how: Any) -> Job:
        return mpi(*program, regx={"transport": "verbs", **(regx or {})},
                   **{"around": ["chrt", "-i", "0"], **how})

    return start
