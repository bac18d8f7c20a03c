# SPDX-License-Identifier: BSD-3-Clause
"""The tests that depend on Open MPI's version, with each one that is not this machine's."""
import os
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another root folder")


@pytest.mark.parametrize("series", ["5.0", "6.0"])
def test_tests_pass_with_open_mpi(series: str, seed: int) -> None:
    run = subprocess.run([TOP / "test/run", "--openmpi", series, "--seed", str(seed)],
                         stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, check=False, timeout=7200)
    print(run.stdout)
    assert run.returncode == 0, run.stdout[-6000:]
    assert " passed, 0 failed, " in run.stdout.splitlines()[-1], run.stdout[-2000:]
