# SPDX-License-Identifier: BSD-3-Clause
"""What pytest's JUnit files say, and the sum of it."""
from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import NamedTuple

SLOWEST = 10


class Result(NamedTuple):
    outcome: str  # passed, failed, flaky or skipped
    test: str  # as test/run takes it
    reason: str = ""  # of a failure; of a skip the condition that explains it
    seconds: float = 0.0
    excusable: str = ""  # a failure that is a counter or a line only: which
    phase: str = ""
    parts: tuple[str, ...] = ()  # conditions for which parts of it were skipped
    again: tuple[str, ...] = ()  # jobs that were run again because of Open MPI's own crash


def name(case: ElementTree.Element) -> str:
    """As pytest takes it. Of a file that was not collected the name stands alone."""
    return next((its.get("value", "") for its in case.iterfind("properties/property[@name='node']")),
                f"{case.get('classname')}::{case.get('name')}".removeprefix("::"))


def result(case: ElementTree.Element, phase: str) -> Result:
    said: dict[str, list[str]] = {}
    for its in case.iterfind("properties/property"):
        said.setdefault(its.get("name", ""), []).append(its.get("value", ""))
    seconds = float(case.get("time", 0))
    skipped = case.find("skipped")
    bad = case.find("failure")
    if bad is None:
        bad = case.find("error")
    if bad is not None:
        outcome, reason = "failed", bad.get("message", "").split("\n")[0]
    elif skipped is not None:
        outcome = "skipped" if "because" in said else "failed"
        reason = said.get("because", [f"skipped, which test/skips.py does not expect: "
                                      f"{skipped.get('message', '')}"])[0]
    else:
        outcome, reason = "passed", ""
    return Result(outcome, name(case), reason, seconds, said.get("excusable", [""])[0], phase,
                  tuple(said.get("part", [])), tuple(said.get("run again", [])))


def of(file: Path, status: int, phase: str) -> list[Result]:
    """The results of one run of pytest that ended with that status. A phase without a test is none of
    this run's (status 5)."""
    if status == 5:
        return []
    if not file.exists():
        return [Result("failed", phase, f"pytest ended with status {status}, without results")]
    found = [result(case, phase) for case in ElementTree.parse(file).iter("testcase")]
    if status != 0 and all(its.outcome != "failed" for its in found):
        found.append(Result("failed", phase, f"pytest ended with status {status}"))
    return found


def show(found: list[Result], folder: Path) -> int:
    """Prints the sum; leaves `durations` and `skipped` in the folder. The status of test/run."""
    slow = sorted(found, key=lambda its: -its.seconds)
    (folder / "durations").write_text("".join(f"{its.seconds:.2f}\t{its.test}\n" for its in slow))
    skipped = [(its.reason, its.test) for its in found if its.outcome == "skipped"]
    parts = [(part, its.test) for its in found for part in its.parts]
    (folder / "skipped").write_text("".join(f"{why}\t{test}\n" for why, test in skipped + parts))
    print("slowest, in seconds:")
    for its in slow[:SLOWEST]:
        print(f"{its.seconds:8.1f}  {its.test}")
    for what, which in (("test", skipped), ("part of a unit test", parts)):
        for why, count in sorted(Counter(why for why, _ in which).items()):
            print(f"skipped: {count} x {what}: {why}")
    for its in found:
        for command in its.again:
            print(f"run again, since Open MPI died as it finalized: {its.test}: {command}")
    for its in found:
        if its.outcome == "flaky":
            print(f"flaky: {its.test} ({its.excusable}; log: {folder})")
        elif its.outcome == "failed":
            print(f"failed: {its.test}  {its.reason}")
    counts = Counter("passed" if its.outcome == "flaky" else its.outcome for its in found)
    if not found:
        print("no test was run")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not found else 0
