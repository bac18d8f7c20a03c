# SPDX-License-Identifier: BSD-3-Clause
"""What test/run says of results that went wrong: nothing may pass for want of a look."""
from pathlib import Path

import pytest

import results
import skips
from job import Job
from results import Result

JUNIT = '''<testsuites><testsuite>
<testcase classname="a" name="good" time="1.0"/>
<testcase classname="a" name="bad" time="0"><properties><property name="node" value="test/a.py::bad"/>
</properties><failure message="assert 1 == 2"/></testcase>
<testcase classname="a" name="left" time="0"><skipped message="no such thing"/></testcase>
<testcase classname="a" name="known" time="0"><properties><property name="because" value="no device"/>
</properties><skipped message="no device here"/></testcase>
</testsuite></testsuites>'''


def test_failures_and_unexpected_skips_are_counted(tmp_path: Path,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "jobs.xml"
    file.write_text(JUNIT)
    assert results.show(results.of(file, 1, "jobs"), tmp_path) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "1 passed, 2 failed, 1 skipped"
    assert "failed: test/a.py::bad  assert 1 == 2" in out
    assert "skips.py does not expect: no such thing" in out


@pytest.mark.parametrize("junit,status", [
    (None, 2), ("<testsuites/>", 1), (JUNIT.replace("<failure", "<passing").replace("skipped", "x"), 3)])
def test_a_run_that_ends_badly_is_a_failure_though_no_test_is(tmp_path: Path, junit: str | None,
                                                              status: int) -> None:
    file = tmp_path / "jobs.xml"
    if junit:
        file.write_text(junit)
    assert [its.outcome for its in results.of(file, status, "jobs")].count("failed") == 1


def test_no_test_at_all_is_a_failure(tmp_path: Path) -> None:
    assert results.show([], tmp_path) == 1


def test_what_was_tried_again_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flaky = Result("flaky", "test/a.py::b", "assert 1 == 2", excusable="1 == 2")
    assert results.show([flaky], tmp_path) == 0
    out = capsys.readouterr().out
    assert "flaky: test/a.py::b (1 == 2" in out and out.endswith("1 passed, 0 failed, 0 skipped\n")


@pytest.mark.parametrize("status,stderr,sound", [
    (0, "", True), (1, "", False), (0, "rank 1: wrong byte at 3", False),
    (0, "ERROR: AddressSanitizer: heap-use-after-free", False),
    (0, "*** Process received signal ***", False)])
def test_only_a_job_that_found_all_right_can_be_tried_again(status: int, stderr: str,
                                                            sound: bool) -> None:
    assert Job("", status, "checked 1 bytes\n", stderr).sound == sound


def test_a_skip_that_is_not_listed_has_no_condition() -> None:
    assert skips.because("test/mpi/test_transfer.py::test_a", "the backend was refused") is None
