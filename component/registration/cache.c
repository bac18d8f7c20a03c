/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is kept: looked up, used, released; ended by changes and for room, and deregistered. Why no use
 * is stale, and why each step comes where it does, is in component/design/cache.md.
 */
#include "registration/cache.h"

#include <assert.h>
#include <limits.h>
#include <sys/mman.h>

#include "registration/once.h"

/* ---- a region ends ---- */

/* It is dead and has no users. */
static void bury_locked(regx_cache_t *cache, uint32_t number)
{
    regx_regions_push(&cache->regions, &cache->dead, number);
    atomic_store(&cache->work, true);
    if (cache->reclaimer.runs) {
        regx_inval_log_wake(cache->log);
    }
}

/* It is out of the index, or being taken out. If it has users the last one buries it. */
static void kill_locked(regx_cache_t *cache, uint32_t number, regx_region_state_t state)
{
    regx_record_t *record = &cache->regions.records[number];

    assert(record->state == REGX_REGION_ALIVE && state > REGX_REGION_ALIVE);
    assert(cache->room.bytes >= record->mr.length && cache->room.count > 0);
    record->state = state;
    cache->room.bytes -= record->mr.length;
    cache->room.count--;
    if (record->uses == 0) {
        bury_locked(cache, number);
    }
}

#define VISITS 1024u /* regions that the hand comes by, for one */

void regx_cache_give_up_locked(regx_cache_t *cache, uint32_t number)
{
    const regx_record_t *record = &cache->regions.records[number];

    regx_index_remove(&cache->index, (uintptr_t)record->mr.base, number);
    kill_locked(cache, number, REGX_REGION_GIVEN_UP);
}

/* LRU by second chance: a hand goes round the table, and the first region goes that was not hit since
 * it came by last. So a hit writes to its own record alone: to move it in a list would write to three
 * more, which other cores have in their caches. */
uint64_t regx_cache_evict_locked(regx_cache_t *cache)
{
    regx_counters_t *counters = cache->registry->counters;
    const uint32_t used = cache->regions.used;
    uint32_t chosen = 0, visits = 0;
    bool found = false;

    for (uint32_t i = 1; i < used && !found && (chosen == 0 || visits < VISITS); i++) {
        cache->hand = cache->hand + 1 < used ? cache->hand + 1 : 1;
        regx_record_t *record = &cache->regions.records[cache->hand];

        if (record->state == REGX_REGION_ALIVE && record->uses == 0) {
            found = !record->recent;
            chosen = found || chosen == 0 ? cache->hand : chosen;
            record->recent = false;
            visits++;
        }
    }
    if (chosen == 0) { /* only after a full round: all that is alive has users */
        return 0;
    }
    regx_cache_give_up_locked(cache, chosen);
    regx_count(counters, &counters->evictions, 1);
    return cache->regions.records[chosen].mr.length;
}

/* ---- acting on changes: only here does the cache learn of them, and only this moves `applied` ---- */

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
    const regx_record_t *records = cut->cache->regions.records;
    regx_request_t *request = cut->request;

    for (uint32_t i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            __builtin_prefetch(&records[numbers[i + AHEAD]], 1);
        }
        if (request != NULL && regx_record_serves(&records[numbers[i]], request->address,
                                                  request->length, request->access)) {
            request->refused = true;
        }
        kill_locked(cut->cache, numbers[i], REGX_REGION_CHANGED);
    }
    cut->ended += count;
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

    while (applied != head && left > 0) {
        regx_change_t change = {.start = 0, .end = UINTPTR_MAX}; /* if it is lost: all ends */
        const regx_change_state_t state = regx_inval_log_read(cache->log, applied, &change);

        if (state == REGX_CHANGE_LATER) {
            break;
        }
        if (!regx_index_cut(&cache->index, change.start, change.end, &left, end_regions, &cut)) {
            break;
        }
        applied = state == REGX_CHANGE_LOST ? head : applied + 1;
        left -= left > 0 && ++passed % PASSED == 0;
    }
    atomic_store_explicit(&cache->applied, applied, memory_order_release);
    if (cut.ended > 0) {
        atomic_fetch_add(&counters->invalidations, cut.ended); /* perhaps in the cache's thread */
    }
}

/* ---- looked up, used, released ---- */

/* Where requests that begin in that page are looked for. Buffers lie at regular distances, which one
 * multiplication would map to few places. */
static inline uint32_t *hints_of(regx_cache_t *cache, uintptr_t address)
{
    const uint64_t mixed = (address >> 12) * UINT64_C(0x9e3779b97f4a7c15);

    return cache
        ->hints[((mixed ^ mixed >> 32) * UINT64_C(0xbf58476d1ce4e5b9)) >> (64 - REGX_HINTS_LOG)];
}

void regx_cache_hint_locked(regx_cache_t *cache, uintptr_t address, uint32_t number)
{
    uint32_t *hints = hints_of(cache, address);

    hints[1] = hints[0];
    hints[0] = number;
}

/* By the hints, else by the index. */
static inline uint32_t find_locked(regx_cache_t *cache, regx_request_t *request)
{
    uint32_t *hints = hints_of(cache, request->address);

    for (unsigned i = 0; i < 2; i++) {
        const regx_record_t *record = &cache->regions.records[hints[i]];

        if (record->state == REGX_REGION_NONE ||
            !regx_record_serves(record, request->address, request->length, request->access)) {
            continue;
        }
        if (record->state == REGX_REGION_ALIVE) {
            return hints[i];
        }
        request->refused |= record->state == REGX_REGION_CHANGED;
        hints[i] = 0;
    }
    const uint32_t number = regx_index_cover(&cache->index, request->address,
                                             request->address + request->length, request->access);

    if (number != 0) {
        regx_cache_hint_locked(cache, request->address, number);
    }
    return number;
}

void regx_cache_use_locked(regx_cache_t *cache, uint32_t number, uintptr_t address, size_t length,
                           regx_region_t *region)
{
    regx_record_t *record = &cache->regions.records[number];

    record->uses++;
    region->mr = &record->mr;
    region->kept = number;
    region->start = address;
    region->length = length;
    region->since = atomic_load_explicit(&cache->applied, memory_order_relaxed);
}

/* Query, sequence and head are read in this order, and before it is looked for a region: a change that
 * was over before is then in the log below `head`, or not `settled`. */
bool regx_cache_look_up(regx_cache_t *cache, regx_request_t *request, regx_region_t *region)
{
    const regx_inval_log_t *log = cache->log;
    const bool settled = regx_monitor_is_settled(cache->monitor);
    const uint64_t head = atomic_load_explicit(&log->head, memory_order_acquire);

    regx_spin_lock(&cache->lock);
    if (__builtin_expect(atomic_load_explicit(&cache->applied, memory_order_relaxed) < head,
                         false)) {
        regx_cache_catch_up_locked(cache, request);
    }
    const uint64_t applied = atomic_load_explicit(&cache->applied, memory_order_relaxed);
    const uint32_t number = find_locked(cache, request);
    const regx_mr_t *mr = &cache->regions.records[number].mr;
    /* Not all that changed need have ended yet. */
    const bool found =
        number != 0 && settled &&
        (applied >= head || !regx_inval_log_touched(log, applied, (uintptr_t)mr->base,
                                                    (uintptr_t)mr->base + mr->length, true));

    if (__builtin_expect(found, true)) {
        regx_cache_use_locked(cache, number, request->address, request->length, region);
        cache->regions.records[number].recent = true;
        cache->hits++;
    }
    regx_spin_unlock(&cache->lock);
    request->exists = number != 0 && !found;
    request->refused |= request->exists;
    request->busy = number != 0 && !settled;
    return found;
}

bool regx_cache_has(regx_cache_t *cache, const regx_request_t *request)
{
    regx_request_t asked = *request;

    if (regx_cache_in_child(cache) || atomic_load(&cache->log->sequence) % 2 != 0) {
        return false;
    }
    regx_spin_lock(&cache->lock);
    const bool has = atomic_load(&cache->log->head) == atomic_load(&cache->applied) &&
                     find_locked(cache, &asked) != 0;
    regx_spin_unlock(&cache->lock);
    return has;
}

/* Counts it if what changed was in use, which is not over yet; the first is to be reported. The region
 * may serve this use with a part, and have changed elsewhere, or have ended because the log was lapped,
 * which is not an error. */
static __attribute__((noinline)) void
note_changed_locked(regx_cache_t *cache, regx_record_t *record, const regx_region_t *region)
{
    regx_counters_t *counters = cache->registry->counters;

    if (record->used_changed || !regx_inval_log_touched(cache->log, region->since, region->start,
                                                        region->start + region->length, false)) {
        return;
    }
    record->used_changed = true;
    regx_count(counters, &counters->inuse_changes, 1);
    if (cache->config.changed_in_use != NULL && !cache->warning.warned) {
        cache->warning.warned = true;
        cache->warning.start = (uintptr_t)record->mr.base;
        cache->warning.size = record->mr.length;
        atomic_store(&cache->warning.to_warn, true);
    }
}

void regx_cache_release(regx_cache_t *cache, const regx_region_t *region)
{
    if (regx_cache_in_child(cache)) {
        return;
    }
    regx_spin_lock(&cache->lock);
    regx_record_t *record = &cache->regions.records[region->kept];

    assert(record->uses > 0);
    if (__builtin_expect(record->state == REGX_REGION_CHANGED, false)) {
        note_changed_locked(cache, record, region);
    }
    if (--record->uses == 0 && record->state != REGX_REGION_ALIVE) {
        bury_locked(cache, region->kept);
    }
    regx_spin_unlock(&cache->lock);
}

/* ---- deregistered ---- */

static void deregister(regx_cache_t *cache, regx_mr_t *mr)
{
    const uintptr_t start = (uintptr_t)mr->base, end = start + mr->length;

    regx_mr_deregister(cache->registry, mr);
    regx_monitor_unsubscribe(cache->monitor, start, end);
    regx_inval_log_interest(cache->log, start, end, -1);
}

unsigned regx_cache_retire(regx_cache_t *cache, unsigned max)
{
    regx_regions_t *regions = &cache->regions;
    uint32_t number = 0;
    unsigned count = 0;

    if (!atomic_load(&cache->work)) {
        return 0;
    }
    regx_spin_lock(&cache->lock);
    while (count < max && (number = regx_regions_pop(regions, &cache->dead)) != 0) {
        regx_record_t *record = &regions->records[number];
        const size_t size = record->mr.length;

        record->state = REGX_REGION_NONE; /* no look-up reads the rest any more */
        regx_spin_unlock(&cache->lock);
        deregister(cache, &record->mr);
        regx_spin_lock(&cache->lock);
        assert(cache->room.pinned >= size);
        cache->room.pinned -= size;
        regx_regions_put(regions, number);
        count++;
    }
    atomic_store(&cache->work, cache->dead != 0);
    regx_spin_unlock(&cache->lock);
    return count;
}

void regx_cache_warn(regx_cache_t *cache)
{
    const regx_cache_config_t *config = &cache->config;

    if (atomic_load_explicit(&cache->warning.to_warn, memory_order_relaxed) &&
        atomic_exchange(&cache->warning.to_warn, false)) {
        config->changed_in_use(config->context, (const void *)cache->warning.start,
                               cache->warning.size);
    }
}

void regx_cache_progress(regx_cache_t *cache)
{
    regx_monitor_poll(cache->monitor);
    if ((atomic_load_explicit(&cache->log->head, memory_order_relaxed) ==
             atomic_load_explicit(&cache->applied, memory_order_relaxed) &&
         !atomic_load_explicit(&cache->work, memory_order_relaxed) &&
         !atomic_load_explicit(&cache->warning.to_warn, memory_order_relaxed)) ||
        regx_cache_in_child(cache)) {
        return;
    }
    regx_cache_warn(cache);
    regx_spin_lock(&cache->lock);
    regx_cache_catch_up_locked(cache, NULL);
    regx_spin_unlock(&cache->lock);
    regx_cache_retire(cache, REGX_RETIRED_MAX);
}

void regx_cache_count(regx_cache_t *cache)
{
    regx_counters_t *counters = cache->registry->counters;

    if (regx_cache_in_child(cache)) {
        return;
    }
    regx_spin_lock(&cache->lock);
    const uint64_t more = cache->hits;

    cache->hits = 0;
    regx_spin_unlock(&cache->lock);
    regx_count(counters, &counters->hits, more);
}

/* ---- while the application computes ----
 * A thread of the cache's own acts on changes and deregisters. It sleeps until a change is logged or the
 * last use of a dead region ends, and lets some milliseconds pass, in which the application may do the
 * work in passing. It takes the cache's lock and deregisters, which takes locks and may allocate: so it
 * cannot be the notifier's reader. Only the closing cache waits for it, and it makes no callbacks. It is
 * there only where the monitor has a thread anyway and the device pins what it registers. */

#define DELAY_MS 10u

static bool has_something_to_do(const regx_cache_t *cache)
{
    return atomic_load(&cache->log->head) != atomic_load(&cache->applied) ||
           atomic_load(&cache->work);
}

static void *reclaim(void *argument)
{
    regx_cache_t *cache = argument;

    while (!atomic_load(&cache->reclaimer.stop)) {
        const uint32_t wakes = atomic_load(&cache->log->wakes);
        bool progresses = true;

        atomic_store(&cache->log->asleep, 1);
        if (!has_something_to_do(cache) && !atomic_load(&cache->reclaimer.stop)) {
            regx_thread_wait(&cache->log->wakes, wakes, 0);
        }
        if (has_something_to_do(cache)) {
            regx_thread_wait(&cache->reclaimer.stop, 0, DELAY_MS);
        }
        while (progresses && !atomic_load(&cache->reclaimer.stop) && has_something_to_do(cache)) {
            const uint64_t before = atomic_load(&cache->applied);

            regx_spin_lock(&cache->lock);
            regx_cache_catch_up_locked(cache, NULL);
            regx_spin_unlock(&cache->lock);
            progresses = regx_cache_retire(cache, REGX_RETIRED_MAX) > 0 ||
                         atomic_load(&cache->applied) != before;
        }
    }
    return NULL;
}

static void start_reclaiming(regx_cache_t *cache)
{
    cache->reclaimer.runs =
        cache->monitor->has_thread && cache->registry->transport->registers &&
        regx_thread_start(&cache->reclaimer.thread, "regx-reclaim", reclaim, cache) == 0;
}

static void stop_reclaiming(regx_cache_t *cache)
{
    if (!cache->reclaimer.runs) {
        return;
    }
    atomic_store(&cache->reclaimer.stop, 1);
    regx_thread_wake(&cache->reclaimer.stop);
    regx_inval_log_wake(cache->log);
    pthread_join(cache->reclaimer.thread, NULL);
    cache->reclaimer.runs = false; /* only now: the thread reads it */
}

/* ---- opened, closed ---- */

regx_cache_t *regx_cache_open(regx_registry_t *registry, const regx_cache_config_t *config)
{
    const uint64_t device = registry->transport->mr_count;
    const uint64_t most = device != 0 ? regx_min(device, REGX_REGIONS_MAX) : REGX_REGIONS_MAX;
    /* Zeros; most of it, the hints, is touched when it is used. */
    regx_cache_t *cache = mmap(NULL, sizeof(*cache), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (cache == MAP_FAILED) {
        return NULL;
    }
    cache->registry = registry;
    cache->monitor = registry->monitor;
    cache->log = cache->monitor->log;
    cache->applied = cache->log->head;
    cache->config = *config;
    cache->config.count = regx_min(config->count, most);
    cache->applied_max = REGX_APPLIED_MAX;
    cache->room.pinned_max =
        config->bytes + regx_min(config->bytes / 4, REGX_UNLIMITED - config->bytes);
    cache->mark = regx_process_mark();
    if (!regx_regions_init(&cache->regions, cache->config.count) || cache->mark == NULL) {
        regx_regions_fini(&cache->regions);
        regx_process_unmark(cache->mark);
        munmap(cache, sizeof(*cache));
        return NULL;
    }
    start_reclaiming(cache);
    return cache;
}

void regx_cache_close(regx_cache_t *cache)
{
    if (regx_cache_in_child(cache)) {
        return;
    }
    stop_reclaiming(cache);
    regx_cache_count(cache);
    for (uint32_t number = 1; number < cache->regions.used; number++) {
        if (cache->regions.records[number].state != REGX_REGION_NONE) {
            deregister(cache, &cache->regions.records[number].mr);
        }
    }
    regx_cache_warn(cache); /* what the cache's thread noted since the last call */
    regx_regions_fini(&cache->regions);
    regx_index_fini(&cache->index);
    regx_process_unmark(cache->mark);
    munmap(cache, sizeof(*cache));
}
