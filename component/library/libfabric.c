/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The notifier as libfabric's memory monitor (fi_ext.h: fid_mem_monitor, imported by fi_import).
 *
 * libfabric calls all of these functions with its lock of monitors held, and asks `valid` at each
 * hit, still under that lock. So the notifier's reader does not call libfabric: a thread that
 * unmaps memory while it holds that lock waits for the reader. What changed is found out when
 * libfabric asks, in the order query, sequence, log (notifier.c).
 *
 * libfabric pins first and subscribes then. What changed in between is known only if the range was
 * watched before the pinning. So the first registration of a range is refused: libfabric uses it
 * once, and the range is watched from then on. The next one is kept, if nothing changed since
 * watching began and the pinning is known to be later: the thread that pinned has called us in
 * between.
 *
 * Several caches may have registrations of the same range, and libfabric names the range alone. A
 * range that changed is therefore not watched anew before all caches have dropped it: a thread of
 * ours notifies libfabric, which waits for libfabric's lock, as only that thread may. It also
 * gives back what is pinned of memory that was freed, and makes room here. `unsubscribe` does
 * nothing: libfabric does not name whose registration it was, and 1.17 never calls it.
 *
 * Locks: libfabric's, then ours, then the notifier's of its ranges. The reader takes none of them.
 */
#include "library/regx/libfabric.h"

#include <errno.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_ext.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/thread.h"
#include "registration/registration.h"

#define SETS 512u /* of ranges, by a hash of the address */
#define WAYS 8u
#define RANGES (SETS * WAYS) /* libfabric's caches keep 1024 by default */

typedef enum range_state {
    RANGE_NONE,
    RANGE_WATCHED, /* none that libfabric keeps */
    RANGE_KEPT,    /* libfabric's caches may keep registrations of it, and all of them are true */
    RANGE_CHANGED  /* they are not, or have to make room: libfabric is to drop them */
} range_state_t;

typedef struct range {
    uintptr_t start, end; /* whole pages */
    uint64_t since;       /* changes of the log from that number on matter */
    uint64_t began;       /* own.calls when watching did */
    uint64_t used;        /* own.calls when it was last asked for */
    range_state_t state;
} range_t;

static struct {
    pthread_mutex_t lock; /* of all that follows but `stop` and the counters */
    struct fid_mem_monitor fid;
    regx_monitor_t *monitor; /* NULL: not imported */
    regx_counters_t counters;
    range_t ranges[RANGES];
    uint64_t calls;   /* of libfabric's */
    uint64_t cursor;  /* changes of the log before that number are known to the ranges */
    unsigned changed; /* ranges that are */
    pthread_t thread;
    _Atomic bool stop;
} own = {.lock = PTHREAD_MUTEX_INITIALIZER, .counters = {.threads = true}};

/* own.calls when this thread last called: what it pins now it began to pin later. */
static __thread uint64_t last_call;

/* ---- ranges, under the lock ---- */

static range_t *set_of(uintptr_t start, uintptr_t end)
{
    const uint64_t mixed = (start >> 12) * UINT64_C(0x9e3779b97f4a7c15) + (end >> 12);

    return &own.ranges[(mixed * UINT64_C(0x9e3779b97f4a7c15) >> 32) % SETS * WAYS];
}

/* NULL: there is none. */
static range_t *find_range(uintptr_t start, uintptr_t end)
{
    range_t *set = set_of(start, end);

    for (range_t *range = set; range < set + WAYS; range++) {
        if (range->state != RANGE_NONE && range->start == start && range->end == end) {
            range->used = own.calls;
            return range;
        }
    }
    return NULL;
}

static void forget_range(range_t *range)
{
    regx_inval_log_interest(own.monitor->log, range->start, range->end, -1);
    *range = (range_t){.state = RANGE_NONE};
}

/* It is not true any more, or has to make room. */
static void end_range(range_t *range)
{
    if (range->state == RANGE_KEPT) {
        range->state = RANGE_CHANGED;
        own.changed++;
        regx_inval_log_wake(own.monitor->log);
    } else if (range->state == RANGE_WATCHED) {
        forget_range(range);
    }
}

/* The one longest unused makes room. NULL: there will be some once libfabric has dropped it. */
static range_t *find_room(range_t *set)
{
    range_t *oldest = NULL;

    for (range_t *range = set; range < set + WAYS; range++) {
        if (range->state == RANGE_NONE) {
            return range;
        }
        if (range->state != RANGE_CHANGED && (oldest == NULL || range->used < oldest->used)) {
            oldest = range;
        }
    }
    if (oldest != NULL) {
        end_range(oldest);
    }
    return oldest != NULL && oldest->state == RANGE_NONE ? oldest : NULL;
}

/* NULL: there is no room, now. */
static range_t *add_range(uintptr_t start, uintptr_t end)
{
    range_t *place = find_room(set_of(start, end));

    if (place == NULL) {
        return NULL;
    }
    *place = (range_t){.start = start,
                       .end = end,
                       .since = UINT64_MAX,
                       .began = own.calls,
                       .used = own.calls,
                       .state = RANGE_WATCHED};
    regx_inval_log_interest(own.monitor->log, start, end, 1);
    return place;
}

static void end_changed(const regx_change_t *change, uint64_t number)
{
    for (range_t *range = own.ranges; range < own.ranges + RANGES; range++) {
        if (range->state != RANGE_NONE && range->since <= number && range->start < change->end &&
            change->start < range->end) {
            end_range(range);
        }
    }
}

/* Reads the log. false: a change is just being written, of which nothing is known yet. */
static bool catch_up(void)
{
    static const regx_change_t everything = {.start = 0, .end = UINTPTR_MAX};
    const uint64_t head = atomic_load(&own.monitor->log->head);

    while (own.cursor != head) {
        regx_change_t change;

        switch (regx_inval_log_read(own.monitor->log, own.cursor, &change)) {
        case REGX_CHANGE_READ:
            end_changed(&change, own.cursor++);
            break;
        case REGX_CHANGE_LATER:
            return false;
        case REGX_CHANGE_LOST:
            end_changed(&everything, UINT64_MAX - 1);
            own.cursor = head;
            break;
        }
    }
    return true;
}

/* The query, the sequence and the log, in this order: see notifier.c. Returns whether all that
 * there is to know of that range is known to its state. */
static bool is_known(uintptr_t start, uintptr_t end)
{
    return own.monitor->valid(own.monitor, start, end) &&
           atomic_load(&own.monitor->log->sequence) % 2 == 0 && catch_up();
}

/* Watches a range that nothing is known of. */
static void watch(uintptr_t start, uintptr_t end)
{
    range_t *range = add_range(start, end);
    uint64_t since;

    if (range == NULL) {
        return;
    }
    if (own.monitor->subscribe(own.monitor, start, end, &since) == REGX_OK) {
        range->since = since;
    } else {
        forget_range(range);
    }
}

/* Returns whether the registration that was just made may be kept. */
static bool keep(uintptr_t start, uintptr_t end)
{
    uint64_t since;

    (void)catch_up();
    range_t *range = find_range(start, end);
    if (range == NULL) {
        watch(start, end);
        return false;
    }
    /* Also finds what nobody reported: memory in its place that cannot be watched, or is not. */
    if (own.monitor->subscribe(own.monitor, start, end, &since) != REGX_OK) {
        end_range(range);
        return false;
    }
    if (!is_known(start, end) || last_call < range->began) {
        return false;
    }
    if (range->state == RANGE_WATCHED) {
        range->state = RANGE_KEPT;
    }
    return range->state == RANGE_KEPT;
}

/* ---- the thread that has libfabric drop what changed ---- */

#define AT_ONCE 64u

static unsigned collect(range_t *changed[AT_ONCE])
{
    unsigned count = 0;

    pthread_mutex_lock(&own.lock);
    (void)catch_up();
    for (range_t *range = own.ranges;
         range < own.ranges + RANGES && count < AT_ONCE && count < own.changed; range++) {
        if (range->state == RANGE_CHANGED) {
            changed[count++] = range;
        }
    }
    pthread_mutex_unlock(&own.lock);
    return count;
}

/* Nobody else touches a range that has changed. */
static void drop(range_t *changed[AT_ONCE], unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        own.fid.import_ops->notify(&own.fid, (void *)changed[i]->start,
                                   changed[i]->end - changed[i]->start);
    }
    pthread_mutex_lock(&own.lock);
    own.changed -= count;
    for (unsigned i = 0; i < count; i++) {
        forget_range(changed[i]);
    }
    pthread_mutex_unlock(&own.lock);
}

static void *drop_what_changed(void *argument)
{
    regx_inval_log_t *log = argument;
    range_t *changed[AT_ONCE];

    while (!atomic_load(&own.stop)) {
        const uint32_t wakes = atomic_load(&log->wakes);

        atomic_store(&log->asleep, 1);
        const unsigned count = collect(changed);
        if (count > 0) {
            drop(changed, count);
        } else if (!atomic_load(&own.stop)) {
            regx_thread_wait(&log->wakes, wakes, 0);
        }
    }
    return NULL;
}

/* ---- what libfabric calls ---- */

static uintptr_t first_page(const void *base)
{
    return (uintptr_t)base & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
}

static uintptr_t behind_last_page(const void *base, size_t length)
{
    return first_page((const char *)base + length + sysconf(_SC_PAGESIZE) - 1);
}

static int monitor_start(struct fid_mem_monitor *monitor)
{
    (void)monitor;
    return 0;
}

/* What libfabric knows is gone, but it may already have a cache again. */
static void monitor_stop(struct fid_mem_monitor *monitor)
{
    (void)monitor;
}

static void begin_call(void)
{
    pthread_mutex_lock(&own.lock);
    own.calls++;
}

static void end_call(void)
{
    last_call = own.calls;
    pthread_mutex_unlock(&own.lock);
}

static int monitor_subscribe(struct fid_mem_monitor *monitor, const void *base, size_t length)
{
    (void)monitor;
    begin_call();
    const bool kept = length > 0 && keep(first_page(base), behind_last_page(base, length));
    end_call();
    return kept ? 0 : -FI_EAGAIN;
}

static void monitor_unsubscribe(struct fid_mem_monitor *monitor, const void *base, size_t length)
{
    (void)monitor;
    (void)base;
    (void)length;
}

/* Asked for what was subscribed to. */
static bool monitor_valid(struct fid_mem_monitor *monitor, const void *base, size_t length)
{
    const uintptr_t start = first_page(base), end = behind_last_page(base, length);

    (void)monitor;
    begin_call();
    const range_t *range = find_range(start, end);
    const bool valid = range != NULL && is_known(start, end) && range->state == RANGE_KEPT;
    end_call();
    return valid;
}

static struct fi_ops_mem_monitor operations = {.size = sizeof(operations),
                                               .start = monitor_start,
                                               .stop = monitor_stop,
                                               .subscribe = monitor_subscribe,
                                               .unsubscribe = monitor_unsubscribe,
                                               .valid = monitor_valid};

/* ---- the beginning ---- */

static int start_notifier(unsigned flags, char *error, size_t error_size)
{
    static regx_transport_t no_transport;
    const regx_monitor_config_t config = {
        .check = (flags & REGX_LIBFABRIC_SCAN) != 0 ? REGX_CHECK_SCAN : REGX_CHECK_ALWAYS,
        .threads = true,
        .transport = &no_transport,
        .counters = &own.counters};
    char why[REGX_BACKEND_REASON];
    regx_monitor_t *monitor;

    switch (regx_backend_notifier.start(&config, &monitor, why, sizeof(why))) {
    case REGX_OK:
        break;
    case REGX_NO_MEMORY:
        snprintf(error, error_size, "no memory");
        return ENOMEM;
    default:
        snprintf(error, error_size, "notifier cannot be used: %s", why);
        return EOPNOTSUPP;
    }
    own.monitor = monitor;
    own.cursor = atomic_load(&monitor->log->head);
    return 0;
}

static int start_thread(char *error, size_t error_size)
{
    atomic_store(&own.stop, false);
    const int result =
        regx_thread_start(&own.thread, "regx-libfabric", drop_what_changed, own.monitor->log);

    if (result != 0) {
        snprintf(error, error_size, "no thread can be started: %s", fi_strerror(result));
    }
    return result;
}

static void stop_thread(void)
{
    regx_inval_log_t *log = own.monitor->log;

    atomic_store(&own.stop, true);
    atomic_fetch_add(&log->wakes, 1);
    regx_thread_wake(&log->wakes);
    pthread_join(own.thread, NULL);
}

static int import(char *error, size_t error_size)
{
    own.fid = (struct fid_mem_monitor){.fid = {.fclass = FI_CLASS_MEM_MONITOR},
                                       .export_ops = &operations};
    const int result = fi_import(FI_VERSION(1, 17), "mr_cache", NULL, 0, 0, &own.fid.fid, &own.fid);

    if (result == -FI_EBUSY) {
        snprintf(error, error_size,
                 "libfabric has another memory monitor, or has begun to use its own");
    } else if (result != 0) {
        snprintf(error, error_size, "libfabric takes no memory monitor: %s", fi_strerror(-result));
    }
    return -result;
}

/* Before any range there is nothing to be dropped. */
static int start_all(unsigned flags, char *error, size_t error_size)
{
    int result = start_notifier(flags, error, error_size);

    if (result != 0) {
        return result;
    }
    result = start_thread(error, error_size);
    if (result == 0) {
        result = import(error, error_size);
        if (result == 0) {
            return 0;
        }
        stop_thread();
    }
    own.monitor->stop(own.monitor);
    own.monitor = NULL;
    return result;
}

int regx_libfabric_monitor(unsigned flags, char *error, size_t error_size)
{
    const char *asked_for = getenv("FI_MR_CACHE_MONITOR");

    if ((flags & ~REGX_LIBFABRIC_SCAN) != 0) {
        snprintf(error, error_size, "flags=%#x: allowed: 0, REGX_LIBFABRIC_SCAN", flags);
        return EINVAL;
    }
    if (asked_for != NULL) { /* libfabric obeys it, whatever is imported */
        snprintf(error, error_size, "FI_MR_CACHE_MONITOR=%.64s is in the environment", asked_for);
        return EBUSY;
    }
    if (own.monitor != NULL) {
        snprintf(error, error_size, "libfabric has this memory monitor already");
        return EBUSY;
    }
    return start_all(flags, error, error_size);
}
