# SPDX-License-Identifier: BSD-3-Clause
"""configure: what is missing is named in one line, with the Debian package that brings it."""
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]


def configure(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    return subprocess.run([TOP / "configure", "-q", *arguments], cwd=folder, text=True,
                          capture_output=True, timeout=120, check=False,
                          env=os.environ | environment)


def error(run: subprocess.CompletedProcess[str]) -> str:
    """The one line that configure ended with."""
    assert run.returncode != 0
    errors = [line for line in run.stderr.splitlines() if line.startswith("configure: error:")]
    assert len(errors) == 1, run.stderr
    return errors[0]


def openmpi(prefix: Path, version: str, devel_headers: bool = True) -> Path:
    """A folder that looks like an installed Open MPI of that version, as far as configure looks."""
    major, minor, release = version.split(".")
    headers = prefix / "include" / "openmpi"
    (headers / "opal/mca/btl").mkdir(parents=True)
    if devel_headers:
        (headers / "opal/mca/btl/btl.h").touch()
        (headers / "opal_config.h").write_text(
            f"#define OPAL_MAJOR_VERSION {major}\n#define OPAL_MINOR_VERSION {minor}\n"
            f"#define OPAL_RELEASE_VERSION {release}\n#define OPAL_GREEK_VERSION \"rc1\"\n")
    (prefix / "bin").mkdir()
    for name in "mpicc", "mpirun", "ompi_info":
        script = prefix / "bin" / name
        script.write_text(f"#!/bin/sh\necho {headers.parent} {headers}\n")
        script.chmod(0o755)
    return prefix


def test_without_mpicc_the_missing_packages_are_named(tmp_path: Path) -> None:
    line = error(configure(tmp_path, f"--with-openmpi={tmp_path}"))
    assert f"no mpicc in {tmp_path}/bin" in line
    assert "libopenmpi-dev and openmpi-bin" in line


def test_a_relative_prefix_is_refused(tmp_path: Path) -> None:
    assert "--with-openmpi=here: give an absolute path" in error(
        configure(tmp_path, "--with-openmpi=here"))


def test_configure_refuses_an_mpi_that_is_not_open_mpi(tmp_path: Path) -> None:
    mpicc = openmpi(tmp_path / "mpi", "4.1.4") / "bin/mpicc"
    mpicc.write_text("#!/bin/sh\nexit 1\n")
    assert f"{mpicc} is not Open MPI's" in error(
        configure(tmp_path / "build", f"--with-openmpi={tmp_path}/mpi"))


def test_without_devel_headers_the_missing_package_is_named(tmp_path: Path) -> None:
    prefix = openmpi(tmp_path / "mpi", "4.1.4", devel_headers=False)
    line = error(configure(tmp_path / "build", f"--with-openmpi={prefix}"))
    assert "opal/mca/btl/btl.h" in line and "libopenmpi-dev" in line


def test_configure_refuses_another_open_mpi_version(tmp_path: Path) -> None:
    prefix = openmpi(tmp_path / "mpi", "5.1.7")
    line = error(configure(tmp_path / "build", f"--with-openmpi={prefix}"))
    assert line.endswith(f"{prefix}/bin/mpicc is of Open MPI 5.1.7rc1; "
                         "regx supports 4.1, 5.0 and 6.0")


def test_the_open_mpi_that_is_first_in_path_is_taken(tmp_path: Path) -> None:
    """As where a module was loaded: what is wrong with this one is said, though the next has all of it."""
    prefix = openmpi(tmp_path / "mpi", "5.1.7")
    line = error(configure(tmp_path / "build", PATH=f"{prefix}/bin:{os.environ['PATH']}"))
    assert f" {prefix}/bin/mpicc is of Open MPI 5.1.7rc1;" in line


@pytest.mark.parametrize("version", ["5.0.7", "6.0.0"])
def test_without_pmix_the_missing_package_is_named(tmp_path: Path, version: str) -> None:
    prefix = openmpi(tmp_path / "mpi", version)
    (tmp_path / "pc").mkdir()
    line = error(configure(tmp_path / "build", f"--with-openmpi={prefix}",
                           PKG_CONFIG_LIBDIR=f"{tmp_path}/pc", PKG_CONFIG_PATH=""))
    assert "PMIx" in line and "Debian package libpmix-dev" in line


def test_without_hwloc_the_missing_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "pc").mkdir()
    assert "Debian package libhwloc-dev" in error(
        configure(tmp_path, PKG_CONFIG_LIBDIR=f"{tmp_path}/pc", PKG_CONFIG_PATH=""))


def test_a_prefix_without_ucx_is_refused(tmp_path: Path) -> None:
    assert f"--with-ucx={tmp_path}: no include/ucm/api/ucm.h there" in error(
        configure(tmp_path, f"--with-ucx={tmp_path}"))


def test_without_a_compiler_the_missing_packages_are_named(tmp_path: Path) -> None:
    for name in ["sed", "grep", "expr", "awk", "mkdir", "rm", "ls", "cat", "chmod", "mv", "uname",
                 "sort", "tr", "ln", "rmdir", "sleep", "date", "env", "install", "cp", "touch",
                 "hostname", "basename", "dirname", "diff", "cmp", "make", "bash"]:
        where = shutil.which(name)
        if where:
            (tmp_path / name).symlink_to(where)
    line = error(configure(tmp_path / "build", PATH=str(tmp_path), CC=""))
    assert "no C compiler" in line and "Debian packages gcc and libc6-dev" in line


def test_a_prefix_for_verbs_is_refused(tmp_path: Path) -> None:
    line = error(configure(tmp_path, f"--with-verbs={tmp_path}"))
    assert f"--with-verbs={tmp_path}: allowed: yes, no, auto" in line


def test_without_verbs_configure_succeeds_and_leaves_it_out(tmp_path: Path) -> None:
    """Its name is then not among those that btl_regx_transport allows."""
    run = configure(tmp_path, "--without-verbs", f"--prefix={tmp_path}", "--libdir=/some/where")
    assert run.returncode == 0, run.stderr
    assert "#define REGX_HAVE_VERBS 0\n" in (
        tmp_path / "component/config/config.h").read_text()
    assert "install to    /some/where/openmpi\n" in run.stdout


def test_in_open_mpis_own_prefix_it_is_installed_in_place(tmp_path: Path) -> None:
    def asked(name: str) -> str:
        run = subprocess.run(["ompi_info", "--parsable", "--path", name], capture_output=True,
                             text=True, check=True)
        return run.stdout.strip().removeprefix(f"path:{name}:")

    run = configure(tmp_path, f"--prefix={asked('prefix')}")
    assert run.returncode == 0, run.stderr
    found = re.search(r"^componentdir = (.*)$", (tmp_path / "Makefile").read_text(), re.MULTILINE)
    assert found and found.group(1) == asked("pkglibdir")
    assert f"install to    {asked('pkglibdir')} (in place)" in run.stdout


@pytest.mark.parametrize("words,has", [([], True), (["--without-verbs"], False)])
def test_the_component_knows_whether_there_is_verbs(tmp_path: Path, words: list[str],
                                                    has: bool) -> None:
    """For the report, which says why a job does not go that way."""
    run = configure(tmp_path, *words)
    assert run.returncode == 0, run.stderr
    assert ("\n#define REGX_HAVE_VERBS 1" in
            (tmp_path / "component/config/config.h").read_text()) == has
