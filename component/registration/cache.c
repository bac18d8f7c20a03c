/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The cache, opened and closed; the hit and the release. Why no use is stale, and
 * why each step comes where it does, is in component/design/cache.md.
 */
#include "registration/cache.h"

#include <limits.h>
#include <sys/mman.h>

_Static_assert(2 * REGX_REGIONS_MAX <= 1u << REGX_LOOKUP_NUMBER_BITS, "numbers fit in entries");

static _Atomic uint64_t serials;

regx_cache_t *regx_cache_open(regx_registry_t *registry, const regx_cache_config_t *config)
{
    const uint64_t device = registry->transport->mr_count;
    const uint64_t most = device != 0 ? regx_min(device, REGX_REGIONS_MAX) : REGX_REGIONS_MAX;
    const uint64_t count = regx_min(config->count, most);
    /* Zeros; most of it, the ghosts, is touched when it is used. */
    regx_cache_t *cache = mmap(NULL, sizeof(*cache), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (cache == MAP_FAILED) {
        return NULL;
    }
    if (!regx_regions_init(&cache->regions, count) || !regx_thread_states_open(cache)) {
        regx_regions_fini(&cache->regions);
        munmap(cache, sizeof(*cache));
        return NULL;
    }
    regx_lock_init(&cache->lock, true); /* whatever MPI was told of threads: only misses take it */
    cache->serial = atomic_fetch_add(&serials, 1) + 1;
    cache->records = cache->regions.records;
    cache->holdings = cache->regions.holdings;
    cache->monitor = registry->monitor;
    cache->log = cache->monitor->log;
    cache->applied = cache->log->head;
    cache->queries = cache->monitor->valid != NULL;
    cache->query = cache->monitor->query;
    cache->told = cache->queries ? cache->monitor->told : &cache->applied;
    cache->logged = cache->queries ? cache->monitor->logged : &cache->applied;
    cache->fast = cache->told == NULL || cache->fences ? UINT64_MAX : cache->serial;
    cache->registry = registry;
    cache->config = *config;
    cache->config.count = count;
    cache->applied_max = REGX_APPLIED_MAX;
    cache->room.pinned_max =
        config->bytes + regx_min(config->bytes / 4, REGX_UNLIMITED - config->bytes);
    regx_cache_start_reclaiming(cache);
    return cache;
}

static void give_up(void *context, const uint32_t *numbers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        regx_cache_kill_locked(context, numbers[i], REGX_REGION_GIVEN_UP);
    }
}

void regx_cache_close(regx_cache_t *cache)
{
    size_t all = SIZE_MAX;

    if (regx_cache_in_child(cache)) {
        return;
    }
    regx_cache_stop_reclaiming(cache);
    regx_registry_count(cache->registry);
    regx_lock(&cache->lock);
    regx_index_cut(&cache->index, 0, UINTPTR_MAX, &all, give_up, cache);
    cache->limbo.closing = true;
    regx_unlock(&cache->lock);
    cache->work = true;
    cache->released = true;
    regx_cache_retire(cache, UINT_MAX);
    regx_cache_warn(cache); /* what the cache's thread noted since the last call */
    regx_thread_states_close(cache);
    regx_regions_fini(&cache->regions);
    regx_index_fini(&cache->index);
    regx_lock_fini(&cache->lock);
    munmap(cache, sizeof(*cache));
}

/* A use has ended; if the region is dead, who retires wants to know. */
static inline void tell_retirer(regx_cache_t *cache, const regx_record_t *record)
{
    if (__builtin_expect(atomic_load(&record->state) != REGX_REGION_ALIVE, false)) {
        atomic_store_explicit(&cache->released, true, memory_order_release);
        regx_cache_has_work(cache);
    }
}

/* Whether all reported changes have been acted on, and none is about to be reported. */
static inline bool is_current(const regx_cache_t *cache)
{
    const regx_inval_log_t *log = cache->log;
    const uint64_t sequence = atomic_load_explicit(&log->sequence, memory_order_acquire);
    const uint64_t head = atomic_load_explicit(&log->head, memory_order_acquire);

    return sequence % 2 == 0 && head == atomic_load_explicit(&cache->applied, memory_order_acquire);
}

/* Asks the monitor (the query), but only if the record is alive and serves the request: after a
 * buffer was mapped anew the look-up cache still names its dead region, and that is not worth a
 * system call. Inlined where it can be: the kernel spoils the processor's prediction of returns, so
 * each that is right behind a system call costs 5 to 10 ns. (valid() also looks whether this is a
 * child; there the look-up cache is empty.) */
static inline bool is_valid(const regx_cache_t *cache, const regx_record_t *record,
                            uintptr_t address, size_t length, unsigned access)
{
    return atomic_load_explicit(&record->state, memory_order_relaxed) == REGX_REGION_ALIVE &&
           regx_record_serves(record, address, length, access) &&
           (cache->query != NULL ? regx_uffd_is_idle(cache->query->file.fd)
                                 : cache->monitor->valid(cache->monitor));
}

/* Asks the monitor, where that takes two loads, or where nothing has to be asked (then both words are the
 * same one). A child may not read these words. It does not: its look-up cache is empty, so it finds no
 * region but 0. */
static inline bool is_told(const regx_cache_t *cache, uint32_t number)
{
    return number != 0 && atomic_load_explicit(cache->told, memory_order_acquire) ==
                              atomic_load_explicit(cache->logged, memory_order_acquire);
}

/* The hit. plain: known to need no system call and no fence. Always inlined: a return right behind a
 * system call is mispredicted. */
static inline __attribute__((always_inline)) bool try_use(regx_cache_t *cache,
                                                          regx_thread_state_t *ts, uint32_t number,
                                                          uintptr_t address, size_t length,
                                                          unsigned access, bool plain)
{
    const regx_record_t *record = &cache->records[number];
    const bool fences = !plain && cache->fences;

    regx_cache_use(&ts->uses[number], REGX_USE_ACQUIRED, fences);
    if (__builtin_expect(
            (plain ? is_told(cache, number)
                   : !cache->queries || is_valid(cache, record, address, length, access)) &&
                is_current(cache) && atomic_load(&record->state) == REGX_REGION_ALIVE &&
                regx_record_serves(record, address, length, access),
            true)) {
        regx_cache_count_hit(ts);
        return true;
    }
    regx_cache_use(&ts->uses[number], 0 - REGX_USE_ACQUIRED, fences);
    tell_retirer(cache, record);
    return false;
}

bool regx_region_seems_kept(regx_registry_t *registry, const void *base, size_t length,
                            unsigned access)
{
    const regx_lookup_key_t key = regx_lookup_key((uintptr_t)base);
    regx_cache_t *cache = registry->cache;

    if (regx_owned_maybe(registry, base) && regx_owned_seems_kept(registry, base, length)) {
        return true;
    }
    if (cache == NULL || registry->on_demand || regx_cache_in_child(cache) || !is_current(cache)) {
        return false;
    }
    const struct regx_last_state *here = regx_cache_last_state(cache);
    if (here->cache != cache->serial) {
        regx_lock(&cache->lock);
        const bool taken = regx_thread_state_here(cache) != NULL;
        regx_unlock(&cache->lock);
        if (!taken) {
            return false;
        }
    }
    for (uint32_t probe = 0; probe < REGX_LOOKUP_WAYS; probe++) {
        const uint32_t entry = regx_lookup_entry(here->ts, &key, probe);
        const regx_record_t *record = &cache->records[regx_lookup_number(entry)];

        if (regx_lookup_is(entry, &key) &&
            atomic_load_explicit(&record->state, memory_order_relaxed) == REGX_REGION_ALIVE &&
            regx_record_serves(record, (uintptr_t)base, length, access)) {
            return true;
        }
    }
    return false;
}

/* All places of the look-up cache, with query and fence where they are needed; then under the lock. */
static __attribute__((noinline)) regx_status_t acquire_searching(regx_cache_t *cache,
                                                                 const void *base, size_t length,
                                                                 unsigned access, bool registers,
                                                                 regx_region_t *region)
{
    const struct regx_last_state *here = regx_cache_last_state(cache);

    if (here->cache == cache->serial) {
        regx_thread_state_t *ts = here->ts;
        const regx_lookup_key_t key = regx_lookup_key((uintptr_t)base);
        const uint64_t since = atomic_load_explicit(&cache->applied, memory_order_acquire);

        for (uint32_t probe = 0; probe < REGX_LOOKUP_WAYS; probe++) {
            const uint32_t entry = regx_lookup_entry(ts, &key, probe);
            const uint32_t number = regx_lookup_number(entry);

            if (regx_lookup_is(entry, &key) &&
                try_use(cache, ts, number, (uintptr_t)base, length, access, false)) {
                return regx_cache_serve(cache, number, (uintptr_t)base, length, since, region);
            }
        }
    }
    return regx_cache_acquire_slow(cache, base, length, access, registers, region);
}

/* The first place alone, which serves nearly always, and nothing that is not always needed. */
static inline regx_status_t acquire(regx_cache_t *cache, void *base, size_t length, unsigned access,
                                    regx_region_t *region)
{
    const struct regx_last_state *here = regx_cache_last_state(cache);

    if (__builtin_expect(here->cache == cache->fast, true)) {
        regx_thread_state_t *ts = here->ts;
        const regx_lookup_key_t key = regx_lookup_key((uintptr_t)base);
        const uint32_t entry = regx_lookup_entry(ts, &key, 0);
        const uint32_t number = regx_lookup_number(entry);
        const uint64_t since = atomic_load_explicit(&cache->applied, memory_order_acquire);

        if (__builtin_expect(regx_lookup_is(entry, &key), true) &&
            try_use(cache, ts, number, (uintptr_t)base, length, access, true)) {
            return regx_cache_serve(cache, number, (uintptr_t)base, length, since, region);
        }
    }
    return acquire_searching(cache, base, length, access, true, region);
}

static __attribute__((noinline)) regx_status_t acquire_on_demand(regx_registry_t *registry,
                                                                 void *base, size_t length,
                                                                 unsigned access,
                                                                 regx_region_t *region)
{
    regx_monitor_t *monitor = registry->monitor;

    if (!monitor->follows(monitor, base, length)) {
        return regx_once_register(registry, base, length, access, NULL, NULL, region);
    }
    regx_status_t status =
        acquire(registry->cache, base, length, access | REGX_ACCESS_ON_DEMAND, region);
    if (status == REGX_OK) {
        status = monitor->ready(monitor, region->mr, base, length, access);
        if (status != REGX_OK) {
            regx_region_release(registry, region);
        }
    }
    return status;
}

regx_status_t regx_region_acquire(regx_registry_t *registry, void *base, size_t length,
                                  unsigned access, regx_region_t *region)
{
    region->over_share = false;
    if (__builtin_expect(regx_owned_maybe(registry, base), false) &&
        regx_owned_acquire(registry, base, length, true, region)) {
        return REGX_OK;
    }
    if (registry->cache == NULL) {
        return regx_once_register(registry, base, length, access, NULL, NULL, region);
    }
    return registry->on_demand ? acquire_on_demand(registry, base, length, access, region)
                               : acquire(registry->cache, base, length, access, region);
}

bool regx_region_acquire_kept(regx_registry_t *registry, const void *base, size_t length,
                              unsigned access, regx_region_t *region)
{
    if (regx_owned_maybe(registry, base) &&
        regx_owned_acquire(registry, base, length, false, region)) {
        return true;
    }
    return registry->cache != NULL && !registry->on_demand &&
           acquire_searching(registry->cache, base, length, access, false, region) == REGX_OK;
}

/* Counts it if what changed was in use: the use that finds this is not over yet; the first is to be
 * reported. The region may serve it with a part, and have changed elsewhere, or have ended because
 * the log was lapped, which is not an error. */
static __attribute__((noinline)) void note_changed(regx_cache_t *cache, regx_record_t *record,
                                                   const regx_region_t *region)
{
    regx_counters_t *counters = cache->registry->counters;

    if (!regx_inval_log_touched(cache->log, region->since, region->start,
                                region->start + region->length, false) ||
        atomic_exchange_explicit(&record->used_changed, true, memory_order_relaxed)) {
        return;
    }
    regx_count(counters, &counters->inuse_changes, 1);
    if (cache->config.changed_in_use != NULL && !atomic_exchange(&cache->warning.warned, true)) {
        cache->warning.start = record->start;
        cache->warning.size = record->size;
        atomic_store(&cache->warning.to_warn, true);
    }
}

static inline void end_use(regx_cache_t *cache, regx_thread_state_t *ts,
                           const regx_region_t *region)
{
    regx_record_t *record = &cache->records[region->kept];

    if (__builtin_expect(atomic_load(&record->state) == REGX_REGION_CHANGED, false)) {
        note_changed(cache, record, region);
    }
    regx_cache_use(&ts->uses[region->kept], REGX_USE_RELEASED, cache->fences);
    tell_retirer(cache, record);
}

static __attribute__((noinline)) void release_slow(regx_registry_t *registry, regx_region_t *region)
{
    regx_cache_t *cache = registry->cache;

    if (region->kept == 0 && region->owned != NULL) {
        regx_owned_release(registry->owned, region->owned);
        return;
    }
    if (cache != NULL && regx_cache_in_child(cache)) {
        return;
    }
    if (cache == NULL || region->kept == 0) {
        regx_once_deregister(registry, region);
        return;
    }
    regx_lock(&cache->lock);
    regx_thread_state_t *ts = regx_thread_state_here(cache);

    end_use(cache, ts != NULL ? ts : cache->threads.common, region);
    regx_unlock(&cache->lock);
}

void regx_region_release(regx_registry_t *registry, regx_region_t *region)
{
    regx_cache_t *cache = registry->cache;

    if (__builtin_expect(cache != NULL && region->kept != 0, true)) {
        const struct regx_last_state *here = regx_cache_last_state(cache);

        if (__builtin_expect(here->cache == cache->serial, true)) {
            end_use(cache, here->ts, region);
            return;
        }
    }
    release_slow(registry, region);
}

void regx_registry_progress(regx_registry_t *registry)
{
    regx_cache_t *cache = registry->cache;

    if (cache == NULL) {
        return;
    }
    regx_monitor_poll(cache->monitor);
    const bool current = atomic_load_explicit(&cache->log->head, memory_order_relaxed) ==
                         atomic_load_explicit(&cache->applied, memory_order_relaxed);

    if ((current && !atomic_load_explicit(&cache->work, memory_order_relaxed) &&
         !atomic_load_explicit(&cache->warning.to_warn, memory_order_relaxed)) ||
        regx_cache_in_child(cache)) {
        return;
    }
    regx_cache_warn(cache);
    regx_lock(&cache->lock);
    regx_cache_catch_up_locked(cache, NULL);
    regx_unlock(&cache->lock);
    regx_cache_retire(cache, REGX_RETIRED_MAX);
}

void regx_registry_count(regx_registry_t *registry)
{
    regx_cache_t *cache = registry->cache;
    uint64_t hits = 0;

    if (cache == NULL || regx_cache_in_child(cache)) {
        return;
    }
    regx_lock(&cache->lock);
    for (const regx_thread_state_t *ts = cache->threads.first; ts != NULL; ts = ts->next) {
        hits += atomic_load_explicit(&ts->hits, memory_order_relaxed);
    }
    const uint64_t more = hits - cache->threads.hits_counted;

    cache->threads.hits_counted = hits;
    regx_unlock(&cache->lock);
    regx_count(registry->counters, &registry->counters->hits, more);
}
