# SPDX-License-Identifier: BSD-3-Clause
"""The libraries as others find them when they are installed: header, pkg-config, symbols."""
import os
import re
import subprocess
from pathlib import Path

import pytest

import device
from tables import BUILD, TOP

HEADER = TOP / "component/library/regx/registration.h"
NODE = "REGX_REGISTRATION_0"


def output(*words: str | Path, **environment: str) -> str:
    run = subprocess.run(words, env=os.environ | environment, text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, timeout=1200, check=False)
    assert run.returncode == 0, run.stdout[-4000:]
    return run.stdout


@pytest.fixture(scope="module", name="root")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (BUILD / "component/libregx-registration.so").exists():
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


def test_the_component_exports_nothing_of_it() -> None:
    listing = output("nm", "--dynamic", "--defined-only", "--format=posix",
                     BUILD / "component/mca_btl_regx.so")
    assert [line.split()[0] for line in listing.splitlines()] == ["mca_btl_regx_component"]
