# SPDX-License-Identifier: BSD-3-Clause
"""Open MPI's own death in MPI_Finalize is told apart from one that regx might cause."""
import subprocess
from pathlib import Path

import pytest

import openmpi
from job import Job
from launch import Build, Mpi

# Preloaded: ORTE's thread runs the callback of Open MPI's PMIx component only when the process is
# about to end that thread, which is after the component was unloaded.
LATE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

typedef void callback_t(int, short, void *);
static callback_t *_Atomic callback;
static _Atomic int ending;

static void late(int fd, short what, void *argument)
{
    while (!ending) {
        usleep(1000);
    }
    callback(fd, what, argument);
}

int event_assign(void *event, void *base, int fd, short what, callback_t *function, void *argument)
{
    int (*next)(void *, void *, int, short, callback_t *, void *) =
        dlsym(RTLD_NEXT, "event_assign");
    void *back = __builtin_return_address(0);
    Dl_info caller;

    if (dladdr(back, &caller) && caller.dli_sname && strstr(caller.dli_sname, "_event_hdlr")) {
        callback = function;
        function = late;
    }
    return next(event, base, fd, what, function, argument);
}

int opal_progress_thread_finalize(const char *name)
{
    int (*next)(const char *) = dlsym(RTLD_NEXT, "opal_progress_thread_finalize");

    ending = 1;
    return next(name);
}
"""
# Preloaded: a jump to a page that is not mapped, at a place of it that no callback has.
WILD = r"""
#include <sys/mman.h>
int PMPI_Finalize(void);
int MPI_Finalize(void)
{
    char *page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page, 4096);
    ((void (*)(void))(page + 8))();
    return PMPI_Finalize();
}
"""


@pytest.fixture(autouse=True)
def there_is_such_a_callback(build: Build) -> None:
    if not openmpi.callbacks(build.pkglibdir):
        pytest.skip("the callback of Open MPI's PMIx component was not found")


def library(folder: Path, code: str) -> Path:
    file = folder / "preloaded.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", file], check=True, text=True,
                   input=code)
    return file


def broadcast(mpi: Mpi, *within: object, btl: str = "regx") -> Job:
    return mpi("collective", "--sizes", "10", "bcast", within=[str(word) for word in within],
               btl=btl)


@pytest.mark.parametrize("btl", ["vader,self", "regx"])
def test_open_mpis_own_crash_in_finalize_is_recognised(mpi: Mpi, build: Build, tmp_path: Path,
                                                       btl: str) -> None:
    """It comes with vader alone as with regx, when all else has been done."""
    with pytest.warns(UserWarning, match="died in its own MPI_Finalize"):
        job = broadcast(mpi, "env", f"LD_PRELOAD={library(tmp_path, LATE)}", btl=btl)
    assert openmpi.died_in_finalize(job, build.pkglibdir), str(job)
    assert job.stdout.startswith("checked "), str(job)


def test_a_job_that_open_mpi_ended_is_run_again(mpi: Mpi, tmp_path: Path) -> None:
    """What the second run says counts, and nothing of the first."""
    first = 'mkdir "$0.$OMPI_COMM_WORLD_RANK" 2>/dev/null && export LD_PRELOAD="$0"; exec "$@"'
    with pytest.warns(UserWarning, match="died in its own MPI_Finalize"):
        broadcast(mpi, "sh", "-c", first, library(tmp_path, LATE)).checked(ranks=2)


def test_any_other_crash_is_a_failure(mpi: Mpi, build: Build, tmp_path: Path) -> None:
    job = broadcast(mpi, "env", f"LD_PRELOAD={library(tmp_path, WILD)}")
    assert job.status == 128 + 11 and "Failing at address: " in job.stderr, str(job)
    assert not openmpi.died_in_finalize(job, build.pkglibdir), str(job)


def test_a_job_that_ended_well_did_not_crash(mpi: Mpi, build: Build) -> None:
    job = broadcast(mpi)
    assert job.status == 0 and not openmpi.died_in_finalize(job, build.pkglibdir), str(job)
