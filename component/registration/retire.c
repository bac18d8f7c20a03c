/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The end of regions: dead → (membarrier, one for all that died meanwhile) → ripe → without users?
 * → deregistered, with no lock held → its record may describe another region. See cache.c.
 */
#include "registration/cache_internal.h"

#include "registration/device.h"

#include <sys/syscall.h>
#include <unistd.h>

/* linux/membarrier.h */
#define PRIVATE_EXPEDITED 8
#define REGISTER_PRIVATE_EXPEDITED 16

bool regx_cache_membarrier_works(void)
{
    return syscall(SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/* After it, every count of a use was made by a look-up that could see what was dead before it, or
 * can be seen. */
static bool barrier(const regx_cache_t *cache)
{
    return cache->fences || syscall(SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) == 0;
}

void regx_cache_kill_locked(regx_cache_t *cache, uint32_t number, regx_region_state_t state)
{
    regx_record_t *record = &cache->records[number];

    if (cache->fences) {
        atomic_store(&record->state, state);
    } else {
        atomic_store_explicit(&record->state, state, memory_order_release);
    }
    cache->bytes -= record->size;
    cache->count--;
    regx_list_push(&cache->regions, &cache->dead, number);
}

/* Makes ripe what is dead, and what had users of which some are gone. */
static void ripen(regx_cache_t *cache)
{
    regx_lock(&cache->lock);
    regx_list_t dead = cache->dead;

    cache->dead = (regx_list_t){0};
    regx_unlock(&cache->lock);
    const bool passed = dead.first == 0 || cache->closing || barrier(cache);

    regx_lock(&cache->lock);
    regx_list_prepend(&cache->regions, passed ? &cache->ripe : &cache->dead, &dead);
    if (!passed) {
        regx_cache_has_work(cache);
    }
    if (atomic_exchange_explicit(&cache->released, false, memory_order_acquire)) {
        regx_list_prepend(&cache->regions, &cache->ripe, &cache->busy);
    }
    regx_unlock(&cache->lock);
}

static regx_list_t pick_unused(regx_cache_t *cache, unsigned most)
{
    regx_list_t unused = {0};
    uint32_t number;

    regx_lock(&cache->lock);
    while (most-- > 0 && (number = regx_list_pop(&cache->regions, &cache->ripe)) != 0) {
        const bool used = !cache->closing && (uint32_t)regx_seats_uses(cache->seats, number) != 0;

        regx_list_push(&cache->regions, used ? &cache->busy : &unused, number);
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
    const regx_inuse_t inuse = cache->config.inuse;

    if (cache->config.changed_in_use == NULL || inuse == REGX_INUSE_IGNORE) {
        return;
    }
    regx_lock(&cache->lock);
    if (!cache->told || inuse == REGX_INUSE_ABORT) {
        cache->told = true;
        cache->changed = (regx_range_t){.start = record->start, .size = record->size};
        atomic_store(&cache->to_tell, true);
    }
    regx_unlock(&cache->lock);
}

void regx_cache_tell(regx_cache_t *cache)
{
    const regx_cache_config_t *config = &cache->config;

    if (!atomic_load_explicit(&cache->to_tell, memory_order_relaxed)) {
        return;
    }
    regx_lock(&cache->lock);
    const bool tells = atomic_exchange(&cache->to_tell, false);
    const regx_range_t changed = cache->changed;
    regx_unlock(&cache->lock);
    if (tells) {
        config->changed_in_use(config->context, (const void *)changed.start, changed.size);
    }
}

static unsigned retire(regx_cache_t *cache, unsigned most, bool tells)
{
    unsigned count = 0;

    if (!atomic_exchange_explicit(&cache->work, false, memory_order_acquire)) {
        return 0;
    }
    ripen(cache);
    regx_list_t unused = pick_unused(cache, most);

    for (uint32_t number = unused.first; number != 0; number = cache->records[number].next) {
        regx_record_t *record = &cache->records[number];

        regx_changes_interest(cache->changes, record->start, record->start + record->size, -1);
        regx_device_deregister(cache->registry, &cache->holdings[number].mr);
        atomic_fetch_sub(&cache->pinned, record->size);
        if (atomic_load_explicit(&record->used_changed, memory_order_relaxed)) {
            note_changed(cache, record);
            if (tells) {
                regx_cache_tell(cache);
            }
        }
        count++;
    }
    regx_lock(&cache->lock);
    for (uint32_t number; (number = regx_list_pop(&cache->regions, &unused)) != 0;) {
        regx_regions_put(&cache->regions, number);
    }
    regx_unlock(&cache->lock);
    return count;
}

unsigned regx_cache_retire(regx_cache_t *cache, unsigned most)
{
    return retire(cache, most, true);
}

unsigned regx_cache_retire_quietly(regx_cache_t *cache, unsigned most)
{
    return retire(cache, most, false);
}
