# SPDX-License-Identifier: BSD-3-Clause
"""mca-params/regx.conf describes every parameter that there is, and none that there is not."""
import re

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
