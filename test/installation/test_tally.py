# SPDX-License-Identifier: BSD-3-Clause
"""test/tally: no failure is lost in the sum, and no skip that nobody expected."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

TEST = Path(__file__).resolve().parents[1]
TALLY = TEST / "tally"

sys.path.insert(0, str(TEST))
import skips  # noqa: E402

# Stands for skips.py: conditions that hold, that do not, and that ask which run it is.
LIST = """
CONDITIONS = {"no room": lambda run: True, "no door": lambda run: False,
              "only asan": lambda run: run.name == "asan",
              "not --full": lambda run: not run.full}
EXPECTED = [("test_x", "too small", "no room"), ("test_x", "no way out", "no door"),
            ("test_x", "own malloc", "only asan"), ("test_x", "takes long", "not --full")]
"""


def tally(*arguments: str | Path) -> tuple[int, list[str]]:
    run = subprocess.run([sys.executable, TALLY, *arguments], capture_output=True, text=True,
                         check=False)
    return run.returncode, run.stdout.splitlines()


@pytest.fixture(name="listed")
def skips_that_are_listed(tmp_path: Path) -> str:
    (tmp_path / "skips.py").write_text(LIST)
    return f"--skips={tmp_path}/skips.py"


def unit_run(folder: Path, tap: str, *outcomes: str) -> Path:
    (folder / "room").mkdir(parents=True)
    (folder / "room/test_x.log").write_text(tap)
    (folder / "room/test_x.trs").write_text(
        "".join(f":test-result: {word}\n" for word in outcomes))
    return folder


def test_unit_tests(tmp_path: Path, listed: str) -> None:
    """Named as test/run takes them; a failure with what the program said of it."""
    folder = unit_run(tmp_path / "test", "1..3\nok 1 - a\nPASS: x 1 - a\nnot ok 2 - b\n# 1 != 2\n"
                      "# x.c:7: error\nok 3 - c # SKIP too small\n", "PASS", "FAIL", "SKIP")
    assert tally(listed, f"obj=1={folder}") == (1, [
        "failed: obj: test/room/test_x: b", "    1 != 2", "    x.c:7: error",
        "skipped: 1 test: no room", "1 passed, 1 failed, 1 skipped"])


def test_jobs_that_were_run_again_are_counted(tmp_path: Path) -> None:
    """Two of one test, one of another."""
    again = '<property name="run again" value="mpirun"/>'
    (tmp_path / "run.xml").write_text(
        '<testsuites><testsuite>'
        f'<testcase classname="test.mpi.test_x" name="test_a"><properties>{again * 2}</properties>'
        '</testcase><testcase classname="test.mpi.test_x" name="test_b"/>'
        f'<testcase classname="test.mpi.test_x" name="test_c"><properties>{again}'
        '<property name="other" value="x"/></properties></testcase></testsuite></testsuites>')
    assert tally(f"pytest=0={tmp_path / 'run.xml'}") == (0, [
        "run again, since Open MPI died in its own MPI_Finalize: 3 jobs",
        "  pytest: test/mpi/test_x.py::test_a", "  pytest: test/mpi/test_x.py::test_a",
        "  pytest: test/mpi/test_x.py::test_c", "3 passed, 0 failed, 0 skipped"])


def test_a_crash_is_a_failure(tmp_path: Path) -> None:
    folder = unit_run(tmp_path / "unit", "1..2\nok 1 - a\n", "PASS", "ERROR")
    status, lines = tally(f"obj=1={folder}")
    assert (status, lines[-1]) == (1, "1 passed, 1 failed, 0 skipped")


def test_a_program_that_skips_itself_is_counted(tmp_path: Path, listed: str) -> None:
    folder = unit_run(tmp_path / "test", "1..0 # SKIP too small\n", "SKIP")
    assert tally(listed, f"obj=0={folder}") == (0, [
        "skipped: 1 program: no room", "0 passed, 0 failed, 1 skipped"])


def test_a_program_that_skips_itself_unexpectedly_is_a_failure(tmp_path: Path, listed: str) -> None:
    folder = unit_run(tmp_path / "test", "1..0 # SKIP refused\n", "SKIP")
    assert tally(listed, f"obj=0={folder}") == (1, [
        "failed: obj: test/room/test_x: skipped, which test/skips.py does not expect: refused",
        "0 passed, 1 failed, 0 skipped"])


def test_a_program_without_a_result_is_a_failure(tmp_path: Path) -> None:
    folder = unit_run(tmp_path / "test", "1..1\nok 1 - a\n", "PASS")
    (folder / "room/test_y.log").write_text("")
    (folder / "room/test_y.trs").write_text("")
    assert tally(f"obj=0={folder}") == (1, ["failed: obj: test/room/test_y: had no result",
                                            "1 passed, 1 failed, 0 skipped"])


def test_a_program_that_was_stopped_is_a_failure(tmp_path: Path) -> None:
    """make was ended before it could write the program's .trs."""
    folder = unit_run(tmp_path / "test", "1..2\nok 1 - a\n", "PASS")
    (folder / "room/test_x.trs").unlink()
    status, lines = tally(f"obj=0={folder}")
    assert (status, lines[-1]) == (1, "1 passed, 1 failed, 0 skipped")


def test_a_skip_without_a_reason_is_a_failure(tmp_path: Path, listed: str) -> None:
    folder = unit_run(tmp_path / "test", "1..1\nok 1 - a # SKIP no reason given\n", "SKIP")
    status, lines = tally(listed, f"obj=0={folder}")
    assert (status, lines[-1]) == (1, "0 passed, 1 failed, 0 skipped")


def test_a_skip_of_another_kind_of_machine_is_a_failure(tmp_path: Path, listed: str) -> None:
    """It is listed, but its condition does not hold here."""
    folder = unit_run(tmp_path / "test", "1..1\nok 1 - a # SKIP no way out\n", "SKIP")
    assert tally(listed, f"obj=0={folder}") == (1, [
        "failed: obj: test/room/test_x: a: skipped, but this is not a run with: no door: no way "
        "out", "0 passed, 1 failed, 0 skipped"])


def test_a_skip_may_depend_on_the_run(tmp_path: Path, listed: str) -> None:
    folder = unit_run(tmp_path / "test", "1..1\nok 1 - a # SKIP own malloc\n", "SKIP")
    assert tally(listed, f"asan=0={folder}")[0] == 0
    assert tally(listed, f"obj=0={folder}")[0] == 1
    folder = unit_run(tmp_path / "other", "1..1\nok 1 - a # SKIP takes long\n", "SKIP")
    assert tally(listed, f"obj=0={folder}")[0] == 0
    assert tally(listed, "--full", f"obj=0={folder}")[0] == 1


def test_no_test_is_a_failure(tmp_path: Path) -> None:
    for path in tmp_path, tmp_path / "nowhere.xml":
        assert tally(f"a=0={path}") == (1, ["failed: a  no test was run (status 0)",
                                            "0 passed, 1 failed, 0 skipped"])


def test_a_bad_end_is_a_failure(tmp_path: Path) -> None:
    folder = unit_run(tmp_path / "unit", "1..1\nok 1 - a\n", "PASS")
    assert tally(f"a=0={folder}") == (0, ["1 passed, 0 failed, 0 skipped"])
    assert tally(f"a=2={folder}") == (1, ["failed: a  ended with status 2",
                                          "1 passed, 1 failed, 0 skipped"])


def pytest_run(folder: Path, text: str) -> str:
    """tally's argument for a run of one file."""
    (folder / "room").mkdir(exist_ok=True)
    (folder / "room/test_x.py").write_text(text)
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                          "--rootdir=.", "--junitxml=y.xml", "room"], cwd=folder,
                         stdout=subprocess.DEVNULL, check=False)
    return f"pytest={run.returncode}={folder}/y.xml"


def test_pytest(tmp_path: Path, listed: str) -> None:
    status, lines = tally(listed, pytest_run(
        tmp_path, "import pytest\n\n@pytest.fixture\ndef bad():\n    yield\n    assert 0\n\n"
        "def test_good(): pass\ndef test_wrong(): assert 0\ndef test_ends_badly(bad): pass\n"
        "def test_skipped(): pytest.skip('too small')\n"
        "@pytest.mark.skipif(True, reason='refused')\ndef test_also(): pass\n"))
    assert (status, lines[-1]) == (1, "1 passed, 3 failed, 1 skipped")
    assert "failed: pytest: room/test_x.py::test_wrong" in lines
    assert "skipped: 1 test: no room" in lines
    assert ("failed: pytest: room/test_x.py::test_also: skipped, which test/skips.py does not "
            "expect: refused") in lines


def test_a_file_that_skips_itself_is_counted(tmp_path: Path, listed: str) -> None:
    """pytest gives it one result without a class."""
    run = pytest_run(tmp_path, "import pytest\n\npytest.skip('refused', allow_module_level=True)\n")
    status, lines = tally(listed, run.replace("=5=", "=0="))
    assert (status, lines[-1]) == (1, "0 passed, 1 failed, 0 skipped")


def test_durations_are_kept_and_the_slowest_named(tmp_path: Path, listed: str) -> None:
    folder = unit_run(tmp_path / "test", "1..1\nok 1 - a\n# took 61.5 s\n", "PASS")
    run = pytest_run(tmp_path, "import time\n\ndef test_slow(): time.sleep(1.1)\n"
                               "def test_quick(): pass\n")
    status, lines = tally(listed, f"--keep={tmp_path}", f"obj=0={folder}", run)
    assert status == 0
    assert lines[0] == "slowest, in seconds:"
    assert lines[1].split() == ["61.5", "obj:", "test/room/test_x"]
    assert lines[2].split()[1:] == ["pytest:", "room/test_x.py::test_slow"]
    assert lines[3] == "3 passed, 0 failed, 0 skipped"  # what took less than a second is not said
    kept = (tmp_path / "durations").read_text().splitlines()
    assert kept[0] == "61.500\tobj: test/room/test_x" and len(kept) == 3


def test_each_skip_is_kept(tmp_path: Path, listed: str) -> None:
    folder = unit_run(tmp_path / "test", "1..2\nok 1 - a # SKIP too small\n"
                                         "ok 2 - b # SKIP refused\n", "SKIP", "SKIP")
    tally(listed, f"--keep={tmp_path}", f"obj=0={folder}")
    assert (tmp_path / "skipped").read_text().splitlines() == [
        "no room\tobj: test/room/test_x: a\ttoo small",
        "NOT EXPECTED\tobj: test/room/test_x: b\trefused"]


# ---- the list itself

def test_each_entry_of_the_list_has_a_condition() -> None:
    assert {because for _, _, because in skips.EXPECTED} == set(skips.CONDITIONS)


@pytest.mark.parametrize("because", skips.CONDITIONS)
def test_each_condition_can_be_asked(because: str) -> None:
    for name in "obj", "asan", "pytest":
        assert skips.CONDITIONS[because](skips.Run(name, full=False, osu=True)) in (True, False)


def test_a_run_without_osu_is_told_from_one_with() -> None:
    condition = skips.CONDITIONS["no --osu DIR"]
    assert [condition(skips.Run("pytest", False, osu)) for osu in (True, False)] == [False, True]


def test_the_watchdog_of_a_program_says_how_long_it_took(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho 1..1\necho 'ok 1 - a'\n")
    program.chmod(0o755)
    run = subprocess.run([TEST / "unit/tap", program], capture_output=True, text=True, check=True,
                         env={**os.environ, "LC_ALL": "de_DE.UTF-8"})
    lines = run.stdout.splitlines()
    assert lines[:2] == ["1..1", "ok 1 - a"]
    number = lines[2].removeprefix("# took ").removesuffix(" s")
    assert lines[2] == f"# took {number} s" and 0 <= float(number) < 60
