# SPDX-License-Identifier: BSD-3-Clause
"""What test/run says of results that went wrong: nothing may pass for want of a look."""
import subprocess
import sys
from pathlib import Path

import pytest

import results
import runner
from job import Job

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


@pytest.mark.parametrize("status,stderr,sound", [
    (0, "", True), (1, "", False), (0, "rank 1: wrong byte at 3", False),
    (0, "ERROR: AddressSanitizer: heap-use-after-free", False),
    (0, "*** Process received signal ***", False)])
def test_only_a_job_that_found_all_right_can_be_tried_again(status: int, stderr: str,
                                                            sound: bool) -> None:
    assert Job("", status, "checked 1 bytes\n", stderr).sound == sound
    assert not Job("", status, "checked 1 bytes\n", stderr, [{"malformed": 1}]).sound


def test_so_can_one_whose_end_mpirun_did_not_hear_of() -> None:
    said = "mpirun has exited due to process rank 1 with PID 0 on\nnode vm exiting improperly. There are three"
    reports = [{"malformed": 0}] * 2
    assert Job("", 1, "checked 1 bytes\n", said, reports).sound
    assert not Job("", 1, "", said, reports).sound
    assert not Job("", 1, "checked 1 bytes\n", said).sound
    assert not Job("", 1, "checked 1 bytes\n", f"rank 1: wrong byte at 3\n{said}", reports).sound


def test_all_of_a_file_that_is_named_runs_in_the_emulated_machine(tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    whole = "test/hazard/test_verbs_grant.py"  # of which a run without a name does nothing
    monkeypatch.setattr(runner, "BUILD", tmp_path)
    monkeypatch.setenv("REGX_PYTHON", sys.executable)
    monkeypatch.setattr(sys, "argv", ["test/run", "--machine", whole])
    [guest] = [phase for phase in runner.PHASES if phase.name == "guest"]
    asked = runner.Run(runner.arguments())
    words = asked.command(sys.executable, [whole], asked.selection(guest), tmp_path / "file.xml")
    found = subprocess.run([*words, "--collect-only"], cwd=runner.TOP, stdout=subprocess.PIPE, text=True, check=False)
    assert "1 test collected" in found.stdout, found.stdout
