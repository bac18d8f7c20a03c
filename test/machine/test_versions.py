# SPDX-License-Identifier: BSD-3-Clause
"""The tests that depend on Open MPI's version, with each one that is not this machine's."""
import os
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another root folder")

# What a version's file is asked for, each strategy on a node, windows, spawned processes, memory that goes
# while it is in use, hooks and the notifier on a few changes, and the staleness table's rows in an MPI
# program: Open MPI 5.0 links UCX, which has patched libc by then. With --full, all that depends on the version.
IN_A_PROGRAM = "test/registration/test_staleness.py::test_staleness_in_an_mpi_program_is_as_documented"
SELECTION = ["test/unit/btl", "test/hazard/test_version.py", "test/mpi/test_windows.py",
             "test/mpi/test_truncate.py",
             *(f"test/hazard/test_{name}.py" for name in (
                 "window_hosts", "inuse", "grant", "memory")),
             "test/mpi/test_backend.py::test_a_buffer_left_alone_is_registered_once",
             IN_A_PROGRAM,
             "test/mpi/test_transfer.py::test_messages_among_several_ranks_are_right",
             "test/mpi/test_dynamic.py::test_spawned_processes_exchange_messages"]


@pytest.mark.parametrize("series", ["5.0", "6.0"])
def test_tests_pass_with_open_mpi(series: str, full: bool, seed: int) -> None:
    run = subprocess.run([TOP / "test/run", "--openmpi", series, "--seed", str(seed),
                          *(["--full"] if full else SELECTION)], stdin=subprocess.DEVNULL,
                         text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                         timeout=7200 if full else 1800)
    print(run.stdout)
    assert run.returncode == 0, run.stdout[-6000:]
    assert " passed, 0 failed, " in run.stdout.splitlines()[-1], run.stdout[-2000:]
