# SPDX-License-Identifier: BSD-3-Clause
"""What is installed, and what goes into the tarball."""
import os
import re
import subprocess
from pathlib import Path

import pytest

from tables import BUILD, TOP


def make(*arguments: str) -> str:
    run = subprocess.run(["make", "-C", str(BUILD), "--no-print-directory", *arguments], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1200,
                         check=False)
    failed = re.findall(r"^(?:FAIL|ERROR): .*$", run.stdout, re.M)
    assert run.returncode == 0, "\n".join([*failed, run.stdout[-4000:]])
    return run.stdout


def test_install_ends_with_the_line_that_switches_it_on() -> None:
    line = make("install", "INSTALL=install -C").splitlines()[-1]  # jobs run beside it with what is there
    found = re.fullmatch(r"  (\w+)=(\S+) (\S+)/mpirun --mca pml ob1 --mca btl regx \.\.\.", line)
    assert found, line
    variable, value, folder = found.groups()
    listing = subprocess.run([f"{folder}/ompi_info"], env=os.environ | {variable: value}, text=True,
                             capture_output=True, check=True).stdout
    assert "MCA btl: regx (" in listing


def test_uninstall_leaves_nothing(tmp_path: Path) -> None:
    make("install", f"DESTDIR={tmp_path}")
    installed = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert {"mca_btl_regx.so", "README.md"} <= set(installed)
    make("uninstall", f"DESTDIR={tmp_path}")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def needed(library: Path) -> list[str]:
    dynamic = subprocess.run(["readelf", "--dynamic", library], capture_output=True, text=True,
                             check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)


def test_nothing_needs_ucx() -> None:
    """Loading UCX changes the process: it is loaded where the user asks for its hooks."""
    objects = [path for path in (BUILD / "component").glob("*.so")]
    assert "mca_btl_regx.so" in {path.name for path in objects}
    for path in objects:
        libraries = needed(path)
        assert any(name.startswith("libc.") for name in libraries), path
        assert not [name for name in libraries if name.startswith("libuc")], path


def test_tarball_has_every_file() -> None:
    if not (TOP / ".git").exists():
        pytest.skip("not a git checkout")
    tracked = subprocess.run(["git", "ls-files"], cwd=TOP, capture_output=True, text=True,
                             check=True).stdout.splitlines()
    make("dist-xz", "XZ_OPT=-0")
    (tarball,) = BUILD.glob("regx-*.tar.xz")
    listing = subprocess.run(["tar", "tf", tarball], capture_output=True, text=True,
                             check=True).stdout.splitlines()
    packed = {name.partition("/")[2] for name in listing}
    of_git_alone = {".gitignore", ".ci/run"}
    assert sorted(set(tracked) - packed - of_git_alone) == []


@pytest.mark.full  # another build, and all unit tests once more
def test_distcheck() -> None:
    make(f"-j{os.cpu_count()}", "distcheck")
