/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The end of regions. Acting on the log kills those that a change touched; only here does the cache
 * learn of changes, and only this moves `applied`, after the regions that are concerned are dead.
 * Then: dead → (membarrier, one for all that died meanwhile) → ripe → without users? →
 * deregistered, with no lock held → its record may describe another region. See
 * component/design/cache.md.
 *
 * Done by whoever calls progress or registers, a bounded amount; and by a thread of the cache's own
 * while the application computes and calls nothing. The thread sleeps until a change is logged or
 * the last use of a dead region ends, and lets some milliseconds pass, in which the application may
 * do the work in passing. It takes the cache's lock and deregisters, which takes locks and may
 * allocate: so it cannot be the notifier's reader. Nobody waits for it but the cache when it is
 * closed, and it calls nobody back. It is there only where the monitor has a thread anyway and the
 * device pins what it registers.
 */
#include "registration/cache.h"

#include <assert.h>

#include "base/thread.h"
#include "base/util.h"

void regx_cache_kill_locked(regx_cache_t *cache, uint32_t number, regx_region_state_t state)
{
    regx_record_t *record = &cache->records[number];

    assert(record->state == REGX_REGION_ALIVE && state > REGX_REGION_ALIVE);
    assert(cache->room.bytes >= record->size && cache->room.count > 0);
    if (cache->fences) {
        atomic_store(&record->state, state);
    } else {
        atomic_store_explicit(&record->state, state, memory_order_release);
    }
    cache->room.bytes -= record->size;
    cache->room.count--;
    regx_region_list_push(&cache->regions, &cache->limbo.dead, number);
}

/* ---- acting on changes ---- */

typedef struct cut {
    regx_cache_t *cache;
    regx_request_t *request;
    unsigned ended; /* regions */
} cut_t;

#define AHEAD 8u /* records fetched: they are no longer in the processor's first caches */
/* Changes passed, while one region is ended. A miss and a progress pass the whole log: what is not
 * passed may be lapped, and then all ends. */
#define PASSED 8u

static void end_regions(void *context, const uint32_t *numbers, uint32_t count)
{
    cut_t *cut = context;
    regx_cache_t *cache = cut->cache;
    regx_request_t *request = cut->request;

    for (uint32_t i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            __builtin_prefetch(&cache->records[numbers[i + AHEAD]], 1);
        }
        if (request != NULL && regx_record_serves(&cache->records[numbers[i]], request->start,
                                                  request->end - request->start, request->access)) {
            request->refused = true;
        }
        regx_cache_kill_locked(cache, numbers[i], REGX_REGION_CHANGED);
    }
    cut->ended += count;
}

static void note_changed_locked(regx_cache_t *cache, const regx_record_t *record)
{
    const regx_inuse_t inuse = cache->config.inuse;

    if (cache->config.changed_in_use == NULL || inuse == REGX_INUSE_IGNORE) {
        return;
    }
    if (!cache->warning.warned || inuse == REGX_INUSE_ABORT) {
        cache->warning.warned = true;
        cache->warning.changed = (regx_cache_range_t){.start = record->start, .size = record->size};
        atomic_store(&cache->warning.to_warn, true);
    }
}

/* Until nothing that is alive overlaps the change it stays the next to be acted on, from the start:
 * what is inserted meanwhile may overlap it too. */
void regx_cache_catch_up_locked(regx_cache_t *cache, regx_request_t *request)
{
    const uint64_t head = atomic_load_explicit(&cache->log->head, memory_order_acquire);
    regx_counters_t *counters = cache->registry->counters;
    uint64_t applied = atomic_load_explicit(&cache->applied, memory_order_relaxed);
    cut_t cut = {.cache = cache, .request = request};
    size_t left = cache->applied_max;
    unsigned passed = 0;

    if (applied == head) {
        return; /* other threads read what this would write */
    }
    while (applied != head && left > 0) {
        regx_change_t change = {.start = 0, .end = UINTPTR_MAX};
        const regx_change_state_t state = regx_inval_log_read(cache->log, applied, &change);

        if (state == REGX_CHANGE_LATER) {
            break;
        }
        if (state == REGX_CHANGE_LOST) { /* it may have been anything: everything ends */
            change = (regx_change_t){.start = 0, .end = UINTPTR_MAX};
        }
        if (!regx_index_cut(&cache->index, change.start, change.end, &left, end_regions, &cut)) {
            break;
        }
        applied = state == REGX_CHANGE_LOST ? head : applied + 1;
        left -= left > 0 && ++passed % PASSED == 0;
    }
    atomic_store_explicit(&cache->applied, applied, memory_order_release);
    if (cut.ended > 0) {
        regx_cache_has_work(cache);
        atomic_fetch_add(&counters->invalidations, cut.ended); /* perhaps in the cache's thread */
    }
}

/* ---- deregistering ---- */

/* Makes ripe what is dead, and what had users of which some are gone. */
static void ripen(regx_cache_t *cache)
{
    regx_lock(&cache->lock);
    regx_region_list_t dead = cache->limbo.dead;

    cache->limbo.dead = (regx_region_list_t){0};
    regx_unlock(&cache->lock);
    const bool passed =
        dead.first == 0 || cache->limbo.closing || cache->fences || regx_membarrier();

    regx_lock(&cache->lock);
    regx_region_list_prepend(&cache->regions, passed ? &cache->limbo.ripe : &cache->limbo.dead,
                             &dead);
    if (!passed) {
        regx_cache_has_work(cache);
    }
    if (atomic_exchange_explicit(&cache->released, false, memory_order_acquire)) {
        regx_region_list_prepend(&cache->regions, &cache->limbo.ripe, &cache->limbo.busy);
    }
    regx_unlock(&cache->lock);
}

static regx_region_list_t pick_unused(regx_cache_t *cache, unsigned max)
{
    regx_region_list_t unused = {0};
    uint32_t number;

    regx_lock(&cache->lock);
    while (max-- > 0 && (number = regx_region_list_pop(&cache->regions, &cache->limbo.ripe)) != 0) {
        /* Of what is ripe all acquisitions are seen: no more were released than there were. Of what
         * is alive the sum may be anything, since others acquire and release while it is made. */
        assert(cache->limbo.closing ||
               (int32_t)regx_thread_states_uses(cache->threads.first, number) >= 0);
        const bool used = !cache->limbo.closing &&
                          (uint32_t)regx_thread_states_uses(cache->threads.first, number) != 0;

        regx_region_list_push(&cache->regions, used ? &cache->limbo.busy : &unused, number);
    }
    if (cache->limbo.ripe.first != 0) {
        regx_cache_has_work(cache);
    }
    regx_unlock(&cache->lock);
    return unused;
}

/* It changed while it was in use, and the last use has ended. */
static void note_changed(regx_cache_t *cache, const regx_record_t *record)
{
    regx_lock(&cache->lock);
    note_changed_locked(cache, record);
    regx_unlock(&cache->lock);
}

void regx_cache_warn(regx_cache_t *cache)
{
    const regx_cache_config_t *config = &cache->config;

    if (!atomic_load_explicit(&cache->warning.to_warn, memory_order_relaxed)) {
        return;
    }
    regx_lock(&cache->lock);
    const bool warns = atomic_exchange(&cache->warning.to_warn, false);
    const regx_cache_range_t changed = cache->warning.changed;
    regx_unlock(&cache->lock);
    if (warns) {
        config->changed_in_use(config->context, (const void *)changed.start, changed.size);
    }
}

/* `warns`: not in the cache's own thread, which leaves messages to others. */
static unsigned retire(regx_cache_t *cache, unsigned max, bool warns)
{
    unsigned count = 0;

    if (!atomic_exchange_explicit(&cache->work, false, memory_order_acquire)) {
        return 0;
    }
    ripen(cache);
    regx_region_list_t unused = pick_unused(cache, max);

    for (uint32_t number = unused.first; number != 0; number = cache->records[number].next) {
        regx_record_t *record = &cache->records[number];

        regx_inval_log_interest(cache->log, record->start, record->start + record->size, -1);
        regx_mr_deregister(cache->registry, &cache->holdings[number].mr);
        assert(cache->room.pinned >= record->size);
        atomic_fetch_sub(&cache->room.pinned, record->size);
        if (atomic_load_explicit(&record->used_changed, memory_order_relaxed)) {
            note_changed(cache, record);
            if (warns) {
                regx_cache_warn(cache);
            }
        }
        count++;
    }
    regx_lock(&cache->lock);
    for (uint32_t number; (number = regx_region_list_pop(&cache->regions, &unused)) != 0;) {
        regx_regions_put(&cache->regions, number);
    }
    regx_unlock(&cache->lock);
    return count;
}

unsigned regx_cache_retire(regx_cache_t *cache, unsigned max)
{
    return retire(cache, max, true);
}

/* ---- while the application computes ---- */

#define DELAY_MS 10u

static bool has_something_to_do(const regx_cache_t *cache)
{
    return atomic_load(&cache->log->head) != atomic_load(&cache->applied) ||
           atomic_load(&cache->work);
}

/* Whether something was done. */
static bool reclaim_some(regx_cache_t *cache)
{
    const uint64_t before = atomic_load(&cache->applied);

    regx_lock(&cache->lock);
    regx_cache_catch_up_locked(cache, NULL);
    regx_unlock(&cache->lock);
    return retire(cache, REGX_RETIRED_MAX, false) > 0 || atomic_load(&cache->applied) != before;
}

static void *reclaim(void *argument)
{
    regx_cache_t *cache = argument;

    while (!atomic_load(&cache->reclaimer.stop)) {
        const uint32_t wakes = atomic_load(&cache->log->wakes);

        atomic_store(&cache->log->asleep, 1);
        if (!has_something_to_do(cache) && !atomic_load(&cache->reclaimer.stop)) {
            regx_thread_wait(&cache->log->wakes, wakes, 0);
        }
        if (has_something_to_do(cache)) {
            regx_thread_wait(&cache->reclaimer.stop, 0, DELAY_MS);
        }
        while (!atomic_load(&cache->reclaimer.stop) && has_something_to_do(cache) &&
               reclaim_some(cache)) {
        }
    }
    return NULL;
}

void regx_cache_start_reclaiming(regx_cache_t *cache)
{
    cache->reclaimer.runs =
        (cache->monitor->flags & REGX_MONITOR_THREAD) != 0 &&
        cache->registry->transport->registers &&
        regx_thread_start(&cache->reclaimer.thread, "regx-reclaim", reclaim, cache) == 0;
}

void regx_cache_stop_reclaiming(regx_cache_t *cache)
{
    if (!cache->reclaimer.runs) {
        return;
    }
    atomic_store(&cache->reclaimer.stop, 1);
    regx_thread_wake(&cache->reclaimer.stop);
    /* Also other caches' threads may sleep there: they look again. */
    atomic_fetch_add(&cache->log->wakes, 1);
    regx_thread_wake(&cache->log->wakes);
    pthread_join(cache->reclaimer.thread, NULL);
    cache->reclaimer.runs = false; /* only now: the thread reads it */
}
