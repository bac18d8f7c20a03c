# SPDX-License-Identifier: BSD-3-Clause
"""mca-params/regx.conf has exactly the parameters that there are, with their words, and what ompi_info and
the manual page say is made from it. The parameters that the pages about containers and other transports
name exist, vader's too."""
import re
import subprocess

import pytest

from launch import TOP, Build
from tables import BUILD, parameters, tables

CONF = TOP / "mca-params" / "regx.conf"
PAGES = [TOP / "mca-params" / name for name in ("containers.md", "from-other-transports.md")]
# "# btl_regx_chunk_size = 2M", so that nothing is set until the # is removed.
ENTRY = re.compile(r"^#?\s*(btl_regx_\w+)\s*=[ \t]*(.*?)\s*$", re.MULTILINE)


@pytest.fixture(scope="module")
def documented() -> dict[str, str]:
    entries = ENTRY.findall(CONF.read_text())
    assert len(entries) == len(dict(entries)), "one of them twice"
    return dict(entries)


def test_the_words_and_the_largest_number_are_those_of_the_tables() -> None:
    page = re.split(r"^# ---.*$", CONF.read_text(), flags=re.MULTILINE)
    for entry in "".join(page[1:]).split("\n\n"):
        for name in re.findall(r"^#btl_regx_(\w+)", entry, re.MULTILINE):
            there = parameters().get(name)
            if there is None:
                continue  # Open MPI's own
            said = re.findall(r"^#   (\S+)", entry, re.MULTILINE)
            assert [word for word in said if word not in {"SIZE", "NUMBER", "FILE"}] == there["words"] or \
                name in ("report", "pin_cost"), name  # text, not a word of a table
            assert there["max"] == "0" or f" to {there['max']}" in entry, (name, there["max"])


def test_exactly_the_existing_parameters_are_documented(build: Build, documented: dict[str, str]) -> None:
    # Open MPI adds MPI_T's name of the version to every component's parameters, and 5.0 one about the
    # memory of accelerators to every BTL's, which regx has no use for.
    there = {name for name in build.parameters if not name.endswith("_version")
             and name != "btl_regx_accelerator_max_send_size"}
    unset = set(re.findall(r"btl_regx_\w+", CONF.read_text().split("# Not to be set: ")[1].split(": use ")[0]))
    unset.discard("btl_regx_flags")  # from which they follow
    assert set(documented) | unset == there and not set(documented) & unset


def test_documented_defaults_are_ompi_infos(build: Build, documented: dict[str, str]) -> None:
    wrong = {name: (value, build.parameters[name]["value"]) for name, value in documented.items()
             if build.parameters[name]["value"] != value}
    assert not wrong, "documented, and what ompi_info says"


def test_the_parameters_that_pages_name_exist(build: Build) -> None:
    """Each of regx's, and each of vader's, which from Open MPI 5.0 on is another component."""
    page = "".join(path.read_text() for path in PAGES)
    named = {btl: set(re.findall(rf"btl_{btl}_\w+", page)) for btl in ("regx", "vader")}
    assert named["regx"] and not named["regx"] - set(build.parameters)
    assert named["vader"]
    if build.series < (5, 0):
        assert not named["vader"] - set(re.findall(r"\bbtl_vader_\w+", build.ompi_info("vader")))


def test_manual_page(documented: dict[str, str]) -> None:
    subprocess.run(["make", "-s", "-C", BUILD, "mca-params/regx.7"], check=True, timeout=600,
                   stdout=subprocess.DEVNULL)
    page = (BUILD / "mca-params/regx.7").read_text().replace("\\-", "-")
    assert dict(re.findall(r"^\.B (btl_regx_\w+) = ?(.*)$", page, re.MULTILINE)) == documented
    assert not [key for key in tables()["report"] if f".B {key}\n" not in page]
    # No text of the file is lost on the way, and none is there twice.
    said = [line[2:] for line in CONF.read_text().split("# --- The component")[1].splitlines()[1:]
            if line.startswith("# ") and not line.startswith("# ---")]
    there = page.splitlines()
    assert [line for line in said if there.count(line.replace("`", "")) != said.count(line)] == []
