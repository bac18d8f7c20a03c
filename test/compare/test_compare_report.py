# SPDX-License-Identifier: BSD-3-Clause
"""osu-configs/report: adding regx's counters up over ranks."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from standins import TOP, WATCHDOG

from comparing import report
from comparing.trouble import Trouble

RANK_0 = {
    "rank": 0,
    "host": "a",
    "transport": "uct",
    "transport_reason": "no RDMA device here",
    "messages_bounce": 2,
    "bytes_bounce": 1000,
    "peers": 1,
    "slots_high": 3,
    "largest_registration": 10,
    "registrations": 1,
    "fallbacks": {"no slots": 1},
    "decisions": {},
}
RANK_1 = {
    **RANK_0,
    "rank": 1,
    "host": "b",
    "messages_bounce": 5,
    "bytes_bounce": 234,
    "slots_high": 2,
    "largest_registration": 40,
    "fallbacks": {"no slots": 2, "denied": 4},
}


def run(*files: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(TOP / "osu-configs/report"), *map(str, files)],
        capture_output=True,
        text=True,
        timeout=WATCHDOG,
        check=False,
    )


def test_sums_maxima_and_names() -> None:
    assert report.add([RANK_0, RANK_1]) == {
        "rank": [0, 1],
        "host": ["a", "b"],
        "transport": ["uct"],
        "transport_reason": ["no RDMA device here"],
        "messages_bounce": 7,
        "bytes_bounce": 1234,
        "peers": 1,
        "slots_high": 3,
        "largest_registration": 40,
        "registrations": 2,
        "fallbacks": {"no slots": 3, "denied": 4},
        "decisions": {},
    }


def test_the_table_adds_all_ranks_up(tmp_path: Path) -> None:
    files = [tmp_path / "0", tmp_path / "1"]
    for file, line in zip(files, (RANK_0, RANK_1)):
        file.write_text(json.dumps(line) + "\n")
    done = run(*files)
    assert done.returncode == 0 and done.stderr == ""
    lines = [re.split(r"  +", line.strip()) for line in done.stdout.splitlines()]
    assert ["2 ranks, 2 reports, 2 files"] in lines
    assert ["bounce", "7", "1,234"] in lines
    assert ["slots_high", "3"] in lines
    assert ["denied", "4"] in lines


def test_jobs_in_one_file_are_not_taken_for_one(tmp_path: Path) -> None:
    """Ranks of the same number, each with three others to talk to."""
    file = tmp_path / "three"
    jobs = [{**RANK_0, "rank": rank, "peers": 3} for rank in (0, 1, 2, 3)] * 3
    file.write_text("".join(json.dumps(line) + "\n" for line in jobs))
    lines = [re.split(r"  +", line.strip()) for line in run(file).stdout.splitlines()]
    assert ["4 ranks, 12 reports, 1 file"] in lines
    assert ["peers", "3"] in lines and ["bounce", "24", "12,000"] in lines


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "malformed: Expecting property name enclosed in double quotes at column 2"),
        ('{"rank": 0} {"rank": 1}', "malformed: Extra data at column 13"),
        ("[]", 'malformed: not a report of regx (an object with a "rank")'),
        ("{}", "malformed: not a report of regx"),
        ('{"rank": "0"}', "malformed: not a report of regx"),
        ('{"rank": 0, "puts": -1}', 'malformed: "puts" is neither a count nor a name'),
        ('{"rank": 0, "puts": 1.5}', 'malformed: "puts"'),
        ('{"rank": 0, "puts": null}', 'malformed: "puts"'),
        ('{"rank": 0, "fallbacks": {"why": []}}', 'malformed: "fallbacks"'),
    ],
)
def test_malformed_lines_are_named(tmp_path: Path, line: str, complaint: str) -> None:
    file = tmp_path / "report"
    file.write_text(json.dumps(RANK_0) + "\n" + line + "\n")
    done = run(file)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"report: {file}:2: {complaint}"), done.stderr
    assert done.stderr.count("\n") == 1


def test_no_file_and_no_line(tmp_path: Path) -> None:
    with pytest.raises(Trouble, match="nowhere: cannot be read: No such file"):
        report.read([tmp_path / "nowhere"])
    empty = tmp_path / "empty"
    empty.touch()
    done = run(empty)
    assert done.returncode == 1 and done.stderr == f"report: no line in {empty}\n"


@pytest.mark.parametrize(
    ("decisions", "strategy"),
    [
        ({}, None),
        ({"bounce: on trial": 90, "together: on trial": 9}, None),
        ({"bounce: on trial": 90, "together: faster when tried": 9}, "together"),
        ({"bounce: not slower when tried": 3, "bounce: the trial was inconclusive": 3,
          "pipeline: faster when tried": 5}, "bounce"),
        ({"something else": 9}, None),
    ],
)  # fmt: skip
def test_what_auto_chose(decisions: dict[str, int], strategy: str | None) -> None:
    assert report.chosen(decisions) == strategy


def test_the_line_that_pins_the_choice(tmp_path: Path) -> None:
    file = tmp_path / "report"
    line = {**RANK_0, "decisions": {"bounce: on trial": 9, "together: faster when tried": 70}}
    file.write_text(json.dumps(line) + "\n")
    done = run(file)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == (
        "to pin auto's choice, together: --mca btl_regx_rendezvous together"
    )
