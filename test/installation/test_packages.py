# SPDX-License-Identifier: BSD-3-Clause
"""Packages: Debian's are built and installed in a root of their own, the recipes of others agree with
configure."""
import os
import re
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
CONFIG = TOP / "component/config"
SPEC = CONFIG / "rpm/regx.spec"
REPOSITORY = CONFIG / "spack/spack_repo/regx"  # Spack takes its name from this path
RECIPE = REPOSITORY / "packages/regx/package.py"
DEBIAN = CONFIG / "debian/build"


def test_recipes_are_of_this_version() -> None:
    version = re.search(r"^AC_INIT\(\[regx\], \[(.*)\]\)$", (TOP / "configure.ac").read_text(), re.M)
    assert version
    for pattern, path in (r"^Version: +(.*)$", SPEC), (r'version\("([^"]+)"\)', RECIPE):
        found = re.findall(pattern, path.read_text(), re.M)
        assert found == [version[1]], path


def test_recipes_want_what_configure_wants() -> None:
    """The oldest versions that configure takes, and options that it has."""
    macros = "".join(path.read_text() for path in CONFIG.glob("regx_*.m4"))
    for name in "hwloc", "libibverbs":
        oldest = re.search(rf"\[{name} >= ([\d.]+)\]", macros)
        assert oldest and f"pkgconfig({name}) >= {oldest[1]}" in SPEC.read_text(), name
    known = set(re.findall(r"AC_ARG_(?:WITH|ENABLE)\(\[(\w+)\]", macros))
    for path in SPEC, RECIPE, CONFIG / "debian/rules":
        used = set(re.findall(r"--(?:with|without|enable|disable)-(\w+)", path.read_text()))
        assert used and used <= known, path


def test_spack_finds_the_recipes() -> None:
    """Since version 2.0 of its interface by the path, which is a Python module's."""
    text = (REPOSITORY / "repo.yaml").read_text()
    assert re.findall(r"^  (\w+): (.*)$", text, re.M) == [("namespace", REPOSITORY.name), ("api", "v2.0")]
    assert REPOSITORY.parent.name == "spack_repo"
    assert str(REPOSITORY.relative_to(TOP)) in text  # for who adds it
    assert {path.parent.name for path in REPOSITORY.glob("packages/*/package.py")} == {"regx", "openmpi"}
    assert len([*(CONFIG / "spack").rglob("package.py")]) == 2


def test_the_debian_package_wants_a_folder(tmp_path: Path) -> None:
    run = subprocess.run([DEBIAN, tmp_path / "none"], capture_output=True, text=True, check=False)
    assert run.returncode == 1 and not run.stdout
    assert run.stderr == "regx: usage: component/config/debian/build DIR (that exists)\n"


def test_the_debian_package_is_of_a_supported_open_mpi(tmp_path: Path) -> None:
    for name, script in ("dpkg-query", 'printf 1:6.1.0-2'), ("dpkg-buildpackage", "exit 1"):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    run = subprocess.run([DEBIAN, tmp_path], capture_output=True, text=True, check=False,
                         env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert run.returncode == 1
    assert run.stderr == ("regx: the package libopenmpi-dev is of Open MPI 1:6.1.0-2 here; "
                          "regx supports 4.1, 5.0 and 6.0\n")


@pytest.mark.full  # it is built from nothing
@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_the_debian_package_changes_nothing_until_asked_and_leaves_nothing(suite: str) -> None:
    """Open MPI 4.1, and 5.0."""
    if os.geteuid() != 0:
        pytest.skip("only root can make another root folder")
    run = subprocess.run([TOP / "test/machine/debian", suite, "test/installation/package"], text=True,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         check=False, timeout=3600)
    assert run.returncode == 0, run.stdout[-4000:]
    assert re.fullmatch(r"package: openmpi-btl-regx-\d\.\d is right", run.stdout.splitlines()[-1])
