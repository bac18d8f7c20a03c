# SPDX-License-Identifier: BSD-3-Clause
"""One command in a guest: boots until it has started, passes on what it prints."""
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from trouble import Trouble

BOOTS = 5  # a guest that dies before the command starts is booted again, so often at most
BOOT_PATIENCE = 180  # seconds
GRACE = 60  # seconds that an interrupted command may take to end
QEMU = ["qemu-system-x86_64", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max",
        "-smp", "2", "-M", "q35,usb=off,vmport=off,smm=off", "-nodefaults", "-no-reboot",
        "-display", "none"]
# maxcpus=1: see guest-init. tsc=reliable: else a busy host makes the kernel distrust the clock, and
# patch its own code for that, in the middle of a command. no_timer_check: else Linux 6.1 panics at its start, if
# its timer has not ticked in time. A guest that a busy host does not run for 21 s has not stalled. slab_nomerge:
# before 6.5 a module cannot keep its objects apart.
KERNEL_LINE = ("console=ttyS0 quiet maxcpus=1 mitigations=off nokaslr panic=-1 oops=panic "
               "tsc=reliable no_timer_check rcupdate.rcu_cpu_stall_timeout=300 slab_nomerge "
               "rootfstype=ext4")
INIT = Path(__file__).with_name("guest-init")


class Stream:
    """A file that grows, passed on as it does."""

    def __init__(self, path: Path, to: BinaryIO) -> None:
        path.touch()
        self.file = path.open("rb")
        self.to = to

    def pass_on(self) -> None:
        while data := self.file.read(1 << 16):
            self.to.write(data)
            self.to.flush()


class Interruption:
    """Ctrl-C and the like: the first is passed on to the command, the second is the end."""

    def __init__(self) -> None:
        self.count = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.note)

    def note(self, *_: object) -> None:
        self.count += 1


def shared(name: str, folder: Path) -> list[str]:
    return ["-fsdev", f"local,id={name},path={folder},security_model=none,multidevs=remap",
            "-device", f"virtio-9p-pci,fsdev={name},mount_tag={name}"]


@dataclass(frozen=True)
class Machine:
    """What a guest consists of. memory, swap: MiB; without swap, its memory is all there is."""
    kernel: Path
    root: Path
    module: Path
    memory: int
    swap: int = 0

    def words(self, control: Path) -> list[str | Path]:
        """QEMU's, for a guest with files of its own in `control`."""
        words: list[str | Path] = [
            *QEMU, "-m", str(self.memory), "-kernel", self.kernel / "vmlinux",
            "-initrd", self.kernel / "initrd",
            "-drive", f"file={self.root / 'root.img'},format=raw,if=virtio,snapshot=on"]
        if self.swap > 0:
            disk = control / "swap"
            with disk.open("wb") as file:  # a hole, until the guest writes to it
                file.truncate(self.swap << 20)
            words += ["-drive", f"file={disk},format=raw,if=virtio,cache=unsafe"]
        return words


class Guest:
    """A guest that is to run one command, with `tree` at the same place as here."""

    def __init__(self, machine: Machine, tree: Path, command: Sequence[str], control: Path) -> None:
        self.control = control
        self.console = control / "console"
        shutil.copy(INIT, control / "init")
        shutil.copy(machine.module, control)
        (control / "tree").write_text(f"{tree}\n")
        (control / "command").write_text(f"exec {shlex.join(command)}\n")
        self.words = [
            *machine.words(control),
            "-append", KERNEL_LINE, "-serial", f"file:{self.console}", "-serial", "stdio",
            *shared("control", control), *shared("tree", tree)]

    def last_words(self) -> str:
        lines = self.console.read_text(errors="replace").splitlines() \
            if self.console.exists() else []
        return "\n".join(lines[-30:])

    def boot(self, timeout: float, interruption: Interruption) -> int | None:
        """The command's status; None: it never started."""
        streams = [Stream(self.control / "stdout", sys.stdout.buffer),
                   Stream(self.control / "stderr", sys.stderr.buffer)]
        started = self.control / "started"
        qemu = subprocess.Popen(self.words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, start_new_session=True)
        assert qemu.stdin
        end = time.monotonic() + BOOT_PATIENCE
        running = interrupted = False
        try:
            while qemu.poll() is None:
                if not running and started.exists():
                    running = True
                    end = time.monotonic() + timeout
                if interruption.count > 0 and not interrupted:
                    interrupted = True
                    end = time.monotonic() + GRACE
                    with contextlib.suppress(BrokenPipeError):  # it has just ended
                        qemu.stdin.write(b"\n")
                        qemu.stdin.flush()
                if interrupted and (not running or interruption.count > 1 or time.monotonic() > end):
                    raise KeyboardInterrupt
                if time.monotonic() > end:
                    if running:
                        raise TimeoutError
                    break
                for stream in streams:
                    stream.pass_on()
                time.sleep(0.02)
        finally:
            qemu.kill()
            _, complaint = qemu.communicate()
            for stream in streams:
                stream.pass_on()
        status = self.control / "status"
        if status.exists():
            return int(status.read_text())
        if not started.exists():
            if complaint:
                sys.stderr.write(complaint.decode(errors="replace"))
            return None
        raise Trouble(f"the guest died while the command ran\n{self.last_words()}")


def run(machine: Machine, tree: Path, command: Sequence[str], timeout: float) -> int:
    """The status of the command; Trouble if the guest dies, TimeoutError if it takes too long."""
    interruption = Interruption()
    for boot in range(1, BOOTS + 1):
        with tempfile.TemporaryDirectory(prefix="regx-machine-", dir=os.environ.get("TMPDIR")) \
                as control:
            guest = Guest(machine, tree, command, Path(control))
            status = guest.boot(timeout, interruption)
            if status is not None:
                return status
            print(f"machine: boot {boot} of {BOOTS} at most: the guest died before the command "
                  f"started\n{guest.last_words()}", file=sys.stderr)
    raise Trouble(f"no guest lived until the command started, in {BOOTS} boots")
