# SPDX-License-Identifier: BSD-3-Clause
"""Packages: Debian's are built and installed in a root of their own, the recipes of others agree with
configure."""
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

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


class Prefix(str):
    """A prefix of Spack's: an attribute is a folder in it."""
    def __getattr__(self, name: str) -> "Prefix":
        return Prefix(f"{self}/{name}")


class Said:
    """What a recipe has said to a stand-in for Spack: each directive with its words."""
    def __init__(self) -> None:
        self.directives: list[tuple[str, tuple[str, ...], dict[str, Any]]] = []

    def directive(self, name: str) -> Any:
        return lambda *words, **options: self.directives.append((name, words, options))

    def of(self, name: str) -> list[str]:
        return [words[0] for directive, words, _ in self.directives if directive == name]


class Autotools:
    """The stand-in's base of recipes, which have what they depend on below /opt."""
    prefix = Prefix("/opt/regx")
    spec = {name: types.SimpleNamespace(prefix=Prefix(f"/opt/{name}")) for name in ("openmpi", "ucx")}
    verbs = True

    def with_or_without(self, name: str) -> list[str]:
        return [f"--{'with' if getattr(self, name) else 'without'}-{name}"]

    def configure_args(self) -> list[str]:
        return ["--enable-mpi1-compatibility"]


def recipe(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[Any, Said]:
    """The class of a recipe, by names that Spack 1.0 has, and what it said."""
    said = Said()
    base = "spack_repo.builtin"
    for module, names in (
            ("spack.package", {word: said.directive(word) for word in (
                "license", "version", "variant", "depends_on", "conflicts")} | {"Executable": str}),
            (f"{base}.build_systems.autotools", {"AutotoolsPackage": Autotools}),
            (f"{base}.packages.openmpi.package", {"Openmpi": type("Openmpi", (Autotools,), {})})):
        for place in range(module.count(".") + 1):
            parent = ".".join(module.split(".")[:place + 1])
            monkeypatch.setitem(sys.modules, parent, sys.modules.get(parent) or types.ModuleType(parent))
        vars(sys.modules[module]).update(names)
    space: dict[str, Any] = {"__name__": name}
    path = REPOSITORY / f"packages/{name}/package.py"
    exec(compile(path.read_text(), path, "exec"), space)
    return space[name.capitalize()], said


def test_spack_finds_the_recipes() -> None:
    """Since version 2.0 of its interface by the path, which is a Python module's."""
    text = (REPOSITORY / "repo.yaml").read_text()
    assert re.findall(r"^  (\w+): (.*)$", text, re.M) == [("namespace", REPOSITORY.name), ("api", "v2.0")]
    assert REPOSITORY.parent.name == "spack_repo"
    assert str(REPOSITORY.relative_to(TOP)) in text  # for who adds it
    assert {path.parent.name for path in REPOSITORY.glob("packages/*/package.py")} == {"regx", "openmpi"}
    assert len([*(CONFIG / "spack").rglob("package.py")]) == 2


def test_spacks_recipe_says_what_configure_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    regx, said = recipe(monkeypatch, "regx")
    macros = "".join(path.read_text() for path in CONFIG.glob("regx_*.m4"))
    wanted = said.of("depends_on")
    series = re.search(r"regx supports ([\d., and]+)\]", macros)
    assert series and f"openmpi@{','.join(re.findall(r'[0-9.]+[0-9]', series[1]))}" in wanted
    hwloc = re.search(r"\[hwloc >= (\d+)\.0\]", macros)
    rdma = re.search(r"needs rdma-core (\d+) or later", macros)
    assert hwloc and rdma and {f"hwloc@{hwloc[1]}:", f"rdma-core@{rdma[1]}:"} <= {*wanted}
    tools = {"c", "autoconf", "automake", "libtool", "pkgconfig"}
    assert tools <= {words[0] for _, words, options in said.directives if options.get("type") == "build"}
    assert {name.split("@")[0] for name in wanted} == tools | {
        "openmpi", "pmix", "ucx", "hwloc", "rdma-core", "python"}

    assert said.of("variant") == ["verbs"]
    known = set(re.findall(r"AC_ARG_(?:WITH|ENABLE)\(\[(\w+)\]", macros))
    for verbs in True, False:
        monkeypatch.setattr(Autotools, "verbs", verbs)
        given = regx().configure_args()
        assert f"--with{'' if verbs else 'out'}-verbs" in given
        assert {"--with-openmpi=/opt/openmpi", "--with-ucx=/opt/ucx"} <= {*given}
        options = [re.fullmatch(r"--(?:with|without)-(\w+)(?:=.*)?", word) for word in given]
        names = {option[1] for option in options if option}
        assert len(names) == len(given) and names <= known
        # What depends on other packages is not left to what configure happens to find.
        assert {"openmpi", "ucx", "verbs", "libfabric"} <= names


def test_spack_has_open_mpi_look_for_the_component(monkeypatch: pytest.MonkeyPatch) -> None:
    regx, _ = recipe(monkeypatch, "regx")
    environment: dict[str, str] = {}
    regx().setup_run_environment(types.SimpleNamespace(set=environment.__setitem__))
    assert environment == {"OMPI_MCA_opal_mca_base_component_path":
                           "/opt/regx/lib/openmpi:/opt/openmpi/lib/openmpi"}


def test_spacks_open_mpi_keeps_its_arguments_and_brings_its_headers(
        monkeypatch: pytest.MonkeyPatch) -> None:
    openmpi, _ = recipe(monkeypatch, "openmpi")
    assert openmpi().configure_args() == ["--enable-mpi1-compatibility", "--with-devel-headers"]


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
