/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For a backend: what it is, the monitor that it starts, and the log to which the monitor writes.
 *
 * A monitor notifies the caches of this process when the address space changes. One per process at
 * a time; each kind in a file of its own, whose head describes what it sees and what it cannot see.
 *
 * The owner (btl/, or library/) starts it before the first cache and stops it after the last. After
 * fork the child's monitor is inert: it holds no descriptor and nothing is watched.
 */
#ifndef REGX_REGISTRATION_MONITOR_H
#define REGX_REGISTRATION_MONITOR_H

#include "transport/transport.h"

/* An address beyond it has a tag (aarch64's top byte, x86's LAM). Changes of that memory are reported
 * without, so nothing of it is kept or watched. */
#define REGX_UNTAGGED_MAX (UINTPTR_MAX >> 8)

/* ---- the log of changes ----
 * Written where one is learned of (a hook in the thread that unmaps, the notifier's reader), read
 * by the caches.
 *
 * A bounded ring of exact ranges and a count that only grows, `head`: the epoch. A cache remembers
 * up to which change it has acted (its cursor); as long as head has not moved, everything it holds
 * is as true as it was. A cursor that the ring has lapped knows only that something changed, and
 * its cache gives up everything. Nothing can get lost for want of room: what was missed is the
 * distance of two counts.
 *
 * Writers take no lock, allocate nothing and do bounded work: they may run inside malloc, free or
 * munmap of any thread. Any number of writers and readers at once. */

typedef struct regx_inval_log regx_inval_log_t;

/* What is between start and end (exclusive) was, or is about to be, changed. */
typedef struct regx_change {
    uintptr_t start, end;
    bool flushed; /* no memory changed, but what was registered of it may be of pages that are gone
                     (regx_watch_flush) */
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
void regx_inval_log_close(regx_inval_log_t *log); /* NULL: nothing */

/* Logs one change. Any thread, also inside malloc. A change of memory without interest may be
 * left out. */
void regx_inval_log_write(regx_inval_log_t *log, uintptr_t start, uintptr_t end);

/* Wakes all threads that sleep here. Done for each change that is logged; also for what else they
 * wait for. Costs one load where no thread sleeps. A thread that is going to sleep reads `wakes`,
 * sets `asleep`, looks once more whether there is anything to do, and then waits while `wakes` is
 * what it read. (Not while `asleep` is 1: another thread may set that again before this one
 * sleeps.) */
void regx_inval_log_wake(regx_inval_log_t *log);

/* Declares that a cache is about to register that range, or no longer holds it; counted by hashed
 * 2 MiB slots, so that logging can leave out the rest. Interest is declared before the
 * head is read for the range. */
void regx_inval_log_interest(regx_inval_log_t *log, uintptr_t start, uintptr_t end, int by);

/* Reads change number `number` (the first is 0). REGX_CHANGE_LATER: it is still being written (its
 * writer is inside the call that logs it); REGX_CHANGE_LOST: the ring has gone past it. Both leave
 * *change as it is. */
typedef enum { REGX_CHANGE_READ, REGX_CHANGE_LATER, REGX_CHANGE_LOST } regx_change_state_t;
regx_change_state_t regx_inval_log_read(const regx_inval_log_t *log, uint64_t number,
                                        regx_change_t *change);

/* Whether any change from number `since` on touched the range. `unknown` is the answer for one that
 * cannot be read: whether any may have, or whether one certainly did. Any thread. */
bool regx_inval_log_touched(const regx_inval_log_t *log, uint64_t since, uintptr_t start,
                            uintptr_t end, bool unknown);

/* ---- drain before change (drain.c; btl_regx_inuse=drain) ----
 * A call that would take away memory which a transfer uses waits until the transfer is over (one
 * of the proposals in osu-configs/debate.md). The rendezvous marks what a transfer uses (hold) and
 * when that is over (let go). Hooks call wait before they log a change and before it is
 * made. A thread of the drain's own, the helper, calls progress as long as a thread waits. One
 * drain per process, shared by all caches. Why it cannot deadlock: drain.c. */

#define REGX_HOLDS_MAX 1024u /* transfers that are waited for, at once */

typedef struct regx_drain regx_drain_t;

/* The fall-back of a call that did not wait to the end. */
#define REGX_DRAIN_EXPIRED "inuse=drain: the transfer lasts too long, as warn"

typedef struct regx_drain_config {
    unsigned milliseconds; /* that a call waits at most, at least 1 */
    /* Goes on with transfers; called by the helper, holding no lock, again and again while a thread
     * waits. */
    void (*progress)(void *context);
    void *context;
    regx_counters_t *counters;
} regx_drain_config_t;

/* NULL: no memory, or no thread. */
regx_drain_t *regx_drain_open(const regx_drain_config_t *config);
/* The helper ends, and progress is not called any more once this has returned; who waits waits on
 * by itself. Again: nothing. */
void regx_drain_stop(regx_drain_t *drain);
/* Also stops it. No thread holds or waits any more. */
void regx_drain_close(regx_drain_t *drain);

/* A transfer uses that memory from now on. Returns what ends it; 0: nothing to end, also where
 * drain is NULL. Any thread, does not wait. */
uint32_t regx_drain_hold(regx_drain_t *drain, const void *base, size_t length);
void regx_drain_let_go(regx_drain_t *drain, uint32_t hold);

/* To be called before a change of what is between start and end (exclusive): returns when no
 * transfer uses any of it, or when the time is up. Hooks alone. drain may be NULL. */
void regx_drain_wait(regx_drain_t *drain, uintptr_t start, uintptr_t end);

/* ---- a monitor ---- */

typedef struct regx_monitor regx_monitor_t;

struct regx_monitor {
    bool has_thread;           /* of its own, so that caches may have one each, too */
    bool by_device;            /* no change needs to be reported: the device follows changes by
                                  itself (on_demand.c) */
    regx_inval_log_t *log;     /* the monitor's own, valid until stop */
    const regx_trace_t *trace; /* the configuration's */
    regx_drain_t *drain;       /* the configuration's, if this monitor is notified before a
                                  change is made, and lets it wait; else NULL */

    /* Whether no change of watched memory is between its start and its entry in the log. Asked on
     * each look-up, before sequence and head are read. Any thread; allocates nothing. NULL: changes
     * are logged before they happen, there is nothing to ask. */
    bool (*valid)(regx_monitor_t *monitor);
    bool logs_when_asked; /* `valid` first copies the news into the log, for no thread does */
    const struct regx_uffd *query; /* the notifier's userfaultfd, for check/; else NULL */

    /* Makes changes of that range known from now on. Called before pinning, with no lock of the
     * cache held. *since is the head of the log as it was before watching began. REGX_DENIED: the
     * range cannot be watched, do not keep its registration (counted by reason in
     * counters->fallbacks). NULL: everything is watched; read the head. */
    regx_status_t (*subscribe)(regx_monitor_t *monitor, uintptr_t start, uintptr_t end,
                               uint64_t *since);

    /* Ends one `subscribe` of exactly that range, when nothing is registered of it any more. Not NULL:
     * what is watched are addresses, whatever comes to be mapped there. Any thread. */
    void (*unsubscribe)(regx_monitor_t *monitor, uintptr_t start, uintptr_t end);

    /* Both where `by_device` is set alone, by any thread, with no lock held. */
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

/* Asks the monitor to watch the range (see subscribe above). */
static inline regx_status_t regx_monitor_subscribe(regx_monitor_t *monitor, uintptr_t start,
                                                   uintptr_t end, uint64_t *since)
{
    *since = atomic_load(&monitor->log->head);
    return monitor->subscribe != NULL ? monitor->subscribe(monitor, start, end, since) : REGX_OK;
}

static inline void regx_monitor_unsubscribe(regx_monitor_t *monitor, uintptr_t start, uintptr_t end)
{
    if (monitor->unsubscribe != NULL) {
        monitor->unsubscribe(monitor, start, end);
    }
}

/* Whether no change is under way, nor one that is known and not yet logged: the query, then the sequence.
 * Who reads the log's head after that misses nothing that came before (component/design/cache.md). */
static inline bool regx_monitor_is_settled(regx_monitor_t *monitor)
{
    return (monitor->valid == NULL || monitor->valid(monitor)) &&
           atomic_load_explicit(&monitor->log->sequence, memory_order_acquire) % 2 == 0;
}

/* Changes that are known come into the log, if that is left to who asks. */
static inline void regx_monitor_poll(regx_monitor_t *monitor)
{
    if (monitor->logs_when_asked) {
        (void)monitor->valid(monitor);
    }
}

/* A byte that is 1 here, and 0 in each child of fork, also of raw clone. NULL: refused, see errno. */
unsigned char *regx_process_mark(void);
void regx_process_unmark(unsigned char *mark); /* NULL: nothing */
static inline bool regx_process_is_child(const unsigned char *mark)
{
    return *(const volatile unsigned char *)mark == 0;
}

/* For a monitor that has just been started: whether changes are reported that the kernel is asked for
 * by itself, on pages of our own (self_test.c). REGX_INVALID, REGX_NO_MEMORY: `error` has one line. */
regx_status_t regx_monitor_test(regx_monitor_t *monitor, regx_error_t error);

/* The `stop` of a monitor that is no more than its memory and its log. */
void regx_monitor_free(regx_monitor_t *monitor);

/* For a monitor's own functions: counts what cannot go as asked for by its reason, and shows it to
 * who traces. Returns REGX_DENIED. Not in the notifier's reader, nor in hooks. */
static inline regx_status_t regx_monitor_fallback(const regx_monitor_t *monitor,
                                                  regx_counters_t *counters, uintptr_t start,
                                                  uintptr_t end, const char *reason)
{
    regx_tally(counters->fallbacks, reason);
    regx_trace(monitor->trace, REGX_TRACE_PATH, "registration: %zu bytes at %p: %s",
               (size_t)(end - start), (void *)start, reason);
    return REGX_DENIED;
}

/* ---- a watch (inval_log.c) ----
 * Whether memory has changed since the watch began, and where. For transfers, which have to know of
 * each change as long as they last, registered or not. It reads the monitor's log of changes beside
 * the caches, and keeps changes of its range from being left out there.
 *
 * What it sees is what the monitor sees. Some changes are reported before they take effect (all by
 * hooks and kernel; to the notifier MADV_DONTNEED, MADV_FREE and MADV_REMOVE): that one was seen does
 * not mean that it is over.
 *
 * One thread at a time uses a watch; any, holding no lock. */

typedef struct regx_watch {
    regx_monitor_t *monitor; /* NULL: nothing is watched */
    uintptr_t start, end;    /* whole pages */
    uint64_t next;           /* the first change that was not yet looked at */
    unsigned own;            /* of those: how many are its own flushes */
    bool changed;            /* its memory did, or it was flushed: not only another watch was that
                                shares pages with it */
} regx_watch_t;

typedef enum regx_watch_state {
    REGX_WATCH_QUIET,  /* no change since the last look */
    REGX_WATCH_UNSURE, /* none that is known; but one is under way, or being told, of something */
    REGX_WATCH_CHANGED
} regx_watch_state_t;

/* Changes of that range are seen from now on. false: they are not reported, by no monitor (NULL) or
 * by this one; nothing is to be ended. */
bool regx_watch_begin(regx_watch_t *watch, regx_monitor_t *monitor, const void *base,
                      size_t length);
/* To be called when other memory may be mapped there. false: changes are not reported from now on.
 * The watch goes on in any case. What was not watched until now counts as changed, by the next
 * look, where the kernel can be asked (Linux 6.7); before, it is watched from now on. */
bool regx_watch_renew(regx_watch_t *watch);
void regx_watch_end(regx_watch_t *watch);
/* What is registered of that range is given up, as if it had changed: perhaps it was registered
 * between a change being reported and its being made. The watch itself does not see it as a
 * change. Another that shares pages with it does, for it may have used such a registration; but it
 * has not `changed`, and need not be flushed for that: what it registers from then on is right. */
void regx_watch_flush(regx_watch_t *watch);

/* Whether there is anything to look at: a load. Any thread. */
static inline bool regx_watch_has_news(const regx_watch_t *watch)
{
    regx_monitor_poll(watch->monitor);
    return atomic_load_explicit(&watch->monitor->log->head, memory_order_relaxed) != watch->next;
}

/* What happened since the last look, or since the beginning. CHANGED: *first is the lowest address
 * that changed, at least `start`. certain: no change that ended before the call may be missed,
 * which by the notifier takes a system call; otherwise one may be seen by a later look. UNSURE only
 * if certain. */
regx_watch_state_t regx_watch_look(regx_watch_t *watch, bool certain, uintptr_t *first);

/* Whether something is mapped everywhere from that address on, as far as the range goes. */
bool regx_watch_is_mapped(const regx_watch_t *watch, uintptr_t from);

/* ---- sources of hooks ----
 * A source patches libc's functions and reports what they unmap or replace. compat/ offers Open
 * MPI's, hooks.c UCX's; the backends hooks and hooks+notifier use one. */

/* Called before a range is unmapped or replaced (after, if brk does it), in the thread that does
 * so, possibly inside malloc. So it may not allocate, nor take a lock under which others do.
 * Called whatever becomes of the call, with the length that the program gave. A call that fails can
 * have taken memory away all the same (MAP_FIXED with MAP_HUGETLB). Not `sized`: a length of 0 is
 * one that could not be found out, a segment's that is detached, if there is one. */
typedef void (*regx_hook_report_t)(void *base, size_t length, bool sized);

typedef struct regx_hook_source {
    /* From now on `report` is called. REGX_DENIED: hooks cannot work here, and `error` holds one
     * line with the reason. */
    regx_status_t (*install)(regx_hook_report_t report, regx_error_t error);
    /* It is not called any more once this has returned. */
    void (*remove)(void);
} regx_hook_source_t;

/* UCX's ucm, where regx was built with its header; else NULL. */
extern const regx_hook_source_t *const regx_hooks_ucm;

/* ---- what a monitor is started with ---- */

typedef struct regx_monitor_config {
    const regx_hook_source_t *hooks; /* NULL: none */
    regx_transport_t *transport;     /* whose memory domain registers */
    regx_counters_t *counters;
    const regx_trace_t *trace; /* lives as long as the monitor; NULL: off */
    regx_drain_t *drain;       /* the same; NULL: no change waits */
} regx_monitor_config_t;

/* ---- a backend ---- */

typedef struct regx_backend {
    const char *name; /* as btl_regx_backend names it */
    /* Starts what reports changes, and runs its self-test. REGX_DENIED: not usable here;
     * REGX_INVALID: the self-test failed; REGX_NO_MEMORY; `error` then holds one line with the
     * reason. NULL: nothing is kept, nothing needs to be reported. */
    regx_status_t (*start)(const regx_monitor_config_t *config, regx_monitor_t **monitor,
                           regx_error_t error);

    /* What others ask, so that no other file has to know backends by name. */
    bool reports_changes; /* in time to revoke grants (btl_regx_grant) */
    bool pins_nothing;    /* what is kept takes none of the memory that may be locked */
    bool needs_transfers; /* with the device, for its self-test: only an MPI job makes them */
} regx_backend_t;

/* The one list of backends, in the order of the documentation. What each guarantees, and what it is
 * blind to, stands at the head of its file, which defines regx_backend_NAME. */
#define REGX_BACKENDS(row)                                                                         \
    row(none, "none") row(hooks, "hooks") row(notifier, "notifier")                                \
        row(hooks_notifier, "hooks+notifier") row(kernel, "kernel") row(odp, "odp")                \
            row(retain, "retain")

#define REGX_BACKEND_DECLARED(name, word) extern const regx_backend_t regx_backend_##name;
REGX_BACKENDS(REGX_BACKEND_DECLARED)
#undef REGX_BACKEND_DECLARED

#endif
