/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For a backend: what it is, the monitor that it starts, and the log to which the monitor writes.
 *
 * A monitor notifies the caches of this process when the address space changes. One per process at
 * a time; each kind in a file of its own, whose head describes what it sees and what it cannot see.
 *
 * The owner (btl/) starts it before the first cache and stops it after the last. After fork the
 * child's monitor is inert: it holds no descriptor and nothing is watched.
 */
#ifndef REGX_REGISTRATION_MONITOR_H
#define REGX_REGISTRATION_MONITOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/counters.h"
#include "base/hook_source.h"
#include "base/status.h"
#include "base/trace.h"
#include "registration/monitor/drain.h"
#include "transport/transport.h"

/* ---- the log of changes ----
 * Written by whoever learns of one (a hook in the thread that unmaps, the notifier's reader), read
 * by the caches.
 *
 * A bounded ring of exact ranges and a count that only grows, `head`: the epoch. A cache remembers
 * up to which change it has acted (its cursor); as long as head has not moved, everything it holds
 * is as true as it was. A cursor that the ring has lapped knows only that something changed, and
 * its cache gives up everything: the flush cannot be lost, since it is the distance of two counts
 * (hazard: an invalidation that found no memory was dropped).
 *
 * Writers take no lock, allocate nothing and do bounded work: they may run inside malloc, free or
 * munmap of any thread. Any number of writers and readers at once. */

typedef struct regx_inval_log regx_inval_log_t;

/* What is between start and end (exclusive) was, or is about to be, changed. */
typedef struct regx_change {
    uintptr_t start, end;
} regx_change_t;

#define REGX_INVAL_LOG_RING 4096 /* changes kept; a power of two */

/* The hot part, which a look-up reads. */
struct regx_inval_log {
    _Alignas(64) _Atomic uint64_t head; /* changes logged or being logged, ever */
    _Atomic uint64_t sequence;          /* odd: a writer has taken news from the kernel and has not
                                           yet logged it (notifier only) */
    struct regx_inval_log_rest *rest;
    _Alignas(64) _Atomic uint32_t asleep; /* 1: a thread sleeps until there is news, see
                                             regx_inval_log_wake */
    _Atomic uint32_t wakes;               /* times that sleepers were woken; they wait for a change
                                             of it */
};

/* NULL: no memory. */
regx_inval_log_t *regx_inval_log_open(void);
void regx_inval_log_close(regx_inval_log_t *log);

/* Logs one change. Any thread, also inside malloc. A change of what nobody is interested in may be
 * left out. */
void regx_inval_log_write(regx_inval_log_t *log, uintptr_t start, uintptr_t end);

/* Wakes all threads that sleep here. Done for each change that is logged; also for what else they
 * wait for. Costs one load where nobody sleeps. A thread that is going to sleep reads `wakes`, sets
 * `asleep`, looks once more whether there is anything to do, and then waits while `wakes` is what
 * it read. (Not while `asleep` is 1: another thread may set that again before this one sleeps.) */
void regx_inval_log_wake(regx_inval_log_t *log);

/* Declares that a cache is about to register that range, or no longer holds it; counted by hashed
 * 2 MiB slots, so that logging can leave out what concerns nobody. Interest is declared before the
 * head is read for the range. */
void regx_inval_log_interest(regx_inval_log_t *log, uintptr_t start, uintptr_t end, int by);

/* Reads change number `number` (the first is 0). REGX_CHANGE_LATER: it is still being written (its
 * writer is inside the call that logs it); REGX_CHANGE_LOST: the ring has gone past it. */
typedef enum { REGX_CHANGE_READ, REGX_CHANGE_LATER, REGX_CHANGE_LOST } regx_change_state_t;
regx_change_state_t regx_inval_log_read(const regx_inval_log_t *log, uint64_t number,
                                        regx_change_t *change);

/* Whether any change from number `since` on touched the range, or may have. Any thread. */
bool regx_inval_log_touched(const regx_inval_log_t *log, uint64_t since, uintptr_t start,
                            uintptr_t end);
/* Whether one certainly did, of those that the ring still has. */
bool regx_inval_log_shows(const regx_inval_log_t *log, uint64_t since, uintptr_t start,
                          uintptr_t end);

/* ---- a monitor ---- */

typedef struct regx_monitor regx_monitor_t;

/* What a monitor is. */
enum {
    /* It has a thread of its own, so that caches may have one each, too. */
    REGX_MONITOR_THREAD = 0x1,
    /* A change may come into the log after it returned to whoever made it, and `valid` does not
     * know. By then the memory may be somebody else's: that a change is in the log while a region
     * is used does not mean that what is used changed. */
    REGX_MONITOR_LATE = 0x2,
    /* No change needs to be reported: the device follows changes by itself (on_demand.c). */
    REGX_MONITOR_BY_DEVICE = 0x4
};

struct regx_monitor {
    const char *name;
    unsigned flags;            /* REGX_MONITOR_... */
    regx_inval_log_t *log;     /* the monitor's own, valid until stop */
    const regx_trace_t *trace; /* the configuration's */
    regx_drain_t *drain;       /* the configuration's, if this monitor is notified before a
                                  change is made, and lets it wait; else NULL */

    /* Whether no change of a watched range is between its start and its entry in the log, and
     * (where the monitor is set to ask) all of start to end is still watched. Asked on each
     * look-up, after the use is counted and before sequence and head are read. Any thread;
     * allocates nothing. NULL: changes are logged before they happen, there is nothing to ask. */
    bool (*valid)(regx_monitor_t *monitor, uintptr_t start, uintptr_t end);

    /* Not NULL: `valid` is regx_uffd_is_idle of this one and nothing more. A hit then calls that
     * directly, which saves a call through a pointer. */
    const struct regx_uffd *query;

    /* Makes changes of that range known from now on. Called before pinning, with no lock of the
     * cache held. *since is the head of the log as it was before watching began. REGX_DENIED: the
     * range cannot be watched, do not keep its registration (counted by reason in
     * counters->fallbacks). NULL: everything is watched; read the head. */
    regx_status_t (*subscribe)(regx_monitor_t *monitor, uintptr_t start, uintptr_t end,
                               uint64_t *since);

    /* Both by REGX_MONITOR_BY_DEVICE alone, by any thread, with no lock held. */
    /* Whether regions can serve what begins there; else pin it for one use (counted by reason in
     * counters->fallbacks). */
    bool (*follows)(const regx_monitor_t *monitor, const void *base, size_t length);
    /* Called for each use of a region, before it is granted or read from: sees to it that the
     * device finds that range. REGX_DENIED: something of it is not there, do not use the region. */
    regx_status_t (*ready)(const regx_monitor_t *monitor, const regx_mr_t *mr, void *base,
                           size_t length, unsigned access);

    /* Nothing is left watched, no thread, no descriptor. All caches must be closed. */
    void (*stop)(regx_monitor_t *monitor);
};

/* For a monitor's own functions: counts what cannot go as asked for by its reason, and shows it to
 * who traces. Not in the notifier's reader, nor in hooks. */
static inline void regx_monitor_fallback(const regx_monitor_t *monitor, regx_counters_t *counters,
                                         uintptr_t start, uintptr_t end, const char *reason)
{
    regx_tally(counters->fallbacks, reason);
    if (regx_traces(monitor->trace, REGX_TRACE_PATH)) {
        regx_trace(monitor->trace, REGX_TRACE_PATH, "registration: %zu bytes at %p: %s",
                   (size_t)(end - start), (void *)start, reason);
    }
}

/* The query that closes the window between a change and its event (btl_regx_notifier_check). */
typedef enum {
    REGX_CHECK_ALWAYS,
    REGX_CHECK_SCAN,
    REGX_CHECK_THREADS,
    REGX_CHECK_NEVER
} regx_check_t;

/* How pages on demand are brought in before the device needs them (btl_regx_odp_prefetch). */
typedef enum { REGX_PREFETCH_ADVISE, REGX_PREFETCH_TOUCH, REGX_PREFETCH_NONE } regx_prefetch_t;

typedef struct regx_monitor_config {
    regx_check_t check;
    bool threads;                    /* the application may call from several threads */
    const regx_hook_source_t *hooks; /* chosen by btl_regx_hooks */
    regx_transport_t *transport;     /* whose memory domain registers */
    regx_prefetch_t prefetch;
    regx_counters_t *counters;
    const regx_trace_t *trace; /* lives as long as the monitor; NULL: off */
    regx_drain_t *drain;       /* likewise; NULL: no change waits */
    /* The notifier's reader calls it for each change that the kernel reports (of a move: for the
     * old place), before sequence is even again. Allocates nothing. NULL: nobody wants to know. */
    void (*on_change)(void *context, uintptr_t start, uintptr_t end);
    void *context;
} regx_monitor_config_t;

/* ---- a backend ---- */

typedef struct regx_backend {
    const char *name; /* as btl_regx_backend names it */
    const char *help; /* of the parameter: what it is */
    const char *more; /* for the documentation only */
    /* Starts what reports changes, and runs its self-test. REGX_DENIED: not usable here;
     * REGX_INVALID: the self-test failed; REGX_NO_MEMORY; `error` then holds one line with the
     * reason. NULL: nothing is kept, nothing needs to be reported. */
    regx_status_t (*start)(const regx_monitor_config_t *config, regx_monitor_t **monitor,
                           char *error, size_t error_size);

    /* What others ask, so that nobody else has to know backends by name. */
    bool automatic;       /* auto takes it, of several the first that can be used */
    bool leaves_no_trace; /* it can be started just to see whether it could be used */
    bool reports_changes; /* in time to revoke grants (btl_regx_grant) */
    bool pins_nothing;    /* what is kept takes none of the memory that may be locked */
    bool needs_transfers; /* with the device, for its self-test: only an MPI job makes them */
} regx_backend_t;

/* The one list of backends, in the order of the documentation. What each guarantees, and what it is
 * blind to, stands at the head of its file, which defines regx_backend_NAME. */
#define REGX_BACKENDS(row)                                                                         \
    row(none) row(hooks) row(notifier) row(hooks_notifier) row(odp) row(retain)

#define REGX_BACKEND_DECLARED(name) extern const regx_backend_t regx_backend_##name;
REGX_BACKENDS(REGX_BACKEND_DECLARED)
#undef REGX_BACKEND_DECLARED

/* ---- the self-test of a monitor (selftest.c) ----
 * Changes scratch pages of its own in every way that the monitor claims to see, and looks whether
 * each was in the log in time. Run by every monitor at its start, so that one that is deaf here
 * (patched code patched over, a filter that eats events) is refused, not trusted. */

/* What the monitor claims to see. munmap, mremap (what it takes away), madvise(MADV_DONTNEED) and
 * mmap(MAP_FIXED), each made in the ways that are named. Not tried: brk, as the heap is others';
 * MADV_FREE, of which what is pinned takes no harm (mca-params/staleness.md). */
#define REGX_SELFTEST_LIBC 0x1u        /* by calling libc */
#define REGX_SELFTEST_RAW 0x2u         /* by the system call itself */
#define REGX_SELFTEST_THREAD 0x4u      /* also by a second thread, in the ways above */
#define REGX_SELFTEST_DESTINATION 0x8u /* also what a raw mremap moves something onto */
#define REGX_SELFTEST_REMAP 0x10u /* also shmat(SHM_REMAP), by libc, where System V's memory is */
#define REGX_SELFTEST_ALL 0x1fu

/* The monitor runs but is not yet anyone's. REGX_INVALID: a change was not seen, or could not be
 * tried; REGX_NO_MEMORY: no scratch pages. `error` then holds one line that names the change and
 * the way. */
regx_status_t regx_selftest(regx_monitor_t *monitor, unsigned claims, char *error,
                            size_t error_size);

/* ---- hooks, for the monitors that listen to them (hooks.c) ---- */

/* Whole pages, in the thread that changes them, perhaps inside malloc. */
typedef void (*regx_hooks_listener_t)(void *context, uintptr_t start, uintptr_t end);

/* Installs hooks and tests them; nobody listens yet. To be called once in a process: Open MPI's
 * cannot be installed a second time. REGX_DENIED, also where there is no source; REGX_INVALID: they
 * are deaf; REGX_NO_MEMORY. */
regx_status_t regx_hooks_begin(const regx_hook_source_t *source, char *error, size_t error_size);
/* From now on these reports go there; NULL: nowhere. When it returns, no thread is in the listener
 * that was there before. */
void regx_hooks_listen(regx_hooks_listener_t listener, void *context);
/* Nobody listens any more, and the hooks are removed. */
void regx_hooks_end(const regx_hook_source_t *source);

/* UCX's ucm, where regx was built with its header; else NULL. */
extern const regx_hook_source_t *const regx_hooks_ucm;

/* Loads UCX and never unloads it, with settings by which it patches nothing, handles no signal
 * and starts no thread, unless the user set those. If somebody has loaded it before, it only
 * stays loaded when they unload it. Does nothing where there is no UCX. Called by the thread that
 * runs MPI_Init, since the environment is changed for the time of the call. */
void regx_hooks_load_ucx(void);

/* Who reports if the user has no wish: ucm where Open MPI itself is linked with a UCX that has
 * patched libc with hooks that can be used, since its sbrk then no longer goes through libc's brk,
 * where Open MPI's hooks wait; else `own`, which are Open MPI's. */
const regx_hook_source_t *regx_hooks_by_default(bool links_ucx, const regx_hook_source_t *own);

#endif
