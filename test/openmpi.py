# SPDX-License-Identifier: BSD-3-Clause
"""Two defects by which Open MPI 4.1 ends a job as it finalizes, whichever BTL carries it.

MPI_Init hands an event to ORTE's thread: a callback in Open MPI's PMIx component. MPI_Finalize
unloads that component before it ends the thread. If the machine is so busy that the thread has not
run in between, it then jumps to where the callback was. Or it is in a function that the callback
called, and returns to there, or calls a function of the component whose address it was given. See
open-mpi/ompi#10117. A job that died so says nothing about regx.

A backtrace shows both the jump, since the place of the crash is the address that failed, and the
thread. But Open MPI can print one only if another library has been loaded to where the component
was, as libgcc is for the backtrace if it was not needed before. If no code is there, reading it ends
the process before the first line. A load or a store that fails is printed with its backtrace; so
without one it was a jump, but the thread is not known.

mpirun may crash in PMIx_server_finalize, on a busy machine and mostly where a rank was killed, by an
object that PMIx's thread gives up at the same moment. See open-mpi/ompi#13650.
"""
import functools
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from job import Job

PAGE = 4096
# x86-64: event_assign's fifth argument, a function of the same library.
CALLBACK = re.compile(r"lea .*,%r8 +# ([0-9a-f]+)\b.*\n(?:.*\n){0,2}.*call .*<event_assign@plt>")
AFTER_CALL = re.compile(r"\tcall +.*\n +([0-9a-f]+):")
ADDRESS_TAKEN = re.compile(r"\tlea +\S*\(%rip\),.*# ([0-9a-f]+)\b")
FRAME = re.compile(r"pc=([0-9a-f]+)\.\.([0-9a-f]+)$", re.M)
CRASH = re.compile(r"^\[.*\] \*\*\* Process received signal \*\*\*$", re.M)
SIGNAL = re.compile(r"^\[.*\] Signal: (.*)$", re.M)
CODE = re.compile(r"^\[.*\] Signal code: (.*)$", re.M)
ADDRESS = re.compile(r"^\[.*\] Failing at address: 0x([0-9a-f]+)$", re.M)
# Lines of several processes may be mixed.
PLACE = re.compile(r"\[0x([0-9a-f]+)\]")
NAMED = re.compile(r"\(\S*\+0x[0-9a-f]+\)\[0x")
MAIN_THREAD = re.compile(r"\((?:P?MPI_|__libc_start)")
# The function that was called at the signal, below the signal's own frame.
IN_SERVER = re.compile(r"^\[.*\] \[ 1\] \S*\(PMIx_server_finalize\+", re.M)


@dataclass(frozen=True)
class Callback:
    """Where it is in a page: its first instruction, and all places that the thread may go to while
    it is under way."""
    begin: int
    places: frozenset[int]


def output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout


def callback(component: Path, begin: int) -> Callback:
    """The one of a component that begins there. It and the functions that it hands out have no
    symbols: the unwind table says where they begin and end."""
    table = output("readelf", "--debug-dump=frames", component)
    ends = {int(first, 16): int(last, 16) for first, last in FRAME.findall(table)}
    ends.setdefault(begin, begin)
    places: set[int] = set()
    functions = [begin]
    for function in functions:
        code = output("objdump", "-d", f"--start-address={function}",
                      f"--stop-address={ends[function]}", component)
        places |= {function, *(int(place, 16) for place in AFTER_CALL.findall(code))}
        taken = {int(place, 16) for place in ADDRESS_TAKEN.findall(code)}
        functions += sorted(taken & {*ends} - {*functions})
    return Callback(begin % PAGE, frozenset(place % PAGE for place in places))


@functools.cache
def callbacks(pkglibdir: Path) -> tuple[Callback, ...]:
    """Empty if it cannot be found out."""
    found: list[Callback] = []
    try:
        for component in pkglibdir.glob("mca_pmix_ext*.so"):
            function = component.stem.removeprefix("mca_pmix_") + "_event_hdlr"
            code = output("objdump", "-d", f"--disassemble={function}", component)
            found += [callback(component, int(match[1], 16)) for match in CALLBACK.finditer(code)]
    except OSError:
        return ()
    return tuple(found)


def jumped(stderr: str, addresses: list[str]) -> bool:
    """Whether these crashes were jumps and, if it is known, on threads that run events. The other
    library's unwind table may end a backtrace where it begins, at the signal and the address, or
    lead from there to words of the stack that are in no library."""
    places = PLACE.findall(stderr)
    return not places or ({*addresses} <= {*places} and not MAIN_THREAD.search(stderr)
                          and (stderr.count("(event_base_loop+") == len(addresses)
                               or len(NAMED.findall(stderr)) <= 2 * len(addresses)))


def crashed_there(job: Job, pkglibdir: Path) -> bool:
    """Whether each process that crashed did so by a jump or a return to where that callback was."""
    signals, addresses = SIGNAL.findall(job.stderr), ADDRESS.findall(job.stderr)
    codes = CODE.findall(job.stderr)
    return ({*signals} == {"Segmentation fault (11)"} and {*codes} == {"Address not mapped (1)"}
            and len(CRASH.findall(job.stderr)) == len(signals) == len(codes) == len(addresses)
            and {int(address, 16) % PAGE for address in addresses}
            <= set().union(*(found.places for found in callbacks(pkglibdir)))
            and jumped(job.stderr, addresses))


def reached_finalize(job: Job, ranks: int) -> bool:
    """Whether the test program said that it was done, which is its last act, or each rank wrote
    regx's report, which MPI_Finalize makes it do."""
    return job.stdout.startswith("checked ") or len(job.reports) >= ranks


def mpirun_died(job: Job) -> bool:
    """Whether mpirun crashed, and nothing else, as it ended its server: after all its processes."""
    return (len(CRASH.findall(job.stderr)) == 1 and IN_SERVER.search(job.stderr) is not None
            and "wrong" not in job.stderr)


def died_in_finalize(job: Job, ranks: int, pkglibdir: Path) -> bool:
    """Whether the job ended by one of these defects."""
    return mpirun_died(job) or (job.status == 128 + 11 and reached_finalize(job, ranks)
                                and crashed_there(job, pkglibdir))
