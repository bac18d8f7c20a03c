/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A writer draws a number from `head` and writes its entry where that number stands in the ring.
 * Between the two the entry is "later" to readers. An entry's stamp tells whose it is and whether
 * it is whole; start and end are read between two looks at the stamp. They are stored with release
 * and loaded with acquire, so that who reads a newer value also sees the newer stamp.
 *
 * A writer may be so slow that the ring comes round to its entry: the writer that comes then does
 * not wait but gives its own entry up, by `lost`: all numbers below it count as lost. So an entry
 * becomes whole, overtaken or lost as soon as its writer runs, and is lost at the latest once the
 * ring has gone past it. (test/model/inval_log.pml goes through this, in all interleavings.)
 *
 * Interest is counted per slot of 2 MiB, hashed. A writer that sees no interest leaves the change
 * out. That is as good as to log it just before interest is next declared: who declares it reads
 * the head afterwards, and looks only at what comes later.
 */
#include "registration/monitor/monitor.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"

#define RING REGX_INVAL_LOG_RING
#define SLOTS 65536u /* of interest */
#define SLOT_SHIFT 21
#define LOOKS_MAX 1024 /* slots that a writer looks at; longer changes are always logged */

typedef struct entry {
    _Atomic uint64_t stamp; /* 0: never written; 2n + 1: n is being written; 2n + 2: n is whole */
    _Atomic uintptr_t start, end;
    _Atomic uint64_t flushed; /* 0 or 1 */
} entry_t;

struct regx_inval_log_rest {
    _Atomic uint64_t lost;
    _Alignas(64) entry_t ring[RING];
    _Atomic uint32_t interest[SLOTS];
};

regx_inval_log_t *regx_inval_log_open(void)
{
    struct {
        regx_inval_log_t log;
        struct regx_inval_log_rest rest;
    } *whole = aligned_alloc(_Alignof(regx_inval_log_t), sizeof(*whole));

    if (whole == NULL) {
        return NULL;
    }
    memset(whole, 0, sizeof(*whole));
    whole->log.rest = &whole->rest;
    return &whole->log;
}

void regx_inval_log_close(regx_inval_log_t *log)
{
    free(log);
}

static _Atomic uint32_t *interest_of(struct regx_inval_log_rest *rest, uintptr_t slot)
{
    return &rest->interest[(slot ^ (slot >> 16)) % SLOTS];
}

void regx_inval_log_interest(regx_inval_log_t *log, uintptr_t start, uintptr_t end, int by)
{
    const uintptr_t first = start >> SLOT_SHIFT, count = ((end - 1) >> SLOT_SHIFT) - first + 1;

    for (uintptr_t i = 0; i < count && i < SLOTS; i++) {
        /* As many as there are: from a round number on, so that it is each of them once. */
        atomic_fetch_add(interest_of(log->rest, count < SLOTS ? first + i : i), (uint32_t)by);
    }
}

static bool is_of_interest(struct regx_inval_log_rest *rest, uintptr_t start, uintptr_t end)
{
    const uintptr_t first = start >> SLOT_SHIFT, last = (end - 1) >> SLOT_SHIFT;

    if (last - first >= LOOKS_MAX) {
        return true;
    }
    for (uintptr_t slot = first; slot <= last; slot++) {
        if (atomic_load(interest_of(rest, slot)) != 0) {
            return true;
        }
    }
    return false;
}

void regx_inval_log_wake(regx_inval_log_t *log)
{
    if (atomic_load(&log->asleep) != 0 && atomic_exchange(&log->asleep, 0) != 0) {
        atomic_fetch_add(&log->wakes, 1);
        regx_thread_wake(&log->wakes);
    }
}

static void write_entry(struct regx_inval_log_rest *rest, uint64_t number,
                        const regx_change_t *change)
{
    entry_t *entry = &rest->ring[number % RING];
    uint64_t stamp = atomic_load(&entry->stamp);

    do {
        if (stamp > 2 * number) { /* overtaken */
            return;
        }
        if (stamp % 2 == 1) { /* its writer, a round ago, is not done yet */
            uint64_t lost = atomic_load(&rest->lost);

            while (lost <= number &&
                   !atomic_compare_exchange_weak(&rest->lost, &lost, number + 1)) {
            }
            return;
        }
    } while (!atomic_compare_exchange_weak(&entry->stamp, &stamp, 2 * number + 1));
    atomic_store_explicit(&entry->start, change->start, memory_order_release);
    atomic_store_explicit(&entry->end, change->end, memory_order_release);
    atomic_store_explicit(&entry->flushed, change->flushed, memory_order_release);
    atomic_store_explicit(&entry->stamp, 2 * number + 2, memory_order_release);
}

static void log_change(regx_inval_log_t *log, const regx_change_t *change)
{
    struct regx_inval_log_rest *rest = log->rest;

    if (change->start >= change->end || !is_of_interest(rest, change->start, change->end)) {
        return;
    }
    write_entry(rest, atomic_fetch_add(&log->head, 1), change);
    regx_inval_log_wake(log);
}

void regx_inval_log_write(regx_inval_log_t *log, uintptr_t start, uintptr_t end)
{
    const regx_change_t change = {.start = start, .end = end};

    log_change(log, &change);
}

regx_change_state_t regx_inval_log_read(const regx_inval_log_t *log, uint64_t number,
                                        regx_change_t *change)
{
    const struct regx_inval_log_rest *rest = log->rest;
    const entry_t *entry = &rest->ring[number % RING];
    const uint64_t whole = 2 * number + 2;
    const uint64_t stamp = atomic_load_explicit(&entry->stamp, memory_order_acquire);

    if (stamp == whole) {
        const regx_change_t found = {
            .start = atomic_load_explicit(&entry->start, memory_order_acquire),
            .end = atomic_load_explicit(&entry->end, memory_order_acquire),
            .flushed = atomic_load_explicit(&entry->flushed, memory_order_acquire) != 0};

        if (atomic_load_explicit(&entry->stamp, memory_order_relaxed) == whole) {
            *change = found;
            return REGX_CHANGE_READ;
        }
        return REGX_CHANGE_LOST;
    }
    if (stamp > whole || atomic_load(&rest->lost) > number ||
        atomic_load(&log->head) - number > RING) {
        return REGX_CHANGE_LOST;
    }
    return REGX_CHANGE_LATER;
}

bool regx_inval_log_touched(const regx_inval_log_t *log, uint64_t since, uintptr_t start,
                            uintptr_t end, bool unknown)
{
    const uint64_t head = atomic_load(&log->head);

    if (head - since > RING) {
        if (unknown) {
            return true;
        }
        since = head - RING;
    }
    for (; since != head; since++) {
        regx_change_t change;
        const bool is_read = regx_inval_log_read(log, since, &change) == REGX_CHANGE_READ;

        if (is_read ? change.start < end && start < change.end : unknown) {
            return true;
        }
    }
    return false;
}

void regx_monitor_free(regx_monitor_t *monitor)
{
    regx_inval_log_close(monitor->log);
    free(monitor);
}

unsigned char *regx_process_mark(void)
{
    const size_t page = regx_page_size();
    unsigned char *mark =
        mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (mark == MAP_FAILED) {
        return NULL;
    }
    if (madvise(mark, page, MADV_WIPEONFORK) != 0) {
        regx_process_unmark(mark);
        return NULL;
    }
    *mark = 1;
    return mark;
}

void regx_process_unmark(unsigned char *mark)
{
    if (mark != NULL) {
        munmap(mark, regx_page_size());
    }
}

/* ---- a watch ---- */

bool regx_watch_renew(regx_watch_t *watch)
{
    uint64_t since;

    return watch->monitor->unsubscribe != NULL ||
           regx_monitor_subscribe(watch->monitor, watch->start, watch->end, &since) == REGX_OK;
}

/* As of a region: interest, then the head, then watching (component/design/cache.md). */
bool regx_watch_begin(regx_watch_t *watch, regx_monitor_t *monitor, const void *base, size_t length)
{
    const uintptr_t page = regx_page_size();

    *watch = (regx_watch_t){.monitor = monitor,
                            .start = (uintptr_t)base & ~(page - 1),
                            .end = regx_align_up((uintptr_t)base + length, page)};
    if (monitor == NULL || monitor->by_device || watch->end <= watch->start ||
        watch->start > REGX_UNTAGGED_MAX) {
        watch->monitor = NULL;
        return false;
    }
    regx_inval_log_interest(monitor->log, watch->start, watch->end, 1);
    if (regx_monitor_subscribe(monitor, watch->start, watch->end, &watch->next) == REGX_OK) {
        return true;
    }
    regx_inval_log_interest(monitor->log, watch->start, watch->end, -1);
    watch->monitor = NULL;
    return false;
}

void regx_watch_end(regx_watch_t *watch)
{
    if (watch->monitor != NULL) {
        regx_monitor_unsubscribe(watch->monitor, watch->start, watch->end);
        regx_inval_log_interest(watch->monitor->log, watch->start, watch->end, -1);
        watch->monitor = NULL;
    }
}

void regx_watch_flush(regx_watch_t *watch)
{
    const regx_change_t flush = {.start = watch->start, .end = watch->end, .flushed = true};

    watch->own++;
    watch->changed = true;
    log_change(watch->monitor->log, &flush);
}

regx_watch_state_t regx_watch_look(regx_watch_t *watch, bool certain, uintptr_t *first)
{
    const regx_inval_log_t *log = watch->monitor->log;
    bool sure = !certain || regx_monitor_is_settled(watch->monitor);
    const uint64_t head = atomic_load(&log->head);
    uintptr_t lowest = UINTPTR_MAX;

    while (watch->next != head) {
        regx_change_t change = {.start = watch->start, .end = watch->end}; /* if it is lost */
        const regx_change_state_t state = regx_inval_log_read(log, watch->next, &change);

        if (state == REGX_CHANGE_LATER) {
            sure = !certain;
            break;
        }
        if (state == REGX_CHANGE_LOST) {
            watch->own = 0;
        } else if (change.flushed && watch->own > 0 && change.start == watch->start &&
                   change.end == watch->end) {
            /* One of our own; or one that is just like it, for which the other then stands. */
            watch->own--;
            watch->next++;
            continue;
        }
        if (change.start < watch->end && change.end > watch->start) {
            lowest = regx_min(lowest, regx_max(change.start, watch->start));
            watch->changed |= !change.flushed;
        }
        watch->next = state == REGX_CHANGE_LOST ? head : watch->next + 1;
    }
    *first = lowest;
    if (lowest != UINTPTR_MAX) {
        return REGX_WATCH_CHANGED;
    }
    return sure ? REGX_WATCH_QUIET : REGX_WATCH_UNSURE;
}

bool regx_watch_is_mapped(const regx_watch_t *watch, uintptr_t from)
{
    return regx_is_mapped(from & ~(regx_page_size() - 1), watch->end);
}
