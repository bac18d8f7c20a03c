# SPDX-License-Identifier: BSD-3-Clause
"""The libraries as others find them when they are installed: header, pkg-config, symbols."""
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import device

TOP = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("REGX_BUILD_DIR", TOP / ".build/obj"))
HEADER = TOP / "component/library/regx/registration.h"
NODE = "REGX_REGISTRATION_0"


def output(*words: str | Path, **environment: str) -> str:
    run = subprocess.run(words, env=os.environ | environment, text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, timeout=1200, check=False)
    assert run.returncode == 0, run.stdout[-4000:]
    return run.stdout


@pytest.fixture(scope="module", name="root")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (BUILD / "component/libregx-registration.la").exists():
        pytest.skip("built without rdma-core")
    root = tmp_path_factory.mktemp("root")
    output("make", "-C", BUILD, "install", f"DESTDIR={root}")
    return root


def one(root: Path, name: str) -> Path:
    (found,) = root.rglob(name)
    return found


def test_it_exports_what_the_header_declares_and_nothing_else(root: Path) -> None:
    listing = output("nm", "--dynamic", "--defined-only", "--format=posix",
                     one(root, "libregx-registration.so"))
    names = {line.split()[0] for line in listing.splitlines()} - {NODE}
    declared = re.findall(r"^REGX_PUBLIC [^;]*?\b(regx_\w+)\(", HEADER.read_text(), re.M)
    assert len(declared) == 9
    assert names == {f"{name}@@{NODE}" for name in declared}


def test_it_needs_libibverbs_and_nothing_of_others(root: Path) -> None:
    dynamic = output("readelf", "--dynamic", one(root, "libregx-registration.so"))
    assert re.findall(r"SONAME.*\[(.*)\]", dynamic) == ["libregx-registration.so.0"]
    # What the system has everywhere, and what a sanitizer's build adds.
    others = [name for name in re.findall(r"NEEDED.*\[(.*)\]", dynamic)
              if not re.match(r"lib(c|asan|ubsan|tsan)\.|ld-linux", name)]
    assert others == ["libibverbs.so.1"]


@pytest.mark.parametrize("compiler", [("cc", "-std=c99", "-xc"), ("c++", "-std=c++11", "-xc++")])
def test_the_header_stands_by_itself(root: Path, tmp_path: Path, compiler: tuple[str, ...]) -> None:
    if not shutil.which(compiler[0]):
        pytest.skip(f"needs {compiler[0]}, a compiler")
    source = tmp_path / "source"
    source.write_text("#include <regx/registration.h>\n"
                      "int main(void) { return regx_domain_backends(0) == 0; }\n")
    # libibverbs' header is not strict.
    output(*compiler, "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
           f"-I{one(root, 'registration.h').parents[1]}", source)


def test_the_example_is_built_by_pkg_config(root: Path, tmp_path: Path) -> None:
    library = one(root, "libregx-registration.so")
    flags = output("pkg-config", "--cflags", "--libs", "libregx-registration",
                   PKG_CONFIG_PATH=str(one(root, "libregx-registration.pc").parent),
                   PKG_CONFIG_SYSROOT_DIR=str(root)).split()
    program = tmp_path / "example"
    output("cc", "-Wall", "-Werror", "-o", program, one(root, "example.c"), *flags)
    run = subprocess.run([program], env=os.environ | {"LD_LIBRARY_PATH": str(library.parent)},
                         capture_output=True, text=True, timeout=120, check=False)
    wanted = 0 if device.is_there() else 77
    assert run.returncode == wanted, run.stdout + run.stderr


def test_its_manual_page_names_every_function(root: Path) -> None:
    page = one(root, "libregx-registration.3").read_text()
    declared = re.findall(r"^REGX_PUBLIC [^;]*?\b(regx_\w+)\(", HEADER.read_text(), re.M)
    assert not [name for name in declared if f"{name}(" not in page]
    assert "@" not in page


def test_the_component_exports_nothing_of_it() -> None:
    listing = output("nm", "--dynamic", "--defined-only", "--format=posix",
                     BUILD / "component/.libs/mca_btl_regx.so")
    assert [line.split()[0] for line in listing.splitlines()] == ["mca_btl_regx_component"]
