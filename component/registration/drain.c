/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Acting on changes of the address space. Only here does the cache learn of them, and only this
 * moves `drained`, after the regions that are concerned are dead: see cache.c.
 */
#include "registration/cache_internal.h"

typedef struct cut {
    regx_cache_t *cache;
    regx_request_t *request;
    uint64_t ended; /* regions */
} cut_t;

static void end_region(void *context, uint32_t number)
{
    cut_t *cut = context;
    regx_request_t *request = cut->request;

    if (request != NULL && regx_record_serves(&cut->cache->records[number], request->start,
                                              request->end - request->start, request->access)) {
        request->refused = true;
    }
    regx_cache_kill_locked(cut->cache, number, REGX_REGION_CHANGED);
    cut->ended++;
}

bool regx_cache_drain_locked(regx_cache_t *cache, regx_request_t *request)
{
    const uint64_t head = atomic_load_explicit(&cache->changes->head, memory_order_acquire);
    regx_counters_t *counters = cache->registry->counters;
    uint64_t drained = atomic_load_explicit(&cache->drained, memory_order_relaxed);
    cut_t cut = {.cache = cache, .request = request};

    while (drained != head) {
        regx_change_t change = {.start = 0, .end = UINTPTR_MAX};
        const regx_change_state_t state = regx_changes_read(cache->changes, drained, &change);

        if (state == REGX_CHANGE_LATER) {
            break;
        }
        if (state == REGX_CHANGE_LOST) { /* it may have been anything: everything ends */
            change = (regx_change_t){.start = 0, .end = UINTPTR_MAX};
        }
        regx_index_cut(&cache->index, change.start, change.end, end_region, &cut);
        drained = state == REGX_CHANGE_LOST ? head : drained + 1;
    }
    atomic_store_explicit(&cache->drained, drained, memory_order_release);
    regx_count(counters, &counters->invalidations, cut.ended);
    return drained == head;
}
