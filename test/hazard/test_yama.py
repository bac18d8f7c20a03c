# SPDX-License-Identifier: BSD-3-Clause
"""Yama's ptrace_scope, which is 1 on Ubuntu: nobody copies from a process that has not allowed it, but for
its ancestors. By Yama itself in the emulated machine, and played by a library that is preloaded."""
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import device
import sample
from launch import ORDINARY_USER, Mpi, preloading
from sample import MIB, Case
from tables import strategies

SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
SIZE, COUNT = 8 * MIB, 3
PATHS = [strategy for strategy in strategies() if strategy != "bounce"]
Scope = Callable[[int], dict[str, Any]]  # sets it; answers how a job is started that it concerns
REFUSED = "process_vm: not permitted (rights, dumpable, Yama, seccomp)"

# Who has allowed it has a file of its number.
PLAYED = """
    #define _GNU_SOURCE
    #include <errno.h>
    #include <fcntl.h>
    #include <stdarg.h>
    #include <stdio.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <sys/uio.h>
    #include <unistd.h>

    static const char *file(pid_t pid)
    {
        static _Thread_local char name[4096];
        snprintf(name, sizeof(name), "%s/%d", FOLDER, pid);
        return name;
    }

    int prctl(int option, ...)
    {
        unsigned long word[4];
        va_list list;
        va_start(list, option);
        for (int i = 0; i < 4; i++)
            word[i] = va_arg(list, unsigned long);
        va_end(list);
        if (option == PR_SET_PTRACER && word[0] == PR_SET_PTRACER_ANY)
            return close(open(file(getpid()), O_CREAT | O_WRONLY, 0600));
        return syscall(SYS_prctl, option, word[0], word[1], word[2], word[3]);
    }

    static int refuses(pid_t pid)
    {
        const int error = errno;
        const int no = pid != getpid() && access(file(pid), F_OK) != 0;
        errno = no ? EPERM : error;
        return no;
    }

    ssize_t process_vm_readv(pid_t pid, const struct iovec *here, unsigned long m,
                             const struct iovec *there, unsigned long n, unsigned long flags)
    {
        return refuses(pid) ? -1 : syscall(SYS_process_vm_readv, pid, here, m, there, n, flags);
    }

    ssize_t process_vm_writev(pid_t pid, const struct iovec *here, unsigned long m,
                              const struct iovec *there, unsigned long n, unsigned long flags)
    {
        return refuses(pid) ? -1 : syscall(SYS_process_vm_writev, pid, here, m, there, n, flags);
    }
"""


@pytest.fixture(params=[pytest.param("played"), pytest.param("kernel", marks=device.needed)])
def scope(request: pytest.FixtureRequest, mpi: Mpi, tmp_path: Path) -> Iterator[Scope]:
    """No root's jobs are concerned: root may do all."""
    if request.param == "played":
        within = preloading(tmp_path / "yama.so", PLAYED, f'-DFOLDER="{tmp_path}"')
        yield lambda number: {"within": within}
        return
    if not SCOPE.exists():
        pytest.skip("no Yama here")
    if os.geteuid() != 0:
        pytest.skip("only root can set it")
    before = SCOPE.read_text()
    mpi.for_any_user()

    def set_to(number: int) -> dict[str, Any]:
        SCOPE.write_text(f"{number}\n")
        return {"around": [*ORDINARY_USER, "env", "HOME=/tmp"]}

    yield set_to
    SCOPE.write_text(before)


@pytest.mark.parametrize("strategy", [pytest.param(path, marks=[pytest.mark.core] * (path == "together"))
                                      for path in PATHS])
def test_large_messages_go_as_without(mpi: Mpi, tmp_path: Path, scope: Scope, strategy: str) -> None:
    file = sample.write([Case(SIZE, 100, 200, pattern="both")], tmp_path)
    job = mpi("transfer", "--iterations", COUNT, file, regx={"rendezvous": strategy}, **scope(1))
    moved = 2 * COUNT * SIZE
    job.checked(ranks=2).carried(strategy, range(moved, moved + 1)).over("shm")


def test_auto_does_not_keep_to_bounce(mpi: Mpi, tmp_path: Path, scope: Scope) -> None:
    file = sample.write([Case(MIB, window=8)], tmp_path)
    job = mpi("transfer", "--iterations", 20, file, **scope(1)).checked(ranks=2)
    job.carried("auto").over("shm")
    assert not any("does not copy" in way for way in job.ways()), str(job)


def test_windows_do_not_wait_for_their_targets(mpi: Mpi, scope: Scope) -> None:
    job = mpi("window", "create", 70_001, "fence", "lock", mca=mpi.build.osc, **scope(1)).checked(ranks=2)
    assert not job.reasons("fallbacks") and job.total("onesided_messages") == 0, str(job)
    assert (job.total("onesided") > 0) == mpi.build.osc_asks, str(job)


@device.needed
@pytest.mark.parametrize("scope", ["kernel"], indirect=True)
def test_where_nobody_may_allow_it_messages_bounce(mpi: Mpi, tmp_path: Path, scope: Scope) -> None:
    """With 2. The report says why."""
    file = sample.write([Case(SIZE, 100, 200, pattern="both")], tmp_path)
    job = mpi("transfer", "--iterations", COUNT, file, regx={"rendezvous": "pipeline"}, **scope(2)).checked(2)
    assert job.total("bytes_bounce") == 2 * COUNT * SIZE, str(job)
    assert REFUSED in job.reasons("fallbacks"), str(job)
