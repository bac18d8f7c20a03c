# SPDX-License-Identifier: BSD-3-Clause
"""The machine gives a command a verbs device, and gives back how it ended."""
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from launch import ORDINARY_USER

RUN = Path(__file__).with_name("run")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make the guest's root")


def machine(*words: str | Path, environment: Mapping[str, str] | None = None
            ) -> subprocess.CompletedProcess[str]:
    return subprocess.run([RUN, *words], env={**os.environ, **(environment or {})},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          timeout=900)


def shell(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    return machine(*options, "--", "sh", "-c", script)


@pytest.fixture
def stand_in(tmp_path: Path):
    """A QEMU that dies on its first `deaths` boots and then runs no command, successfully."""
    def make(deaths: int) -> dict[str, str]:
        program = tmp_path / "qemu-system-x86_64"
        program.write_text(f"""#!/bin/sh
            echo boot >>'{tmp_path}/boots'
            [ "$(wc -l <'{tmp_path}/boots')" -gt {deaths} ] || exit 1
            for word; do
                case $word in
                local,id=control,*) control=${{word#*path=}} control=${{control%%,*}} ;;
                esac
            done
            : >"$control/started"
            echo said >"$control/stdout"
            echo 0 >"$control/status"
        """)
        program.chmod(0o755)
        return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return make


def test_device_and_status() -> None:
    run = shell("ibv_devinfo; rdma link; echo complaint >&2; exit 7")
    assert run.returncode == 7, run
    assert "PORT_ACTIVE" in run.stdout, run
    assert "link rxe0/1 state ACTIVE" in run.stdout, run
    assert "complaint\n" in run.stderr, run
    assert "complaint" not in run.stdout, run


def test_tree_is_shared() -> None:
    here = Path(__file__)
    left = here.parents[2] / ".build" / "machine" / "left-by-the-guest"
    left.unlink(missing_ok=True)
    run = shell(f"cat '{here}'; echo left >'{left}'")
    assert run.returncode == 0, run
    assert run.stdout == here.read_text()
    assert left.read_text() == "left\n"
    left.unlink()


@pytest.mark.parametrize("suite, paging", [("trixie-backports", True), ("bookworm", False)])
def test_the_kernel_decides_on_demand_paging(suite: str, paging: bool) -> None:
    run = shell("ibv_devinfo -v", "--kernel", suite)
    assert run.returncode == 0, run
    assert "rc_odp_caps:" in run.stdout, run
    assert ("SUPPORT_WRITE" in run.stdout) == paging, run


def test_memory_and_swap_are_as_asked() -> None:
    run = shell("grep -e ^MemTotal -e ^SwapTotal /proc/meminfo", "--memory", "512", "--swap", "64")
    assert run.returncode == 0, run
    memory, swap = (int(line.split()[1]) >> 10 for line in run.stdout.splitlines())
    assert 400 < memory < 512 and 63 <= swap <= 64, run  # the kernel itself takes some of both


def test_memory_that_is_no_number_is_refused() -> None:
    run = shell("true", "--memory", "much")
    assert run.returncode == 2, run
    assert "much: not a number of MiB" in run.stderr, run


def test_guest_that_dies_while_the_command_runs() -> None:
    run = shell("echo before; echo c >/proc/sysrq-trigger")
    assert run.returncode == 125, run
    assert run.stdout == "before\n", run
    assert "died while the command ran" in run.stderr, run


def test_command_that_takes_too_long() -> None:
    run = shell("echo before; sleep 1000", "--timeout", "1")
    assert run.returncode == 124, run
    assert run.stdout == "before\n", run


@contextlib.contextmanager
def ready(trap: str) -> Iterator[subprocess.Popen[str]]:
    """The machine, running a command for ever that does so when it is interrupted."""
    script = f"{trap}; echo ready; while :; do sleep 0.1; done"
    process = subprocess.Popen([RUN, "--", "sh", "-c", script], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout and process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()


def test_interruption_reaches_the_command() -> None:
    """It ends as it likes, and what it wrote last is there."""
    with ready("trap 'echo asked; exit 9' INT") as process:
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=300)
    assert (process.returncode, rest) == (9, "asked\n")


def test_second_interruption_is_the_end() -> None:
    with ready("trap 'echo asked' INT") as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout and process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=300)
    assert (process.returncode, rest) == (130, "")


def test_guest_that_dies_at_boot_is_booted_again(stand_in, tmp_path: Path) -> None:
    run = machine("true", environment=stand_in(deaths=2))
    assert (run.returncode, run.stdout) == (0, "said\n"), run
    assert run.stderr.count("died before the command started") == 2, run
    assert "boot 2 of 5" in run.stderr, run


def test_boots_are_bounded(stand_in, tmp_path: Path) -> None:
    run = machine("true", environment=stand_in(deaths=1000))
    assert (run.returncode, run.stdout) == (125, ""), run
    assert (tmp_path / "boots").read_text().count("boot") == 5
    assert run.stderr.splitlines()[-1] == \
        "machine: no guest lived until the command started, in 5 boots"


def test_user_who_is_not_root() -> None:
    # Who yet may read what is root's alone: this tree may lie in root's own folder.
    reader = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    run = subprocess.run([*ORDINARY_USER, *reader, RUN, "true"], capture_output=True, text=True,
                         check=False, timeout=60)
    assert run.returncode == 125, run
    assert len(run.stderr.splitlines()) == 1 and "root" in run.stderr, run
