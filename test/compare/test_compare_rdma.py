# SPDX-License-Identifier: BSD-3-Clause
"""compare --rdma: over this machine's device, or in the machine that has one."""

import os
import re
import shlex
import subprocess
import sys

import pytest
from standins import WATCHDOG, Tree

from comparing.launch import limited

ROWS = """\
[defaults]
benchmark = osu_bw
sizes = 64K:256K
options = -W 4 -i 5 -x 1
[bounce]
mca = --mca pml ob1 --mca btl regx --mca btl_regx_rendezvous bounce
[uct]
mca = --mca pml ob1 --mca btl regx --mca btl_regx_transport uct --mca btl_regx_rendezvous bounce
[ucx]
mca = --mca pml ucx
"""
AROUND = ["--", "chrt", "-i", "0", "env", "UCX_IB_GID_INDEX=0"]


def of_machine(tree: Tree) -> list[str]:
    return [call for call in tree.calls() if call.startswith("machine ")]


def test_without_a_device_rows_run_in_the_machine(tree: Tree) -> None:
    done, document = tree.compare(ROWS, "--rdma")
    assert done.returncode == 0, done.stderr
    (call,) = of_machine(tree)
    assert call.split()[3:9] == AROUND, call
    calls = [call for call in tree.calls() if not call.startswith("machine ")]
    assert len(calls) == 3 * (1 + 3)
    for call in calls:
        # What it sees of OSU; its windows are the companion's to check.
        seen = re.search(rf"{tree.path}/\.build/rdma/\w+/osu_bw ", call) is not None
        assert seen != call.endswith(" -c"), call
        assert ("btl_regx_transport verbs" in call) == ("btl_regx_rendezvous" in call
                                                       and "transport uct" not in call), call
    # Checked with the window of the timed runs: the wire is slow.
    assert sum(call.endswith("-i 2 -x 0 -W 4 -c") for call in calls) == 3
    assert {run["phase"] for run in document["runs"]} == {"unmeasured"}
    assert "limit" not in {arm["strategy"] for arm in document["arms"]}
    assert document["environment_outside"]["openmpi"] == "4.1.4"
    assert (tree.path / "output/table.txt").read_text() in done.stdout
    assert done.stderr.count("setup was called") == 1  # out here


def test_with_a_device_rows_run_here(tree: Tree) -> None:
    tree.has_device()
    done, _ = tree.compare(ROWS, "--rdma")
    assert done.returncode == 0, done.stderr
    assert of_machine(tree) == []
    assert any("btl_regx_transport verbs" in call for call in tree.calls())


def test_a_failure_in_the_machine_is_reported(tree: Tree) -> None:
    rows = ROWS.replace("[uct]", "environment = WIRE=shm\n[uct]")
    done, document = tree.compare(rows, "--rdma")
    assert done.returncode == 1
    assert "bounce osu_bw (?): path not proven: 1.9 GiB were to go over verbs" in done.stdout
    assert "the wires carried shm 3.7 GiB, tcp 0 B, verbs 0 B" in done.stdout
    problems = [run["problem"] for run in document["runs"] if run["arm"]["strategy"] == "bounce"]
    assert problems and all(problems)


def test_without_a_machine_it_ends_with_125(tree: Tree) -> None:
    tree.write("test/machine/run", "#!/bin/sh\necho no machine >&2; exit 125\n", executable=True)
    file = tree.write("rows.conf", ROWS)
    done = tree.run("--rdma", "-f", file)
    assert done.returncode == 125 and "no machine" in done.stderr


@pytest.mark.parametrize("here", [False, True])
def test_lines_of_a_dry_run_can_be_pasted(tree: Tree, here: bool) -> None:
    """Each line can be pasted: where there is no device, it runs in the machine."""
    if here:
        tree.has_device()
    subprocess.run([tree.path / "component/config/setup"], check=True, stderr=subprocess.DEVNULL)
    file = tree.write("rows.conf", ROWS)
    done = tree.run("--rdma", "--dry-run", "-f", file, "--osu", tree.path / "osu")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert len(lines) == 6 and not (tree.path / "calls").exists()
    machine = shlex.join([f"{tree.path}/test/machine/run", *AROUND]) + " "
    assert all(line.startswith(machine) != here for line in lines)
    assert ["btl_regx_transport verbs" in line for line in lines] == [True] * 2 + [False] * 4


def test_a_second_call_leaves_the_first_ones_files_alone(tree: Tree) -> None:
    """Another call, even one that runs nothing, leaves alone what the machine is working on."""
    other = shlex.join(tree.command("--rdma", "--dry-run", "-f", tree.write("other.conf", ROWS),
                                    "--osu", tree.path / "osu"))
    machine = tree.path / "test/machine/run"
    machine.write_text(machine.read_text().replace('exec "$@"', f'{other} >/dev/null; exec "$@"'))
    # It still is no device's machine for that other call.
    machine.write_text(machine.read_text().replace("while [", f"""\
rm -r "{tree.path}/infiniband"
while [""", 1).replace('; exec "$@"', f"""
mkdir -p "{tree.path}/infiniband/rxe0/ports/1"
echo "4: ACTIVE" >"{tree.path}/infiniband/rxe0/ports/1/state"
exec "$@\""""))
    done, document = tree.compare(ROWS, "--rdma")
    assert done.returncode == 0, done.stderr
    assert len(document["runs"]) == 3 * 3
    (programs,) = (tree.path / ".build/rdma").iterdir()  # nothing else is left
    assert {path.name for path in programs.iterdir()} == {
        "osu_allreduce", "osu_bibw", "osu_bw", "osu_latency"
    }  # fmt: skip


def test_only_the_benchmarks_of_this_call(tree: Tree) -> None:
    """What an earlier one took along is not found again."""
    tree.compare(ROWS, "--rdma")
    for file in ("calls", "infiniband/rxe0/ports/1/state"):
        (tree.path / file).unlink()
    done = tree.run("--rdma", "-f", tree.write("rows.conf", ROWS))
    assert done.returncode == 0, done.stderr
    assert not any("osu_bw" in call for call in tree.calls())


def test_hosts_are_refused_in_the_machine(tree: Tree) -> None:
    hosts = tree.write("hosts", "a\nb\n")
    done = tree.run("--rdma", "--hostfile", hosts, "-f", tree.write("rows.conf", ROWS))
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines()[-1] == (
        "compare: --hostfile: there is no RDMA device here, and the emulated machine is one node"
    )


def test_what_was_built_before_is_taken_as_it_is(tree: Tree) -> None:
    done = tree.run("--no-build", "-f", tree.write("rows.conf", ROWS))
    assert done.returncode == 1 and "compare: " in done.stderr and ".build/env" in done.stderr
    assert "setup was called" not in done.stderr


@pytest.mark.parametrize(("value", "bytes_"), [("8M", str(8 << 20)), ("unlimited", "unlimited")])
def test_memlock_limits_every_rank(tree: Tree, value: str, bytes_: str) -> None:
    """Before the program, for every rank; root is made to be limited."""
    done, _ = tree.compare(ROWS.replace("[ucx]", f"[ucx]\nmemlock = {value}"))
    assert done.returncode == 0, done.stderr
    root = "setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock " if os.geteuid() == 0 else ""
    words = f" {root}prlimit --memlock={bytes_}:{bytes_} {tree.path}/"
    assert [words in call for call in tree.calls()] == ["pml ucx" in call for call in tree.calls()]


def test_the_machine_has_the_memory_that_the_rows_want(tree: Tree) -> None:
    rows = ROWS.replace("[defaults]", "[defaults]\nmemory = 512M\nswap = 1G")
    subprocess.run([tree.path / "component/config/setup"], check=True, stderr=subprocess.DEVNULL)
    dry = tree.run("--rdma", "--dry-run", "-f", tree.write("dry.conf", rows))
    done, _ = tree.compare(rows, "--rdma")
    assert done.returncode == 0, done.stderr
    (call,) = of_machine(tree)
    assert call.split()[1:5] == ["--memory", "512", "--swap", "1024"], call
    lines = [line for line in dry.stdout.splitlines() if not line.startswith("#")]
    words = shlex.join([str(tree.path / "test/machine/run"), *call.split()[1:5], *AROUND])
    assert lines and all(line.startswith(words) for line in lines), dry.stdout


@pytest.mark.parametrize("options", [[], ["--rdma"]])
def test_without_rdma_the_table_says_that_memory_is_not_heeded(
    tree: Tree, options: list[str]
) -> None:
    done, _ = tree.compare(ROWS.replace("[defaults]", "[defaults]\nmemory = 512M"), *options)
    assert done.returncode == 0, done.stderr
    notes = [line for line in done.stdout.splitlines() if line.startswith("memory and swap are ")]
    assert len(notes) == (not options), done.stdout
    assert not notes or notes[0].endswith("without --rdma: bounce, uct, ucx."), notes


def test_rows_that_want_different_machines_are_refused(tree: Tree) -> None:
    rows = ROWS.replace("[ucx]", "[ucx]\nmemory = 512M")
    file = tree.write("rows.conf", rows)
    done = tree.run("--rdma", "-f", file)
    assert done.returncode == 2 and not (tree.path / "calls").exists()
    assert done.stderr.splitlines()[-1] == (
        f"compare: {file}:9: another memory or swap than in {file}:5; wanted: the same in all rows,"
        " which run in one machine"
    )


LOCK = """\
import ctypes, mmap
memory = mmap.mmap(-1, 4 << 20)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
print(ctypes.CDLL(None).mlock(ctypes.c_void_p(address), ctypes.c_size_t(4 << 20)))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="others may not raise their limit")
@pytest.mark.parametrize(("memlock", "result"), [("65536", "-1"), ("8388608", "0")])
def test_root_is_limited_too(memlock: str, result: str) -> None:
    run = subprocess.run([*limited(memlock), sys.executable, "-c", LOCK], capture_output=True,
                         text=True, timeout=WATCHDOG, check=True)
    assert run.stdout.strip() == result
