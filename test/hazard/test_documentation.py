# SPDX-License-Identifier: BSD-3-Clause
"""mca-params/regx.conf and reference.md are what the tables say, and the tables are what ompi_info
shows; the manual page has the text of regx.conf."""
import re
import subprocess

import pytest

from launch import TOP, Build, Mpi
from tables import BUILD, describe, tables
from test_parameter import BAD, job_of_four, one_line

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


# Of Open MPI's own parameters the help is Open MPI's too.
REFUSED = {**{name: values[0] for name, values in BAD.items()}, "eager_limit": "0",
           "max_send_size": "0"}
# Words of a refusal that only join others, and what a text may have in the place of one.
JOINING = {"to", "of", "comma", "separated"}
CALLED = {"256K": {"slots"}, "4K": {"4K", "page"}, "multiples": {"multiple"}}


# These two name what is allowed in forms of their own.
@pytest.mark.parametrize("name", sorted(set(REFUSED) - {"if_include", "auto_choice"}))
def test_help_names_all_that_a_refusal_allows(mpi: Mpi, build: Build, name: str) -> None:
    """Help and file name every word and both ends of every range that a refusal names."""
    job = job_of_four(mpi, "regx,vader,self", {name: REFUSED[name]})
    allowed = set(re.findall(r"[\w+]+", one_line(job, name, REFUSED[name]))) - JOINING
    above = re.search(rf"((?:^#(?: .*)?\n)+)#btl_regx_{name} =", CONF.read_text(), re.MULTILINE)
    assert above, "there is no text above it"
    texts = {CONF.name: above[1]}
    if name in BAD:
        texts["ompi_info"] = build.parameters[f"btl_regx_{name}"]["help"]
    for where, text in texts.items():
        said = set(re.findall(r"[\w+]+", text))
        assert not {word for word in allowed if not CALLED.get(word, {word}) & said}, where


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
