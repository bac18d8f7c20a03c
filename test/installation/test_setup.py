# SPDX-License-Identifier: BSD-3-Clause
"""component/config/setup: what is missing is named in one line, and nothing is replaced."""
import os
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]


def setup(*arguments: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TOP / "component/config/setup", *arguments], text=True, timeout=600,
                          capture_output=True, check=False, env=os.environ | {"PATH": path})


def path_without(folder: Path, *programs: str) -> str:
    """A PATH like this machine's, but for some programs."""
    folder.mkdir(exist_ok=True)
    for place in reversed(os.get_exec_path()):
        for program in Path(place).glob("*"):
            link = folder / program.name
            # ccache's compilers look for the next of their name in PATH, which is gone here.
            if program.name not in programs and program.resolve().name != "ccache":
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return str(folder)


def test_missing_packages_are_named_with_the_apt_line(tmp_path: Path) -> None:
    run = setup("test", "--no-install", path=path_without(tmp_path, "strace", "autoreconf"))
    assert run.returncode == 1
    assert run.stderr == ("regx: packages are missing; as root: "
                          "apt-get update && apt-get install -y autoconf strace\n")


def hide(module: str, folder: Path) -> str:
    """What PYTHONPATH has to be, so that a Python finds all its modules but this one."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == '{module}':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hidden())\n")
    return str(folder)


def test_all_modules_have_to_be_of_one_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "python3"
    own.write_text(f"#!/bin/sh\nPYTHONPATH={hide('pandas', tmp_path / 'own')} exec /usr/bin/python3 \"$@\"\n")
    own.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", hide("jinja2", tmp_path / "debian"))
    run = setup("compare", "--no-install", path=f"{tmp_path}:{os.environ['PATH']}")
    assert run.returncode == 1
    assert run.stderr == ("regx: packages are missing; as root: "
                          "apt-get update && apt-get install -y python3-jinja2\n")
