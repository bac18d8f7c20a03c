# SPDX-License-Identifier: BSD-3-Clause
"""What regx changes in a process: nothing if not selected; no code and no signal handler if it is.

Each state of a process with regx is compared with the same process without it."""
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import skips
from launch import Build, Mpi, Reruns

STATES = ["before", "running", "after"]


@dataclass(frozen=True)
class State:
    """One process at one time."""
    files: set[str]  # mapped
    descriptors: list[str]
    threads: list[str]  # their names
    locked: int  # bytes
    handlers: dict[str, str]  # of signals: who set it
    code: dict[str, str]  # the first bytes of functions of libc, or where they jump to

    @property
    def patched(self) -> set[str]:
        """The functions that begin with a jump to another library: hooks."""
        return {name for name, code in self.code.items() if code.startswith("jump to ")}


def plain(name: str) -> str:
    """Without what differs from run to run: numbers (hexadecimal too), and the session's folder."""
    return re.sub(r"[0-9a-f]*\d[0-9a-f]*", "N",
                  re.sub(r"^/\S*/ompi\.[^/]*/pid\.\d+", "session", name))


def state(text: str) -> State:
    found: dict[str, list[str]] = {"thread": [], "descriptor": [], "handler": []}
    for line in text.splitlines()[1:]:
        word, _, what = line.partition(" ")
        found.setdefault(word, []).append(what)
    return State(files={plain(name) for name in found["file"]},
                 descriptors=sorted(plain(name) for name in found["descriptor"]),
                 threads=sorted(found["thread"]), locked=int(found["locked"][0]),
                 handlers=dict(what.split(" ", 1) for what in found["handler"]),
                 code=dict(what.split(" ", 1) for what in found["code"]))


def read(file: Path) -> dict[str, State]:
    """What the program `process` wrote."""
    return {text.split("\n", 1)[0]: state(text) for text in file.read_text().split("state ")[1:]}


def states(mpi: Mpi, folder: Path, name: str, **how: Any) -> list[dict[str, State]]:
    """Of both ranks of a job."""
    job = mpi("process", folder / name, **how).ended_well()
    assert job.stdout.startswith("checked "), str(job)
    return [read(folder / f"{name}.{rank}") for rank in (0, 1)]


@pytest.fixture(scope="module")
def without(build: Build, reruns: Reruns,
            tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, State]]]:
    """The same processes where regx is not installed, by how their BTLs are chosen."""
    folder = tmp_path_factory.mktemp("without")
    mpi = Mpi(build, folder, reruns)
    nowhere = {"OMPI_MCA_opal_mca_base_component_path": str(build.pkglibdir)}
    return {name: states(mpi, folder, f"without-{name}", btl=btl, environment=nowhere)
            for name, btl in (("default", None), ("named", "vader,self"))}


UNSELECTED: dict[str, dict[str, Any]] = {
    "default": {"btl": None},
    "named": {"btl": "regx,vader,self", "regx": {"enable": 0}},
}


@pytest.mark.parametrize("how", UNSELECTED)
def test_installed_but_not_selected(mpi: Mpi, tmp_path: Path, how: str,
                                    without: dict[str, list[dict[str, State]]]) -> None:
    """Hazard 27: no file but the component's own; no thread, descriptor, handler, changed code."""
    processes = states(mpi, tmp_path, how, **UNSELECTED[how])
    for process, other in zip(processes, without["named" if how == "named" else "default"]):
        for when in STATES:
            new = {Path(name).name for name in process[when].files - other[when].files}
            if mpi.build.series >= (5, 0):  # its PMIx names segments by the job
                new = {name for name in new if not name.startswith("pmix-gds-")}
            assert new <= {"mca_btl_regx.so"}, when
            assert replace(process[when], files=set()) == replace(other[when], files=set()), when
    assert not list(tmp_path.glob("report.*")), "it reported unasked"


@pytest.mark.parametrize("regx", [{}, {"rendezvous": "remap"}], ids=str)
def test_a_selected_regx_leaves_the_process_as_it_was(mpi: Mpi, tmp_path: Path, regx: dict[str, str],
                  without: dict[str, list[dict[str, State]]]) -> None:
    """UCX would rewrite libc and set signal handlers: it is not loaded, and regx does neither."""
    processes = states(mpi, tmp_path, "selected", regx=regx)
    assert list(tmp_path.glob("report.*")), "regx did not carry the job"
    for process, other in zip(processes, without["named"]):
        assert process["running"].files - other["running"].files, "the look at maps is blind"
        for when in STATES:
            assert process[when].code == other[when].code, when
            assert process[when].handlers == other[when].handlers, when
            assert process[when].threads == other[when].threads, when
        left = {name for name in process["after"].descriptors
                if name not in other["after"].descriptors}
        assert not left, "descriptors left open by MPI_Finalize"
        memory = {name for name in process["after"].files if name.startswith(("/dev/shm", "/SYSV"))}
        assert not memory - other["after"].files, "shared memory still mapped after MPI_Finalize"


@pytest.mark.parametrize("backend", ["hooks+notifier", "retain"], indirect=True)
def test_selected_with_a_backend(mpi: Mpi, tmp_path: Path, backend: str,
                                 without: dict[str, list[dict[str, State]]]) -> None:
    """Hazard 27: hooks patch code and a notifier has a thread and descriptors, while MPI runs and
    because the user asked for it; MPI_Finalize takes all of it away, but the code that hooks called.
    From Open MPI 5.0 on, UCX or Open MPI has patched libc by then: those hooks are taken."""
    regx = {"backend": backend, "rendezvous": "direct"}
    for process, other in zip(states(mpi, tmp_path, "selected", regx=regx), without["named"]):
        patched = process["running"].code != other["running"].code
        assert patched == ("hooks" in backend and not other["running"].patched)
        notifier = ["regx-notifier"] if "notifier" in backend else []
        assert process["running"].threads == sorted(other["running"].threads + notifier)
        watching = [name for name in process["running"].descriptors if "userfaultfd" in name]
        asks = not skips.userfaultfd_is_refused()
        assert len(watching) == asks + ("notifier" in backend)  # one asks whether the program pages a buffer
        assert process["running"].handlers == other["running"].handlers
        assert process["after"].code == other["after"].code
        assert process["after"].handlers == other["after"].handlers
        assert process["after"].threads == other["after"].threads
        assert not [name for name in process["after"].descriptors
                    if name not in other["after"].descriptors], "left open by MPI_Finalize"
        assert process["after"].locked == other["after"].locked
        component = {Path(name).name for name in process["after"].files}
        assert "mca_btl_regx.so" not in component or "hooks" in backend, "left by MPI_Finalize"


def test_the_look_sees_ucx(mpi: Mpi, build: Build, tmp_path: Path,
                           without: dict[str, list[dict[str, State]]]) -> None:
    """pml ucx does patch libc and set handlers: what the tests above would show of regx. (Handlers every
    process has with Open MPI 5.0.)"""
    processes = states(mpi, tmp_path, "ucx", btl="self", pml="ucx",
                       mca={"pml_ucx_tls": "any", "pml_ucx_devices": "any"})
    for process, other in zip(processes, without["named"]):
        assert process["running"].code != process["before"].code
        assert process["running"].handlers != other["running"].handlers or other["before"].handlers
        assert any("libucs" in whose for whose in process["running"].handlers.values())


@pytest.mark.parametrize("regx", [{"rendezvous": "auto"}, {
    "transport": "pinned", "rendezvous": "direct", "backend": "hooks", "cache_bytes": "2M",
    "eager_limit": 4096}], ids=str)
def test_a_program_that_rounding_ends_goes_on(mpi: Mpi, regx: dict[str, object]) -> None:
    """What regx measures on its messages, and which registration it evicts, is none of the program's arithmetic."""
    job = mpi("rounding", 800, regx=regx).checked(2)
    assert job.total("evictions") > 0 or "transport" not in regx, str(job)
