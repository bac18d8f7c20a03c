# SPDX-License-Identifier: BSD-3-Clause
"""What watches the jobs: a hang, and a process left behind, must be found and ended."""
import pytest

import job
from launch import Mpi


def test_a_hanging_job_is_ended(mpi: Mpi) -> None:
    """Ranks with process groups of their own included."""
    marks: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "kill", lambda mark, kill=job.kill: marks.append(mark) or kill(mark))
        with pytest.raises(pytest.fail.Exception, match="watchdog: not done after 1 s"):
            mpi("/bin/sleep", 1000, btl=None, timeout=1)
    assert marks and not job.marked(marks[0])


def test_a_process_left_behind_is_found(mpi: Mpi) -> None:
    left = ["sh", "-c", 'setsid sleep 1000 >/dev/null 2>&1 </dev/null & exec "$@"', "sh"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "PATIENCE", 0.1)
        with pytest.raises(AssertionError, match="were left behind"):
            mpi("collective", "barrier", "--sizes", 1, "bcast", btl="self,vader", within=left)
