# SPDX-License-Identifier: BSD-3-Clause
"""Packages: Debian's are built and installed in a root of their own, the recipes of others agree with
configure."""
import os
import re
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
SOURCES = [TOP / "component/kernel" / name for name in ("Makefile", "regx_notify.c", "regx_notify.h")]
MACHINE, CACHE = TOP / "test/machine/run", TOP / ".build/machine"
CONFIG = TOP / "component/config"
SPEC = CONFIG / "rpm/regx.spec"
RECIPE = CONFIG / "spack/spack_repo/regx/packages/regx/package.py"


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


def test_the_kernel_modules_package_is_what_dkms_is_told() -> None:
    """All that its makefile needs, at the version that DKMS looks for."""
    told = dict(re.findall(r'^PACKAGE_(NAME|VERSION)="(.*)"$', (TOP / "component/kernel/dkms.conf").read_text(), re.M))
    assert f'MODULE_VERSION("{told["VERSION"]}")' in (TOP / "component/kernel/regx_notify.c").read_text()
    lines = (CONFIG / "debian/regx-notify-dkms.install").read_text().splitlines()
    put = [line.split() for line in lines if "usr/src" in line]
    assert {path for path, _ in put} == {str(path.relative_to(TOP)) for path in SOURCES}
    assert {to for _, to in put} == {f"usr/src/{told['NAME']}-{told['VERSION']}"}


@pytest.mark.full  # it is built from nothing
@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_the_debian_package_changes_nothing_until_asked_and_leaves_nothing(suite: str) -> None:
    """Open MPI 4.1; and 5.0, where DKMS makes the module for the emulated machine's kernel."""
    if os.geteuid() != 0:
        pytest.skip("only root can make another root folder")
    words = [str(TOP / "test/machine/debian"), suite, "test/installation/package"]
    if suite == "trixie":
        subprocess.run([MACHINE, "--fetch"], stdin=subprocess.DEVNULL, check=True, timeout=3600)
        kernel = (CACHE / "kernel-trixie-backports/vmlinux").read_bytes()
        words += [name.decode() for name in re.findall(rb"Linux version (\S+)", kernel)[:1]]
    run = subprocess.run(words, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         check=False, timeout=3600)
    assert run.returncode == 0, run.stdout[-4000:]
    assert re.fullmatch(r"package: openmpi-btl-regx-\d\.\d is right", run.stdout.splitlines()[-1])
    if suite == "trixie":
        tested = subprocess.run([
            MACHINE, "--timeout", "1800", "--module", CACHE / "debian-trixie/root/regx/.build/regx_notify.ko", "--",
            "/usr/bin/python3", "-B", "-m", "pytest", "-p", "no:cacheprovider", "-q", f"--rootdir={TOP}",
            "test/registration/test_notify.py", "-k", "told or promises"], text=True, stdin=subprocess.DEVNULL,
            capture_output=True, check=False, timeout=2400)
        assert tested.returncode == 0 and "2 passed" in tested.stdout, f"{tested.stdout}\n{tested.stderr}"
