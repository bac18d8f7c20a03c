# SPDX-License-Identifier: BSD-3-Clause
"""test/tally: no failure is lost in the sum."""
import subprocess
import sys
from pathlib import Path

TALLY = Path(__file__).resolve().parents[1] / "tally"


def tally(*arguments: str) -> tuple[int, list[str]]:
    run = subprocess.run([sys.executable, TALLY, *arguments], capture_output=True, text=True,
                         check=False)
    return run.returncode, run.stdout.splitlines()


def unit_run(folder: Path, tap: str, *outcomes: str) -> Path:
    folder.mkdir()
    (folder / "test_x.log").write_text(tap)
    (folder / "test_x.trs").write_text("".join(f":test-result: {word}\n" for word in outcomes))
    return folder


def test_unit_tests(tmp_path: Path) -> None:
    folder = unit_run(tmp_path / "unit", "1..3\nok 1 - a\nPASS: x 1 - a\nnot ok 2 - b\n# why\n"
                                         "ok 3 - c # SKIP no room\n", "PASS", "FAIL", "SKIP")
    assert tally(f"obj=1={folder}") == (1, [
        "failed: obj: test_x: b", "skipped: obj: test_x: c  no room",
        "1 passed, 1 failed, 1 skipped"])


def test_a_crash_is_a_failure(tmp_path: Path) -> None:
    folder = unit_run(tmp_path / "unit", "1..2\nok 1 - a\n", "PASS", "ERROR")
    status, lines = tally(f"obj=1={folder}")
    assert (status, lines[-1]) == (1, "1 passed, 1 failed, 0 skipped")


def test_no_test_is_a_failure(tmp_path: Path) -> None:
    for path in tmp_path, tmp_path / "nowhere.xml":
        assert tally(f"a=0={path}") == (1, ["failed: a  no test was run (status 0)",
                                            "0 passed, 1 failed, 0 skipped"])


def test_a_bad_end_is_a_failure(tmp_path: Path) -> None:
    folder = unit_run(tmp_path / "unit", "1..1\nok 1 - a\n", "PASS")
    assert tally(f"a=0={folder}") == (0, ["1 passed, 0 failed, 0 skipped"])
    assert tally(f"a=2={folder}") == (1, ["failed: a  ended with status 2",
                                          "1 passed, 1 failed, 0 skipped"])


def test_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_y.py").write_text(
        "import pytest\n\n@pytest.fixture\ndef bad():\n    yield\n    assert 0\n\n"
        "def test_good(): pass\ndef test_wrong(): assert 0\ndef test_ends_badly(bad): pass\n"
        "def test_skipped(): pytest.skip('too small')\n")
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                          "--rootdir=.", "--junitxml=y.xml", "test_y.py"], cwd=tmp_path,
                         stdout=subprocess.DEVNULL, check=False)
    status, lines = tally(f"pytest={run.returncode}={tmp_path}/y.xml")
    assert (status, lines[-1]) == (1, "1 passed, 2 failed, 1 skipped")
    assert "skipped: test_y::test_skipped  too small" in lines
