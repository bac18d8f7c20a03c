/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The cache's thread: deregisters what changed while the application computes and calls nothing.
 *
 * It sleeps until a change is logged or the last use of a dead region ends, lets some milliseconds
 * pass in which the application may do the work in passing, and then does what progress does,
 * bounded amounts at a time. It takes the cache's lock and deregisters, which takes locks and may
 * allocate; so it is a thread of its own, and not the notifier's reader. Nobody waits for it but
 * the cache when it is closed. It calls nobody back.
 *
 * Only where the watch has a thread anyway, and the device pins what it registers.
 */
#include "registration/cache_internal.h"

#include "registration/thread.h"

#define DELAY_MS 10u

static bool has_something_to_do(const regx_cache_t *cache)
{
    return atomic_load(&cache->changes->head) != atomic_load(&cache->drained) ||
           atomic_load(&cache->work);
}

/* Whether something was done. */
static bool reclaim_some(regx_cache_t *cache)
{
    const uint64_t before = atomic_load(&cache->drained);

    regx_lock(&cache->lock);
    regx_cache_drain_locked(cache, NULL);
    regx_unlock(&cache->lock);
    return regx_cache_retire_quietly(cache, REGX_RETIRED_MOST) > 0 ||
           atomic_load(&cache->drained) != before;
}

static void *reclaim(void *argument)
{
    regx_cache_t *cache = argument;

    while (!atomic_load(&cache->reclaimer.stop)) {
        atomic_store(&cache->changes->asleep, 1);
        if (!has_something_to_do(cache) && !atomic_load(&cache->reclaimer.stop)) {
            regx_thread_wait(&cache->changes->asleep, 1, 0);
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
        (cache->watch->flags & REGX_WATCH_THREAD) != 0 && cache->registry->transport->registers &&
        regx_thread_start(&cache->reclaimer.thread, "regx-reclaim", reclaim, cache) == 0;
}

void regx_cache_stop_reclaiming(regx_cache_t *cache)
{
    if (!cache->reclaimer.runs) {
        return;
    }
    cache->reclaimer.runs = false;
    atomic_store(&cache->reclaimer.stop, 1);
    regx_thread_wake(&cache->reclaimer.stop);
    /* It may be about to sleep there, and others' threads may sleep there too: they look again. */
    atomic_store(&cache->changes->asleep, 1);
    regx_changes_wake(cache->changes);
    pthread_join(cache->reclaimer.thread, NULL);
}
