# SPDX-License-Identifier: BSD-3-Clause
"""The tests that depend on Open MPI's version, with each one that is not this machine's."""
import os
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another root folder")

# The staleness table. With hooks in an MPI program alone, which takes UCX's as the component does: in one
# that is not of MPI, Open MPI's have patched libc before UCX can, and UCX's are refused.
IN_A_PROGRAM = "test/registration/test_staleness.py::test_staleness_in_an_mpi_program_is_as_documented"
STALENESS = ["test/registration/test_staleness.py::test_seven_steps", IN_A_PROGRAM,
             *(f"test/registration/test_staleness.py::test_staleness_is_as_documented[{way}-{backend}]"
               for way in ("libc", "raw", "thread")
               for backend in ("unprotected", "none", "notifier", "notifier/scan", "retain"))]
# What a version's file is asked for, each strategy on a node, windows, spawned processes, hooks and the
# notifier on a few changes, and the staleness table's rows in an MPI program: Open MPI 5.0 links UCX, which
# has patched libc by then.
SELECTION = ["test/unit/btl", "test/hazard/test_version.py", "test/mpi/test_onesided.py",
             *(f"test/mpi/test_backend.py::test_open_mpis_hooks_see_the_change[{kind}]"
               for kind in ("munmap", "sbrk", "free")),
             *(f"test/mpi/test_backend.py::test_the_notifier_sees_the_change[{kind}]"
               for kind in ("munmap", "munmap-raw", "dontneed")),
             IN_A_PROGRAM,
             "test/mpi/test_transfer.py::test_messages_among_several_ranks_are_right",
             "test/mpi/test_dynamic.py::test_spawned_processes_exchange_messages"]
# With --full. What is not in it yet says things of 4.1 alone (vader, where a refusal is said, which
# operations on a window need the target).
ALL = ["test/unit/btl", "test/hazard/test_version.py", "test/hazard/test_hooks.py",
       *STALENESS,
       *(f"test/mpi/test_{name}.py" for name in (
           "backend", "collective", "dynamic", "finalize", "onesided", "queued", "random",
           "rendezvous", "report", "transfer"))]


@pytest.mark.parametrize("series", ["5.0", "6.0"])
def test_tests_pass_with_open_mpi(series: str, full: bool, seed: int) -> None:
    if series == "6.0" and not full:
        pytest.skip("with --full: it is not released yet")
    run = subprocess.run([TOP / "test/run", "--openmpi", series, "--seed", str(seed),
                          *(["--full", *ALL] if full else SELECTION)], stdin=subprocess.DEVNULL,
                         text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                         timeout=7200 if full else 1800)
    print(run.stdout)
    assert run.returncode == 0, run.stdout[-6000:]
    assert " passed, 0 failed, " in run.stdout.splitlines()[-1], run.stdout[-2000:]
