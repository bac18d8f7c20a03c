/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A writer draws a number from `head` and writes its entry where that number stands in the ring.
 * Between the two the entry is "later" to readers. An entry's stamp tells whose it is and whether
 * it is whole; start and end are read between two looks at the stamp. They are stored with release
 * and loaded with acquire, so that who reads a newer value also sees the newer stamp.
 *
 * A writer may be so slow that the ring comes round to its entry: whoever comes then does not wait
 * but gives its own entry up, by `lost`: all numbers below it count as lost. So an entry becomes
 * whole, overtaken or lost as soon as its writer runs, and is lost at the latest once the ring has
 * gone past it. (test/model/inval_log.pml goes through this, in all interleavings.)
 *
 * Interest is counted per slot of 2 MiB, hashed. A writer that sees no interest leaves the change
 * out, as if it had been logged just before whoever declares interest next read the head: that is
 * its meaning, so nothing else needs an argument.
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
    uint64_t padding;
} entry_t;

struct regx_inval_log_rest {
    _Atomic uint64_t lost;
    _Alignas(64) entry_t ring[RING];
    _Atomic uint32_t interest[SLOTS];
};

regx_inval_log_t *regx_inval_log_open(void)
{
    regx_inval_log_t *log = aligned_alloc(_Alignof(regx_inval_log_t), sizeof(*log));
    struct regx_inval_log_rest *rest =
        aligned_alloc(_Alignof(struct regx_inval_log_rest), sizeof(*rest));

    if (log == NULL || rest == NULL) {
        free(log);
        free(rest);
        return NULL;
    }
    memset(rest, 0, sizeof(*rest));
    atomic_init(&log->head, 0);
    atomic_init(&log->sequence, 0);
    atomic_init(&log->asleep, 0);
    atomic_init(&log->wakes, 0);
    log->rest = rest;
    return log;
}

void regx_inval_log_close(regx_inval_log_t *log)
{
    free(log->rest);
    free(log);
}

static uintptr_t slot_of(uintptr_t address)
{
    return address >> SLOT_SHIFT;
}

static _Atomic uint32_t *interest_of(struct regx_inval_log_rest *rest, uintptr_t slot)
{
    return &rest->interest[(slot ^ (slot >> 16)) % SLOTS];
}

void regx_inval_log_interest(regx_inval_log_t *log, uintptr_t start, uintptr_t end, int by)
{
    const uintptr_t first = slot_of(start), count = slot_of(end - 1) - first + 1;

    for (uintptr_t i = 0; i < count && i < SLOTS; i++) {
        /* As many as there are: from a round number on, so that it is each of them once. */
        atomic_fetch_add(interest_of(log->rest, count < SLOTS ? first + i : i), (uint32_t)by);
    }
}

static bool concerns_somebody(struct regx_inval_log_rest *rest, uintptr_t start, uintptr_t end)
{
    const uintptr_t first = slot_of(start), last = slot_of(end - 1);

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

static void lose(struct regx_inval_log_rest *rest, uint64_t number)
{
    uint64_t lost = atomic_load(&rest->lost);

    while (lost <= number && !atomic_compare_exchange_weak(&rest->lost, &lost, number + 1)) {
    }
}

void regx_inval_log_wake(regx_inval_log_t *log)
{
    if (atomic_load(&log->asleep) != 0 && atomic_exchange(&log->asleep, 0) != 0) {
        atomic_fetch_add(&log->wakes, 1);
        regx_thread_wake(&log->wakes);
    }
}

static void write_entry(struct regx_inval_log_rest *rest, uint64_t number, uintptr_t start,
                        uintptr_t end)
{
    entry_t *entry = &rest->ring[number % RING];
    uint64_t stamp = atomic_load(&entry->stamp);

    do {
        if (stamp > 2 * number) { /* overtaken */
            return;
        }
        if (stamp % 2 == 1) { /* its writer, a round ago, is not done yet */
            lose(rest, number);
            return;
        }
    } while (!atomic_compare_exchange_weak(&entry->stamp, &stamp, 2 * number + 1));
    atomic_store_explicit(&entry->start, start, memory_order_release);
    atomic_store_explicit(&entry->end, end, memory_order_release);
    atomic_store_explicit(&entry->stamp, 2 * number + 2, memory_order_release);
}

void regx_inval_log_write(regx_inval_log_t *log, uintptr_t start, uintptr_t end)
{
    struct regx_inval_log_rest *rest = log->rest;

    if (start >= end || !concerns_somebody(rest, start, end)) {
        return;
    }
    write_entry(rest, atomic_fetch_add(&log->head, 1), start, end);
    regx_inval_log_wake(log);
}

regx_change_state_t regx_inval_log_read(const regx_inval_log_t *log, uint64_t number,
                                        regx_change_t *change)
{
    const struct regx_inval_log_rest *rest = log->rest;
    const entry_t *entry = &rest->ring[number % RING];
    const uint64_t whole = 2 * number + 2;
    const uint64_t stamp = atomic_load_explicit(&entry->stamp, memory_order_acquire);

    if (stamp == whole) {
        change->start = atomic_load_explicit(&entry->start, memory_order_acquire);
        change->end = atomic_load_explicit(&entry->end, memory_order_acquire);
        if (atomic_load_explicit(&entry->stamp, memory_order_relaxed) == whole) {
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

/* unknown: the answer for a change that cannot be read. */
static bool touched(const regx_inval_log_t *log, uint64_t since, uintptr_t start, uintptr_t end,
                    bool unknown)
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

bool regx_inval_log_touched(const regx_inval_log_t *log, uint64_t since, uintptr_t start,
                            uintptr_t end)
{
    return touched(log, since, start, end, true);
}

bool regx_inval_log_shows(const regx_inval_log_t *log, uint64_t since, uintptr_t start,
                          uintptr_t end)
{
    return touched(log, since, start, end, false);
}
