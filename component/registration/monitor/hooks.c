/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Backend `hooks`: libc's functions report what they are about to change, in the calling thread,
 * through Open MPI's memory hooks or UCX's ucm; regx itself patches no code. The report is in the
 * log before the memory changes, so a look-up asks nobody. Whether the hooks are still there is
 * asked whenever a region is made, and only then, of each function: those of which a page of our
 * own can be changed must be heard, the code of the others must be what it was.
 *
 * Sees, of anonymous, shared and file memory, whichever thread makes the call, and inside malloc:
 * munmap, mmap MAP_FIXED, the source of mremap, brk and sbrk, shmdt, shmat SHM_REMAP, madvise
 * MADV_DONTNEED, MADV_FREE and MADV_REMOVE.
 * Is blind to:
 *   - system calls not made by these functions of libc: raw ones, process_madvise, those of a
 *     statically linked allocator, and the dynamic loader's own (a buffer in a library that is
 *     closed);
 *   - the destination of mremap MREMAP_FIXED;
 *   - MADV_DONTNEED_LOCKED and MADV_GUARD_INSTALL;
 *   - holes punched into, and truncation of, the file or segment behind a mapping;
 *   - of what MAP_FIXED with MAP_HUGETLB replaces, the rest of a huge page after a length that is
 *     not a multiple of it; of a segment that shmdt takes away and that lies in several mappings
 *     (mprotect or madvise split it), all but the first;
 *   - that somebody has patched over the hooks, until the next region is made.
 * What is reported before it is made and overlaps a use of the same memory in another thread (an
 * error of the application) may leave a region of the old pages behind, which later uses hit.
 * Only brk is reported after it was done. Nobody can have been given that memory by malloc in
 * between: who grows the heap again waits for malloc's lock, which the caller holds. Another thread
 * that grows it by itself can, and hits what is stale.
 */
#include "config.h"

#include "registration/monitor/monitor.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A source may call in a thread that has just taken us off its list, so what it calls lives as long
 * as this code does. */
static struct {
    _Atomic(regx_hooks_listener_t) listener; /* NULL: nobody listens */
    void *context;
    _Atomic uintptr_t page;
    _Atomic unsigned inside; /* threads that may be in the listener */
    pid_t owner;
} hooks;

static void report(void *unused, void *base, size_t length)
{
    const uintptr_t page = hooks.page, start = (uintptr_t)base & ~(page - 1);
    /* Sources hand on what the caller gave: the kernel rounds it up. A length of 0 is one that the
     * source could not find out (a segment's). */
    const uintptr_t max = UINTPTR_MAX - page + 1;
    uintptr_t end = max;

    (void)unused;
    if (length > 0 && length <= max - (uintptr_t)base) {
        end = ((uintptr_t)base + length + page - 1) & ~(page - 1);
    }
    atomic_fetch_add(&hooks.inside, 1);
    const regx_hooks_listener_t listener = atomic_load(&hooks.listener);
    if (listener != NULL) {
        listener(hooks.context, start, end);
    }
    atomic_fetch_sub(&hooks.inside, 1);
}

void regx_hooks_listen(regx_hooks_listener_t listener, void *context)
{
    atomic_store(&hooks.listener, NULL);
    /* In a child, a thread that was inside at the fork is there for ever. */
    while (atomic_load(&hooks.inside) > 0 && getpid() == hooks.owner) {
    }
    hooks.context = context;
    atomic_store(&hooks.listener, listener);
}

static void log_change(void *log, uintptr_t start, uintptr_t end)
{
    regx_inval_log_write(log, start, end);
}

/* Into a log of its own, in which nothing else may report changes. */
static regx_status_t test_hooks(char *error, size_t error_size)
{
    regx_monitor_t trial = {.name = "hooks", .log = regx_inval_log_open()};

    if (trial.log == NULL) {
        snprintf(error, error_size, "out of memory");
        return REGX_NO_MEMORY;
    }
    regx_hooks_listen(log_change, trial.log);
    const regx_status_t status = regx_selftest(
        &trial, REGX_SELFTEST_LIBC | REGX_SELFTEST_THREAD | REGX_SELFTEST_REMAP, error, error_size);
    regx_hooks_listen(NULL, NULL);
    regx_inval_log_close(trial.log);
    return status;
}

regx_status_t regx_hooks_begin(const regx_hook_source_t *source, char *error, size_t error_size)
{
    if (source == NULL) {
        snprintf(error, error_size, "there is no source of hooks");
        return REGX_DENIED;
    }
    hooks.page = (uintptr_t)sysconf(_SC_PAGESIZE);
    hooks.owner = getpid();
    regx_status_t status = source->install(report, NULL, error, error_size);
    if (status != REGX_OK) {
        return status;
    }
    status = test_hooks(error, error_size);
    if (status != REGX_OK) {
        source->remove(report, NULL);
    }
    return status;
}

void regx_hooks_end(const regx_hook_source_t *source)
{
    source->remove(report, NULL);
    regx_hooks_listen(NULL, NULL);
}

/* The functions that are tried, */
enum { MUNMAP, MMAP, MREMAP, MADVISE, TRIED };

/* and those that cannot be: how their code begins is compared. */
static const char *const compared[] = {"brk", "sbrk", "shmat", "shmdt"};
enum { COMPARED = sizeof(compared) / sizeof(compared[0]), CODE = 16 };

typedef struct regx_hooks_monitor {
    regx_monitor_t super;
    const regx_hook_source_t *source;
    regx_counters_t *counters;
    const void *code[COMPARED];
    unsigned char begins[COMPARED][CODE]; /* as it did when they were tested */
    unsigned char *canary; /* a page of ours for each function, to be changed by it alone: */
    _Atomic unsigned reports[TRIED]; /* how often that was reported */
    _Atomic bool stolen;             /* and never to be trusted again */
} regx_hooks_monitor_t;

static void changed(void *context, uintptr_t start, uintptr_t end)
{
    regx_hooks_monitor_t *monitor = context;
    const uintptr_t function = (start - (uintptr_t)monitor->canary) / hooks.page;

    if (function < TRIED) {
        atomic_fetch_add(&monitor->reports[function], 1);
    } else {
        regx_drain_wait(monitor->super.drain, start, end);
        regx_inval_log_write(monitor->super.log, start, end);
    }
}

/* Calls that the kernel refuses at once, for a reason that no hook looks at: they are reported, and
 * cost a tenth of what they would if they did something. */
static void try(const regx_hooks_monitor_t *monitor, unsigned function)
{
    unsigned char *page = monitor->canary + function * hooks.page;

    switch (function) {
    case MUNMAP: /* not the start of a page */
        munmap(page + 1, 1);
        break;
    case MMAP: /* neither shared nor private */
        mmap(page, hooks.page, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        break;
    case MREMAP: /* a flag that there is not */
        mremap(page, hooks.page, hooks.page, 1 << 30);
        break;
    default: /* not the start of a page */
        madvise(page + 1, 1, MADV_DONTNEED);
    }
}

static void remember_code(regx_hooks_monitor_t *monitor)
{
    for (int i = 0; i < COMPARED; i++) {
        monitor->code[i] = dlsym(RTLD_DEFAULT, compared[i]);
        if (monitor->code[i] != NULL) {
            memcpy(monitor->begins[i], monitor->code[i], CODE);
        }
    }
}

static bool is_stolen(regx_hooks_monitor_t *monitor)
{
    for (unsigned function = 0; function < TRIED; function++) {
        const unsigned reports = atomic_load(&monitor->reports[function]);

        try(monitor, function);
        if (atomic_load(&monitor->reports[function]) == reports) {
            return true;
        }
    }
    for (int i = 0; i < COMPARED; i++) {
        if (monitor->code[i] != NULL && memcmp(monitor->begins[i], monitor->code[i], CODE) != 0) {
            return true;
        }
    }
    return false;
}

/* All is covered, as long as nobody has patched over the hooks. Who did so left us deaf since some
 * time ago: then nothing that is kept can be trusted. */
static regx_status_t hooks_subscribe(regx_monitor_t *base, uintptr_t start, uintptr_t end,
                                     uint64_t *since)
{
    regx_hooks_monitor_t *monitor = (regx_hooks_monitor_t *)base;

    *since = atomic_load(&base->log->head);
    if (!atomic_load(&monitor->stolen)) {
        if (!is_stolen(monitor)) {
            return REGX_OK;
        }
        atomic_store(&monitor->stolen, true);
        regx_inval_log_write(base->log, 0, UINTPTR_MAX); /* what is not yet kept is also hit */
    }
    regx_monitor_fallback(base, monitor->counters, start, end,
                          "hooks: another library patched the same functions");
    return REGX_DENIED;
}

static void hooks_free(regx_hooks_monitor_t *monitor)
{
    if (monitor->canary != MAP_FAILED) {
        munmap(monitor->canary, TRIED * (size_t)sysconf(_SC_PAGESIZE));
    }
    if (monitor->super.log != NULL) {
        regx_inval_log_close(monitor->super.log);
    }
    free(monitor);
}

static void hooks_stop(regx_monitor_t *base)
{
    regx_hooks_monitor_t *monitor = (regx_hooks_monitor_t *)base;

    regx_hooks_end(monitor->source);
    hooks_free(monitor);
}

static regx_hooks_monitor_t *hooks_new(const regx_monitor_config_t *config)
{
    regx_hooks_monitor_t *monitor = calloc(1, sizeof(*monitor));

    if (monitor == NULL) {
        return NULL;
    }
    monitor->super.name = "hooks";
    monitor->super.trace = config->trace;
    monitor->super.drain = config->drain;
    monitor->super.subscribe = hooks_subscribe;
    monitor->super.stop = hooks_stop;
    monitor->source = config->hooks;
    monitor->counters = config->counters;
    monitor->super.log = regx_inval_log_open();
    monitor->canary = mmap(NULL, TRIED * (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (monitor->super.log == NULL || monitor->canary == MAP_FAILED) {
        hooks_free(monitor);
        return NULL;
    }
    return monitor;
}

static regx_status_t hooks_start(const regx_monitor_config_t *config, regx_monitor_t **monitor,
                                 char *error, size_t error_size)
{
    regx_hooks_monitor_t *own = hooks_new(config);

    if (own == NULL) {
        snprintf(error, error_size, "out of memory");
        return REGX_NO_MEMORY;
    }
    const regx_status_t status = regx_hooks_begin(own->source, error, error_size);
    if (status != REGX_OK) {
        hooks_free(own);
        return status;
    }
    remember_code(own);
    regx_hooks_listen(changed, own);
    *monitor = &own->super;
    return REGX_OK;
}

const regx_backend_t regx_backend_hooks = {
    .name = "hooks",
    .start = hooks_start,
    .reports_changes = true,
    .help = "patched libc functions report what they unmap, see btl_regx_hooks; raw system calls "
            "are not seen",
    .more = "They report in the calling thread. They also miss the target range of "
            "mremap(MREMAP_FIXED), MADV_DONTNEED_LOCKED, MADV_GUARD_INSTALL, process_madvise, "
            "dlclose, holes punched into mapped files, truncation of mapped files, what shmdt "
            "unmaps of a segment that was split, what MAP_FIXED|MAP_HUGETLB unmaps beyond the "
            "requested length, and brk while another thread moves it. They report before the "
            "change is made: if one thread unmaps memory while another uses it (an error), a "
            "registration of the old pages may stay in the cache."};
