# SPDX-License-Identifier: BSD-3-Clause
"""The libraries as others find them when they are installed: header, pkg-config, symbols."""
import errno
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
FABRIC = "libregx-libfabric.so"


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


@pytest.fixture(scope="module", name="fabric_root")
def installed_with_libfabric(root: Path) -> Path:
    if not (BUILD / "component/libregx-libfabric.la").exists():
        pytest.skip("built without libfabric")
    return root


def test_the_monitor_for_libfabric_exports_one_function(fabric_root: Path) -> None:
    listing = output("nm", "--dynamic", "--defined-only", "--format=posix",
                     one(fabric_root, FABRIC))
    assert {line.split()[0] for line in listing.splitlines()} == \
        {"REGX_LIBFABRIC_0", "regx_libfabric_monitor@@REGX_LIBFABRIC_0"}
    needed = re.findall(r"NEEDED.*\[(.*)\]",
                        output("readelf", "--dynamic", one(fabric_root, FABRIC)))
    assert "libfabric.so.1" in needed
    assert not [name for name in needed if name.startswith(("libibverbs", "libregx", "libuc"))]


def test_a_program_imports_the_monitor_into_libfabric(fabric_root: Path, tmp_path: Path) -> None:
    """Twice: libfabric has it from the first time on."""
    source, program = tmp_path / "source.c", tmp_path / "program"
    library = one(fabric_root, FABRIC)
    source.write_text("#include <regx/libfabric.h>\n#include <stdio.h>\n"
                      "int main(void) {\n char error[256] = \"\";\n"
                      " int first = regx_libfabric_monitor(0, error, sizeof(error));\n"
                      " int second = regx_libfabric_monitor(0, error, sizeof(error));\n"
                      " printf(\"%d %d %s\", first, second, error);\n return 0; }\n")
    output("cc", "-Wall", "-Werror", "-o", program, source, f"-L{library.parent}",
           f"-I{one(fabric_root, 'libfabric.h').parents[1]}", "-lregx-libfabric")
    said = output(program, LD_LIBRARY_PATH=str(library.parent))
    if "notifier cannot be used" in said:
        pytest.skip(said)
    assert said == f"0 {errno.EBUSY} libfabric has this memory monitor already"


def test_the_component_exports_nothing_of_it() -> None:
    listing = output("nm", "--dynamic", "--defined-only", "--format=posix",
                     BUILD / "component/.libs/mca_btl_regx.so")
    assert [line.split()[0] for line in listing.splitlines()] == ["mca_btl_regx_component"]
