# SPDX-License-Identifier: BSD-3-Clause
"""The machine gives a command a verbs device, and gives back how it ended."""
import os
import subprocess
from pathlib import Path

import pytest

import rootfs
from trouble import Trouble

RUN = Path(__file__).with_name("run")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make the guest's root")


def shell(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([RUN, "--", "sh", "-c", script], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False, timeout=900)


def test_device_and_status() -> None:
    run = shell("ibv_devinfo; rdma link; getent ahostsv4 localhost machine; echo complaint >&2; exit 7")
    assert run.returncode == 7, run
    assert "PORT_ACTIVE" in run.stdout, run
    assert "link rxe0/1 state ACTIVE" in run.stdout, run
    assert "127.0.0.1" in run.stdout and "10.73.0.1" in run.stdout, run
    assert "complaint\n" in run.stderr, run
    assert "complaint" not in run.stdout, run


def test_guest_that_dies_while_the_command_runs() -> None:
    run = shell("echo before; echo c >/proc/sysrq-trigger")
    assert run.returncode == 125, run
    assert run.stdout == "before\n", run
    assert "died while the command ran" in run.stderr, run


def test_a_root_that_could_not_be_made_leaves_nothing_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was mounted in it would be emptied with it: mmdebstrap mounts /dev/shm there, and may be killed before it
    unmounts."""
    ours, tools, cache = (tmp_path / name for name in ("ours", "tools", "cache"))
    for folder in (ours, tools, cache):
        folder.mkdir()
    (ours / "file").write_text("ours")
    fake = tools / "mmdebstrap"
    fake.write_text(f"""#!/bin/sh -e
for word do tree=$last last=$word; done
mkdir -p "$tree/dev/shm"
mount --bind {ours} "$tree/dev/shm"
test -e "$tree/dev/shm/file"
exit 1
""")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    with pytest.raises(Trouble, match="failed"):
        rootfs.make(cache)
    assert (ours / "file").read_text() == "ours"
    assert list(cache.iterdir()) == []
