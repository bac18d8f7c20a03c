/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The end of regions. Acting on the log kills those that a change touched; only here does the cache
 * learn of changes, and only this moves `drained`, after the regions that are concerned are dead.
 * Then: dead → (membarrier, one for all that died meanwhile) → ripe → without users? →
 * deregistered, with no lock held → its record may describe another region. See cache.c.
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
#include <string.h>

#include "base/util.h"
#include "registration/thread.h"

void regx_cache_kill_locked(regx_cache_t *cache, uint32_t number, regx_region_state_t state)
{
    regx_record_t *record = &cache->records[number];

    assert(record->state == REGX_REGION_ALIVE && state > REGX_REGION_ALIVE);
    assert(cache->bytes >= record->size && cache->count > 0);
    if (cache->fences) {
        atomic_store(&record->state, state);
    } else {
        atomic_store_explicit(&record->state, state, memory_order_release);
    }
    cache->bytes -= record->size;
    cache->count--;
    regx_region_list_push(&cache->regions, &cache->dead, number);
}

/* ---- given up for room ----
 * A region's heat is halved at each visit and grows by its acquisitions since. A hand goes round
 * what is alive; of the next few regions without users, the one goes whose registration, by cost
 * and heat, is worth least per byte held. What is used stays, whatever it costs. */

#define SAMPLE 16u    /* regions to choose among */
#define VISITS 1024u  /* regions looked at for more than one */
#define HEAT_USE 256u /* of one acquisition: it can be halved eight times */
#define HEAT_MAX (1u << 30)

/* Brings the heat up to date. false: it has users. */
static bool visit(regx_cache_t *cache, uint32_t number)
{
    regx_holding_t *holding = &cache->holdings[number];
    const uint64_t uses = regx_thread_states_uses(cache->states, number);
    const uint32_t acquired = (uint32_t)(uses >> 32);
    const uint64_t heat = holding->heat / 2 + (uint64_t)HEAT_USE * (acquired - holding->seen);

    holding->heat = heat < HEAT_MAX ? (uint32_t)heat : HEAT_MAX;
    holding->seen = acquired;
    return (uint32_t)uses == 0;
}

static double worth(const regx_holding_t *holding)
{
    return (double)holding->cost * holding->heat / (double)holding->mr.length;
}

/* 0 only after a full round: all that is alive has users. */
static uint32_t choose(regx_cache_t *cache)
{
    const regx_holding_t *holdings = cache->holdings;
    const regx_index_t *index = &cache->index;
    uint32_t chosen = 0, found = 0;

    for (size_t i = 0; i < index->regions && found < SAMPLE && (found == 0 || i < VISITS); i++) {
        const uint32_t number = regx_index_next(index, &cache->hand);

        if (!visit(cache, number)) {
            continue;
        }
        found++;
        if (chosen == 0 || worth(&holdings[number]) < worth(&holdings[chosen])) {
            chosen = number;
        }
    }
    return chosen;
}

uint64_t regx_cache_evict_locked(regx_cache_t *cache)
{
    regx_counters_t *counters = cache->registry->counters;
    const uint32_t number = choose(cache);

    if (number == 0) {
        return 0;
    }
    regx_index_remove(&cache->index, cache->records[number].start, number);
    regx_cache_kill_locked(cache, number, REGX_REGION_GIVEN_UP);
    regx_cache_has_work(cache);
    regx_count(counters, &counters->evictions, 1);
    return cache->records[number].size;
}

/* ---- what was asked for before ---- */

static uint64_t mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

static uint64_t hash_of(uintptr_t start, uintptr_t end)
{
    return mix(mix(start) + end) | 1; /* 0 is an empty place */
}

static uint64_t *set_of(regx_ghost_t *ghost, uint64_t hash)
{
    return ghost->seen[(hash >> 32) % REGX_GHOST_SETS];
}

void regx_cache_expect(regx_cache_t *cache, const regx_request_t *request)
{
    __builtin_prefetch(set_of(&cache->ghost, hash_of(request->start, request->end)), 1);
}

/* Whether the range was seen lately; it now is. */
static bool is_seen(regx_ghost_t *ghost, uintptr_t start, uintptr_t end)
{
    const uint64_t hash = hash_of(start, end);
    uint64_t *set = set_of(ghost, hash);
    unsigned at = 0;

    while (at < REGX_GHOST_WAYS - 1 && set[at] != hash) {
        at++;
    }
    const bool seen = set[at] == hash;

    memmove(set + 1, set, at * sizeof(*set));
    set[0] = hash;
    return seen;
}

/* ---- the budget ---- */

static bool has_room(const regx_cache_t *cache, uint64_t size)
{
    const regx_cache_config_t *config = &cache->config;

    return cache->bytes + size <= config->bytes && cache->count < config->count;
}

bool regx_cache_admits_locked(regx_cache_t *cache, const regx_request_t *request)
{
    const regx_cache_config_t *config = &cache->config;
    const uint64_t size = request->end - request->start;
    const bool seen = is_seen(&cache->ghost, request->start, request->end);

    return size <= config->bytes && config->count > 0 &&
           (seen || config->admit == REGX_ADMIT_FIRST || has_room(cache, size));
}

/* Room for a region so large that one call cannot make it is made in parts. What was made counts as
 * kept meanwhile: small regions would else take it, and thousands of them be given up for nothing.
 * It is given back when too many others that are worth keeping have found no room since it last
 * became more: its buffer may be gone, or all that is left is in use. Nothing else tells, since
 * nobody watches a buffer that is not kept. */
#define OTHERS 256u
#define LARGE_OTHER 32u /* one that takes parts, too, and is refused until then, counts as many */

static bool is_aside_for(const regx_cache_t *cache, const regx_request_t *request)
{
    const regx_aside_t *aside = &cache->aside;

    return aside->bytes > 0 && aside->start == request->start && aside->end == request->end;
}

static void set_aside(regx_cache_t *cache, const regx_request_t *request, unsigned others)
{
    const uint64_t size = request->end - request->start;
    const uint64_t made = cache->config.bytes - cache->bytes;

    if (made < size) { /* else it is the number of regions that is used up */
        cache->aside = (regx_aside_t){
            .start = request->start, .end = request->end, .bytes = made, .others = others};
        cache->bytes += made;
    }
}

static void give_back_aside(regx_cache_t *cache)
{
    cache->bytes -= cache->aside.bytes;
    cache->aside = (regx_aside_t){0};
}

/* Whether one call can hardly make that room, as large as regions are on average. */
static bool takes_parts(const regx_cache_t *cache, uint64_t size)
{
    const uint64_t kept = cache->bytes - cache->aside.bytes, max = cache->config.bytes;

    return cache->count > 0 && cache->bytes + size > max &&
           (cache->bytes + size - max) / REGX_EVICTED_MAX > kept / cache->count;
}

/* Another region of that size comes, and finds no room. */
static void count_other(regx_cache_t *cache, uint64_t size)
{
    cache->aside.others += takes_parts(cache, size) ? LARGE_OTHER : 1;
    if (cache->aside.others > OTHERS) {
        give_back_aside(cache);
    }
}

bool regx_cache_reserve_locked(regx_cache_t *cache, regx_request_t *request)
{
    const uint64_t size = request->end - request->start;
    const bool own = is_aside_for(cache, request);
    const unsigned others = own ? cache->aside.others : 0;

    if (own) {
        give_back_aside(cache);
    } else if (cache->aside.bytes > 0 && !has_room(cache, size)) {
        count_other(cache, size);
    }
    if (cache->aside.bytes > 0 && takes_parts(cache, size)) {
        return false; /* one after the other */
    }
    while (!has_room(cache, size)) {
        const bool is_part = request->given_up >= REGX_EVICTED_MAX;

        if (is_part || regx_cache_evict_locked(cache) == 0) {
            if (cache->aside.bytes == 0 && (is_part || own)) {
                set_aside(cache, request, is_part ? 0 : others);
            }
            return false;
        }
        request->given_up++;
    }
    cache->bytes += size;
    cache->count++;
    atomic_fetch_add(&cache->pinned, size);
    return true;
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
    if (!cache->warned || inuse == REGX_INUSE_ABORT) {
        cache->warned = true;
        cache->changed = (regx_range_t){.start = record->start, .size = record->size};
        atomic_store(&cache->to_warn, true);
    }
}

static void tell_of_lasting_locked(regx_cache_t *cache, regx_lasting_t *use)
{
    regx_counters_t *counters = cache->registry->counters;
    regx_record_t *record = &cache->records[use->region.kept];

    use->told = true;
    if (!atomic_exchange_explicit(&record->used_changed, true, memory_order_relaxed)) {
        atomic_fetch_add(&counters->inuse_changes, 1); /* perhaps in the cache's thread */
        note_changed_locked(cache, record);
    }
}

/* Tells of uses that last and whose memory has changed, whatever their region has ended by: it may
 * have changed elsewhere, have been given up, or the log may have been lapped. Of what is alive
 * nothing below `drained` has changed, and of the others what was looked at is not looked at
 * again. */
static void look_at_lasting_locked(regx_cache_t *cache)
{
    const uint64_t drained = atomic_load_explicit(&cache->drained, memory_order_relaxed);

    if ((cache->monitor->flags & REGX_MONITOR_LATE) != 0) {
        return;
    }
    for (regx_link_t *at = cache->lasting.next; at != &cache->lasting; at = at->next) {
        regx_lasting_t *use = REGX_CONTAINER_OF(at, regx_lasting_t, link);
        const regx_region_t *region = &use->region;

        if (!use->told && atomic_load(&cache->records[region->kept].state) != REGX_REGION_ALIVE &&
            regx_inval_log_shows(cache->log, use->looked, region->start,
                                 region->start + region->length)) {
            tell_of_lasting_locked(cache, use);
        }
        use->looked = drained;
    }
}

void regx_cache_watch(regx_cache_t *cache, regx_lasting_t *use)
{
    regx_registry_t *registry = cache->registry;

    use->told = false;
    regx_list_init(&use->link);
    if (regx_cache_in_child(cache)) {
        return;
    }
    if (use->region.kept != 0) {
        use->looked = use->region.since;
        regx_lock(&cache->lock);
        regx_list_append(&cache->lasting, &use->link);
        look_at_lasting_locked(cache); /* it may have changed since it was acquired */
        regx_unlock(&cache->lock);
    } else if (!registry->on_demand) { /* else the device follows changes itself */
        regx_tally(registry->counters->fallbacks,
                   "window: its registration is not kept, changes are not reported");
    }
}

void regx_cache_unwatch(regx_cache_t *cache, regx_lasting_t *use)
{
    if (use->region.kept != 0 && !regx_cache_in_child(cache)) {
        regx_lock(&cache->lock);
        regx_list_remove(&use->link);
        regx_unlock(&cache->lock);
    }
}

/* Until nothing that is alive overlaps the change it stays the next to be acted on, from the start:
 * what is inserted meanwhile may overlap it too. */
void regx_cache_drain_locked(regx_cache_t *cache, regx_request_t *request)
{
    const uint64_t head = atomic_load_explicit(&cache->log->head, memory_order_acquire);
    regx_counters_t *counters = cache->registry->counters;
    uint64_t drained = atomic_load_explicit(&cache->drained, memory_order_relaxed);
    cut_t cut = {.cache = cache, .request = request};
    size_t left = cache->drained_max;
    unsigned passed = 0;

    if (drained == head) {
        return; /* other threads read what this would write */
    }
    while (drained != head && left > 0) {
        regx_change_t change = {.start = 0, .end = UINTPTR_MAX};
        const regx_change_state_t state = regx_inval_log_read(cache->log, drained, &change);

        if (state == REGX_CHANGE_LATER) {
            break;
        }
        if (state == REGX_CHANGE_LOST) { /* it may have been anything: everything ends */
            change = (regx_change_t){.start = 0, .end = UINTPTR_MAX};
        }
        if (!regx_index_cut(&cache->index, change.start, change.end, &left, end_regions, &cut)) {
            break;
        }
        drained = state == REGX_CHANGE_LOST ? head : drained + 1;
        left -= left > 0 && ++passed % PASSED == 0;
    }
    atomic_store_explicit(&cache->drained, drained, memory_order_release);
    if (cut.ended > 0) {
        regx_cache_has_work(cache);
        atomic_fetch_add(&counters->invalidations, cut.ended); /* perhaps in the cache's thread */
    }
    look_at_lasting_locked(cache);
}

/* ---- deregistering ---- */

/* Makes ripe what is dead, and what had users of which some are gone. */
static void ripen(regx_cache_t *cache)
{
    regx_lock(&cache->lock);
    regx_region_list_t dead = cache->dead;

    cache->dead = (regx_region_list_t){0};
    regx_unlock(&cache->lock);
    const bool passed = dead.first == 0 || cache->closing || cache->fences || regx_membarrier();

    regx_lock(&cache->lock);
    regx_region_list_prepend(&cache->regions, passed ? &cache->ripe : &cache->dead, &dead);
    if (!passed) {
        regx_cache_has_work(cache);
    }
    if (atomic_exchange_explicit(&cache->released, false, memory_order_acquire)) {
        regx_region_list_prepend(&cache->regions, &cache->ripe, &cache->busy);
    }
    regx_unlock(&cache->lock);
}

static regx_region_list_t pick_unused(regx_cache_t *cache, unsigned max)
{
    regx_region_list_t unused = {0};
    uint32_t number;

    regx_lock(&cache->lock);
    while (max-- > 0 && (number = regx_region_list_pop(&cache->regions, &cache->ripe)) != 0) {
        /* Of what is ripe all acquisitions are seen: no more were released than there were. Of what
         * is alive the sum may be anything, since others acquire and release while it is made. */
        assert(cache->closing || (int32_t)regx_thread_states_uses(cache->states, number) >= 0);
        const bool used =
            !cache->closing && (uint32_t)regx_thread_states_uses(cache->states, number) != 0;

        regx_region_list_push(&cache->regions, used ? &cache->busy : &unused, number);
    }
    if (cache->ripe.first != 0) {
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

    if (!atomic_load_explicit(&cache->to_warn, memory_order_relaxed)) {
        return;
    }
    regx_lock(&cache->lock);
    const bool warns = atomic_exchange(&cache->to_warn, false);
    const regx_range_t changed = cache->changed;
    regx_unlock(&cache->lock);
    if (warns) {
        config->changed_in_use(config->context, (const void *)changed.start, changed.size);
    }
}

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
        regx_device_deregister(cache->registry, &cache->holdings[number].mr);
        assert(cache->pinned >= record->size);
        atomic_fetch_sub(&cache->pinned, record->size);
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

unsigned regx_cache_retire_quietly(regx_cache_t *cache, unsigned max)
{
    return retire(cache, max, false);
}

/* ---- while the application computes ---- */

#define DELAY_MS 10u

static bool has_something_to_do(const regx_cache_t *cache)
{
    return atomic_load(&cache->log->head) != atomic_load(&cache->drained) ||
           atomic_load(&cache->work);
}

/* Whether something was done. */
static bool reclaim_some(regx_cache_t *cache)
{
    const uint64_t before = atomic_load(&cache->drained);

    regx_lock(&cache->lock);
    regx_cache_drain_locked(cache, NULL);
    regx_unlock(&cache->lock);
    return regx_cache_retire_quietly(cache, REGX_RETIRED_MAX) > 0 ||
           atomic_load(&cache->drained) != before;
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
