# SPDX-License-Identifier: BSD-3-Clause
"""The ways of messages through the code, as component/README.md tells them, are what a debugger sees."""
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
python print(time.monotonic_ns(), "{file}", "{function}", file=seen, flush=True)
continue
end
"""


def steps(title: str) -> list[tuple[str, str]]:
    """Files, and functions in them, in the order of that chapter, without the chapters in it."""
    text = re.split("\n##+ ", (COMPONENT / "README.md").read_text().partition(f"# {title}\n")[2])[0]
    return re.findall(r"`([a-z]+/[\w/]+\.[ch])` \(`(\w+)`\)", text)


def place(file: str, function: str) -> str:
    """For the debugger. What a header has is inlined, and found by its name alone."""
    return function if file.endswith(".h") else f"{Path(file).name}:{function}"


def seen(mpi: Mpi, folder: Path, walk: list[tuple[str, str]], strategy: str, size: int) -> list[tuple[str, str]]:
    """The steps whose functions were called, by any rank, in the order of time."""
    commands, events = folder / "commands", folder / "seen"
    commands.write_text("".join([
        BEGIN.format(file=events),
        *(STEP.format(where=place(file, function), file=file, function=function) for file, function in walk),
        "run\n"]))
    job = mpi("undefined", size, within=["gdb", "-q", "-nx", "-batch", "-x", commands, "--args"],
              regx={"rendezvous": strategy})
    assert job.status == 0 and "checked " in job.stdout, str(job)
    lines = [line.split() for rank in (0, 1) for line in Path(f"{events}.{rank}").read_text().splitlines()]
    return [(file, function) for _, file, function in sorted(lines, key=lambda line: int(line[0]))]


@pytest.mark.parametrize(("title", "strategy", "size", "most"), [
    ("An 8-byte message", "pipeline", 8, 6), ("A 4 MiB message", "pipeline", 4 << 20, 11),
    ("By `auto`, the default, on a node", "auto", 4 << 20, 5)])
def test_a_message_goes_the_way_that_is_told(mpi: Mpi, tmp_path: Path, title: str, strategy: str, size: int,
                                             most: int) -> None:
    """Each step comes after the one before; in a chapter of its own each file is named once."""
    walk = steps(title)
    files = {file for file, _ in walk}
    assert 0 < len(files) <= most and (len(files) == len(walk) or strategy == "auto"), walk
    if shutil.which("gdb") is None:
        pytest.skip("no gdb")
    found = seen(mpi, tmp_path, walk, strategy, size)
    events = iter(found)
    missed = [step for step in walk if step not in events]
    assert not missed, f"not in that order: {missed[0]}\n" + "\n".join(map(str, dict.fromkeys(found)))


def test_each_step_over_verbs_names_a_function_of_its_file() -> None:
    """No debugger follows these: they need a device."""
    walk = steps("Over verbs")
    missed = [(file, function) for file, function in walk
              if not re.search(rf"^[a-z].*\b{function}\(", (COMPONENT / file).read_text(), re.M)]
    assert len(walk) >= 5 and not missed, missed


def test_each_name_in_the_chapters_is_one_of_the_code() -> None:
    """The sentences between the steps name functions, too, and fields and parameters."""
    told = (COMPONENT / "README.md").read_text()
    chapters = told[told.index("## An 8-byte message\n"):told.index("## Threads and locks\n")]
    code = (TOP / "mca-params/regx.conf").read_text() + "".join(
        re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.S) for file in COMPONENT.rglob("*.[ch]"))
    quoted = " ".join(re.findall(r"`([^`\n]+)`", chapters))
    names = set(re.findall(r"\b[a-z]\w*_\w*[a-z]\b(?!\.)", quoted))  # of files test_documents knows
    unknown = names - set(re.findall(r"\w+", code))
    assert len(names) > 50 and not unknown, unknown
