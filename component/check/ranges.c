/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is registered, and what of it has changed since. The notifier reports changes of private
 * memory. Of memory that it cannot watch only the witness tells, which is then compared at each use.
 *
 * Never accused are: a range that changed before it was registered, a part of it that has not changed, a
 * use beside a change that is still under way in another thread.
 */
#include <sched.h>
#include <string.h>
#include <sys/uio.h>

#include "check/check.h"
#include "registration/monitor/uffd.h"

enum {
    RANGES = 1 << 14,
    HEADS = 1 << 12,
    PATIENCE_NS = 100000000,
    PIECES = 4,
    MESSAGE = 4096, /* bytes of a message that are looked at */
    REMOTE = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC
};

typedef struct entry {
    regx_check_range_t range;
    struct entry *next; /* of its head, or free */
} entry_t;

/* Under the lock. Nothing is allocated under it: a thread that deregisters may be inside free(). Faults are
 * told after it was given up. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry_t entries[RANGES];
static entry_t *heads[HEADS], *unused;
static uint32_t touched; /* entries that were ever used */
static regx_monitor_t *_Atomic monitor;
static regx_counters_t counters; /* of the monitor */
static _Atomic uint64_t cursor;  /* changes that were looked at */
static uint64_t uses;
static _Atomic uint32_t
    open_count; /* ranges that peers may use, and that have changed, or may have */

static entry_t **find(const struct ibv_context *context, uint32_t lkey)
{
    const uint64_t hash = ((uintptr_t)context ^ lkey) * UINT64_C(0x9e3779b97f4a7c15);
    entry_t **at = &heads[hash >> 52];

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
    if (range->change_count == 0) {
        range->changed_at = uses;
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

static bool is_open(const regx_check_range_t *range)
{
    return (range->change_count > 0 || range->watch.monitor == NULL) &&
           (range->access & REMOTE) != 0;
}

/* Acts on what is in the log, up to that number. certain: it may be what somebody did. */
static void act(uint64_t until, bool certain)
{
    regx_change_t change;
    bool sure;

    for (; cursor < until && read_change(cursor, &change, &sure); cursor++) {
        for (uint32_t i = 0; i < touched; i++) {
            if (entries[i].range.context != NULL && entries[i].range.watch.monitor != NULL) {
                open_count -= is_open(&entries[i].range);
                mark(&entries[i].range, &change, certain && sure);
                open_count += is_open(&entries[i].range);
            }
        }
        if (!sure) {
            cursor = regx_max(cursor, until - regx_min(until, REGX_INVAL_LOG_RING));
        }
    }
}

/* The program has closed the notifier's descriptor. */
static void lose_monitor(void)
{
    regx_check_say("changes of memory are not reported any more, so bytes alone are compared: the "
                   "program closed the notifier's descriptor");
    open_count = 0;
    for (uint32_t i = 0; i < touched; i++) {
        entries[i].range.watch.monitor = NULL;
        open_count += entries[i].range.context != NULL && is_open(&entries[i].range);
    }
    monitor = NULL;
}

/* Waits until what has ended before the call is in the log, and acts on it. false: it waited too long, or
 * there is no monitor. */
static bool catch_up(void)
{
    const int64_t until = monitor != NULL ? regx_now_ns() + PATIENCE_NS : 0;

    while (monitor != NULL && atomic_load(&monitor->log->sequence) % 2 == 1) {
        if (!regx_file_is_ours(&monitor->query->file)) {
            lose_monitor();
        } else if (regx_now_ns() > until) {
            return false;
        }
        sched_yield();
    }
    if (monitor != NULL) {
        act(atomic_load(&monitor->log->head), true);
    }
    return monitor != NULL;
}

/* Also without the lock. */
static bool has_news(void)
{
    const regx_monitor_t *now = monitor;

    return now != NULL &&
           (atomic_load(&now->log->sequence) % 2 == 1 || atomic_load(&now->log->head) != cursor);
}

/* ---- registrations ---- */

static void start_monitor(void)
{
    const regx_monitor_config_t config = {.counters = &counters};
    regx_monitor_t *new = NULL;
    regx_error_t why;

    regx_check_changer_start();
    if (regx_backend_notifier.start(&config, &new, why) == REGX_OK) {
        monitor = new;
    } else {
        regx_check_say("changes of memory are not reported, so bytes alone are compared: %s", why);
    }
}

void regx_check_range_begin(regx_check_range_t *range, const struct ibv_context *context,
                            const void *base, size_t length, uint64_t iova, int access)
{
    *range = (regx_check_range_t){.context = context,
                                  .access = access,
                                  .base = (uintptr_t)base,
                                  .length = length,
                                  .iova = iova,
                                  .since_ns = regx_now_ns()};
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    regx_check_stack_take(&range->stack, NULL);
    pthread_once(&once, start_monitor);
    pthread_mutex_lock(&lock);
    /* What was changed before must be in the log by now, or it would look as if it came after. */
    const bool current = catch_up();
    if (regx_watch_begin(&range->watch, current ? monitor : NULL, base, length)) {
        /* Where memory that was not watched is found, the notifier logs that it may have changed
         * meanwhile. What else is registered there is not accused for that. */
        act(range->watch.next, false);
    }
    range->slot = regx_check_witness_pin(range->watch.start, range->watch.end);
    pthread_mutex_unlock(&lock);
}

bool regx_check_range_add(regx_check_range_t *range, uint32_t lkey, uint32_t rkey)
{
    regx_change_t change;
    bool sure;

    range->lkey = lkey;
    range->rkey = rkey;
    pthread_mutex_lock(&lock);
    for (uint64_t number = range->watch.next;
         range->watch.monitor != NULL && number < cursor && read_change(number, &change, &sure);
         number++) {
        mark(range, &change, sure);
    }
    entry_t *entry = unused;
    if (entry != NULL) {
        unused = entry->next;
    } else if (touched < RANGES) {
        entry = &entries[touched++];
    }
    if (entry != NULL) {
        entry_t **at = find(range->context, lkey);

        *entry = (entry_t){.range = *range, .next = *at};
        *at = entry;
        open_count += is_open(range);
    }
    pthread_mutex_unlock(&lock);
    if (entry == NULL) {
        regx_check_range_end(range);
    }
    return entry != NULL;
}

/* Peers may have used what changed: it was registered still when something was used after that use by
 * which the change was noticed. */
static void judge_peers(const regx_check_range_t *range, uint64_t now)
{
    const regx_check_change_t *change = &range->changes[0];

    if (range->change_count > 0 && change->sure && (range->access & REMOTE) != 0 &&
        now > range->changed_at + 1) {
        regx_check_fault(REGX_CHECK_REMOTE, range, change, change->start,
                         change->end - change->start, "peers, perhaps", NULL);
    }
}

void regx_check_range_end(regx_check_range_t *range)
{
    pthread_mutex_lock(&lock);
    const uint64_t now = uses;
    regx_check_witness_unpin(range->slot);
    regx_watch_end(&range->watch);
    pthread_mutex_unlock(&lock);
    judge_peers(range, now);
}

bool regx_check_range_remove(const struct ibv_context *context, uint32_t lkey,
                             regx_check_range_t *range)
{
    pthread_mutex_lock(&lock);
    entry_t **at = find(context, lkey), *entry = *at;

    if (entry != NULL) {
        *range = entry->range;
        range->watch.next = cursor;
        open_count -= is_open(range);
        *at = entry->next;
        entry->range.context = NULL;
        entry->next = unused;
        unused = entry;
    }
    pthread_mutex_unlock(&lock);
    return entry != NULL;
}

void regx_check_ranges_judge(void)
{
    for (uint32_t i = 0; i < RANGES; i++) {
        pthread_mutex_lock(&lock);
        const regx_check_range_t range = entries[i].range;
        const uint64_t now = uses, end = touched;
        pthread_mutex_unlock(&lock);
        if (i >= end) {
            return;
        }
        if (range.context != NULL) {
            judge_peers(&range, now);
        }
    }
}

bool regx_check_witnesses_drop(void)
{
    pthread_mutex_lock(&lock);
    const bool had = regx_check_witness_close();

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

/* Whether that is stale, as far as is known. change: by which; NULL: by one that was not seen. */
static bool judge(const regx_check_range_t *range, const regx_check_change_t *change,
                  uintptr_t start, size_t length, bool completed, regx_check_verdict_t *verdict)
{
    if (change == NULL && range->watch.monitor != NULL) {
        return false;
    }
    *verdict = regx_check_witness_compare(range->slot, start, length);
    /* What completes was judged when it was posted: only the bytes are news. */
    return *verdict == REGX_CHECK_DIFFERENT || (change != NULL && change->sure && !completed);
}

/* What is to be told once the lock was given up. */
typedef struct found {
    bool stale;
    regx_check_verdict_t verdict;
    regx_check_range_t range;
    const regx_check_change_t *change; /* of the range's; NULL: it was not seen */
    uintptr_t start;
    size_t length;
} found_t;

static void look(found_t *found, const regx_check_range_t *range, uintptr_t start, size_t length,
                 bool completed)
{
    const regx_check_change_t *change = change_of(range, start, length);

    if (judge(range, change, start, length, completed, &found->verdict)) {
        found->stale = true;
        found->range = *range;
        found->change = change != NULL ? &found->range.changes[change - range->changes] : NULL;
        found->start = start;
        found->length = length;
    }
}

static void tell(const found_t *found, const char *use)
{
    regx_check_stack_t stack;

    if (found->stale) {
        regx_check_stack_take(&stack, NULL);
        regx_check_fault(found->verdict, &found->range, found->change, found->start, found->length,
                         use, &stack);
    }
}

void regx_check_use(const struct ibv_context *context, const struct ibv_sge *piece, const char *use,
                    bool completed)
{
    found_t found = {.stale = false};

    pthread_mutex_lock(&lock);
    if (has_news()) {
        (void)catch_up();
    }
    const entry_t *entry = *find(context, piece->lkey);
    if (entry != NULL && piece->length != 0 &&
        regx_within(piece->addr - entry->range.iova, piece->length, entry->range.length)) {
        look(&found, &entry->range,
             entry->range.base + (uintptr_t)(piece->addr - entry->range.iova), piece->length,
             completed);
    }
    uses++;
    pthread_mutex_unlock(&lock);
    tell(&found, use);
}

/* The first address in the message that is the range's, and of what changed, if changes of it are reported. 0:
 * none, or the range's key is not in it. */
static uintptr_t offer_in(const unsigned char *bytes, size_t length,
                          const regx_check_range_t *range)
{
    uint64_t address;

    if (memmem(bytes, length, &range->rkey, sizeof(range->rkey)) == NULL) {
        return 0;
    }
    for (size_t at = 0; at + sizeof(address) <= length; at++) {
        memcpy(&address, bytes + at, sizeof(address));
        const uintptr_t start = range->base + (uintptr_t)(address - range->iova);

        if (regx_within(address - range->iova, 1, range->length) &&
            (range->watch.monitor == NULL || change_of(range, start, 1) != NULL)) {
            return start;
        }
    }
    return 0;
}

void regx_check_message(const struct ibv_context *context, const struct ibv_sge *list, size_t count)
{
    unsigned char bytes[MESSAGE];
    struct iovec from[PIECES];
    const struct iovec to = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    found_t found = {.stale = false};

    if (count == 0 || (open_count == 0 && !has_news())) {
        return;
    }
    for (size_t i = 0; i < count && i < PIECES; i++) {
        from[i] =
            (struct iovec){.iov_base = (void *)(uintptr_t)list[i].addr, .iov_len = list[i].length};
    }
    /* By the kernel: what is posted may not be there. */
    const ssize_t length = process_vm_readv(getpid(), &to, 1, from, regx_min(count, PIECES), 0);

    pthread_mutex_lock(&lock);
    (void)catch_up();
    for (uint32_t i = 0; i < touched && length > 0 && !found.stale; i++) {
        const regx_check_range_t *range = &entries[i].range;
        const uintptr_t start = range->context == context && is_open(range)
                                    ? offer_in(bytes, (size_t)length, range)
                                    : 0;
        if (start != 0) {
            const uintptr_t end = regx_align_up(start + 1, regx_page_size());

            look(&found, range, start, regx_min(end, range->base + range->length) - start, false);
        }
    }
    pthread_mutex_unlock(&lock);
    tell(&found, "an offer to a peer");
}
