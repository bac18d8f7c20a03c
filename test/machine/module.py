# SPDX-License-Identifier: BSD-3-Clause
"""The module of component/kernel, built here for a kernel that the guest boots.

Debian's headers of that very kernel, with this machine's compiler: that of the kernel's own release is
ten times the headers. Their tools need that release's C library, which is fetched beside them.
"""
import re
import shutil
import tempfile
from pathlib import Path

from packages import Packages, output
from trouble import Trouble

SOURCES = [Path(__file__).resolve().parents[2] / "component/kernel" / name
           for name in ("Makefile", "regx_notify.c", "regx_notify.h")]
FILE = "regx_notify.ko"
LIBRARIES = ["libc6", "libelf1", "libelf1t64", "libzstd1", "zlib1g"]
# The tools that a module needs. Debian's choose among several for processors, but for objtool in 6.1.
TOOLS = {"scripts/basic/fixdep": "scripts/basic/fixdep",
         "scripts/mod/modpost": "scripts/mod/modpost.real-lsb-64",
         "tools/objtool/objtool": "tools/objtool/objtool.real-x86"}
# What is set for the compiler that built the kernel, and is not known to an older one; and a description of
# types that nobody reads.
UNSET = ["CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT=", "CONFIG_DEBUG_INFO_BTF_MODULES="]


def release(vmlinux: Path) -> str:
    """As uname -r tells it."""
    found = re.search(rb"Linux version (\S+)", vmlinux.read_bytes())
    if not found:
        raise Trouble(f"{vmlinux} does not tell its version")
    return found[1].decode()


def fetch_libraries(suite: str, apt: Path, to: Path) -> None:
    packages = Packages(suite.removesuffix("-backports"), apt)
    there = packages.which(LIBRARIES)
    with tempfile.TemporaryDirectory(dir=apt) as name:
        for package in there:
            packages.download(package, Path(name))
        to.mkdir()
        for library in Path(name).rglob("*.so.*"):
            if library.is_file():
                shutil.copy(library, to / library.name)
        loaders = list(Path(name).rglob("ld-linux-x86-64.so.2"))
        shutil.copy(loaders[0], to / "loader")


def wrap(tool: Path, real: Path, libraries: Path) -> None:
    """Has the tool run with those libraries."""
    binary = tool.with_name(f"{tool.name}.bin")
    shutil.move(real, binary)
    tool.unlink(missing_ok=True)
    tool.write_text(f'#!/bin/sh\nexec "{libraries}/loader" --library-path "{libraries}" "{binary}" "$@"\n')
    tool.chmod(0o755)


def fetch(suite: str, vmlinux: Path, folder: Path) -> None:
    """Puts the headers of that kernel, of that suite, into an empty folder; `build` is where a module is built."""
    wanted = [f"linux-headers-{release(vmlinux)}"]
    with tempfile.TemporaryDirectory(dir=folder) as name:
        packages = Packages(suite, Path(name) / "headers")
        for package in wanted:
            wanted += [other for other in packages.depends(package)
                       if other.startswith(("linux-headers-", "linux-kbuild-")) and other not in wanted]
            packages.download(package, folder)
        fetch_libraries(suite, Path(name) / "libraries", folder / "libraries")
    tools, = (folder / "usr/lib").glob("linux-kbuild-*")
    for tool, real in TOOLS.items():
        wrap(tools / tool, tools / (real if (tools / real).exists() else tool), folder / "libraries")
    for makefile in folder.glob("usr/src/linux-headers-*/Makefile"):
        makefile.write_text(makefile.read_text().replace("/usr/src/", f"{folder}/usr/src/"))
    (folder / "build").symlink_to(folder / "usr/src" / wanted[0])


def build(headers: Path, folder: Path) -> None:
    """Puts the module into a folder."""
    if not (headers / "build").exists():
        raise Trouble(f"{headers} was made elsewhere (the tree has moved): remove it")
    with tempfile.TemporaryDirectory(dir=folder) as name:
        for source in SOURCES:
            shutil.copy(source, name)
        output(["make", "-C", name, f"KERNEL={headers / 'build'}", "CC=gcc", *UNSET])
        shutil.copy(Path(name) / FILE, folder)
