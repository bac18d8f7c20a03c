# SPDX-License-Identifier: BSD-3-Clause
"""component/config/setup: what it says where it does not install."""
import os
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]


def setup(*arguments: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TOP / "component/config/setup", *arguments], text=True, timeout=600,
                          capture_output=True, check=False, env=os.environ | {"PATH": path})


def path_without(folder: Path, *programs: str) -> str:
    """A PATH like this machine's, but for some programs."""
    for place in reversed(os.get_exec_path()):
        for program in Path(place).glob("*"):
            link = folder / program.name
            if program.name not in programs:
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return str(folder)


def test_wrong_arguments_are_refused_with_the_usage() -> None:
    usage = "usage: setup compare|rdma|machine|instructions|test|named [--no-install]\n"
    for arguments, problem in ((), "no purpose"), (("tset",), "unknown argument tset"):
        run = setup(*arguments)
        assert (run.returncode, run.stdout) == (1, "")
        assert run.stderr == f"regx: setup: {problem}; {usage}"


def test_missing_packages_are_named_with_the_apt_line(tmp_path: Path) -> None:
    run = setup("test", "--no-install", path=path_without(tmp_path, "strace", "libtoolize"))
    assert run.returncode == 1
    assert run.stderr == ("regx: packages are missing; as root: "
                          "apt-get update && apt-get install -y libtool strace\n")


def replace(program: Path, script: str) -> None:
    program.unlink(missing_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def hide_pmix(folder: Path) -> None:
    finder = folder / "pkg-config"
    replace(finder, f'[ "$*" != "--exists pmix" ] || exit 1\nexec {finder.resolve()} "$@"')


def offered(tmp_path: Path, candidate: str) -> str:
    """A PATH where apt has that version of Open MPI, and there is none."""
    path = path_without(tmp_path, "mpicc", "mpirun", "strace")
    replace(tmp_path / "apt-cache", '[ "$*" = "policy libopenmpi-dev" ] || exit 1\n'
            f'echo "libopenmpi-dev:"\necho "  Candidate: {candidate}"')
    hide_pmix(tmp_path)
    return path


@pytest.mark.parametrize("candidate", ["4.0.3-1", "1:6.1.0-1"])
def test_an_open_mpi_that_is_not_supported_is_not_installed(tmp_path: Path, candidate: str) -> None:
    """Nothing is installed that would be of no use."""
    run = setup("test", "--no-install", path=offered(tmp_path, candidate))
    assert run.returncode == 1
    assert run.stderr == (f"regx: the package libopenmpi-dev is of Open MPI {candidate} here, and "
                          "regx supports 4.1, 5.0 and 6.0; nothing was installed; put the mpicc of "
                          "one of these into PATH and try again\n")


@pytest.mark.parametrize(("candidate", "needed"), [
    ("4.1.4-3", "libopenmpi-dev openmpi-bin strace"),
    ("5.0.7-1", "libopenmpi-dev openmpi-bin strace libpmix-dev"),
    ("1:6.0.0~rc2-1", "libopenmpi-dev openmpi-bin strace libpmix-dev")])
def test_each_debians_open_mpi_is_named_with_what_it_needs(tmp_path: Path, candidate: str,
                                                           needed: str) -> None:
    run = setup("test", "--no-install", path=offered(tmp_path, candidate))
    assert run.returncode == 1
    assert run.stderr.endswith(f"apt-get install -y {needed}\n"), run.stderr


@pytest.mark.parametrize(("major", "whole", "needed"), [
    ("4", "4", "strace"), ("5", "5.0.7", "strace libpmix-dev")])
def test_an_installed_open_mpi_gets_what_its_version_needs(tmp_path: Path, major: str, whole: str,
                                                           needed: str) -> None:
    """As its header says; 4.1's OPAL_VERSION is no more than its release number."""
    (tmp_path / "bin").mkdir()
    path = path_without(tmp_path / "bin", "strace")
    (tmp_path / "include/opal/mca/btl").mkdir(parents=True)
    (tmp_path / "include/opal/mca/btl/btl.h").touch()
    (tmp_path / "include/opal_config.h").write_text(
        f'#define OPAL_MAJOR_VERSION {major}\n#define OPAL_VERSION "{whole}"\n')
    replace(tmp_path / "bin/mpicc", f"echo {tmp_path}/include")
    replace(tmp_path / "bin/mpirun", "exit 1")
    replace(tmp_path / "bin/dpkg", "exit 0")  # a package brought it
    hide_pmix(tmp_path / "bin")
    run = setup("test", "--no-install", path=path)
    assert run.returncode == 1
    assert run.stderr.endswith(f"apt-get install -y {needed}\n"), run.stderr


def test_without_apt_the_missing_packages_are_only_named(tmp_path: Path) -> None:
    run = setup("test", path=path_without(tmp_path, "strace", "apt-get"))
    assert run.returncode == 1
    assert run.stderr == ("regx: missing, by the names of Debian's packages: strace; "
                          "install them and try again\n")


def test_own_openmpi_is_not_replaced(tmp_path: Path) -> None:
    """An mpicc that no package owns: whatever it lacks, Open MPI is not on the list."""
    (tmp_path / "links").mkdir()
    (tmp_path / "own").mkdir()
    path = path_without(tmp_path / "links", "strace")
    mpicc = tmp_path / "own/mpicc"
    mpicc.write_text("#!/bin/sh\nexit 1\n")
    mpicc.chmod(0o755)
    run = setup("test", "--no-install", path=f"{mpicc.parent}:{path}")
    assert run.stderr.endswith("apt-get install -y strace\n")
