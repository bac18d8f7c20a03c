# SPDX-License-Identifier: BSD-3-Clause
"""The ways of messages through the code, as component/design/walk.md tells them, are what a debugger sees."""
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from launch import TOP, Mpi

COMPONENT = TOP / "component"
WALK = COMPONENT / "design/walk.md"
# For gdb, behind the values of `steps`, `functions` and `events`. The first two messages go past breakpoints at the
# steps. For the third an int3 stands at the beginning of each function (as many breakpoints would take minutes).
# The first that is met is noted, and those of its file are taken away. The sender sends each message only when the
# receiver has begun to wait for it; the third when a round of progress_all there has entered the registry's file.
SCRIPT = """
import os, time
rank = os.environ["OMPI_COMM_WORLD_RANK"]
seen = open(events + rank, "w")

def note(*what):
    print(time.monotonic_ns(), *what, file=seen, flush=True)

class Step(gdb.Breakpoint):
    def stop(self):
        note(*self.step)
        return False

def await_receiver(line):
    end = time.monotonic() + 120
    while rank == "0" and line not in open(events + "1").read():
        if time.monotonic() > end:
            raise gdb.GdbError(f"the receiver never noted: {line}")
        time.sleep(0.01)

class Call(gdb.Breakpoint):
    calls = 0
    def stop(self):
        Call.calls += 1
        note("call", Call.calls, "of", rank)
        await_receiver(f"call {Call.calls} of 1")
        return Call.calls == 3

gdb.execute("set pagination off")
gdb.execute("set breakpoint pending on")
gdb.execute("handle SIGUSR1 SIGUSR2 SIGPIPE nostop noprint pass")
for where, *step in steps:
    Step(where).step = step
Call("MPI_Send" if rank == "0" else "MPI_Recv")
gdb.execute("run")
gdb.execute("delete")
process = gdb.selected_inferior()
base = next(int(line.split("-")[0], 16) for line in open(f"/proc/{process.pid}/maps") if "mca_btl_regx" in line)
files = {base + at: file for at, file in functions}
first = {at: bytes(process.read_memory(at, 1)) for at in files}

def restore(file):
    for at in files:
        if file in ("", files[at]):
            process.write_memory(at, first[at])

for at in files:
    process.write_memory(at, bytes([0xcc]))
await_receiver(" registration/registration.c")
gdb.Breakpoint(f"*{gdb.newest_frame().older().pc()}", temporary=True)  # where it returns to
gdb.execute("continue")
while (at := gdb.newest_frame().pc() - 1) in files:
    note(files[at])
    restore(files[at])
    gdb.execute(f"set $pc = {at}")
    gdb.execute("continue")
restore("")
gdb.execute("continue")
"""


def chapter(title: str) -> str:
    """That chapter's text."""
    return re.split("\n##+ ", WALK.read_text().partition(f"# {title}\n")[2])[0]


def steps(text: str) -> list[tuple[str, str]]:
    """Files, and functions in them, in the order of the rows of that text's table."""
    return re.findall(r"^\| \d+ \| \w+ \| `([a-z]+/[\w/]+\.[ch])` \(`(\w+)`\) \|", text, re.M)


def followed(mpi: Mpi, folder: Path, walk: list[tuple[str, str]], strategy: str,
             size: int) -> tuple[list[tuple[str, ...]], set[str]]:
    """The steps that the second message went, of both ranks, by time; the .c files that the third entered."""
    script, events = folder / "script.py", folder / "seen."
    symbols = subprocess.run(["nm", "-l", mpi.build.component / "mca_btl_regx.so"], check=True, text=True,
                             capture_output=True).stdout
    functions = [(int(at, 16), file)
                 for at, file in re.findall(r"^(\w+) [tT] .*/component/(\S+\.c):", symbols, re.M)]
    # What a header has is inlined, and found by its name alone.
    places = [(name if file.endswith(".h") else f"{Path(file).name}:{name}", file, name) for file, name in walk]
    script.write_text(f"steps = {places}\nfunctions = {functions}\nevents = {str(events)!r}\n{SCRIPT}")
    job = mpi("undefined", size, within=["gdb", "-q", "-nx", "-batch", "-x", script, "--args"],
              regx={"rendezvous": strategy})
    assert job.status == 0 and "checked " in job.stdout, str(job)
    lines = sorted((int(time), *what) for rank in (0, 1)
                   for time, *what in map(str.split, Path(f"{events}{rank}").read_text().splitlines()))
    second, third = (max(time for time, *what in lines if what[:2] == ["call", call]) for call in ("2", "3"))
    return [line[1:] for line in lines if len(line) == 3 and second < line[0] < third], \
        {str(line[1]) for line in lines if len(line) == 2}


@pytest.mark.parametrize(("title", "strategy", "size", "most"), [
    ("An 8-byte message", "pipeline", 8, 9),
    ("A 4 MiB message by pipeline", "pipeline", 4 << 20, 35),
    ("A 4 MiB message by auto, the default", "auto", 4 << 20, 29)])
def test_a_message_goes_the_way_that_is_told(mpi: Mpi, tmp_path: Path, title: str, strategy: str, size: int,
                                             most: int) -> None:
    """Each step comes after the one before. Each .c file entered with Open MPI 4.1 is named, and they are at most
    that many."""
    text = chapter(title)
    walk = steps(text)
    assert len(walk) >= 5, walk
    if shutil.which("gdb") is None or platform.machine() != "x86_64":
        pytest.skip("no gdb, or another processor's breakpoints")
    found, entered = followed(mpi, tmp_path, walk, strategy, size)
    events = iter(found)
    missed = [step for step in walk if step not in events]
    assert not missed, f"not in that order: {missed[0]}\n" + "\n".join(map(str, dict.fromkeys(found)))
    if mpi.build.series == (4, 1):
        lacking = sorted(file for file in entered if f"`{file}`" not in text)
        assert not lacking, f"entered, and not named: {lacking}"
        assert len(entered) <= most, sorted(entered)


def test_each_step_over_verbs_names_a_function_of_its_file() -> None:
    """No debugger follows these: they need a device."""
    walk = steps(chapter("Over verbs"))
    missed = [(file, function) for file, function in walk
              if not re.search(rf"^[a-z].*\b{function}\(", (COMPONENT / file).read_text(), re.M)]
    assert len(walk) >= 5 and not missed, missed


def test_each_name_is_one_of_the_code() -> None:
    """What stands in backquotes: functions, fields and parameters. (test_documents knows files.)"""
    code = (TOP / "mca-params/regx.conf").read_text() + "".join(
        re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.S) for file in COMPONENT.rglob("*.[ch]"))
    quoted = " ".join(re.findall(r"`([^`\n]+)`", WALK.read_text()))
    names = set(re.findall(r"\b[a-z]\w*_\w*[a-z]\b(?!\.)", quoted))
    unknown = names - set(re.findall(r"\w+", code))
    assert len(names) > 30 and not unknown, unknown
