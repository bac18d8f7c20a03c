# SPDX-License-Identifier: BSD-3-Clause
"""mca-params/regx.conf describes every parameter that there is, and none that there is not; and so
does the manual page."""
import re
import subprocess

import pytest

from launch import TOP, Build

CONF = TOP / "mca-params" / "regx.conf"
# "# btl_regx_chunk_size = 2M", so that nothing is set until the # is removed.
ENTRY = re.compile(r"^#?\s*(btl_regx_\w+)\s*=[ \t]*(.*?)\s*$", re.MULTILINE)


@pytest.fixture(scope="module")
def documented() -> dict[str, str]:
    entries = ENTRY.findall(CONF.read_text())
    assert len(entries) == len(dict(entries)), "one of them twice"
    return dict(entries)


def test_all_and_only_those_there_are(build: Build, documented: dict[str, str]) -> None:
    # Open MPI adds MPI_T's name of the version to every component's parameters.
    there = {name for name in build.parameters if not name.endswith("_version")}
    assert set(documented) == there


def test_defaults(build: Build, documented: dict[str, str]) -> None:
    wrong = {name: (value, build.parameters[name]["value"]) for name, value in documented.items()
             if build.parameters[name]["value"] != value}
    assert not wrong, "documented, and what ompi_info says"


def test_help(build: Build) -> None:
    """Each says something, in ompi_info too."""
    silent = [name for name, entry in build.parameters.items()
              if len(entry.get("help", "")) < 20 and not name.endswith("_version")]
    assert not silent


def test_manual_page(documented: dict[str, str]) -> None:
    files = [TOP / "mca-params" / name for name in ("manual.awk", "regx.conf", "regx.7.in")]
    page = subprocess.run(["awk", "-f", *files], capture_output=True, text=True, check=True).stdout
    entries = re.findall(r"^\.B (btl_regx_\w+) = ?(.*)$", page.replace("\\-", "-"), re.MULTILINE)
    assert dict(entries) == documented and len(entries) == len(documented)
    # No text of the file is lost on the way, and none is there twice.
    said = [line[2:] for line in CONF.read_text().split("# --- Whether")[1].splitlines()[1:]
            if line.startswith("# ") and not line.startswith("# ---")]
    there = page.replace("\\-", "-").splitlines()
    assert [line for line in said if there.count(line.replace("`", "")) != said.count(line)] == []
