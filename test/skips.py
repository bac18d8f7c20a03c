# SPDX-License-Identifier: BSD-3-Clause
"""The skips that are expected, each with the kind of machine or run that makes it so.

Any other skip is a failure, and so is one whose condition does not hold here: a backend that is
refused by mistake must not pass as a machine that lacks something.

To add one: a line in EXPECTED (test, reason, name of the condition; both patterns are searched for,
so they may be a part) and, if no condition fits, one in CONDITIONS. It answers True where the skip
is expected, False where it is not.
"""
from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parents[1]
BUILD = TOP / ".build"
LIBC = ctypes.CDLL(None, use_errno=True)
IO_URING_SETUP = 425
USERFAULTFD, GET_MEMPOLICY = (282, 236) if platform.machine() == "aarch64" else (323, 239)
UFFD_USER_MODE_ONLY = 1
CAP_IPC_LOCK = 14
AT_SYSINFO_EHDR = 33
INFINIBAND = Path("/sys/class/infiniband")
NOTIFY = Path("/mnt/regx_notify.ko")  # the emulated machine has it there


class Run(NamedTuple):
    """Of which the skip is a part."""
    full: bool = False
    osu: bool = False  # whether --osu was given
    all_packages: bool = False  # whether a package that is not there is a failure


RUN = Run()  # this one; set by conftest.py


def text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def succeeds(*words: str) -> bool:
    try:
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False,
                              timeout=60).returncode == 0
    except OSError:
        return False


def refused(call: int, *arguments: int) -> bool:
    """Whether the kernel has no such system call for us. EFAULT, of arguments that point nowhere,
    says that it would have done it. A descriptor that it gives is closed."""
    answer: int = LIBC.syscall(call, *arguments)
    if answer >= 0 and call in (USERFAULTFD, IO_URING_SETUP):
        os.close(answer)
    return answer < 0 and ctypes.get_errno() != errno.EFAULT


def userfaultfd_is_refused() -> bool:
    return refused(USERFAULTFD, UFFD_USER_MODE_ONLY)


def io_uring_is_refused() -> bool:
    return refused(IO_URING_SETUP, 1, 0)


def kernel_before(major: int, minor: int) -> bool:
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    return not found or (int(found[1]), int(found[2])) < (major, minor)


@functools.cache
def devices(state: str = "") -> set[str]:
    """Names of RDMA devices, if given of those that have a port in that state."""
    return {file.parents[2].name for file in INFINIBAND.glob("*/ports/*/state")
            if state in file.read_text()}


def not_soft_roce(names: set[str]) -> bool:
    """Whether one of them is of another kind: Soft-RoCE's are called rxe0, rxe1 and so on."""
    return not all(name.startswith("rxe") for name in names)


@functools.cache
def process_vm_is_refused() -> bool:
    """Between two children, as between two ranks; address 0 fails with EFAULT where it is not."""
    read, write = os.pipe()
    other = os.fork()
    if other == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    reader = os.fork()
    if reader == 0:
        nothing = (ctypes.c_size_t * 2)(0, 1)
        LIBC.process_vm_readv(other, nothing, 1, nothing, 1, 0)
        os._exit(0 if ctypes.get_errno() == errno.EFAULT else 1)
    status = os.waitpid(reader, 0)[1]
    os.kill(other, signal.SIGKILL)
    os.waitpid(other, 0)
    os.close(read)
    os.close(write)
    return status != 0


def pages_cannot_be_moved() -> bool:
    """No UFFDIO_MOVE for us."""
    return kernel_before(6, 8) or userfaultfd_is_refused()


def may(capability: int) -> bool:
    """Whether this process has it; in a container root has not all."""
    held = re.search(r"^CapEff:\s*(\w+)", text("/proc/self/status"), re.M)
    return held is not None and bool(int(held[1], 16) >> capability & 1)


def few_may_be_locked() -> bool:
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return not may(CAP_IPC_LOCK) and limit != resource.RLIM_INFINITY and limit < 1 << 30


def another(program: str, version: str) -> bool:
    if not shutil.which(program):
        return True
    run = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return not re.search(version, run.stdout)


def can_fuzz() -> bool:
    """Whether clang is there, and libFuzzer, which Debian has in a package of its own."""
    harness = "int LLVMFuzzerTestOneInput(void) { return 0; }"
    return succeeds("sh", "-c", f"echo '{harness}' | clang -fsanitize=fuzzer,address -x c - "
                                "-o /dev/null")


def configured() -> str:
    """What configure found."""
    return text(str(BUILD / "obj/component/config/config.h"))


def is_openmpi(version: str) -> bool:
    return bool(re.search(f'_VERSION_FOUND "{version}\\.', configured()))


Condition = Callable[[Run], bool]
CONDITIONS: dict[str, Condition] = {
    # what was asked for
    "no --osu DIR": lambda run: not run.osu,
    "a backend that cannot see it, by design": lambda run: True,
    # what is installed
    "no git checkout": lambda run: not (TOP / ".git").exists() or (TOP / ".git/shallow").exists(),
    "no clang, or none with libFuzzer": lambda run: not can_fuzz(),
    "another clang-format than 14": lambda run: another("clang-format", r"version 14\."),
    "another cppcheck than 2.10": lambda run: another("cppcheck", r"^Cppcheck 2\.10\b"),
    "Open MPI 5.0": lambda run: is_openmpi("5\\.0"),
    "Open MPI 6.0": lambda run: is_openmpi("6\\.0"),
    "Open MPI 5.0 or later": lambda run: not is_openmpi("4"),
    "no valgrind": lambda run: not shutil.which("valgrind"),
    "no gdb": lambda run: not shutil.which("gdb") or platform.machine() != "x86_64",
    "no rdma-core": lambda run: "#define REGX_HAVE_VERBS 1\n" not in configured(),
    "io_uring refused": lambda run: io_uring_is_refused(),
    # the machine
    "no emulated machine": lambda run: not NOTIFY.exists(),
    "no RDMA device": lambda run: not devices("ACTIVE"),
    "an RDMA device": lambda run: bool(devices("ACTIVE")),
    "an active device that is not Soft-RoCE's": lambda run: not_soft_roce(devices("ACTIVE")),
    "a device that is not Soft-RoCE's": lambda run: not_soft_roce(devices()),
    "one processor": lambda run: len(os.sched_getaffinity(0)) < 2,
    "no memory policies, or very many processors": lambda run: refused(
        GET_MEMPOLICY, 0, 0, 0, 0, 0) or (os.cpu_count() or 1) >= 512,
    "memory of 768 MiB or more, or no swap space": lambda run: (
        os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") > 768 << 20
        or len(text("/proc/swaps").splitlines()) < 2),
    "no huge pages set aside": lambda run: text("/proc/sys/vm/nr_hugepages").strip() in ("", "0"),
    # the kernel, and what it allows
    "not root": lambda run: os.geteuid() != 0,
    "little memory that may be locked": lambda run: few_may_be_locked(),
    "userfaultfd refused, or before Linux 5.18": lambda run: (
        userfaultfd_is_refused() or kernel_before(5, 18)),
    "no UFFDIO_POISON": lambda run: kernel_before(6, 6) or userfaultfd_is_refused(),
    "no UFFDIO_MOVE": lambda run: pages_cannot_be_moved(),
    "no vDSO": lambda run: LIBC.getauxval(AT_SYSINFO_EHDR) == 0,
    "process_vm_readv refused": lambda run: process_vm_is_refused(),
    "no Yama": lambda run: not Path("/proc/sys/kernel/yama/ptrace_scope").exists(),
    "no namespaces": lambda run: not (succeeds("unshare", "--mount", "true")
                                      and succeeds("unshare", "--pid", "--user", "--fork", "true")
                                      and succeeds("unshare", "--net", "true")),
    "before Linux 6.13": lambda run: kernel_before(6, 13),
    "before Linux 6.15": lambda run: kernel_before(6, 15),
}

ANY = ""
NOTIFIER = r"userfaultfd|notifier.*(cannot be used|not usable)"
EXPECTED = [
    (r"test/osu/", "no --osu DIR given", "no --osu DIR"),
    (r"test_fuzz\.py", "no clang with libFuzzer", "no clang, or none with libFuzzer"),
    (r"test_(library|check)", "built without rdma-core", "no rdma-core"),
    (r"test_inside\.py", "on the device that is here", "an RDMA device"),
    (r"test_inside\.py", "built without rdma-core", "no rdma-core"),
    (r"test_hazard", "with hooks alone",
     "a backend that cannot see it, by design"),

    (r"lint/|test_(install|ci)\.py", "not a git checkout", "no git checkout"),
    (r"lint/", "needs clang-format", "another clang-format than 14"),
    (r"lint/", "needs cppcheck", "another cppcheck than 2.10"),
    (r"test_dynamic\.py", "Open MPI 5.0 does not come back", "Open MPI 5.0"),
    (r"test_parameter\.py", "mpirun of Open MPI 5.0 crashes", "Open MPI 5.0"),
    (r"test_foreign\.py", "Open MPI 5.0 spoils", "Open MPI 5.0"),
    (r"test_neighbours\.py", "Open MPI 5.0 (crashes in PMIx|does not always find)", "Open MPI 5.0"),

    (r"test_hosts\.py", "Open MPI 5.0 cannot spawn", "Open MPI 5.0"),
    (r"test_hosts\.py", "Open MPI 6.0 cannot map", "Open MPI 6.0"),
    (r"test_(staleness|parameter)\.py", "Open MPI 5.0 brings UCX", "Open MPI 5.0 or later"),
    (r"test/compare/|test_valgrind", "(needs|no) valgrind", "no valgrind"),
    (r"test_walk\.py", "no gdb", "no gdb"),
    (ANY, "io_uring", "io_uring refused"),

    # Not the programs that bring devices of their own.
    (r"^(?!.*/test_(connecting|ports)\b)(?!.*::fake)",
     "no RDMA device|no port of an RDMA device can be used", "no RDMA device"),
    (r"test_on_demand\.py", "no on-demand paging", "an active device that is not Soft-RoCE's"),
    (r"test_on_demand\.py", "no on-demand paging", "before Linux 6.15"),  # Soft-RoCE has none there
    (ANY, "no module for this kernel|no /dev/regx_notify", "no emulated machine"),
    (r"test_verbs", "cannot be taken away", "a device that is not Soft-RoCE's"),
    (r"test_working_set\.py", "as much memory, or no swap",
     "memory of 768 MiB or more, or no swap space"),
    (ANY, "two cores|one core alone", "one processor"),
    (r"memory_prefers_the_near_node", "get_mempolicy|sched_setaffinity",
     "no memory policies, or very many processors"),
    (ANY, "no huge pages are set aside", "no huge pages set aside"),

    (ANY, "only root|needs root|as root", "not root"),
    (ANY, "may lock", "little memory that may be locked"),
    (ANY, NOTIFIER, "userfaultfd refused, or before Linux 5.18"),
    (r"test_yama\.py", "no Yama", "no Yama"),
    ("guard", "no guard pages(?! of shared)", "before Linux 6.13"),
    ("guard", "no guard pages of shared", "before Linux 6.15"),
    (ANY, "UFFDIO_POISON", "no UFFDIO_POISON"),
    (ANY, "UFFDIO_MOVE", "no UFFDIO_MOVE"),
    ("test_safe_copy.*any_memory_is_copied", "no vDSO", "no vDSO"),
    (ANY, r"process_vm", "process_vm_readv refused"),
    (ANY, r"no ([\w, ]+ )?namespace|no second network", "no namespaces"),
]

# Conditions that a package would end.
PACKAGES = {"no clang, or none with libFuzzer", "no valgrind", "no rdma-core", "another clang-format than 14",
            "another cppcheck than 2.10"}


def because(test: str, reason: str) -> str | None:
    """The condition that makes a test's skip expected, in this run; None: it is a failure."""
    for name, said, condition in EXPECTED:
        if re.search(name, test) and re.search(said, reason) and CONDITIONS[condition](RUN) \
                and not (RUN.all_packages and condition in PACKAGES):
            return condition
    return None
