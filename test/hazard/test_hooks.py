# SPDX-License-Identifier: BSD-3-Clause
"""Hazard 4: hooks that are not there, are another library's, or are taken away."""
import os
import re
import subprocess
from pathlib import Path

import pytest

from launch import TOP, Mpi
from job import Job
from settle import SETTLE

SIZE = 1 << 20
ROUNDS = 5  # in each but the first a buffer has new pages
STOLEN = "hooks: another library patched the same functions"


def direct(mpi: Mpi, *program: object, backend: str, **how: object) -> Job:
    return mpi(*program, regx={"rendezvous": "direct", "backend": backend}, **how)


def test_hooks_beside_ucx_that_patched_before(mpi: Mpi) -> None:
    """UCX, loaded by whatever starts the program, patches the same functions."""
    job = direct(mpi, "stale", "libc", "send", ROUNDS, SIZE, backend="hooks+notifier",
                 options=["-x", "LD_PRELOAD=libucs.so.0"]).checked(ranks=2)
    assert job.rank(0)["invalidations"] == ROUNDS - 1, str(job)


@pytest.mark.parametrize("function", ["all", "shmdt"])
def test_hooks_that_were_overwritten_are_noticed(mpi: Mpi, function: str) -> None:
    """The next region that is made finds out; what was kept until then is not used again."""
    job = direct(mpi, "stolen", SIZE, function, backend="hooks").checked(ranks=2)
    patched = re.search(r"stolen: (\d+) functions", job.stderr)
    assert patched and int(patched[1]) >= (4 if function == "all" else 1), \
        f"nothing was there to be stolen\n{job}"
    sender, receiver = job.rank(0), job.rank(1)
    assert sender["hits"] == 1 and sender["misses"] == 1, str(job)
    assert sender["uncached"] == 4 and sender["invalidations"] == 1, str(job)
    assert sender["fallbacks"][STOLEN] == 4, str(job)
    assert receiver["hits"] >= 3 and STOLEN not in receiver["fallbacks"], str(job)


def test_what_overwritten_hooks_miss_the_notifier_reports(mpi: Mpi) -> None:
    job = direct(mpi, "stolen", SIZE, "all", backend="hooks+notifier").checked(ranks=2)
    sender = job.rank(0)
    assert sender["hits"] == 3 and sender["misses"] == 3, str(job)
    assert sender["invalidations"] == 1, str(job)
    assert sender["uncached"] == 0 and not sender["fallbacks"], str(job)


def test_libmpi_opened_rtld_local(mpi: Mpi, tmp_path: Path) -> None:
    """A host that opens libmpi RTLD_LOCAL: hooks and notifier work there too."""
    script = tmp_path / "host.py"
    script.write_text(f"""
import ctypes, mmap, os
{SETTLE}
mpi = ctypes.CDLL(os.environ["LIBMPI"], mode=os.RTLD_LOCAL | os.RTLD_NOW)
mpi.MPI_Init(None, None)
world, byte = (ctypes.byref(ctypes.c_char.in_dll(mpi, name))
               for name in ("ompi_mpi_comm_world", "ompi_mpi_byte"))
rank = ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
size = 1 << 20
checked = 0
for round in range(20):
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        place = (ctypes.c_char * size).from_buffer(memory)
        for use in range(2):
            expected = bytes([2 * round + use + 1]) * size
            settle()
            if rank.value == 0:
                memory[:] = expected
                mpi.MPI_Send(place, size, byte, 1, 0, world)
            else:
                mpi.MPI_Recv(place, size, byte, 0, 0, world, None)
                assert memory[:] == expected
                checked += size
        del place
if rank.value == 1:
    print("checked", checked, "bytes", flush=True)
mpi.MPI_Finalize()
# A thread that frees memory may still be on its way to a hook.
assert "mca_btl_regx.so" in open("/proc/self/maps").read()
""")
    libmpi = re.search(r"(/\S+/libmpi\.so\.\d+)", subprocess.run(
        ["ldd", mpi.build.programs / "collective"], capture_output=True, text=True,
        check=True).stdout)
    assert libmpi
    backend = "hooks+notifier"
    job = direct(mpi, os.environ.get("REGX_PYTHON", "/usr/bin/python3"), script,
                 backend=backend, options=["-x", f"LIBMPI={libmpi[1]}"]).checked(ranks=2)
    for report in job.reports:
        assert report["backend"] == backend, str(job)
        assert report["hits"] == 20 and report["invalidations"] >= 19, str(job)


def test_a_program_built_with_the_address_sanitizer(mpi: Mpi, tmp_path: Path) -> None:
    """A program that is built with it, as its documentation says: with --mca memory ^patcher."""
    program = tmp_path / "stale"
    source = TOP / "test/mpi/stale.c"
    subprocess.run([os.environ.get("REGX_MPICC", "mpicc"), "-D_GNU_SOURCE=", "-g", "-O1",
                    "-fsanitize=address", "-o", program, source], check=True, timeout=120)
    how = {"mca": {"memory": "^patcher"},
           "environment": {"ASAN_OPTIONS": "detect_leaks=0"}}
    words = [program, "libc", "send", ROUNDS, SIZE]
    job = direct(mpi, *words, backend="notifier", **how).checked(ranks=2)
    assert job.rank(0)["invalidations"] == ROUNDS - 1, str(job)
    assert "AddressSanitizer" not in job.stderr, str(job)
    refused = {"retain": "this program's malloc is not glibc's"}
    if mpi.build.series < (5, 0):  # which brings UCX, and so has hooks
        refused["hooks+notifier"] = "Open MPI has no memory hooks here"
    for backend, why in refused.items():
        direct(mpi, *words, backend=backend, btl="regx,vader,self", **how).left_out(why)
