# SPDX-License-Identifier: BSD-3-Clause
"""test/run: one command for one test of any kind."""
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
RESULTS = TOP / ".build/results.named"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TOP / "test/run", *words], stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, timeout=900, check=False)


@pytest.mark.parametrize(("words", "problem"), [
    (["test/hazard/nothing.py"], "test/hazard/nothing.py: there is no such test"),
    (["test/unit/base/nothing"], "test/unit/base/nothing: there is no such test"),
    (["--sanitizer", "msan", "test/unit/base"], "--sanitizer msan: allowed: asan, tsan"),
    (["--sanitizer", "asan"], "--sanitizer: name unit tests to run under it; without, all run"),
    (["--machine"], "--machine: name the tests to run there"),
    (["--openmpi", "5.1", "test/unit/base"], "--openmpi 5.1: allowed: 5.0, 6.0, all"),
    (["--openmpi", "all", "test/unit/base", "--", "x"], "--: not with --openmpi all"),
    (["--openmpi", "5.0", "--machine", "test/unit/base"], "--openmpi: not with --machine"),
    (["--openmpi", "5.0", "--serial", "test/unit/base"], "--openmpi: not with --serial"),
    (["--openmpi", "5.0", "--no-install", "test/unit/base"], "--openmpi: not with --no-install"),
    (["--seed"], "--seed needs a value"),
    (["--seed", "one"], "--seed one: not a number"),
    (["--osu", "/nowhere"], "--osu /nowhere: no such folder"),
    (["--", "word"], "--: name the program that gets these arguments"),
    (["--no-such"], "unknown argument --no-such"),
])
def test_what_cannot_be_run_is_said_at_once(words: list[str], problem: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"test/run: {problem}"


@pytest.mark.parametrize(("test", "problem"), [
    ("test/mpi/transfer", "test/mpi/transfer: not a test; a program of test/mpi is run by"),
    ("test/unit/base/test_option", "--: only programs that other tests run take arguments"),
])
def test_what_is_of_another_kind_is_said(test: str, problem: str) -> None:
    done = run(test, "--", "word")
    assert done.returncode == 2
    assert f"test/run: {problem}" in done.stderr


def test_help_shows_each_kind_of_test() -> None:
    shown = run("--help").stdout
    for word in shown.split():
        if word.startswith("test/") and word != "test/run":
            assert (TOP / word).exists() or (TOP / f"{word}.c").exists(), word


def test_a_unit_test() -> None:
    done = run("test/unit/base/test_option.c")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith(" passed, 0 failed, 0 skipped")
    (took,) = (RESULTS / "durations").read_text().splitlines()
    assert took.endswith("\tobj: test/unit/base/test_option")


def test_a_folder_of_unit_tests() -> None:
    done = run("test/unit/base")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len((RESULTS / "durations").read_text().splitlines()) == \
        len(list((TOP / "test/unit/base").glob("test_*.c")))


def test_a_test_of_pytest() -> None:
    done = run("test/lint/test_tree.py::test_top_level")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"


def test_a_name_that_no_test_has_is_a_failure() -> None:
    done = run("test/lint/test_tree.py::test_no_such")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_program_gets_its_arguments_and_its_status_is_the_commands() -> None:
    done = run("test/registration/property", "--", "notifier", "1", "0", "/no/such/file")
    direct = subprocess.run([TOP / ".build/obj/test/registration/property", "notifier", "1", "0",
                             "/no/such/file"], capture_output=True, text=True, check=False)
    assert direct.returncode != 0
    assert (done.returncode, done.stderr) == (direct.returncode, direct.stderr)


LIST = """
CONDITIONS = {"no room": lambda run: True}
EXPECTED = [("test_", "too small", "no room")]
"""


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """A tree with what test/run --machine needs inside the machine, and a list of skips."""
    for name in ("test/machine/tests", "test/tally", "test/unit/tap",
                 "component/config/tap-driver.sh"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TOP / name, tmp_path / name)
    (tmp_path / "test/skips.py").write_text(LIST)
    (tmp_path / "results").mkdir()
    return tmp_path


def program(tree: Path, name: str, tap: str) -> str:
    file = tree / ".build/obj" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\nprintf '{tap}'\n")
    file.chmod(0o755)
    return name


def run_inside(tree: Path, units: list[str], files: list[str]) -> tuple[int, list[str]]:
    done = subprocess.run([tree / "test/machine/tests", tree / "results", "--", *units, "--",
                           *files], cwd=tree, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(("reason", "status", "last"), [
    ("too small", 0, "2 passed, 0 failed, 2 skipped"),
    ("out of luck", 1, "2 passed, 2 failed, 0 skipped")])
def test_skips_inside_the_machine_are_judged(inside: Path, reason: str, status: int,
                                             last: str) -> None:
    unit = program(inside, "test/unit/room/test_x",
                   f"1..2\\nok 1 - a\\nnot tried: {reason}\\nnot ok 2 # SKIP b\\n")
    (inside / "test_y.py").write_text(
        f"import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip('{reason}')\n")
    found, lines = run_inside(inside, [unit], ["test_y.py"])
    assert (found, lines[-1]) == (status, last), lines


def test_a_unit_test_that_fails_inside_the_machine_is_named(inside: Path) -> None:
    unit = program(inside, "test/unit/room/test_x", "1..1\\nnot ok 1 - a\\n")
    found, lines = run_inside(inside, [unit], [])
    assert (found, lines[-1]) == (1, "0 passed, 1 failed, 0 skipped"), lines
    assert "failed: obj: test/unit/room/test_x: a" in lines, lines


def test_a_unit_test_that_crashes_inside_the_machine_is_named(inside: Path) -> None:
    unit = program(inside, "test/unit/room/test_x", "1..2\\nok 1 - a\\n")
    found, lines = run_inside(inside, [unit], [])
    assert (found, lines[-1]) == (1, "1 passed, 1 failed, 0 skipped"), lines
