/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is registered, and what of it has changed since. The notifier reports changes of private
 * memory. Of memory that it cannot watch only the witness tells, which is then compared at each use.
 *
 * Never accused are: a range that changed before it was registered (since), a part of it that has not
 * changed, a use beside a change that is still under way in another thread.
 */
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/thread.h"
#include "check/check.h"
#include "registration/monitor/monitor.h"

enum { RANGES = 1 << 14, HEADS = 1 << 12, PATIENCE_NS = 100000000 };

typedef struct entry {
    regx_check_range_t range;
    struct entry *next; /* of its head, or free */
} entry_t;

/* Under the lock. Nothing is allocated under it but by the first registration, which starts the
 * monitor and the witness. Faults are told after it was given up. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry_t entries[RANGES];
static entry_t *heads[HEADS], *unused;
static uint32_t touched; /* entries that were ever used */
static regx_monitor_t *monitor;
static enum { NOT_STARTED, STARTED } monitoring;
static regx_counters_t counters; /* of the monitor */
static uint64_t cursor;          /* changes that were looked at */
static unsigned untold;          /* ranges that peers may use, changed and not told */
static unsigned witnesses;

static entry_t **head_of(const struct ibv_context *context, uint32_t lkey)
{
    const uint64_t hash = ((uintptr_t)context ^ lkey) * UINT64_C(0x9e3779b97f4a7c15);

    return &heads[hash >> 52];
}

static entry_t **find(const struct ibv_context *context, uint32_t lkey)
{
    entry_t **at = head_of(context, lkey);

    while (*at != NULL && ((*at)->range.context != context || (*at)->range.lkey != lkey)) {
        at = &(*at)->next;
    }
    return at;
}

/* ---- changes ---- */

/* What changed of a range, as a change of its own if there is room. */
static void mark(regx_check_range_t *range, const regx_change_t *seen, bool sure)
{
    regx_check_change_t change = {.start = regx_max(seen->start, range->base),
                                  .end = regx_min(seen->end, range->base + range->length),
                                  .sure = sure};

    if (change.start >= change.end) {
        return;
    }
    for (int i = 0; i < range->change_count; i++) {
        if (range->changes[i].start <= change.start && change.end <= range->changes[i].end &&
            (range->changes[i].sure || !sure)) {
            return; /* it is stale already */
        }
    }
    if (sure) {
        regx_check_changer_find(&change);
    }
    if (range->change_count < REGX_CHECK_CHANGES) {
        range->changes[range->change_count++] = change;
    } else {
        regx_check_change_t *last = &range->changes[REGX_CHECK_CHANGES - 1];

        last->start = regx_min(last->start, change.start);
        last->end = regx_max(last->end, change.end);
        last->sure = false;
    }
}

/* The change of that number, or, if it is not known any more, all that it may have been. */
static bool read_change(uint64_t number, regx_change_t *change, bool *sure)
{
    const regx_change_state_t state = regx_inval_log_read(monitor->log, number, change);

    *sure = state == REGX_CHANGE_READ;
    if (state == REGX_CHANGE_LOST) {
        *change = (regx_change_t){.start = 0, .end = UINTPTR_MAX};
    }
    return state != REGX_CHANGE_LATER;
}

static void mark_from(regx_check_range_t *range, uint64_t number, uint64_t until)
{
    regx_change_t change;
    bool sure;

    for (; number < until && read_change(number, &change, &sure); number++) {
        mark(range, &change, sure);
    }
}

static void mark_all(const regx_change_t *change, bool sure)
{
    for (uint32_t i = 0; i < touched; i++) {
        regx_check_range_t *range = &entries[i].range;

        if (range->context != NULL && range->watched) {
            const int before = range->change_count;

            mark(range, change, sure);
            untold += sure && before < range->change_count &&
                      (range->access & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                                        IBV_ACCESS_REMOTE_ATOMIC)) != 0;
        }
    }
}

/* Waits until what has ended before the call is in the log, and acts on it. false: it waited too long. */
static bool catch_up(void)
{
    const int64_t until = regx_now_ns() + PATIENCE_NS;

    while (atomic_load(&monitor->log->sequence) % 2 == 1) {
        if (regx_now_ns() > until) {
            return false;
        }
        sched_yield();
    }
    for (const uint64_t head = atomic_load(&monitor->log->head); cursor < head; cursor++) {
        regx_change_t change;
        bool sure;

        if (!read_change(cursor, &change, &sure)) {
            break;
        }
        mark_all(&change, sure);
        if (!sure) {
            cursor = regx_max(cursor, head - regx_min(head, REGX_INVAL_LOG_RING));
        }
    }
    return true;
}

static bool has_news(void)
{
    return atomic_load(&monitor->log->sequence) % 2 == 1 ||
           atomic_load(&monitor->log->head) != cursor;
}

/* ---- registrations ---- */

static void start_monitor(void)
{
    const regx_monitor_config_t config = {.counters = &counters};
    regx_error_t why;

    monitoring = STARTED;
    regx_check_changer_start();
    if (regx_backend_notifier.start(&config, &monitor, why) != REGX_OK) {
        monitor = NULL;
        regx_check_say("changes of memory are not reported, so bytes alone are compared: %s", why);
    }
}

/* Where memory that was not watched is found, the notifier logs that it may have changed meanwhile. What
 * else is registered there is not accused for that. */
static void watch(regx_check_range_t *range, uintptr_t start, uintptr_t end)
{
    regx_change_t change;
    bool sure;

    regx_inval_log_interest(monitor->log, start, end, 1);
    range->watched = regx_monitor_subscribe(monitor, start, end, &range->since) == REGX_OK;
    if (!range->watched) {
        regx_inval_log_interest(monitor->log, start, end, -1);
        range->since = atomic_load(&monitor->log->head);
    }
    for (; cursor < range->since && read_change(cursor, &change, &sure); cursor++) {
        mark_all(&change, false);
    }
}

/* Whole pages. */
static uintptr_t first_page(const regx_check_range_t *range)
{
    return range->base & ~(uintptr_t)(regx_page_size() - 1);
}

static uintptr_t end_page(const regx_check_range_t *range)
{
    return regx_align_up(range->base + range->length, regx_page_size());
}

void regx_check_range_begin(regx_check_range_t *range, const struct ibv_context *context,
                            const void *base, size_t length, uint64_t iova, int access)
{
    *range = (regx_check_range_t){.context = context,
                                  .access = access,
                                  .base = (uintptr_t)base,
                                  .length = length,
                                  .iova = iova,
                                  .since_ns = regx_check_elapsed_ns(),
                                  .slot = -1};
    pthread_mutex_lock(&lock);
    if (monitoring == NOT_STARTED) {
        start_monitor();
    }
    const uintptr_t start = first_page(range), end = end_page(range);
    /* What was changed before must be in the log by now, or it would look as if it came after. */
    if (monitor != NULL && catch_up()) {
        watch(range, start, end);
    }
    range->slot = regx_check_witness_pin(start, end);
    witnesses += range->slot >= 0;
    pthread_mutex_unlock(&lock);
}

static bool insert(const regx_check_range_t *range)
{
    entry_t *entry = unused;

    if (entry != NULL) {
        unused = entry->next;
    } else if (touched < RANGES) {
        entry = &entries[touched++];
    } else {
        return false;
    }
    entry_t **head = head_of(range->context, range->lkey);

    entry->range = *range;
    entry->next = *head;
    *head = entry;
    return true;
}

void regx_check_range_add(regx_check_range_t *range, uint32_t lkey)
{
    range->lkey = lkey;
    pthread_mutex_lock(&lock);
    if (range->watched) {
        mark_from(range, range->since, cursor);
    }
    const bool inserted = insert(range);
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&regx_check_sum->unwatched, !range->watched);
    atomic_fetch_add(&regx_check_sum->unwitnessed, range->slot < 0);
    atomic_fetch_add(&regx_check_sum->blind, !inserted || (!range->watched && range->slot < 0));
    if (!inserted) {
        regx_check_range_end(range);
    }
}

void regx_check_range_end(regx_check_range_t *range)
{
    const uintptr_t start = first_page(range), end = end_page(range);

    pthread_mutex_lock(&lock);
    if (range->slot >= 0) {
        regx_check_witness_unpin(range->slot);
        witnesses--;
    }
    if (range->watched) {
        regx_monitor_unsubscribe(monitor, start, end);
        regx_inval_log_interest(monitor->log, start, end, -1);
    }
    pthread_mutex_unlock(&lock);
}

bool regx_check_range_remove(const struct ibv_context *context, uint32_t lkey,
                             regx_check_range_t *range)
{
    pthread_mutex_lock(&lock);
    entry_t **at = find(context, lkey), *entry = *at;

    if (entry != NULL) {
        *range = entry->range;
        *at = entry->next;
        entry->range.context = NULL;
        entry->next = unused;
        unused = entry;
    }
    pthread_mutex_unlock(&lock);
    return entry != NULL;
}

bool regx_check_witnesses_drop(void)
{
    pthread_mutex_lock(&lock);
    const bool had = witnesses != 0;

    witnesses = 0;
    regx_check_witness_close();
    for (uint32_t i = 0; i < touched; i++) {
        entries[i].range.slot = -1;
    }
    pthread_mutex_unlock(&lock);
    return had;
}

/* ---- uses ---- */

/* The change that touches these addresses; the sure one of several. */
static const regx_check_change_t *change_of(const regx_check_range_t *range, uintptr_t start,
                                            size_t length)
{
    const regx_check_change_t *found = NULL;

    for (int i = 0; i < range->change_count; i++) {
        const regx_check_change_t *change = &range->changes[i];

        if (change->start < start + length && start < change->end &&
            (found == NULL || (change->sure && !found->sure))) {
            found = change;
        }
    }
    return found;
}

/* A range that peers may use and that has changed, which was not yet told; it was registered at the use
 * before as well. */
static bool take_untold(regx_check_range_t *range)
{
    for (uint32_t i = 0; i < touched && untold != 0; i++) {
        regx_check_range_t *other = &entries[i].range;

        if (other->context != NULL && other->change_count > 0 && other->changes[0].sure &&
            !other->told &&
            (other->access &
             (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0) {
            other->told = true;
            *range = *other;
            return true;
        }
    }
    untold = 0;
    return false;
}

static void tell_untold(void)
{
    static const regx_check_stack_t none;
    regx_check_range_t range;

    while (true) {
        pthread_mutex_lock(&lock);
        const bool taken = untold != 0 && take_untold(&range);
        pthread_mutex_unlock(&lock);
        if (!taken) {
            return;
        }
        const regx_check_change_t *change = &range.changes[0];
        regx_check_fault(REGX_CHECK_REMOTE, &range, change, change->start,
                         change->end - change->start, "peers, perhaps", &none);
    }
}

/* Whether that is stale, as far as is known. *change: by which change; NULL: it was not seen. */
static bool judge(const regx_check_range_t *range, uintptr_t start, size_t length, bool completed,
                  const regx_check_change_t **change, regx_check_verdict_t *verdict)
{
    *change = change_of(range, start, length);
    if (*change == NULL && range->watched) {
        return false;
    }
    const regx_check_bytes_t bytes = regx_check_witness_compare(range->slot, start, length);

    atomic_fetch_add_explicit(&regx_check_sum->compared, range->slot >= 0, memory_order_relaxed);
    *verdict = bytes == REGX_BYTES_DIFFER ? REGX_CHECK_DIFFERENT
               : bytes == REGX_BYTES_SAME ? REGX_CHECK_SAME
                                          : REGX_CHECK_UNCOMPARED;
    /* What completes was judged when it was posted: only the bytes are news. */
    return *verdict == REGX_CHECK_DIFFERENT || (*change != NULL && (*change)->sure && !completed);
}

void regx_check_use(const struct ibv_context *context, uint32_t lkey, uint64_t address,
                    uint64_t length, const char *use, bool completed)
{
    regx_check_verdict_t verdict = REGX_CHECK_SAME;
    const regx_check_change_t *change = NULL;
    regx_check_range_t range;
    bool stale = false;

    pthread_mutex_lock(&lock);
    const bool tells = untold != 0; /* before this use */
    if (monitor != NULL && has_news()) {
        (void)catch_up();
    }
    const entry_t *entry = *find(context, lkey);
    if (entry != NULL && length != 0 &&
        regx_within(address - entry->range.iova, length, entry->range.length)) {
        const uintptr_t start = entry->range.base + (uintptr_t)(address - entry->range.iova);

        stale = judge(&entry->range, start, length, completed, &change, &verdict);
        if (stale) {
            range = entry->range;
            address = start;
            change = change == NULL ? NULL : &range.changes[change - entry->range.changes];
        }
    }
    pthread_mutex_unlock(&lock);
    if (stale) {
        regx_check_stack_t stack;

        regx_check_stack_take(&stack, NULL);
        regx_check_fault(verdict, &range, change, address, length, use, &stack);
    }
    if (tells) {
        tell_untold();
    }
}
