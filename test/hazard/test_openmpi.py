# SPDX-License-Identifier: BSD-3-Clause
"""Open MPI's own death in MPI_Finalize is told apart from one that regx might cause."""
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import openmpi
from job import Job
from launch import Build, Mpi, Reruns

# Preloaded: ORTE's thread runs the callback of Open MPI's PMIx component only when the process is
# about to end that thread, which is after the component was unloaded. If WITHIN is defined, the
# callback runs at once and its first call takes until then. If HANDLER is defined, the event handler
# that it calls does: this one looks into the environment before it calls the component back.
LATE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

typedef void callback_t(int, short, void *);
static callback_t *_Atomic callback;
static _Atomic int ending;

static void until_ending(void)
{
    while (!ending) {
        usleep(1000);
    }
}

static void late(int fd, short what, void *argument)
{
#ifdef BEFORE
    until_ending();
#endif
    callback(fd, what, argument);
}

#ifdef WITHIN
int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*_Atomic next)(pthread_mutex_t *);
    callback_t *first = callback;

    if (!next) {
        next = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    }
    if (first && (uintptr_t)__builtin_return_address(0) - (uintptr_t)first < 64) {
        until_ending();
    }
    return next(mutex);
}
#endif

#ifdef HANDLER
char *getenv(const char *name)
{
    char *(*next)(const char *) = dlsym(RTLD_NEXT, "getenv");

    if (!strcmp(name, "OMPI_SHOW_MODEL_CALLBACK")) {
        until_ending();
    }
    return next(name);
}
#endif

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
# Preloaded, as a function of MPI: what goes wrong at that place of a page that is not mapped, or
# else of one that may only be read.
WRONG = r"""
#include <sys/mman.h>
int P%(function)s(%(arguments)s);
int %(function)s(%(arguments)s)
{
    volatile char *page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    %(unmap)s;
    %(crash)s;
    return 1;
}
"""
IN_FINALIZE = {"function": "MPI_Finalize", "arguments": "void"}
BEFORE = {"function": "MPI_Bcast",
          "arguments": "void *buffer, int count, void *type, int root, void *comm"}
UNMAPPED = {"unmap": "munmap((void *)page, 4096)"}
MAPPED = {"unmap": "(void)0"}
JUMP = "((void (*)(void))(page + %d))()"
STORE = "page[%d] = 1"


@pytest.fixture(autouse=True)
def there_is_such_a_callback(build: Build) -> None:
    if not openmpi.callbacks(build.pkglibdir):
        pytest.skip("the callback of Open MPI's PMIx component was not found")


@pytest.fixture(name="mpi")
def mpi_that_counts_by_itself(build: Build, tmp_path: Path) -> Mpi:
    """These crashes are made, and do not count as those of the session."""
    return Mpi(build, tmp_path, Reruns())


def library(folder: Path, code: str) -> Path:
    file = folder / "preloaded.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", file], check=True, text=True,
                   input=code)
    return file


def broadcast(mpi: Mpi, *within: object, btl: str = "regx") -> Job:
    return mpi("collective", "--sizes", "10", "bcast", within=[str(word) for word in within],
               btl=btl)


@pytest.mark.parametrize("btl", ["vader,self", "regx"])
@pytest.mark.parametrize("where", ["before", "within", "handler"])
def test_open_mpis_own_crash_in_finalize_is_recognised(mpi: Mpi, build: Build, tmp_path: Path,
                                                       where: str, btl: str) -> None:
    """It comes with vader alone as with regx, when all else has been done."""
    late = library(tmp_path, f"#define {where.upper()}\n{LATE}")
    with pytest.warns(UserWarning, match="died in its own MPI_Finalize"):
        job = broadcast(mpi, "env", f"LD_PRELOAD={late}", btl=btl)
    assert openmpi.died_in_finalize(job, 2, build.pkglibdir), str(job)
    assert job.stdout.startswith("checked "), str(job)
    if "(event_base_loop+" in job.stderr:  # another thread is another defect
        other = replace(job, stderr=job.stderr.replace("(event_base_loop+", "(elsewhere+"))
        assert not openmpi.died_in_finalize(other, 2, build.pkglibdir), str(other)


# As printed in the emulated machine: libgcc lay where the component had been.
IN_THE_MACHINE = """\
[machine:00177] *** Process received signal ***
[machine:00177] Signal: Segmentation fault (11)
[machine:00177] Signal code: Address not mapped (1)
[machine:00177] Failing at address: 0x7f5683aeb{place:03x}
[machine:00177] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x3c050)[0x7f56846d5050]
[machine:00177] [ 1] /lib/x86_64-linux-gnu/libgcc_s.so.1(__umodti3+0x150)[0x7f5683aeb{place:03x}]
[machine:00177] [ 2] {caller}[0x564a98c03e30]
[machine:00177] *** End of error message ***
"""


@pytest.mark.parametrize("caller,own", [("", True), ("/lib/regx.so(progress+0x30)", False)])
def test_a_backtrace_may_end_in_words_of_the_stack(build: Build, caller: str, own: bool) -> None:
    [callback] = openmpi.callbacks(build.pkglibdir)
    said = IN_THE_MACHINE.format(place=callback.begin, caller=caller)
    job = Job("mpirun", 128 + 11, "checked 10 bytes\n", said)
    assert openmpi.died_in_finalize(job, 2, build.pkglibdir) == own


# Words before the program: it crashes in the first run, which also leaves a file at each rank.
FIRST = ('mkdir "$1.$OMPI_COMM_WORLD_RANK" 2>/dev/null && export LD_PRELOAD="$1"; '
         'echo > "$2/left.$$"; shift 2; exec "$@"')


def test_a_job_that_open_mpi_ended_is_run_again(
        mpi: Mpi, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the second run says and leaves counts, and nothing of the first."""
    late = library(tmp_path_factory.mktemp("late"), f"#define BEFORE\n{LATE}")
    kept = tmp_path / "kept"
    kept.write_text("of the test")
    with pytest.warns(UserWarning, match="died in its own MPI_Finalize"):
        broadcast(mpi, "sh", "-c", FIRST, "sh", late, tmp_path).checked(ranks=2)
    assert len([*tmp_path.glob("left.*")]) == 2
    assert kept.exists()
    assert len(mpi.reruns.commands) == 1


def test_too_many_such_jobs_are_a_failure(
        mpi: Mpi, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    mpi.reruns = Reruns(jobs=199, commands=["mpirun of another test"] * 3)
    late = library(tmp_path_factory.mktemp("late"), f"#define BEFORE\n{LATE}")
    with pytest.raises(pytest.fail.Exception, match="too often: 4 of 200 jobs; first: mpirun"):
        broadcast(mpi, "sh", "-c", FIRST, "sh", late, tmp_path)


@pytest.mark.parametrize("where,page,crash,beside", [
    (IN_FINALIZE, UNMAPPED, JUMP, 8),  # a place that the callback does not go on with
    (IN_FINALIZE, UNMAPPED, STORE, 0),
    (IN_FINALIZE, MAPPED, JUMP, 0),
    (BEFORE, UNMAPPED, JUMP, 0)], ids=["elsewhere", "store", "not-unmapped", "before-finalize"])
def test_any_other_crash_is_a_failure(mpi: Mpi, build: Build, tmp_path: Path,
                                      where: dict[str, str], page: dict[str, str], crash: str,
                                      beside: int) -> None:
    [callback] = openmpi.callbacks(build.pkglibdir)
    assert (callback.begin + 8) % openmpi.PAGE not in callback.places
    wrong = WRONG % {**where, **page, "crash": crash % ((callback.begin + beside) % openmpi.PAGE)}
    job = broadcast(mpi, "env", f"LD_PRELOAD={library(tmp_path, wrong)}")
    assert job.status == 128 + 11 and "Failing at address: " in job.stderr, str(job)
    assert not openmpi.died_in_finalize(job, 2, build.pkglibdir), str(job)
    assert not mpi.reruns.commands


def test_a_job_that_ended_well_did_not_crash(mpi: Mpi, build: Build) -> None:
    job = broadcast(mpi)
    assert job.status == 0 and not openmpi.died_in_finalize(job, 2, build.pkglibdir), str(job)
