# SPDX-License-Identifier: BSD-3-Clause
"""Rows over an RDMA device: this machine's, or where it has none, that of an emulated machine.

The emulated one (test/machine/run) sees this source tree and nothing else of ours, has neither
compiler nor benchmarks, and its device, Soft-RoCE, works in threads of its kernel.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from comparing import environment, osu
from comparing.configuration import Row
from comparing.installation import BUILD, TOP, Installation
from comparing.launch import Line
from comparing.trouble import Trouble

DEVICES = Path("/sys/class/infiniband")
RUN = TOP / "test/machine/run"
# Polling ranks would starve the threads that are the device. UCX finds no way over a RoCE v2
# address that leads back to itself; the first one does.
AROUND = ("chrt", "-i", "0", "env", "UCX_IB_GID_INDEX=0")
BOOT_SECONDS = 300


def device_is_here() -> bool:
    """Whether a port of some device is active."""
    return any("ACTIVE" in state.read_text() for state in DEVICES.glob("*/ports/*/state"))


def purpose() -> str:
    """What setup is to make ready for: our transport, and the machine where that is needed."""
    return "rdma" if device_is_here() else "machine"


def machine_options(rows: list[Row]) -> list[str]:
    """What memory the rows want the emulated machine to have, which is one for all of them."""
    first = rows[0]
    for row in rows:
        if (row.memory, row.swap) != (first.memory, first.swap):
            raise Trouble(
                f"{row.where}: another memory or swap than in {first.where}; wanted: the same in all"
                " rows, which run in one machine"
            )
    options = ["--memory", str(first.memory)] if first.memory else []
    return options + (["--swap", str(first.swap)] if first.swap else [])


def emulated(
    found: Installation, asked: argparse.Namespace, rows: list[Row]
) -> "Machine | None":
    """The machine that has an RDMA device, unless this one does."""
    if device_is_here():
        return None
    for option in ("hostfile", "launcher"):
        if getattr(asked, option, None):
            raise Trouble(
                f"--{option}: there is no RDMA device here, and the emulated machine is one node"
            )
    return Machine(found, machine_options(rows))


def over_verbs(row: Row) -> Row:
    """The row, over verbs if it is of regx and names no transport."""
    if not row.is_regx or row.parameter("btl_regx_transport"):
        return row
    return dataclasses.replace(row, mca=(*row.mca, ("btl_regx_transport", "verbs")))


class Machine:
    """The emulated machine, for one call of a command of ours. Another call may be using it too: what
    they share is replaced, never removed, and what is one call's own has a folder of its own."""

    def __init__(self, installation: Installation, options: list[str]) -> None:
        """options: of test/machine/run."""
        self.installation = installation
        self.options = options
        self.folder = BUILD / "rdma"  # what it is to see of what lies elsewhere
        self.folder.mkdir(parents=True, exist_ok=True)
        self.programs = self.folder  # of OSU

    def line(self, line: Line) -> str:
        """A line that runs it there, as a person can paste it into a shell."""
        return shlex.join([str(RUN), *self.options, "--", *AROUND]) + f" {line}"

    def take(self, suite: osu.Suite, companion: Path) -> osu.Suite:
        """The same benchmarks, where it sees them."""
        found = suite.found()
        sources = "\n".join(map(str, found.values())).encode()
        self.programs = self.folder / hashlib.sha256(sources).hexdigest()[:12]
        self.programs.mkdir(exist_ok=True)
        for name, path in found.items():
            copy = self.programs / f".{name}.{os.getpid()}"
            shutil.copy(path, copy)
            copy.replace(self.programs / name)
        return osu.Suite(None, companion, {"PATH": str(self.programs)}, ())

    def _take_files(self, files: list[Path], own: Path) -> list[Path]:
        copies = [own / str(number) / file.name for number, file in enumerate(files)]
        for file, copy in zip(files, copies):
            copy.parent.mkdir()
            shutil.copy(file, copy)
        return copies

    def run(
        self, command: list[str | Path], files: list[Path], folder: Path, patience: float
    ) -> int:
        """Runs a command of ours, there, with -f for each of the files. Its results are in the folder
        then, with what is known out here alone: the processor, the load. Returns its
        status. Whoever interrupts us interrupts it, and it ends by itself."""
        own = Path(tempfile.mkdtemp(prefix="call-", dir=self.folder))
        output = own / "output"
        words = [RUN, *self.options, "--timeout", BOOT_SECONDS + patience, "--"]
        words += [*AROUND, f"{environment.COMMIT}={environment.commit() or ''}", *command]
        words += ["-f", *self._take_files(files, own)]
        words += ["--rdma", "--no-build", "--output", output]
        # In a session of its own: Ctrl-C in the terminal reaches us alone, and it once.
        process = subprocess.Popen([str(word) for word in words], start_new_session=True)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: process.send_signal(signal.SIGINT))
        status = process.wait()
        if output.exists():
            shutil.copytree(output, folder, dirs_exist_ok=True)
        shutil.rmtree(own)
        about = folder / "results.json"
        if about.exists():
            document = json.loads(about.read_text())
            document["environment_outside"] = environment.collect(self.installation, [])
            about.write_text(json.dumps(document, indent=1) + "\n")
        return status
