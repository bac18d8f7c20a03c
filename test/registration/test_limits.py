# SPDX-License-Identifier: BSD-3-Clause
"""What regx may use of the system, and where the system refuses."""
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from namespace import need
from random_runs import UNAVAILABLE, run

COUNT = "/proc/sys/vm/max_map_count"
MANY = 1000  # operations, of which each is some changes and transfers


@pytest.fixture
def oracle(programs: Path) -> None:
    done = run(programs / "property", "notifier", 1, 1)
    if done.status == UNAVAILABLE:
        pytest.skip(done.output.strip())


def test_few_mappings_may_be_watched(programs: Path, oracle: None, tmp_path: Path) -> None:
    """Hazard 16: a tenth of vm.max_map_count; what is beyond is registered for each use."""
    (tmp_path / "count").write_text("300\n")
    around = ["unshare", "--mount", "sh", "-c",
              f'mount --bind "{tmp_path / "count"}" {COUNT} && exec "$@"', "sh"]
    need("mount namespace", *around, "true")
    done = run(Path(around[0]), *around[1:], programs / "property", "notifier", 1, 2 * MANY)
    assert done.status == 0, str(done)
    assert "not watched: too many mappings (vm.max_map_count): " in done.output, str(done)
    assert done.counts["uncached"] > done.counts["transfers"] / 4, str(done)
    assert done.counts["hits"] > 0, str(done)


def test_the_kernels_long_list_is_not_read(programs: Path, oracle: None, tmp_path: Path) -> None:
    """Hazard 23: smaps takes milliseconds; nothing of /proc is opened once it runs."""
    trace = tmp_path / "trace"
    opened = {}
    for operations in 1, MANY:
        done = run(Path("strace"), "-f", "-e", "trace=open,openat", "-o", trace,
                   programs / "property", "notifier", 1, operations)
        assert done.status == 0, str(done)
        paths = re.findall(r'open(?:at)?\([^"]*"(/proc/[^"]*)"', trace.read_text())
        opened[operations] = [re.sub(r"/\d+/", "/N/", path) for path in paths]
    assert opened[1] == opened[MANY]
    assert not [path for path in opened[MANY] if "smaps" in path]


@pytest.mark.parametrize("locked", [64 << 10, 8 << 20])
def test_the_cache_makes_room_under_a_memlock_limit(programs: Path, oracle: None, locked: int) -> None:
    """What is kept makes way; what is larger than all that is allowed is told."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    nobody = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory() as folder:  # one that other users may not read
        os.chmod(folder, 0o755)
        program = shutil.copy(programs / "property", folder)
        done = run(Path("prlimit"), f"--memlock={locked}", "setpriv", f"--reuid={nobody.pw_uid}",
                   f"--regid={nobody.pw_gid}", "--clear-groups", program, "notifier", 1, 5 * MANY)
    assert done.status == 0, str(done)
    assert done.counts["transfers"] > 2 * MANY, str(done)
    assert done.counts["evictions"] > 0, str(done)
    assert done.counts["hits"] > 0, str(done)
    assert done.counts["refused"] < done.counts["transfers"] / 2, str(done)
