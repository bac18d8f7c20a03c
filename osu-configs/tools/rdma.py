# SPDX-License-Identifier: BSD-3-Clause
"""Rows over an RDMA device: this machine's, or where it has none, that of an emulated machine.

The emulated one (test/machine/run) sees this source tree and nothing else of ours, has neither
compiler, pandas nor benchmarks, and its device, Soft-RoCE, works in threads of its kernel.
"""

import dataclasses
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.installation import BUILD, COMMIT, TOP, commit
from tools.launch import Line
from tools.osu import Suite
from tools.rows import Row
from tools.trouble import Trouble

RUN = TOP / "test/machine/run"
# Polling ranks would starve the threads that are the device. UCX finds no way over a RoCE v2
# address that leads back to itself; the first one does.
AROUND = ("chrt", "-i", "0", "env", "UCX_IB_GID_INDEX=0")
BOOT_SECONDS = 300


def device_is_here(devices: Path = Path("/sys/class/infiniband")) -> bool:
    """Whether a port of some device is active."""
    return any("ACTIVE" in state.read_text() for state in devices.glob("*/ports/*/state"))


def over_verbs(row: Row) -> Row:
    """The row, over verbs if it is of regx and names no transport."""
    if not row.is_regx or row.regx("transport") != "auto":
        return row
    return dataclasses.replace(row, mca={**row.mca, "btl_regx_transport": "verbs"})


class Machine:
    """The emulated machine, for one call of compare. Another call may be using it too: each has a
    folder of its own of what the machine is to see."""

    def __init__(self, rows: list[Row]):
        first = rows[0]
        for row in rows:
            if (row.memory, row.swap) != (first.memory, first.swap):
                raise Trouble(f"{row.where}: another memory or swap than in {first.where}; wanted: the"
                              " same in all rows, which run in one machine")
        self.options = ["--memory", str(first.memory)] if first.memory else []
        self.options += ["--swap", str(first.swap)] if first.swap else []
        (BUILD / "rdma").mkdir(parents=True, exist_ok=True)
        self.own = Path(tempfile.mkdtemp(prefix="call-", dir=BUILD / "rdma"))

    def close(self) -> None:
        shutil.rmtree(self.own)

    def line(self, line: Line) -> str:
        """A line that runs it there, as a person can paste it into a shell."""
        return shlex.join([str(RUN), *self.options, "--", *AROUND]) + f" {line}"

    def take(self, suite: Suite) -> None:
        """The same benchmarks, where it sees them."""
        suite.osu = {name: Path(shutil.copy(path, self.own / name)) for name, path in suite.osu.items()}
        self.programs = ["--osu", self.own] if suite.osu else []

    def measure(self, options: Sequence[object], files: list[Path], folder: Path, patience: float) -> int:
        """Has compare measure there, with -f for each of the files, into the folder. Returns its status.
        Ctrl-C is passed on, and the machine's compare ends by itself."""
        output = self.own / "output"
        copies = [self.own / str(number) / file.name for number, file in enumerate(files)]
        for file, copy in zip(files, copies):
            copy.parent.mkdir()
            shutil.copy(file, copy)
        words = [RUN, *self.options, "--timeout", BOOT_SECONDS + patience, "--", *AROUND,
                 f"{COMMIT}={commit()}", "python3", "-B", Path(__file__).parent, "compare",
                 "--measure", "--rdma", "--no-build", "--output", output,
                 *self.programs, *options, "-f", *copies]  # fmt: skip
        # In a session of its own: Ctrl-C in the terminal reaches this process alone, and it once.
        process = subprocess.Popen([str(word) for word in words], start_new_session=True)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: process.send_signal(signal.SIGINT))
        status = process.wait()
        if output.exists():
            shutil.copytree(output, folder, dirs_exist_ok=True)
        return status
