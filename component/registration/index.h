/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Regions by address, for all but the fast path: blocks of up to 64 in order of their starts. A
 * search passes over the blocks that cannot matter at two compares each; a change that ends
 * thousands of regions reads their blocks one after the other. Regions may overlap. Under the
 * cache's lock.
 */
#ifndef REGX_REGISTRATION_INDEX_H
#define REGX_REGISTRATION_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Where somebody is who goes round all regions; at first {0}. Good whatever happens to the index:
 * at worst it is some regions further on. */
typedef struct regx_index_place {
    size_t block;
    uint32_t entry;
} regx_index_place_t;

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
uint32_t regx_index_next(const regx_index_t *index, regx_index_place_t *place);

/* Removes what overlaps the range, *most regions at the most, calling `removed` with up to a block
 * of them at a time. false: there may be more. *most is less afterwards, by the regions, and by the
 * blocks that were looked at as far as these took as long. */
typedef void (*regx_index_removed_t)(void *context, const uint32_t *numbers, uint32_t count);
bool regx_index_cut(regx_index_t *index, uintptr_t start, uintptr_t end, size_t *most,
                    regx_index_removed_t removed, void *context);

#endif
