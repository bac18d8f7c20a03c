/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the fast path does not serve: found by address after all, or registered, to be kept or for
 * this use alone.
 *
 * To be kept, a region must be true at the moment it becomes alive. Interest is declared and the
 * range covered before pinning, and the log is read from the head that there was before that: see
 * component/design/cache.md for the order. What cannot be shown to be true serves this use and no
 * other: it is as good as what backend none would have made.
 */
#include "registration/cache.h"

#include <assert.h>
#include <sched.h>
#include <string.h>

/* A look-up that failed only because a change was under way is made again before anything is
 * registered: for so long, at most. Less than registering takes. */
#define ASKED_FOR_NS 20000
#define EVICTED_MAX 128u /* for one request's room */
/* Given up and deregistered where the device has no more room, by one acquisition; it bounces if
 * that was too little, and the next one goes on. */
#define EVICTED_FOR_DEVICE 256u
#define RETIRED_FOR_DEVICE 1024u

static const char under_way[] = "a change is under way";

/* ---- the budget ---- */

static bool has_room(const regx_cache_t *cache, uint64_t size)
{
    const regx_cache_config_t *config = &cache->config;

    return cache->room.bytes + size <= config->bytes && cache->room.count < config->count;
}

/* Locked: whether the request's range is worth keeping; it has now been seen. */
static bool admits_locked(regx_cache_t *cache, const regx_request_t *request)
{
    const regx_cache_config_t *config = &cache->config;
    const uint64_t size = request->end - request->start;
    const uint64_t mixed = (request->start + request->end * UINT64_C(0x9e3779b97f4a7c15)) *
                           UINT64_C(0xbf58476d1ce4e5b9);
    const uint64_t hash = (mixed ^ mixed >> 32) | 1; /* 0 is an empty place */
    uint64_t *set = cache->ghosts[(hash >> 32) % REGX_GHOST_SETS];
    unsigned at = 0;

    while (at < REGX_GHOST_WAYS - 1 && set[at] != hash) {
        at++;
    }
    const bool seen = set[at] == hash;

    /* It is the first of its set from now on. */
    memmove(set + 1, set, at * sizeof(*set));
    set[0] = hash;
    return size <= config->bytes && config->count > 0 &&
           (seen || config->admit_first || has_room(cache, size));
}

/* Gives the reserved region back. */
static void unreserve_locked(regx_cache_t *cache, const regx_request_t *request)
{
    const uint64_t size = request->end - request->start;

    regx_regions_put(&cache->regions, request->number);
    assert(cache->room.bytes >= size && cache->room.count > 0 && cache->room.pinned >= size);
    cache->room.bytes -= size;
    cache->room.count--;
    atomic_fetch_sub(&cache->room.pinned, size);
}

/* ---- found after all ---- */

/* Whether to ask once more, after others were let run, while a change is under way that may be of
 * anything, or news is not logged. Where the processor is busy that alone may take milliseconds: then
 * it was the last time. *since: when it was first asked so; 0: not yet. */
static bool asks_again(int64_t *since)
{
    const int64_t now = regx_now_ns();

    *since = *since == 0 ? now : *since;
    return now - *since <= ASKED_FOR_NS;
}

/* Whether what was pinned when all changes below `since` had been made, or is not touched by them,
 * is true now. If not, request->busy is whether it may be in a moment. */
static bool is_true_since(const regx_cache_t *cache, regx_request_t *request, uintptr_t start,
                          uintptr_t end, uint64_t since)
{
    request->busy = !regx_monitor_is_settled(cache->monitor);
    return !request->busy && !regx_inval_log_touched(cache->log, since, start, end, true);
}

/* Looks for a region and uses it if it is true, though not all that changed may have ended yet. */
static bool use_found_locked(regx_cache_t *cache, regx_request_t *request)
{
    const regx_lookup_key_t key = regx_lookup_key(request->address);

    request->exists = false;
    request->busy = false;
    request->ts = regx_thread_state_here(cache);
    /* Takes dead regions out of that part of the look-up cache; notes if one of them would have served,
     * had it not changed. */
    for (uint32_t probe = 0; request->ts != NULL && probe < REGX_LOOKUP_WAYS; probe++) {
        const uint32_t entry = regx_lookup_entry(request->ts, &key, probe);
        const regx_record_t *record = &cache->records[regx_lookup_number(entry)];
        const uint32_t state = atomic_load_explicit(&record->state, memory_order_relaxed);

        if (state == REGX_REGION_CHANGED &&
            regx_record_serves(record, request->start, request->end - request->start,
                               request->access)) {
            request->refused = true;
        }
        if (state != REGX_REGION_ALIVE) {
            atomic_store_explicit(regx_lookup_place(request->ts, &key, probe), 0,
                                  memory_order_relaxed);
        }
    }
    regx_cache_catch_up_locked(cache, request);
    request->since = atomic_load_explicit(&cache->applied, memory_order_relaxed);
    request->number =
        regx_index_cover(&cache->index, request->start, request->end, request->access);
    if (request->number == 0) {
        return false;
    }
    if (request->ts != NULL) {
        const regx_record_t *record = &cache->records[request->number];
        _Atomic uint64_t *uses = &request->ts->uses[request->number];

        regx_cache_use(uses, REGX_USE_ACQUIRED, cache->fences);
        if (is_true_since(cache, request, record->start, record->start + record->size,
                          request->since)) {
            regx_cache_count_hit(request->ts);
            regx_thread_state_remember(request->ts, request->address, request->number);
            return true;
        }
        regx_cache_use(uses, 0 - REGX_USE_ACQUIRED, cache->fences);
    }
    request->refused = true;
    request->exists = true;
    return false;
}

/* ---- registered with the transport's memory domain, counted ---- */

/* The device has no room: gives up regions of that many bytes at least, if there are, and as far as
 * one call does so much. false: nothing was given up. */
static bool make_room(regx_cache_t *cache, uint64_t size)
{
    uint64_t freed = 0, bytes = 1;

    regx_lock(&cache->lock);
    for (unsigned i = 0; i < EVICTED_FOR_DEVICE && freed < size && bytes != 0; i++) {
        bytes = regx_cache_evict_locked(cache);
        freed += bytes;
    }
    regx_unlock(&cache->lock);
    return regx_cache_retire(cache, RETIRED_FOR_DEVICE) > 0 || freed > 0;
}

static void trace_refusal(const regx_registry_t *registry, const void *base, size_t length,
                          regx_status_t status)
{
    regx_trace(registry->trace, REGX_TRACE_PATH, "registration: %zu bytes at %p: refused, %s",
               length, base, status == REGX_NO_MEMORY ? "no room" : "not to be used so");
}

regx_status_t regx_mr_register(regx_registry_t *registry, void *base, size_t length,
                               unsigned access, regx_cache_t *evicts, regx_mr_t *mr)
{
    regx_counters_t *counters = registry->counters;
    regx_transport_t *transport = registry->transport;
    int64_t begun = regx_now_ns();
    const bool fits = transport->mr_bytes == 0 || length <= transport->mr_bytes;
    regx_status_t status =
        fits ? transport->ops->reg(transport, base, length, access, mr) : REGX_NO_MEMORY;

    if (status == REGX_NO_MEMORY && fits && evicts != NULL && make_room(evicts, length)) {
        begun = regx_now_ns();
        status = transport->ops->reg(transport, base, length, access, mr);
    }
    if (status != REGX_OK) {
        trace_refusal(registry, base, length, status);
        return status;
    }
    /* The cache's thread deregisters, whatever the application has told of its own. */
    atomic_fetch_add(&counters->registrations, 1);
    atomic_fetch_add(&counters->registering_ns, (uint64_t)(regx_now_ns() - begun));
    atomic_fetch_add(&counters->registered_bytes, length);
    regx_count_high(&counters->registered_high, atomic_load(&counters->registered_bytes));
    return REGX_OK;
}

/* ---- registrations that serve one use each ---- */

/* Where the bytes are counted that serve one use each; NULL: they need no room, for there is no bound, or
 * nothing is pinned. What is received into has room of its own, and so has what is sent from: who
 * receives much would else have granted all the room there is before anything can be sent. */
static _Atomic uint64_t *share_of(regx_registry_t *registry, unsigned access)
{
    if (registry->once_max == REGX_UNLIMITED || (access & REGX_ACCESS_ON_DEMAND) != 0) {
        return NULL;
    }
    return &registry->once[(access & REGX_ACCESS_ANY_WRITE) != 0];
}

/* What does not fit takes nothing, not even for a moment: others would be refused for it. */
static bool enter(regx_registry_t *registry, const void *base, size_t length, unsigned access,
                  regx_region_t *region)
{
    _Atomic uint64_t *share = share_of(registry, access);

    region->over_share = false;
    if (share == NULL) {
        return true;
    }
    uint64_t before = atomic_load(share);

    do {
        if (length > registry->once_max || before > registry->once_max - length) {
            region->over_share = true;
            trace_refusal(registry, base, length, REGX_NO_MEMORY);
            return false;
        }
    } while (!atomic_compare_exchange_weak(share, &before, before + length));
    return true;
}

static void leave(regx_registry_t *registry, size_t length, unsigned access)
{
    _Atomic uint64_t *share = share_of(registry, access);

    if (share != NULL) {
        atomic_fetch_sub(share, length);
    }
}

/* region->own was registered for it. */
static void serve_once(regx_registry_t *registry, const char *reason, regx_region_t *region)
{
    if (reason != NULL) {
        regx_trace(registry->trace, REGX_TRACE_PATH,
                   "registration: %zu bytes at %p: for this use alone, %s", region->own.length,
                   region->own.base, reason);
    }
    region->mr = &region->own;
    region->kept = 0;
    region->owned = NULL;
    regx_count(registry->counters, &registry->counters->uncached, 1);
}

regx_status_t regx_once_register(regx_registry_t *registry, void *base, size_t length,
                                 unsigned access, regx_cache_t *evicts, const char *reason,
                                 regx_region_t *region)
{
    if (!enter(registry, base, length, access, region)) {
        return REGX_NO_MEMORY;
    }
    const regx_status_t status =
        regx_mr_register(registry, base, length, access, evicts, &region->own);

    if (status == REGX_OK) {
        serve_once(registry, reason, region);
    } else {
        leave(registry, length, access);
    }
    return status;
}

void regx_once_deregister(regx_registry_t *registry, regx_region_t *region)
{
    /* What was taken: a transport registers exactly what it is asked for (transport.h). */
    const size_t length = region->own.length;
    const unsigned access = region->own.access;

    regx_mr_deregister(registry, &region->own);
    leave(registry, length, access);
}

static regx_status_t register_once(regx_cache_t *cache, const regx_request_t *request,
                                   const char *reason, regx_region_t *region)
{
    return regx_once_register(cache->registry, (void *)request->start,
                              request->end - request->start, request->wanted, cache, reason,
                              region);
}

/* ---- registered to be kept ---- */

/* Reserves the region, within the budget, and deregisters what was given up for it and some more. Gives
 * up EVICTED_MAX regions at the most: a large one may be refused a few times before there is room,
 * unless small ones take it. false: there is no room, or so much is dead and still pinned that the
 * region is not to be kept. */
static bool reserve(regx_cache_t *cache, regx_request_t *request)
{
    const uint64_t size = request->end - request->start;

    regx_lock(&cache->lock);
    /* One of the same range that has not enough access makes way. */
    const uint32_t old = regx_index_cover(&cache->index, request->start, request->end, 0);

    if (old != 0 && cache->records[old].size == size) {
        request->access |= cache->records[old].access;
        regx_cache_give_up_locked(cache, old);
        request->given_up++;
    }
    while (!has_room(cache, size) && request->given_up < EVICTED_MAX &&
           regx_cache_evict_locked(cache) != 0) {
        request->given_up++;
    }
    request->number = has_room(cache, size) ? regx_regions_take(&cache->regions) : 0;
    if (request->number != 0) {
        cache->room.bytes += size;
        cache->room.count++;
        atomic_fetch_add(&cache->room.pinned, size);
    }
    regx_unlock(&cache->lock);
    regx_cache_retire(cache, request->given_up + REGX_RETIRED_MAX);
    if (request->number == 0 || atomic_load(&cache->room.pinned) <= cache->room.pinned_max) {
        return request->number != 0;
    }
    regx_cache_retire(cache, EVICTED_MAX);
    if (atomic_load(&cache->room.pinned) <= cache->room.pinned_max) {
        return true;
    }
    regx_lock(&cache->lock);
    unreserve_locked(cache, request);
    regx_unlock(&cache->lock);
    return false;
}

/* Lets the new region live, with its first use. false: it is not true, or there is one already, or
 * no memory. */
static bool publish_locked(regx_cache_t *cache, regx_request_t *request, uint64_t cost)
{
    const uint32_t number = request->number;
    regx_record_t *record = &cache->records[number];
    regx_holding_t *holding = &cache->holdings[number];
    const regx_index_entry_t entry = {.start = request->start,
                                      .end = request->end,
                                      .number = number,
                                      .access = holding->mr.access};

    regx_cache_catch_up_locked(cache, NULL); /* so that older changes seldom end it */
    if (!is_true_since(cache, request, entry.start, entry.end, request->since) ||
        regx_index_cover(&cache->index, entry.start, entry.end, entry.access) != 0 ||
        !regx_index_insert(&cache->index, &entry)) {
        return false;
    }
    assert(record->state != REGX_REGION_ALIVE);
    record->access = (uint8_t)entry.access;
    record->start = entry.start;
    record->size = entry.end - entry.start;
    record->used_changed = false;
    holding->cost = cost < UINT32_MAX ? (uint32_t)cost : UINT32_MAX;
    holding->heat = 0;
    holding->seen = (uint32_t)(regx_thread_states_uses(cache->threads.first, number) >> 32);
    regx_cache_use(&request->ts->uses[number], REGX_USE_ACQUIRED, cache->fences);
    atomic_store(&record->state, REGX_REGION_ALIVE);
    regx_thread_state_remember(request->ts, request->address, number);
    return true;
}

/* Registers for this use, and for later ones if it can be watched, there is room, and it is true. */
static regx_status_t register_admitted(regx_cache_t *cache, regx_request_t *request,
                                       regx_region_t *region)
{
    regx_registry_t *registry = cache->registry;
    void *base = (void *)request->start;
    const size_t size = request->end - request->start;
    const char *reason = "changes of it would not be reported";
    regx_status_t status = REGX_AGAIN; /* it was not tried to register it */
    int64_t since = 0;

    regx_inval_log_interest(cache->log, request->start, request->end, 1);
    if (regx_monitor_subscribe(cache->monitor, request->start, request->end, &request->since) !=
        REGX_OK) {
        goto unwatched;
    }
    reason = "no room";
    if (!reserve(cache, request)) {
        goto unreserved;
    }
    regx_mr_t *mr = &cache->holdings[request->number].mr;
    const int64_t began = regx_now_ns();

    status = regx_mr_register(registry, base, size, request->access, cache, mr);
    if (status == REGX_DENIED && request->access != request->wanted) { /* not allowed any more */
        status = regx_mr_register(registry, base, size, request->wanted, cache, mr);
    }
    const uint64_t cost = (uint64_t)(regx_now_ns() - began);

    regx_lock(&cache->lock);
    bool kept = status == REGX_OK && publish_locked(cache, request, cost);
    while (status == REGX_OK && !kept && request->busy && asks_again(&since)) {
        regx_unlock(&cache->lock);
        sched_yield();
        regx_lock(&cache->lock);
        kept = publish_locked(cache, request, cost);
    }
    if (kept) {
        regx_unlock(&cache->lock);
        regx_count(registry->counters, &registry->counters->misses, 1);
        return regx_cache_serve(cache, request->number, request->start, size, request->since,
                                region);
    }
    reason = request->busy ? under_way : "it has changed, or others were first";
    region->own = *mr;
    unreserve_locked(cache, request);
    regx_unlock(&cache->lock);
unreserved:
    regx_monitor_unsubscribe(cache->monitor, request->start, request->end);
unwatched:
    regx_inval_log_interest(cache->log, request->start, request->end, -1);
    if (status == REGX_AGAIN) {
        return register_once(cache, request, reason, region);
    }
    if (status != REGX_OK) {
        return status;
    }
    /* It is there, but good for this use alone. */
    if (!enter(registry, base, region->own.length, region->own.access, region)) {
        regx_mr_deregister(registry, &region->own);
        return REGX_NO_MEMORY;
    }
    serve_once(registry, reason, region);
    return REGX_OK;
}

regx_status_t regx_cache_acquire_slow(regx_cache_t *cache, const void *base, size_t length,
                                      unsigned access, bool registers, regx_region_t *region)
{
    regx_counters_t *counters = cache->registry->counters;
    const uintptr_t address = (uintptr_t)base, page = regx_page_size();
    int64_t asked = 0;
    bool found, again, admitted;

    /* Also refuses a length of 0: less 1 it is beyond everything. */
    if (base == NULL || length - 1 > REGX_UNTAGGED_MAX - (address & REGX_UNTAGGED_MAX) ||
        regx_cache_in_child(cache)) {
        return REGX_DENIED;
    }
    regx_request_t request = {.address = address,
                              .wanted = access,
                              .start = address & ~(page - 1),
                              .end = regx_align_up(address + length, page),
                              .access = access};

    if (registers) {
        regx_cache_warn(cache);
    }
    /* What would else be registered is looked for a few times while a change is under way that may be of
     * anything: one thread that changes watched memory all the time would else make all others register
     * anew. And the notifier's reader lets go the thread that changed memory by reading of it, and logs
     * it only then: that thread may come here a microsecond too early. */
    do {
        regx_lock(&cache->lock);
        found = use_found_locked(cache, &request);
        again = registers && !found && request.busy && asks_again(&asked);
        /* What is there stays: it may be true the next time. */
        admitted = registers && !again && !found && request.ts != NULL && !request.exists &&
                   admits_locked(cache, &request);
        regx_unlock(&cache->lock);
        if (again) {
            sched_yield();
        }
    } while (again);
    if (found) {
        return regx_cache_serve(cache, request.number, address, length, request.since, region);
    }
    regx_count(counters, &counters->stale_prevented, request.refused);
    if (!registers) {
        return REGX_DENIED;
    }
    if (address > REGX_UNTAGGED_MAX) { /* changes of it would not be recognized */
        regx_monitor_fallback(cache->monitor, counters, request.start, request.end,
                              "not kept: an address with a tag");
        return register_once(cache, &request, NULL, region);
    }
    if (admitted) {
        return register_admitted(cache, &request, region);
    }
    const char *reason = "not worth keeping yet";
    if (request.exists) {
        reason = under_way;
    } else if (request.end - request.start > cache->config.bytes) {
        reason = "larger than the cache";
    }
    regx_cache_retire(cache, REGX_RETIRED_MAX);
    return register_once(cache, &request, reason, region);
}
