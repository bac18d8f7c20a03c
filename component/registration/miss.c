/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is not found is registered, to be kept or for this use alone.
 *
 * To be kept, a region must be true at the moment it becomes alive. Interest is declared and the
 * range watched before pinning, and the log is read from the head that there was before that: see
 * component/design/cache.md for the order. What cannot be shown to be true serves this use and no
 * other: it is as good as what backend none would have made.
 */
#include <sched.h>

#include "registration/cache.h"
#include "registration/once.h"

/* A look-up that failed only because a change was under way is made again before anything is
 * registered: for so long, at most. Less than registering takes. */
#define ASKED_FOR_NS 20000
#define EVICTED_MAX 128u /* for one request's room */
/* Given up and deregistered where the device has no more room, by one acquisition; it bounces if
 * that was too little, and the next one goes on. */
#define EVICTED_FOR_DEVICE 256u
#define RETIRED_FOR_DEVICE 1024u

static const char under_way[] = "a change is under way";

/* A region that is to be: whole pages. */
typedef struct region {
    uintptr_t start, end;
    unsigned wanted; /* access */
    unsigned access; /* to be registered: also what a region of that range had */
    uint64_t since;  /* no change from that one on has touched it, if it is true */
} region_t;

/* Whether to ask once more, after others were let run, while a change is under way that may be of
 * anything, or news is not logged. Where the processor is busy that alone may take milliseconds: then
 * it was the last time. *since: when it was first asked so; 0: not yet. */
static bool asks_again(int64_t *since)
{
    const int64_t now = regx_now_ns();

    *since = *since == 0 ? now : *since;
    if (now - *since > ASKED_FOR_NS) {
        return false;
    }
    sched_yield();
    return true;
}

/* The device has no room: gives up regions of that many bytes at least, if there are, and as far as
 * one call does so much. false: nothing was given up, or the device takes no region of that length. */
static bool make_room(regx_cache_t *cache, uint64_t size)
{
    const uint64_t longest = cache->registry->transport->mr_bytes;
    uint64_t freed = 0, bytes = 1;

    if (longest != 0 && size > longest) {
        return false;
    }
    regx_spin_lock(&cache->lock);
    for (unsigned i = 0; i < EVICTED_FOR_DEVICE && freed < size && bytes != 0; i++) {
        bytes = regx_cache_evict_locked(cache);
        freed += bytes;
    }
    regx_spin_unlock(&cache->lock);
    return regx_cache_retire(cache, RETIRED_FOR_DEVICE) > 0 || freed > 0;
}

static regx_status_t register_once(regx_cache_t *cache, const region_t *asked, const char *reason,
                                   regx_region_t *region)
{
    void *base = (void *)asked->start;
    const size_t size = asked->end - asked->start;
    regx_status_t status =
        regx_once_register(cache->registry, base, size, asked->wanted, reason, region);

    if (status == REGX_NO_MEMORY && !region->over_share && make_room(cache, size)) {
        status = regx_once_register(cache->registry, base, size, asked->wanted, reason, region);
    }
    return status;
}

static regx_status_t pin(regx_cache_t *cache, const region_t *asked, regx_mr_t *mr)
{
    regx_registry_t *registry = cache->registry;
    void *base = (void *)asked->start;
    const size_t size = asked->end - asked->start;
    regx_status_t status = regx_mr_register(registry, base, size, asked->access, mr);

    if (status == REGX_NO_MEMORY && make_room(cache, size)) {
        status = regx_mr_register(registry, base, size, asked->access, mr);
    }
    if (status == REGX_DENIED && asked->access != asked->wanted) { /* not allowed any more */
        status = regx_mr_register(registry, base, size, asked->wanted, mr);
    }
    return status;
}

/* ---- the budget ---- */

static bool has_room(const regx_cache_t *cache, uint64_t size)
{
    const regx_cache_config_t *config = &cache->config;

    return cache->room.bytes + size <= config->bytes && cache->room.count < config->count;
}

static void unreserve(regx_cache_t *cache, uint64_t size)
{
    regx_spin_lock(&cache->lock);
    cache->room.bytes -= size;
    cache->room.count--;
    cache->room.pinned -= size;
    regx_spin_unlock(&cache->lock);
}

/* Takes room within the budget, and deregisters what was given up for it and some more. Gives up
 * EVICTED_MAX regions at the most: a large one may be refused a few times before there is room, unless
 * small ones take it. false: there is no room, or so much is dead and still pinned that the region is not
 * to be kept. */
static bool reserve(regx_cache_t *cache, region_t *asked)
{
    const uint64_t size = asked->end - asked->start;
    unsigned given_up = 0;

    regx_spin_lock(&cache->lock);
    /* One of the same range that has not enough access makes way. */
    const uint32_t old = regx_index_cover(&cache->index, asked->start, asked->end, 0);
    const regx_mr_t *mr = &cache->regions.records[old].mr;

    if (old != 0 && mr->length == size) {
        asked->access |= mr->access;
        regx_cache_give_up_locked(cache, old);
        given_up++;
    }
    while (!has_room(cache, size) && given_up < EVICTED_MAX &&
           regx_cache_evict_locked(cache) != 0) {
        given_up++;
    }
    const bool reserved = has_room(cache, size);
    if (reserved) {
        cache->room.bytes += size;
        cache->room.count++;
        cache->room.pinned += size;
    }
    bool over = reserved && cache->room.pinned > cache->room.pinned_max;
    regx_spin_unlock(&cache->lock);
    regx_cache_retire(cache, given_up + REGX_RETIRED_MAX + (over ? EVICTED_MAX : 0));
    if (over) {
        regx_spin_lock(&cache->lock);
        over = cache->room.pinned > cache->room.pinned_max;
        regx_spin_unlock(&cache->lock);
    }
    if (over) {
        unreserve(cache, size);
    }
    return reserved && !over;
}

/* Lets the new region live, with its first use. false: it is not true, or there is one already, or no
 * memory. *busy: whether it may be true in a moment. */
static bool publish(regx_cache_t *cache, const region_t *asked, const regx_mr_t *mr, bool *busy,
                    regx_region_t *region)
{
    const size_t size = asked->end - asked->start;
    regx_index_entry_t entry = {.start = asked->start, .end = asked->end, .access = mr->access};

    *busy = !regx_monitor_is_settled(cache->monitor);
    if (*busy) {
        return false;
    }
    regx_spin_lock(&cache->lock);
    regx_cache_catch_up_locked(cache, NULL); /* so that older changes seldom end it */
    bool alive = !regx_inval_log_touched(cache->log, asked->since, entry.start, entry.end, true) &&
                 regx_index_cover(&cache->index, entry.start, entry.end, entry.access) == 0;
    if (alive) {
        entry.number = regx_regions_take(&cache->regions);
        alive = entry.number != 0 && regx_index_insert(&cache->index, &entry);
        if (entry.number != 0 && !alive) {
            regx_regions_put(&cache->regions, entry.number);
        }
    }
    if (alive) {
        cache->regions.records[entry.number] =
            (regx_record_t){.state = REGX_REGION_ALIVE, .mr = *mr};
        regx_cache_hint_locked(cache, entry.start, entry.number);
        regx_cache_use_locked(cache, entry.number, entry.start, size, region);
        region->since = asked->since;
    }
    regx_spin_unlock(&cache->lock);
    return alive;
}

/* ---- */

regx_status_t regx_cache_acquire(regx_cache_t *cache, const void *base, size_t length,
                                 unsigned access, bool registers, regx_region_t *region)
{
    regx_registry_t *registry = cache->registry;
    regx_counters_t *counters = registry->counters;
    const uintptr_t address = (uintptr_t)base;
    regx_request_t request = {.address = address, .length = length, .access = access};
    int64_t asked_since = 0, published_since = 0;

    /* Also refuses a length of 0: less 1 it is beyond everything. */
    if (base == NULL || length - 1 > REGX_UNTAGGED_MAX - (address & REGX_UNTAGGED_MAX) ||
        regx_cache_in_child(cache)) {
        return REGX_DENIED;
    }
    /* What would else be registered is looked for a few times while a change is under way that may be of
     * anything: one thread that changes watched memory all the time would else make all others register
     * anew. And the notifier's reader lets go the thread that changed memory by reading of it, and logs
     * it only then: that thread may come here a microsecond too early. */
    do {
        if (__builtin_expect(regx_cache_look_up(cache, &request, region), true)) {
            return REGX_OK;
        }
    } while (registers && request.busy && asks_again(&asked_since));
    regx_count(counters, &counters->stale_prevented, request.refused);
    if (!registers) {
        return REGX_DENIED;
    }
    regx_cache_warn(cache);

    const uintptr_t page = regx_page_size();
    region_t asked = {.start = address & ~(page - 1),
                      .end = regx_align_up(address + length, page),
                      .wanted = access,
                      .access = access};
    const size_t size = asked.end - asked.start;
    const char *reason = NULL;

    if (address > REGX_UNTAGGED_MAX) { /* changes of it would not be recognized */
        regx_monitor_fallback(cache->monitor, counters, asked.start, asked.end,
                              "not kept: an address with a tag");
        return register_once(cache, &asked, NULL, region);
    }
    if (request.exists) { /* what is there stays: it may be true the next time */
        reason = under_way;
    } else if (size > cache->config.bytes) {
        reason = "larger than the cache";
    }
    if (reason != NULL) {
        regx_cache_retire(cache, REGX_RETIRED_MAX);
        return register_once(cache, &asked, reason, region);
    }

    bool busy = false, kept = false;
    regx_status_t status = REGX_AGAIN; /* it was not tried to register it */

    regx_inval_log_interest(cache->log, asked.start, asked.end, 1);
    reason = "changes of it would not be reported";
    if (regx_monitor_subscribe(cache->monitor, asked.start, asked.end, &asked.since) == REGX_OK) {
        reason = "no room";
        if (reserve(cache, &asked)) {
            status = pin(cache, &asked, &region->own);
            if (status == REGX_OK) {
                do {
                    kept = publish(cache, &asked, &region->own, &busy, region);
                } while (!kept && busy && asks_again(&published_since));
            }
            if (kept) {
                regx_count(counters, &counters->misses, 1);
                return REGX_OK;
            }
            reason = busy ? under_way : "it has changed, or others were first";
            unreserve(cache, size);
        }
        regx_monitor_unsubscribe(cache->monitor, asked.start, asked.end);
    }
    regx_inval_log_interest(cache->log, asked.start, asked.end, -1);
    if (status == REGX_AGAIN) {
        return register_once(cache, &asked, reason, region);
    }
    return status == REGX_OK ? regx_once_take(registry, reason, region) : status;
}
