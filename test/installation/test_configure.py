# SPDX-License-Identifier: BSD-3-Clause
"""configure: what is missing is named in one line, with the Debian package that brings it."""
import os
import re
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
CACHE = TOP / ".build/config.cache"  # what component/config/setup's configure found
OF_OPENMPI = re.compile(r"MPICC|MPIRUN|OMPI_INFO")  # what is asked anew


def configure(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    known = [line for line in CACHE.read_text().splitlines() if not OF_OPENMPI.search(line)]
    (folder / "cache").write_text("\n".join(known) + "\n")
    return subprocess.run([TOP / "configure", "-q", "--cache-file=cache", "--disable-dependency-tracking",
                           *arguments], cwd=folder, text=True, capture_output=True, timeout=120, check=False,
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


def test_without_devel_headers_the_missing_package_is_named(tmp_path: Path) -> None:
    prefix = openmpi(tmp_path / "mpi", "4.1.4", devel_headers=False)
    line = error(configure(tmp_path / "build", f"--with-openmpi={prefix}"))
    assert "opal/mca/btl/btl.h" in line and "libopenmpi-dev" in line


def test_without_verbs_configure_succeeds_and_leaves_it_out(tmp_path: Path) -> None:
    """Its name is then not among those that btl_regx_transport allows."""
    run = configure(tmp_path, "--without-verbs", f"--prefix={tmp_path}", "--libdir=/some/where")
    assert run.returncode == 0, run.stderr
    assert "#define REGX_HAVE_VERBS 0\n" in (
        tmp_path / "component/config/config.h").read_text()
    assert "install to    /some/where/openmpi\n" in run.stdout


@pytest.mark.full  # a second whole configure, 6 s
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
