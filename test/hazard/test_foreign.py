# SPDX-License-Identifier: BSD-3-Clause
"""Hazard 11: allocators that are not libc's, preloaded; Python as the host."""
import os
import re
import subprocess
from pathlib import Path

import pytest

from launch import Mpi
from settle import SETTLE

# By the name that the loader knows, without the ABI's number, with settings that make them give memory
# back at once.
ALLOCATORS = {
    "libjemalloc": {"MALLOC_CONF": "background_thread:true,dirty_decay_ms:0,muzzy_decay_ms:0"},
    "libtcmalloc_minimal": {"TCMALLOC_RELEASE_RATE": "1000",
                            "TCMALLOC_AGGRESSIVE_DECOMMIT": "true"},
    "libmimalloc": {"MIMALLOC_PAGE_RESET": "1", "MIMALLOC_RESET_DELAY": "0"},
}
PAIRS = [("libjemalloc", "notifier"), ("libjemalloc", "hooks"), ("libtcmalloc_minimal", "hooks"),
         ("libtcmalloc_minimal", "notifier"), ("libmimalloc", "hooks+notifier")]


def installed(library: str) -> Path:
    """What is not there the loader would leave out, with a word that is not read."""
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found = re.search(rf"^\s*{library}\.so\.\d+ .* => (.+)$", known, re.M)
    assert found, f"{library} is not installed"
    return Path(found[1])


def has_munmap(library: str) -> bool:
    """Of its own, which the program then calls."""
    symbols = subprocess.run(["objdump", "-T", installed(library)], capture_output=True, text=True,
                             check=True).stdout
    return re.search(r" DF (?!\*UND\*)\S+\t.* munmap$", symbols, re.M) is not None


def preloaded(library: str) -> list[str]:
    """mpirun's words."""
    words = ["-x", f"LD_PRELOAD={installed(library)}"]
    for name, value in ALLOCATORS[library].items():
        words += ["-x", f"{name}={value}"]
    return words


@pytest.mark.parametrize("library,backend", PAIRS)
def test_other_allocators_exchange_right_data(mpi: Mpi, library: str, backend: str) -> None:
    """Blocks of all sizes, allocated, exchanged and freed by several threads. tcmalloc may bring its
    own munmap, which hooks in libc do not see: they are refused."""
    regx = {"rendezvous": "direct", "backend": backend, "inuse": "abort"}
    if has_munmap(library) and "hooks" in backend:
        job = mpi("tools", 0, 100_000, btl="regx,vader,self", regx=regx, options=preloaded(library))
        job.left_out(f"btl_regx_backend={backend} cannot be used: self-test: munmap by libc was not seen")
        return
    if "tcmalloc" in library and mpi.build.series == (5, 0):
        pytest.skip("with tcmalloc Open MPI 5.0 spoils the program's memory, with its own sm too")
    job = mpi("threads", "--storm", "--rounds", 30, "--largest", 1_000_000, regx=regx,
              options=preloaded(library)).checked(ranks=2)
    assert job.total("bytes_direct") > 0, str(job)
    # A buffer left alone is kept, whatever allocated it.
    job = mpi("tools", 0, 3_000_000, regx=regx, options=preloaded(library)).checked(ranks=2)
    for report in job.reports:
        assert report["backend"] == backend and report["hits"] == 9, str(job)


def test_retain_is_refused_with_another_allocator(mpi: Mpi) -> None:
    """mallopt says yes, and means nothing."""
    library = "libjemalloc"
    job = mpi("tools", 0, 100_000, btl="regx,vader,self", regx={"backend": "retain"},
              options=preloaded(library))
    job.left_out("btl_regx_backend=retain cannot be used: this program's malloc is not glibc's")


def test_mpi4py_exchanges_right_data(mpi: Mpi, tmp_path: Path) -> None:
    """mpi4py, with buffers that come and go as Python pleases."""
    script = tmp_path / "host.py"
    script.write_text(SETTLE + """
import mmap
from mpi4py import MPI

world = MPI.COMM_WORLD
checked = 0


def use(memory, number):
    global checked
    expected = bytes([number % 251 + 1]) * len(memory)
    settle()
    if world.rank == 0:
        memory[:] = expected
        world.Send([memory, MPI.BYTE], 1)
    else:
        world.Recv([memory, MPI.BYTE], 0)
        assert bytes(memory[:]) == expected
        checked += len(memory)


kept = bytearray(1 << 20)
for number in range(50):
    use(kept, number)
    use(bytearray(2 << 20), number)
    with mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as mapped:
        use(mapped, number)
    world.bcast({"a": [number] * 1000}, 0)
if world.rank == 1:
    print(f"checked {checked} bytes", flush=True)
""")
    job = mpi(os.environ.get("REGX_PYTHON", "/usr/bin/python3"), script,
              regx={"rendezvous": "direct", "backend": "notifier"}).checked(ranks=2)
    for report in job.reports:
        assert report["hits"] >= 49 and report["uncached"] == 0, str(job)
