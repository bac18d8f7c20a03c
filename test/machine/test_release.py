# SPDX-License-Identifier: BSD-3-Clause
"""Roots of other releases: what is run in one ends with who started it, and nothing of this machine is
removed with one."""
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another root folder")


def in_folder(script: str, *words: str | Path) -> list[str | Path]:
    """Python, where it finds the machine's modules."""
    return [sys.executable, "-B", "-c", f"import sys; sys.path[:0] = ['{FOLDER}']\n{script}", *words]


def test_a_command_ends_with_the_script_that_was_killed() -> None:
    script = "import subprocess, release; subprocess.run(release.ENTER + sys.argv[1:])"
    with subprocess.Popen(in_folder(script, "sh", "-c", "echo ready; sleep 300"),
                          stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        process.kill()
        assert process.communicate(timeout=60)[0] == ""  # the end of file: nobody has it any more


def test_a_folder_that_something_is_mounted_in_is_not_removed(tmp_path: Path) -> None:
    place = tmp_path / "with space/root/dev"
    place.mkdir(parents=True)
    script = """
import subprocess
from pathlib import Path
from cache import cached
from trouble import Trouble
folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "kept", folder / "root/dev"], check=True)
(folder / "root/dev/file").write_text("kept")
try:
    cached(folder.parent, folder.name, [], lambda folder: None)
except Trouble as trouble:
    print(trouble)
print((folder / "root/dev/file").read_text())
"""
    folder = tmp_path / "with space"
    run = subprocess.run(["unshare", "--mount", *in_folder(script, folder)], check=False,
                         capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    mount = str(place).replace(" ", "\\040")
    assert run.stdout == f"unmount {mount} first: {folder} is to be made anew\nkept\n"


def test_a_second_run_says_that_it_waits(tmp_path: Path) -> None:
    with (tmp_path / "lock-none").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with subprocess.Popen([FOLDER / "debian", "--cache", tmp_path, "none", "true"],
                              stderr=subprocess.PIPE, text=True) as process:
            bound = threading.Timer(60, process.kill)
            bound.start()
            assert process.stderr
            assert process.stderr.readline() == "debian: waiting for another run in this root\n"
            bound.cancel()
            process.kill()
