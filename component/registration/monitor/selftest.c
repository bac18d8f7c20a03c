/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/monitor/monitor.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SETTLE_SECONDS                                                                             \
    10 /* after which an event that still is not in the log counts as not seen                     \
        */

enum { MUNMAP, MREMAP, MADVISE, MMAP, SHMAT, CHANGES };

static const char *const names[CHANGES] = {"munmap", "mremap", "madvise(MADV_DONTNEED)",
                                           "mmap(MAP_FIXED)", "shmat(SHM_REMAP)"};

/* A change to make. */
typedef struct trial {
    int change;
    bool raw, thread;
    uintptr_t scratch, end; /* pages of our own; among them the page to change, */
    uintptr_t page, onto;   /* and where a raw mremap moves it */
    size_t size;            /* of a page */
    bool made;
    bool absent; /* this machine has no such thing */
} trial_t;

static bool make_by_libc(const trial_t *trial)
{
    void *page = (void *)trial->page;

    switch (trial->change) {
    case MUNMAP:
        return munmap(page, trial->size) == 0;
    case MREMAP: /* shrinks by the page: UCX before 1.15 loses the address of MREMAP_FIXED, where it
                    has patched libc */
        return mremap((void *)(trial->page - trial->size), 2 * trial->size, trial->size, 0) !=
               MAP_FAILED;
    case MADVISE:
        return madvise(page, trial->size, MADV_DONTNEED) == 0;
    default:
        return mmap(page, trial->size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
    }
}

static bool make_raw(const trial_t *trial)
{
    switch (trial->change) {
    case MUNMAP:
        return syscall(SYS_munmap, trial->page, trial->size) == 0;
    case MREMAP:
        return syscall(SYS_mremap, trial->page, trial->size, trial->size,
                       MREMAP_MAYMOVE | MREMAP_FIXED, trial->onto) != -1;
    case MADVISE:
        return syscall(SYS_madvise, trial->page, trial->size, MADV_DONTNEED) == 0;
    default:
        return syscall(SYS_mmap, trial->page, trial->size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L) != -1;
    }
}

static void attach_over(trial_t *trial)
{
    void *page = (void *)trial->page;
    const int segment = shmget(IPC_PRIVATE, trial->size, IPC_CREAT | 0600);

    trial->made = segment >= 0 && shmat(segment, page, SHM_REMAP) == page;
    trial->absent = !trial->made;
    if (segment >= 0) {
        shmctl(segment, IPC_RMID, NULL);
    }
}

static void *make(void *argument)
{
    trial_t *trial = argument;

    trial->absent = false;
    if (trial->change == SHMAT) {
        attach_over(trial);
    } else {
        trial->made = trial->raw ? make_raw(trial) : make_by_libc(trial);
    }
    return NULL;
}

static bool between(const regx_monitor_t *monitor)
{
    return atomic_load(&monitor->log->sequence) % 2 == 1;
}

/* Whether a look-up right now would find out that the page changed. */
static bool refused(regx_monitor_t *monitor, uint64_t since, uintptr_t page, size_t size)
{
    return (monitor->valid != NULL && !monitor->valid(monitor, page, page + size)) ||
           between(monitor) || regx_inval_log_touched(monitor->log, since, page, page + size);
}

/* Whether it comes into the log, given its time. */
static bool logged(const regx_monitor_t *monitor, uint64_t since, uintptr_t page, size_t size)
{
    const time_t end = time(NULL) + SETTLE_SECONDS;

    while (!regx_inval_log_touched(monitor->log, since, page, page + size)) {
        if (time(NULL) > end) {
            return false;
        }
        sched_yield();
    }
    return true;
}

/* NULL: as it should be. */
static const char *judge(regx_monitor_t *monitor, trial_t *trial, unsigned claims)
{
    const bool lands =
        trial->change == MREMAP && trial->raw && (claims & REGX_SELFTEST_DESTINATION) != 0;
    pthread_t thread;

    while (between(monitor)) { /* with what happened to the pages of the trial before */
        sched_yield();
    }
    uint64_t since = atomic_load(&monitor->log->head);
    if (monitor->subscribe != NULL &&
        monitor->subscribe(monitor, trial->scratch, trial->end, &since) != REGX_OK) {
        return "could not be tried: the scratch pages cannot be watched";
    }
    if (!trial->thread) {
        make(trial);
    } else if (pthread_create(&thread, NULL, make, trial) == 0) {
        pthread_join(thread, NULL);
    } else {
        return "could not be tried: no thread";
    }
    if (trial->absent) {
        return NULL;
    }
    if (!trial->made) {
        return "could not be made";
    }
    if (!refused(monitor, since, trial->page, trial->size)) {
        return "was not seen";
    }
    if (lands && !refused(monitor, since, trial->onto, trial->size)) {
        return "was not seen where it moves to";
    }
    /* Where look-ups scan, SHM_REMAP is logged when something there is registered. */
    if (trial->change != SHMAT && !logged(monitor, since, trial->page, trial->size)) {
        return "was noticed, but did not come into the log";
    }
    if (lands && !logged(monitor, since, trial->onto, trial->size)) {
        return "was noticed where it moves to, but did not come into the log";
    }
    return NULL;
}

enum { PAGES = 6, PAGE_TO_CHANGE = 1, PAGE_TO_MOVE_IT_ONTO = 4 };

static regx_status_t try(regx_monitor_t *monitor, trial_t *trial, unsigned claims, char *error,
                         size_t error_size)
{
    const size_t length = PAGES * trial->size;
    unsigned char *scratch =
        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (scratch == MAP_FAILED) {
        snprintf(error, error_size, "self-test: no memory for scratch pages");
        return REGX_NO_MEMORY;
    }
    for (int i = 0; i < PAGES; i++) {
        scratch[(size_t)i * trial->size] = 1; /* there is something to lose */
    }
    trial->scratch = (uintptr_t)scratch;
    trial->end = trial->scratch + length;
    trial->page = trial->scratch + PAGE_TO_CHANGE * trial->size;
    trial->onto = trial->scratch + PAGE_TO_MOVE_IT_ONTO * trial->size;
    regx_inval_log_interest(monitor->log, trial->scratch, trial->end, 1);
    const char *fault = judge(monitor, trial, claims);
    regx_inval_log_interest(monitor->log, trial->scratch, trial->end, -1);
    munmap(scratch, length);
    if (fault == NULL) {
        return REGX_OK;
    }
    snprintf(error, error_size, "self-test: %s %s%s %s", names[trial->change],
             trial->raw ? "by a raw system call" : "by libc",
             trial->thread ? " in a second thread" : "", fault);
    return REGX_INVALID;
}

static bool is_claimed(const trial_t *trial, unsigned claims)
{
    return trial->change != SHMAT || (!trial->raw && (claims & REGX_SELFTEST_REMAP) != 0);
}

regx_status_t regx_selftest(regx_monitor_t *monitor, unsigned claims, char *error,
                            size_t error_size)
{
    trial_t trial = {.size = (size_t)sysconf(_SC_PAGESIZE)};
    regx_status_t status = REGX_OK;

    for (int way = 0; way < 4; way++) {
        trial.raw = (way & 1) != 0;
        trial.thread = (way & 2) != 0;
        if ((claims & (trial.raw ? REGX_SELFTEST_RAW : REGX_SELFTEST_LIBC)) == 0 ||
            (trial.thread && (claims & REGX_SELFTEST_THREAD) == 0)) {
            continue;
        }
        for (trial.change = 0; trial.change < CHANGES && status == REGX_OK; trial.change++) {
            if (is_claimed(&trial, claims)) {
                status = try(monitor, &trial, claims, error, error_size);
            }
        }
    }
    return status;
}
