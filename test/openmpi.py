# SPDX-License-Identifier: BSD-3-Clause
"""A defect of Open MPI 4.1 that ends a job in MPI_Finalize, whichever BTL carries it.

MPI_Init hands an event to ORTE's thread: a callback in Open MPI's PMIx component. MPI_Finalize
unloads that component before it ends the thread. If the machine is so busy that the thread has not
run in between, it then jumps to where the callback was. See open-mpi/ompi#10117. A job that died so
says nothing about regx.
"""
import functools
import re
import subprocess
from pathlib import Path

from job import Job

PAGE = 4096
# x86-64: event_assign's fifth argument, a function of the same library.
CALLBACK = re.compile(r"lea .*,%r8 +# ([0-9a-f]+)\b.*\n(?:.*\n){0,2}.*call .*<event_assign@plt>")
SIGNAL = re.compile(r"^\[.*\] Signal: (.*)$", re.M)
ADDRESS = re.compile(r"^\[.*\] Failing at address: 0x([0-9a-f]+)$", re.M)


@functools.cache
def callbacks(pkglibdir: Path) -> frozenset[int]:
    """Where in a page that callback begins; empty if it cannot be found out."""
    found: set[int] = set()
    for component in pkglibdir.glob("mca_pmix_ext*.so"):
        function = component.stem.removeprefix("mca_pmix_") + "_event_hdlr"
        try:
            code = subprocess.run(["objdump", "-d", f"--disassemble={function}", component],
                                  capture_output=True, text=True, check=False, timeout=60).stdout
        except OSError:
            return frozenset()
        found.update(int(match[1], 16) % PAGE for match in CALLBACK.finditer(code))
    return frozenset(found)


def died_in_finalize(job: Job, pkglibdir: Path) -> bool:
    """Whether the job ended by this defect: each process that crashed did so by a jump to where
    that callback was."""
    signals, addresses = SIGNAL.findall(job.stderr), ADDRESS.findall(job.stderr)
    return (job.status == 128 + 11 and {*signals} == {"Segmentation fault (11)"}
            and len(addresses) == len(signals)
            and {int(address, 16) % PAGE for address in addresses} <= callbacks(pkglibdir))
