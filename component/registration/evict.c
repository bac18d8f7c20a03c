/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the cache keeps, within its budget, and what it gives up for it. Regions that are given up
 * here end as those do that a change touched: see retire.c.
 */
#include "registration/cache.h"

#include <string.h>

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
 * became more: its buffer may be gone, or all that is left is in use. Nothing else shows it, since
 * nobody watches a buffer that is not kept. */
#define OTHERS 256u
#define LARGE_OTHER 32u /* one that takes parts, too, and is refused until then, counts as many */

static bool is_set_aside_for(const regx_cache_t *cache, const regx_request_t *request)
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

static void give_up_set_aside(regx_cache_t *cache)
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
        give_up_set_aside(cache);
    }
}

bool regx_cache_reserve_locked(regx_cache_t *cache, regx_request_t *request)
{
    const uint64_t size = request->end - request->start;
    const bool own = is_set_aside_for(cache, request);
    const unsigned others = own ? cache->aside.others : 0;

    if (own) {
        give_up_set_aside(cache);
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
