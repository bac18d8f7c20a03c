/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Backend `hooks+notifier`: the notifier, and hooks that log into the same log before a libc
 * function changes memory.
 *
 * Guarantees what the notifier guarantees, for the same memory (private anonymous memory alone),
 * and also sees shmat SHM_REMAP over such memory, by libc. Is blind to what both are blind to:
 * MADV_GUARD_INSTALL, and SHM_REMAP by a raw system call unless btl_regx_notifier_check is scan.
 * With btl_regx_notifier_check=never the hooks close the window between a change and its event for
 * what libc's functions do; it stays open for what hooks do not see (hooks.c).
 *
 * A change that the kernel reports and no hook announced is counted in hooks_missed: it shows
 * whether `hooks` alone would do for this program.
 */
#include "registration/monitor/monitor.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What each thread's hooks announced last. Several, since the kernel lets the caller of a change go
 * on once the reader has taken its word, before the reader looks here. More threads than places
 * share them, and who is quicker than LAST overwrites: hooks_missed is then too high. */
#define PLACES 256u
#define LAST 8u

typedef struct regx_announced {
    _Atomic uintptr_t start, end; /* end is 0: nothing */
} regx_announced_t;

static _Atomic unsigned threads; /* that have announced something */

/* This thread is that number of them; 0: not yet. A few bytes, as regx_last_state (cache.h).
 */
static _Thread_local unsigned self __attribute__((tls_model("initial-exec")));
static _Thread_local unsigned next __attribute__((tls_model("initial-exec")));

typedef struct regx_hooks_notifier {
    regx_monitor_t super;
    regx_monitor_t *notifier;
    const regx_hook_source_t *source;
    regx_counters_t *counters;
    _Alignas(64) regx_announced_t announced[PLACES][LAST];
} regx_hooks_notifier_t;

static void announce(void *context, uintptr_t start, uintptr_t end)
{
    regx_hooks_notifier_t *both = context;

    regx_drain_wait(both->super.drain, start, end);
    if (self == 0) {
        self = atomic_fetch_add(&threads, 1) + 1;
    }
    regx_announced_t *entry = &both->announced[self % PLACES][next++ % LAST];

    atomic_store_explicit(&entry->end, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->start, start, memory_order_release);
    atomic_store_explicit(&entry->end, end, memory_order_release);
    regx_inval_log_write(both->super.log, start, end);
}

/* Places that somebody has; the first thread's is number 1. */
static unsigned places(void)
{
    const unsigned count = atomic_load(&threads) + 1;

    return count < PLACES ? count : PLACES;
}

/* Where the heap ends, as libc has it. sbrk(0) answers the same, but sources patch that. */
extern void *__curbrk;

/* A heap that brk shrinks is reported once it was done (hooks.c), later than the kernel's event. */
static bool is_end_of_heap(uintptr_t end)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    return end == (((uintptr_t)__curbrk + page - 1) & ~(page - 1));
}

/* One announcement, not parts of two. */
static bool announces(const regx_announced_t *entry, uintptr_t start, uintptr_t end)
{
    const uintptr_t last = atomic_load(&entry->end);

    return last >= end && atomic_load(&entry->start) <= start && atomic_load(&entry->end) == last;
}

static bool is_announced(const regx_hooks_notifier_t *both, uintptr_t start, uintptr_t end)
{
    const unsigned count = places();
    bool found = false;

    for (unsigned i = 0; i < count * LAST && !found; i++) {
        found = announces(&both->announced[i / LAST][i % LAST], start, end);
    }
    return found;
}

/* In the notifier's reader. */
static void observe(void *context, uintptr_t start, uintptr_t end)
{
    regx_hooks_notifier_t *both = context;

    if (!is_announced(both, start, end) && !is_end_of_heap(end)) {
        atomic_fetch_add(&both->counters->hooks_missed, 1);
    }
}

static bool both_valid(regx_monitor_t *monitor, uintptr_t start, uintptr_t end)
{
    regx_monitor_t *notifier = ((regx_hooks_notifier_t *)monitor)->notifier;

    return notifier->valid(notifier, start, end);
}

/* An announcement that the range outlived was of an older mapping there. Unless the reader has yet
 * to log what it read: then it may be the one that observe() will look for. (What is registered now
 * is not kept then, so that nothing is hidden by it.) */
static regx_status_t both_subscribe(regx_monitor_t *monitor, uintptr_t start, uintptr_t end,
                                    uint64_t *since)
{
    regx_hooks_notifier_t *both = (regx_hooks_notifier_t *)monitor;

    const bool behind = atomic_load(&both->super.log->sequence) % 2 == 1;
    const unsigned count = behind ? 0 : places();

    for (unsigned i = 0; i < count * LAST; i++) {
        regx_announced_t *entry = &both->announced[i / LAST][i % LAST];
        uintptr_t last = atomic_load(&entry->end);

        if (last > start && atomic_load(&entry->start) < end) {
            atomic_compare_exchange_strong(&entry->end, &last, 0);
        }
    }
    return both->notifier->subscribe(both->notifier, start, end, since);
}

static void both_stop(regx_monitor_t *monitor)
{
    regx_hooks_notifier_t *both = (regx_hooks_notifier_t *)monitor;

    regx_hooks_end(both->source); /* they log into what is the notifier's */
    both->notifier->stop(both->notifier);
    free(both);
}

static regx_status_t start_notifier(regx_hooks_notifier_t *both,
                                    const regx_monitor_config_t *config, char *error,
                                    size_t error_size)
{
    regx_monitor_config_t own = *config;

    own.on_change = observe;
    own.context = both;
    const regx_status_t status =
        regx_backend_notifier.start(&own, &both->notifier, error, error_size);
    if (status != REGX_OK) {
        return status;
    }
    /* Its self-test is not for the hooks to see. The last event of it may still be on the way. */
    while (atomic_load(&both->notifier->log->sequence) % 2 == 1) {
        sched_yield();
    }
    atomic_store(&both->counters->hooks_missed, 0);
    return REGX_OK;
}

static regx_status_t both_start(const regx_monitor_config_t *config, regx_monitor_t **monitor,
                                char *error, size_t error_size)
{
    regx_hooks_notifier_t *both = aligned_alloc(_Alignof(regx_hooks_notifier_t), sizeof(*both));

    if (both == NULL) {
        snprintf(error, error_size, "out of memory");
        return REGX_NO_MEMORY;
    }
    memset(both, 0, sizeof(*both));
    both->source = config->hooks;
    both->counters = config->counters;
    /* Hooks first, and tested alone: the notifier would hear for them. */
    regx_status_t status = regx_hooks_begin(both->source, error, error_size);
    if (status != REGX_OK) {
        free(both);
        return status;
    }
    status = start_notifier(both, config, error, error_size);
    if (status != REGX_OK) {
        regx_hooks_end(both->source);
        free(both);
        return status;
    }
    both->super.name = "hooks+notifier";
    both->super.flags = both->notifier->flags;
    both->super.log = both->notifier->log;
    both->super.valid = both->notifier->valid != NULL ? both_valid : NULL;
    both->super.query = both->notifier->query;
    both->super.drain = config->drain;
    both->super.subscribe = both_subscribe;
    both->super.stop = both_stop;
    regx_hooks_listen(announce, both);
    *monitor = &both->super;
    return REGX_OK;
}

const regx_backend_t regx_backend_hooks_notifier = {
    .name = "hooks+notifier",
    .start = both_start,
    .reports_changes = true,
    .help = "both of them",
    .more = "Also detects SHM_REMAP. The report's hooks_missed counts what hooks alone would have "
            "missed."};
