# SPDX-License-Identifier: BSD-3-Clause
"""What may be in the tree, and what its files may say."""
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tree import TOP, files

TOP_LEVEL = {
    "component", "findings", "mca-params", "test", "osu-configs",
    "autogen.sh", "configure.ac", "Makefile.am", "README.md", "README", "LICENSE",
}
# Where a reader may be sent. A host that is not here is a typing error, or a mirror.
HOSTS = {"blogs.cisco.com", "github.com", "lists.openfabrics.org", "mvapich.cse.ohio-state.edu", "www.open-mpi.org"}


def text(path: Path) -> str:
    return (TOP / path).read_text(errors="replace")


def test_top_level() -> None:
    assert {path.parts[0] for path in files() if not path.parts[0].startswith(".")} <= TOP_LEVEL


def test_licence_line() -> None:
    code = {".c", ".h", ".py", ".sh", ".am", ".ac", ".m4", ".conf"}
    missing = [str(path) for path in files()
               if (path.suffix in code or text(path).startswith("#!"))
               and "SPDX-License-Identifier: BSD-3-Clause" not in "".join(
                   text(path).splitlines(keepends=True)[:3])]
    assert not missing


def test_shared_folder_is_only_known_to_ci() -> None:
    name = "../" + "shared"
    assert [str(path) for path in files() if name in text(path)] == [".ci/run"]


def test_no_path_of_a_machine() -> None:
    pattern = re.compile(r"(?<![\w.$})-])/(work|root|home)/\w")
    assert not [f"{path}: {match.group()}" for path in files()
                for match in pattern.finditer(text(path))]


def test_no_host_of_a_mirror_is_named() -> None:
    pattern = re.compile(r"\b(?:https?|ftp)://([^/\s:\"'>)]+)")
    assert not [f"{path}: {match.group()}" for path in files()
                for match in pattern.finditer(text(path)) if match.group(1) not in HOSTS]


def test_pytest_looks_into_every_folder(pytestconfig: pytest.Config) -> None:
    """It passes over those with certain names, such as build, in silence."""
    names = {part for path in files() if path.parts[0] == "test" for part in path.parts[1:-1]}
    assert not [name for name in names for pattern in pytestconfig.getini("norecursedirs")
                if fnmatch(name, pattern)]
