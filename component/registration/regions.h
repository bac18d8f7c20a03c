/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The cache's regions: the table of them, stacks, and their index by address. All of it under the
 * cache's lock.
 *
 * The table's records stay where they are as long as the cache lives. A region's number is its place
 * in the table; numbers are used again, and 0 is no region.
 */
#ifndef REGX_REGISTRATION_REGIONS_H
#define REGX_REGISTRATION_REGIONS_H

#include "registration/registry.h"

#define REGX_REGIONS_MAX (1u << 20) /* alive at once; address space, until used */

typedef enum regx_region_state {
    REGX_REGION_NONE,     /* the record is free */
    REGX_REGION_ALIVE,    /* may be used */
    REGX_REGION_GIVEN_UP, /* for room or for a better one: no new use */
    REGX_REGION_CHANGED   /* its memory changed: no new use */
} regx_region_state_t;

/* Two cache lines, of which a hit touches the first alone. */
typedef struct regx_record {
    _Alignas(128) uint32_t uses;
    uint32_t next; /* in the stack that it is in, if any */
    regx_region_state_t state;
    bool recent;       /* it was hit since the evicting hand came by */
    bool used_changed; /* it changed while it was in use */
    regx_mr_t mr;      /* as the device knows it: its range and access, too */
} regx_record_t;

typedef struct regx_regions {
    regx_record_t *records;
    uint32_t capacity;
    uint32_t used;   /* numbers from here on have never been used */
    uint32_t unused; /* stack of those that have been */
} regx_regions_t;

/* For that many that are alive, or REGX_REGIONS_MAX. false: no memory. */
bool regx_regions_init(regx_regions_t *regions, uint64_t max);
void regx_regions_fini(regx_regions_t *regions);

/* 0: the table is full. What was put back last is taken first: it is in the processor's caches. */
uint32_t regx_regions_take(regx_regions_t *regions);
/* Its state becomes NONE. */
void regx_regions_put(regx_regions_t *regions, uint32_t number);

/* Whether the record's region serves that request. Refuses what is empty or wraps around. */
static inline bool regx_record_serves(const regx_record_t *record, uintptr_t address, size_t length,
                                      unsigned access)
{
    const uintptr_t offset = address - (uintptr_t)record->mr.base;

    return offset < record->mr.length && length - 1 < record->mr.length - offset &&
           (access & ~record->mr.access) == 0;
}

/* A stack is the number of its top; 0: it is empty. */
void regx_regions_push(regx_regions_t *regions, uint32_t *stack, uint32_t number);
uint32_t regx_regions_pop(regx_regions_t *regions, uint32_t *stack); /* 0: empty */

/* ---- by address ----
 * Blocks of up to 64 regions in order of their starts. A search passes over the blocks that cannot
 * matter at two compares each; a change that ends thousands of regions reads their blocks one after
 * the other. Regions may overlap. */

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
    uintptr_t longest; /* no region is longer, nor was */
} regx_index_t;

void regx_index_fini(regx_index_t *index);

/* false: no memory; nothing happened. */
bool regx_index_insert(regx_index_t *index, const regx_index_entry_t *entry);
void regx_index_remove(regx_index_t *index, uintptr_t start, uint32_t number);

/* A region that covers the range and has that access, of several one that begins last; 0: none. */
uint32_t regx_index_cover(const regx_index_t *index, uintptr_t start, uintptr_t end,
                          unsigned access);
/* Removes at most *max regions that overlap the range, and calls `removed` with up to a block of
 * them at a time. Takes from *max how many were removed; blocks that were only looked at count in
 * proportion to their time. false: there may be more. */
typedef void (*regx_index_removed_t)(void *context, const uint32_t *numbers, uint32_t count);
bool regx_index_cut(regx_index_t *index, uintptr_t start, uintptr_t end, size_t *max,
                    regx_index_removed_t removed, void *context);

#endif
