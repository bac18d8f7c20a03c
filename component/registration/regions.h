/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of regions: records that stay where they are, and stay records, as long as the cache
 * lives. So a look-up may read any of them without a lock, at worst to find that it now describes
 * another region. A region's number is its place in the table; numbers are used again.
 *
 * What look-ups read is written before the state becomes ALIVE, and not again before it has been
 * dead and without users (retire.c). All else is under the cache's lock.
 */
#ifndef REGX_REGISTRATION_REGIONS_H
#define REGX_REGISTRATION_REGIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "registration/registration.h"

#define REGX_REGIONS_MAX (1u << 20) /* alive at once; address space, until used */

typedef enum regx_region_state {
    REGX_REGION_NONE,     /* never used */
    REGX_REGION_ALIVE,    /* may be used */
    REGX_REGION_GIVEN_UP, /* for room or for a better one: no new use */
    REGX_REGION_CHANGED   /* its memory changed: no new use */
} regx_region_state_t;

/* What look-ups and releases read: small, so that ten thousand stay close. */
typedef struct regx_record {
    _Alignas(32) _Atomic uintptr_t start;
    _Atomic size_t size;
    _Atomic uint32_t state;
    _Atomic uint8_t access;
    _Atomic bool used_changed; /* it changed while it was in use */
    uint32_t next;             /* in a list of regx_region_list_t */
} regx_record_t;

/* The rest. */
typedef struct regx_holding {
    regx_mr_t mr;  /* as the device knows it */
    uint32_t cost; /* of registering it: nanoseconds */
    uint32_t heat; /* how often it was used, the older the less; see evict.c */
    uint32_t seen; /* acquisitions when heat was last brought up to date */
} regx_holding_t;

/* Number 0 is no region. */
typedef struct regx_regions {
    regx_record_t *records;
    regx_holding_t *holdings;
    uint32_t capacity;
    uint32_t used;   /* numbers from here on have never been used */
    uint32_t unused; /* first of those that have been */
} regx_regions_t;

/* For that many that are alive, or REGX_REGIONS_MAX. false: no memory. */
bool regx_regions_init(regx_regions_t *regions, uint64_t max);
void regx_regions_fini(regx_regions_t *regions);

/* 0: the table is full. What was put back last is taken first: it is in the processor's caches. */
uint32_t regx_regions_take(regx_regions_t *regions);
void regx_regions_put(regx_regions_t *regions, uint32_t number);

/* Whether the record's region serves that request. Refuses what is empty or wraps around. */
static inline bool regx_record_serves(const regx_record_t *record, uintptr_t address, size_t length,
                                      unsigned access)
{
    const uintptr_t offset = address - atomic_load_explicit(&record->start, memory_order_relaxed);
    const size_t size = atomic_load_explicit(&record->size, memory_order_relaxed);
    const unsigned has = atomic_load_explicit(&record->access, memory_order_relaxed);

    return offset < size && length - 1 < size - offset && (access & ~has) == 0;
}

/* Regions in a row, linked by `next`. */
typedef struct regx_region_list {
    uint32_t first, last;
} regx_region_list_t;

void regx_region_list_push(regx_regions_t *regions, regx_region_list_t *list, uint32_t number);
uint32_t regx_region_list_pop(regx_regions_t *regions, regx_region_list_t *list); /* 0: empty */
/* All of `from` goes before what is in `list`. */
void regx_region_list_prepend(regx_regions_t *regions, regx_region_list_t *list,
                              regx_region_list_t *from);

/* ---- by address ----
 * The index of regions for all but the fast path: blocks of up to 64 in order of their starts. A
 * search passes over the blocks that cannot matter at two compares each; a change that ends
 * thousands of regions reads their blocks one after the other. Regions may overlap. Under the
 * cache's lock. */

typedef struct regx_index_entry {
    uintptr_t start, end;
    uint32_t number;
    unsigned access;
} regx_index_entry_t;

typedef struct regx_index_block {
    uintptr_t start, end; /* the least start and the greatest end of its entries */
    uint32_t count;       /* at least 1 */
    regx_index_entry_t *entries;
} regx_index_block_t;

typedef struct regx_index {
    regx_index_block_t *blocks;
    size_t count, room;
    size_t regions;    /* of all blocks */
    uintptr_t longest; /* no region is longer, nor was */
} regx_index_t;

/* A position in a walk over all regions, which begins with {0}. Valid whatever happens to the index
 * in between: at worst the walk skips some regions. */
typedef struct regx_index_cursor {
    size_t block;
    uint32_t entry;
} regx_index_cursor_t;

void regx_index_init(regx_index_t *index);
void regx_index_fini(regx_index_t *index);

/* false: no memory; nothing happened. */
bool regx_index_insert(regx_index_t *index, const regx_index_entry_t *entry);
void regx_index_remove(regx_index_t *index, uintptr_t start, uint32_t number);

/* A region that covers the range and has that access; 0: none. */
uint32_t regx_index_cover(const regx_index_t *index, uintptr_t start, uintptr_t end,
                          unsigned access);
/* A region of exactly that range; 0: none. */
uint32_t regx_index_exact(const regx_index_t *index, uintptr_t start, uintptr_t end);

/* The region there, and on to the next one; after the last comes the first. 0: there is none. */
uint32_t regx_index_next(const regx_index_t *index, regx_index_cursor_t *place);

/* Removes at most *max regions that overlap the range, and calls `removed` with up to a block of
 * them at a time. Takes from *max how many were removed; blocks that were only looked at count in
 * proportion to their time. false: there may be more. */
typedef void (*regx_index_removed_t)(void *context, const uint32_t *numbers, uint32_t count);
bool regx_index_cut(regx_index_t *index, uintptr_t start, uintptr_t end, size_t *max,
                    regx_index_removed_t removed, void *context);

/* ---- registered with the transport's memory domain, counted ---- */

/* Whether the device can register so much at once. */
static inline bool regx_mr_fits(const regx_registry_t *registry, size_t length)
{
    const uint64_t max = registry->transport->mr_bytes;

    return max == 0 || length <= max;
}

/* REGX_NO_MEMORY also of what the device does not take. */
regx_status_t regx_mr_register(regx_registry_t *registry, void *base, size_t length,
                               unsigned access, regx_mr_t *mr);
/* Traces it; for callers that do not try again. */
void regx_mr_trace_refusal(const regx_registry_t *registry, const void *base, size_t length,
                           regx_status_t status);
void regx_mr_deregister(regx_registry_t *registry, regx_mr_t *mr);

#endif
