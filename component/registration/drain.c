/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Acting on changes of the address space. Only here does the cache learn of them, and only this
 * moves `drained`, after the regions that are concerned are dead: see cache.c.
 */
#include "registration/cache_internal.h"

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

/* Until nothing that is alive overlaps the change it stays the next to be acted on, from the start:
 * what is inserted meanwhile may overlap it too. */
void regx_cache_drain_locked(regx_cache_t *cache, regx_request_t *request)
{
    const uint64_t head = atomic_load_explicit(&cache->changes->head, memory_order_acquire);
    regx_counters_t *counters = cache->registry->counters;
    uint64_t drained = atomic_load_explicit(&cache->drained, memory_order_relaxed);
    cut_t cut = {.cache = cache, .request = request};
    size_t left = cache->drained_most;
    unsigned passed = 0;

    if (drained == head) {
        return; /* other threads read what this would write */
    }
    while (drained != head && left > 0) {
        regx_change_t change = {.start = 0, .end = UINTPTR_MAX};
        const regx_change_state_t state = regx_changes_read(cache->changes, drained, &change);

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
}
