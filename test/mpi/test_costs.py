# SPDX-License-Identifier: BSD-3-Clause
"""btl_regx_costs: a job begins with what a file says, and does without a file that is none of its own."""
import re
from pathlib import Path

import pytest

import sample
from job import Job
from launch import TOP, Mpi
from sample import Case

LARGE = 100_000
NEIGHBOURS = ("l2", "l3", "package", "node", "any")
PATTERNS = ("single", "touched", "stream", "exchange")
KEYS = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part", "cpu")
WINDOW, ITERATIONS = 10, 6  # no trial


def processor() -> str:
    first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    return " ".join(match[2] for match in re.finditer(r"^([^\t:]+?)\s*: (.*)$", first, re.MULTILINE)
                    if match[1] in KEYS)


def head() -> str:
    version = re.findall(r"AC_INIT\(\[regx\], \[(.*)\]\)", (TOP / "configure.ac").read_text())[0]
    return f"regx-costs 3\nregx {version}\nprocessor {processor()}\n"


def costs(*lines: str) -> str:
    """Of each neighbour, in each pattern: size, and costs."""
    return head() + "".join(f"{neighbour} {size} {pattern} {times}\n" for neighbour in NEIGHBOURS for pattern in PATTERNS
                            for size, times in [line.split(" ", 1) for line in lines]) + "end\n"


def run(mpi: Mpi, tmp_path: Path, seed: int, file: Path, size: int = LARGE) -> Job:
    cases = [Case(size, 1, 2, window=WINDOW)] * 2
    return mpi("transfer", "--seed", seed, "--iterations", ITERATIONS, sample.write(cases, tmp_path),
               regx={"costs": file})


@pytest.mark.parametrize("size,line,way", [
    (LARGE, "64K - 30 20 10", "read: as btl_regx_costs says"),
    (LARGE, "64K - 10 20 30", "staged: as btl_regx_costs says"),
    (LARGE, "64K - 20 10 30", "together: as btl_regx_costs says"),
    (8000, "8K 20 30 40 10", "read: the only rendezvous that auto has up to 32 KiB"),
    (8000, "8K 20 10 10 30", "eager"), (8000, "8K 10 20 30 40", "eager")], ids=str)
def test_a_job_begins_with_what_was_fastest_and_tries_nothing(mpi: Mpi, tmp_path: Path, seed: int, size: int, line: str,
                                                              way: str) -> None:
    (tmp_path / "costs").write_text(costs(line))
    job = run(mpi, tmp_path, seed, tmp_path / "costs", size).checked(ranks=2)
    ways = job.ways()
    assert not [name for name in ways if "on trial" in name or "not tried yet" in name], str(job)
    if way == "eager":
        assert job.total("messages_eager") >= WINDOW * ITERATIONS, str(job)
    else:
        assert ways[way] >= WINDOW * ITERATIONS, str(job)


@pytest.mark.parametrize("way,times", [("staged", "10 20 30"), ("together", "20 10 30"), ("read", "30 20 10")])
def test_auto_needs_no_more_of_its_sender(mpi: Mpi, tmp_path: Path, way: str, times: str) -> None:
    """Which is outside MPI until the messages have been received, by whatever path auto takes on a node. Of those
    that are staged it has copied nothing."""
    (tmp_path / "costs").write_text(costs(*(f"{size} - {times}" for size in ("64K", "128K", "1M", "2M"))))
    job = mpi("outside", tmp_path / "received", regx={"costs": tmp_path / "costs"}, timeout=120).checked(2)
    assert job.ways()[f"{way}: as btl_regx_costs says"] == 160, str(job)


def test_auto_reads_what_its_sender_has_no_place_for(mpi: Mpi, tmp_path: Path) -> None:
    """There is place for 64 messages at a time."""
    (tmp_path / "costs").write_text(costs("64K - 10 20 30"))
    job = mpi("transfer", "--iterations", 4, sample.write([Case(LARGE, 1, 2, window=80)], tmp_path),
              regx={"costs": tmp_path / "costs"}).checked(ranks=2)
    ways = job.ways()
    assert ways["read: the sender did not stage it"] > 0 < ways["staged: as btl_regx_costs says"], str(job)


WRONG = {
    "missing": lambda file: None,
    "of another processor": lambda file: file.write_text(costs("64K - 1 2 3").replace(processor(), "Other 1 2")),
}


@pytest.mark.parametrize("what", WRONG)
def test_another_file_is_ignored_with_one_line(mpi: Mpi, tmp_path: Path, seed: int, what: str) -> None:
    """However it is wrong: test/unit/btl/test_costs.c."""
    WRONG[what](tmp_path / "costs")
    job = run(mpi, tmp_path, seed, tmp_path / "costs").warned(f"btl_regx_costs={tmp_path}", "is ignored: ")
    job.checked(ranks=2)
    assert not [name for name in job.ways() if "costs" in name], str(job)
