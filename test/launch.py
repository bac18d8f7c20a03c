# SPDX-License-Identifier: BSD-3-Clause
"""How the tests start MPI jobs: what was built, and mpirun's words."""
from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pytest

import job
import openmpi
import skips

TOP = Path(__file__).resolve().parent.parent

# Words that make a command an ordinary user's; it is already, where he runs the tests.
ORDINARY_USER = [] if os.geteuid() else ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                                         "--no-new-privs"]


def limited(kib: int) -> list[str]:
    """Words that make a command an ordinary user's who may lock so much."""
    return ["bash", "-c", f'ulimit -l {kib} && exec "$@"', "bash", *ORDINARY_USER, "env", "HOME=/tmp"]


def preloading(library: Path, source: str, *options: str) -> list[str]:
    """Words before the program, which is to have such a library before all others: made of that C, there."""
    subprocess.run(["gcc", "-shared", "-fPIC", *options, "-x", "c", "-", "-o", library], check=True, text=True,
                   input=source)
    return ["env", f"LD_PRELOAD={library}"]


# One of mpirun's: of a job that failed it ends the other ranks at once. Else they live for another second,
# in which they may see it for themselves.
AT_ONCE = {"odls_base_sigkill_timeout": 0}


def at_ranks(settings: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Words before the program, by which some ranks alone (0, 1|3, *) have these parameters of regx."""
    cases = [f"{ranks}) export " + " ".join(f"OMPI_MCA_btl_regx_{name}={shlex.quote(str(value))}"
                                            for name, value in regx.items()) + " ;;"
             for ranks, regx in settings.items()]
    return ["sh", "-c", f'case $OMPI_COMM_WORLD_RANK in {" ".join(cases)} esac; exec "$@"', "sh"]


def need(regx: Mapping[str, object]) -> None:
    """Skips where the machine refuses something without which a job that asks for this cannot begin."""
    if "notifier" in str(regx.get("backend")) and skips.userfaultfd_is_refused():
        pytest.skip("userfaultfd is refused here")
    if regx.get("transport") == "pinned" and skips.io_uring_is_refused():
        pytest.skip("io_uring is refused here")


@dataclass(frozen=True)
class Build:
    """What component/config/setup built, and the Open MPI it is for."""
    component: Path  # the folder of mca_btl_regx.so
    pkglibdir: Path
    mpirun: Path
    programs: Path
    start: Mapping[str, str] = field(default_factory=dict)  # the environment of mpirun (start.py)

    def path(self, folder: Path | None = None) -> dict[str, str]:
        """The environment in which Open MPI finds the component."""
        return {"OMPI_MCA_opal_mca_base_component_path":
                f"{folder or self.component}:{self.pkglibdir}"}

    @cached_property
    def series(self) -> tuple[int, int]:
        """Of Open MPI: 4, 1 and so on."""
        said = subprocess.run([self.mpirun, "--version"], check=True, text=True, timeout=60,
                              capture_output=True).stdout
        found = re.search(r"Open MPI\) (\d+)\.(\d+)\.", said)
        assert found, said
        return int(found[1]), int(found[2])

    @property
    def osc(self) -> dict[str, object]:
        """With these settings Open MPI's own windows are right: in 5.0.7 MPI_Accumulate is not, with any BTL."""
        return {"osc_rdma_acc_use_amo": 0} if self.series >= (5, 0) else {}

    @property
    def osc_asks(self) -> bool:
        """Whether puts to windows and the like come to the BTL; later ones go by messages alone."""
        return self.series == (4, 1)

    def ompi_info(self, btl: str) -> str:
        """What ompi_info says of the parameters of a BTL, to be parsed."""
        return subprocess.run(
            [self.mpirun.parent / "ompi_info", "--parsable", "--param", "btl", btl,
             "--level", "9"], env={**os.environ, **self.path()}, capture_output=True, text=True,
            check=True, timeout=60).stdout

    @cached_property
    def parameters(self) -> dict[str, dict[str, str]]:
        """What ompi_info says of each parameter of regx: value, type, help and so on."""
        found: dict[str, dict[str, str]] = {}
        for line in self.ompi_info("regx").splitlines():
            words = line.split(":", 6)  # mca:btl:regx:param:NAME:KEY:VALUE
            if words[:4] == ["mca", "btl", "regx", "param"]:
                found.setdefault(words[4], {})[words[5]] = words[6].strip('"')
        return found

    def size(self, name: str) -> int:
        """The default of a parameter that is a number of bytes, such as slot_size."""
        value = self.parameters[f"btl_regx_{name}"]["value"]
        unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(value[-1].upper(), 0)
        return int(value[:-1]) * unit if unit else int(value)


@dataclass
class Reruns:
    """The jobs that were run again, over all tests that share it. The defect is rare, but comes more
    often the busier the machine is: about once in 700 jobs on two cores with other work."""
    jobs: int = 0
    commands: list[str] = field(default_factory=list)

    @property
    def allowed(self) -> int:
        return 2 + self.jobs // 200


class Mpi:
    """Starts jobs; by default regx carries every message of them."""

    def __init__(self, build: Build, folder: Path, reruns: Reruns) -> None:
        """folder: where jobs leave their files."""
        self.build = build
        self.folder = folder
        self.reruns = reruns
        self.number = itertools.count()
        self.done: list[job.Job] = []

    def __call__(self, program: str | Path, *arguments: object, ranks: int = 2,
                 btl: str | None = "regx", pml: str | None = "ob1",
                 regx: Mapping[str, object] | None = None, mca: Mapping[str, object] | None = None,
                 environment: Mapping[str, str] | None = None, options: Sequence[str] = (),
                 around: Sequence[str | Path] = (), within: Sequence[str | Path] = (),
                 timeout: float = 600) -> job.Job:
        """Runs one of the test programs (or any, by its path).

        regx: its parameters, without btl_regx_. mca: any other. options: more of mpirun's.
        around: words before mpirun. within: words before the program, for every rank.

        A job that died of Open MPI's own defect (openmpi.py) is run again, with a warning and
        without the files that it left. More such jobs than Reruns.allowed says are a failure.
        """
        if not any("deny" in str(word) for word in (*around, *within)):
            need(regx or {})
        report = self.folder / f"report.{next(self.number)}"
        settings = {"pml": pml, "btl": btl, "mpi_yield_when_idle": 1, **(mca or {})}
        for name, value in {"report": report, **(regx or {})}.items():
            settings[f"btl_regx_{name}"] = value
        # None leaves one out.
        words: list[str | Path] = [*around, self.build.mpirun, "-n", str(ranks), "--oversubscribe"]
        for name, value in settings.items():
            if value is not None:
                words += ["--mca", name, str(value)]
        words += [*options, *within, self.build.programs / program, *map(str, arguments)]
        variables = {**self.build.path(), **(environment or {})}
        before = set(self.folder.rglob("*"))
        self.reruns.jobs += 1
        done = job.run(words, variables, report, timeout, self.build.start)
        while openmpi.died_in_finalize(done, ranks, self.build.pkglibdir):
            self.note(done)
            self.remove_others(before)
            done = job.run(words, variables, report, timeout, self.build.start)
        self.done.append(done)
        return done

    def for_any_user(self) -> Mpi:
        """Has jobs started by ordinary users, too: the folder is theirs to write to, and has copies of what was
        built, which may lie where only its owner may enter."""
        if not ORDINARY_USER:
            return self
        copies = self.folder / "built"
        build = replace(self.build, component=shutil.copytree(self.build.component, copies / "component"),
                        programs=shutil.copytree(self.build.programs, copies / "programs"))
        self.folder.chmod(0o777)
        for parent in list(self.folder.parents)[:3]:  # as pytest makes them
            parent.chmod(parent.stat().st_mode | 0o011)
        self.build = build
        return self

    def note(self, died: job.Job) -> None:
        self.reruns.commands.append(died.command)
        if len(self.reruns.commands) > self.reruns.allowed:
            pytest.fail(f"Open MPI died as it finalized too often: "
                        f"{len(self.reruns.commands)} of {self.reruns.jobs} jobs; first: "
                        f"{self.reruns.commands[0]}\n{died}")
        warnings.warn(f"Open MPI died as it finalized; run again: {died.command}")

    def remove_others(self, kept: set[Path]) -> None:
        for path in sorted(set(self.folder.rglob("*")) - kept, reverse=True):  # children first
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink()
