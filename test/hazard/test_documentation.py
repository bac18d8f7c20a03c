# SPDX-License-Identifier: BSD-3-Clause
"""mca-params/regx.conf and reference.md are what the tables say, and the tables are what ompi_info
shows; the manual page has the text of regx.conf."""
import re
import subprocess

import pytest

from launch import TOP, Build
from tables import BUILD, describe, tables

CONF = TOP / "mca-params" / "regx.conf"
# "# btl_regx_chunk_size = 2M", so that nothing is set until the # is removed.
ENTRY = re.compile(r"^#?\s*(btl_regx_\w+)\s*=[ \t]*(.*?)\s*$", re.MULTILINE)


@pytest.fixture(scope="module")
def documented() -> dict[str, str]:
    entries = ENTRY.findall(CONF.read_text())
    assert len(entries) == len(dict(entries)), "one of them twice"
    return dict(entries)


@pytest.mark.parametrize("kind,file", [("conf", "regx.conf"), ("reference", "reference.md")])
def test_generated_files_are_current(kind: str, file: str) -> None:
    """Written anew by: make -C .build/obj reference"""
    subprocess.run(["make", "-s", "-C", BUILD, "mca-params/describe"], check=True, timeout=600,
                   stdout=subprocess.DEVNULL)
    assert (TOP / "mca-params" / file).read_text() == describe(kind)


def test_every_key_of_the_report_is_documented() -> None:
    page = (TOP / "mca-params" / "reference.md").read_text()
    assert not [key for key in tables()["report"] if f"`{key}`" not in page]


def test_exactly_the_existing_parameters_are_documented(build: Build, documented: dict[str, str]) -> None:
    # Open MPI adds MPI_T's name of the version to every component's parameters, and 5.0 one about the
    # memory of accelerators to every BTL's, which regx has no use for.
    there = {name for name in build.parameters if not name.endswith("_version")
             and name != "btl_regx_accelerator_max_send_size"}
    assert set(documented) == there


def test_documented_defaults_are_ompi_infos(build: Build, documented: dict[str, str]) -> None:
    wrong = {name: (value, build.parameters[name]["value"]) for name, value in documented.items()
             if build.parameters[name]["value"] != value}
    assert not wrong, "documented, and what ompi_info says"


def test_each_parameter_has_help_in_ompi_info(build: Build) -> None:
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
    said = [line[2:] for line in CONF.read_text().split("# --- The component")[1].splitlines()[1:]
            if line.startswith("# ") and not line.startswith("# ---")]
    there = page.replace("\\-", "-").splitlines()
    assert [line for line in said if there.count(line.replace("`", "")) != said.count(line)] == []
