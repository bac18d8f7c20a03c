# SPDX-License-Identifier: BSD-3-Clause
"""What this node lacks for rows over pinned, the device in software, and for the kernel module; in a line."""

import ctypes
import errno
import os
import resource
from pathlib import Path

from tools.rows import Row
from tools.sizes import show
from tools.trouble import Trouble

IO_URING_SETUP = 425
MODULE = Path("/dev/regx_notify")
SYSCTL = Path("/proc/sys/kernel/io_uring_disabled")
REGIONS = 4  # of the largest message: two ranks, each of which sends one and receives one


def no_io_uring() -> str:
    """Why there is none for this process; empty: there is. Of arguments that point nowhere it says EFAULT."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(IO_URING_SETUP, 1, None) >= 0 or ctypes.get_errno() == errno.EFAULT:
        return ""
    disabled = SYSCTL.read_text().strip() if SYSCTL.exists() else "0"
    if disabled != "0":
        return f"kernel.io_uring_disabled is {disabled}"
    return f"{os.strerror(ctypes.get_errno())}: a container's filter, or an old kernel"


def can_run(rows: list[Row], limit: int | None = None) -> tuple[list[Row], list[str]]:
    """The rows that this node can run, with a line for what it cannot, or not as it is named. limit: of locked
    memory."""
    lines, left = [], list(rows)
    gone = [row for row in left if row.regx("transport") == "pinned"]
    if gone and (why := no_io_uring()):
        left = [row for row in left if row not in gone]
        lines.append(f"left out, for there is no io_uring here ({why}): {names(gone)}")
    gone = [row for row in left if row.regx("backend") == "kernel" and not MODULE.exists()]
    if gone:
        left = [row for row in left if row not in gone]
        lines.append(f"left out, for the kernel module is not loaded (insmod regx_notify.ko): {names(gone)}")
    if not left:
        raise Trouble("; ".join(lines), 1)
    if limit is None:
        limit = -1 if os.geteuid() == 0 else resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    over = [row for row in left if row.regx("transport") == "pinned" and not row.memlock]
    wants = REGIONS * max((size for row in over for case in row.cases for size in case.sizes), default=0)
    if limit != resource.RLIM_INFINITY and limit < wants:
        lines.append(f"ulimit -l is {show(limit)}, and {show(wants)} are to be pinned: what finds no room goes by"
                     f" bounce, and is marked: {names(over)}")
    return left, lines


def names(rows: list[Row]) -> str:
    return ", ".join(row.name for row in rows)
