# SPDX-License-Identifier: BSD-3-Clause
"""The ways of two messages through the code, as component/README.md tells them, are what a debugger sees."""
import re
import shutil
from pathlib import Path

import pytest

from launch import TOP, Mpi

COMPONENT = TOP / "component"
# Before the program runs: the plugin is not loaded yet.
BEGIN = """\
set pagination off
set breakpoint pending on
handle SIGUSR1 SIGUSR2 SIGPIPE nostop noprint pass
python import os, time
python seen = open("{file}." + os.environ["OMPI_COMM_WORLD_RANK"], "w")
"""
STEP = """\
break {where}
commands
silent
python print(time.monotonic_ns(), "{file}", file=seen, flush=True)
continue
end
"""


def steps(title: str) -> list[tuple[str, str]]:
    """Files, and functions in them, in the order of that chapter."""
    text = (COMPONENT / "README.md").read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"`([a-z]+/[\w/]+\.[ch])` \(`(\w+)`\)", text)


def place(file: str, function: str) -> str:
    """For the debugger. What a header has is inlined, and found by its name alone."""
    return function if file.endswith(".h") else f"{Path(file).name}:{function}"


def seen(mpi: Mpi, folder: Path, walk: list[tuple[str, str]], size: int) -> list[str]:
    """The files whose functions were called, by any rank, in the order of time."""
    commands, events = folder / "commands", folder / "seen"
    commands.write_text("".join([
        BEGIN.format(file=events),
        *(STEP.format(where=place(file, function), file=file) for file, function in walk), "run\n"]))
    job = mpi("undefined", size, within=["gdb", "-q", "-nx", "-batch", "-x", commands, "--args"],
              regx={"rendezvous": "pipeline"})
    assert job.status == 0 and "checked " in job.stdout, str(job)
    lines = [line.split() for rank in (0, 1) for line in Path(f"{events}.{rank}").read_text().splitlines()]
    return [file for _, file in sorted((int(when), file) for when, file in lines)]


@pytest.mark.parametrize(("title", "size", "most"), [("An 8-byte message", 8, 6), ("A 4 MiB message", 4 << 20, 11)])
def test_a_message_goes_the_way_that_is_told(mpi: Mpi, tmp_path: Path, title: str, size: int, most: int) -> None:
    """Each step comes after the one before; so each file is named once."""
    walk = steps(title)
    files = [file for file, _ in walk]
    assert 0 < len(files) <= most and len(set(files)) == len(files), files
    if shutil.which("gdb") is None:
        pytest.skip("no gdb")
    found = seen(mpi, tmp_path, walk, size)
    events = iter(found)
    missed = [file for file in files if file not in events]
    assert not missed, f"not in that order: {missed[0]}\n" + "\n".join(dict.fromkeys(found))
