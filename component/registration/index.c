/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/index.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK 64u
#define MERGED 48u /* two neighbours that hold no more than this become one */

typedef regx_index_block_t block_t;
typedef regx_index_entry_t entry_t;

void regx_index_init(regx_index_t *index)
{
    *index = (regx_index_t){0};
}

void regx_index_fini(regx_index_t *index)
{
    for (size_t i = 0; i < index->count; i++) {
        free(index->blocks[i].entries);
    }
    free(index->blocks);
}

/* How many blocks start at or below that address. */
static size_t blocks_upto(const regx_index_t *index, uintptr_t start)
{
    size_t low = 0, high = index->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (index->blocks[middle].start <= start) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void summarize(block_t *block)
{
    block->start = block->entries[0].start;
    block->end = 0;
    for (uint32_t i = 0; i < block->count; i++) {
        block->end = block->entries[i].end > block->end ? block->entries[i].end : block->end;
    }
}

/* Makes an empty block at that place; the caller fills it. */
static bool add_block(regx_index_t *index, size_t at)
{
    entry_t *entries = malloc(BLOCK * sizeof(*entries));

    if (entries != NULL && index->count == index->room) {
        const size_t room = 2 * index->room + 16;
        block_t *blocks = realloc(index->blocks, room * sizeof(*blocks));

        if (blocks == NULL) {
            free(entries);
            return false;
        }
        index->blocks = blocks;
        index->room = room;
    }
    if (entries == NULL) {
        return false;
    }
    block_t *block = &index->blocks[at];

    memmove(block + 1, block, (index->count - at) * sizeof(*block));
    index->count++;
    *block = (block_t){.entries = entries};
    return true;
}

static void drop_block(regx_index_t *index, size_t at)
{
    block_t *block = &index->blocks[at];

    free(block->entries);
    index->count--;
    memmove(block, block + 1, (index->count - at) * sizeof(*block));
}

/* The upper half of a full block becomes one of its own, behind it. */
static bool split(regx_index_t *index, size_t at)
{
    if (!add_block(index, at + 1)) {
        return false;
    }
    block_t *lower = &index->blocks[at], *upper = lower + 1;

    lower->count = BLOCK / 2;
    upper->count = BLOCK / 2;
    memcpy(upper->entries, lower->entries + BLOCK / 2, BLOCK / 2 * sizeof(entry_t));
    summarize(lower);
    summarize(upper);
    return true;
}

bool regx_index_insert(regx_index_t *index, const regx_index_entry_t *entry)
{
    size_t at = blocks_upto(index, entry->start);

    if (index->count == 0 && !add_block(index, 0)) {
        return false;
    }
    at -= at > 0;
    if (index->blocks[at].count == BLOCK) {
        if (!split(index, at)) {
            return false;
        }
        at += entry->start >= index->blocks[at + 1].start;
    }
    block_t *block = &index->blocks[at];
    uint32_t place = block->count;

    while (place > 0 && block->entries[place - 1].start > entry->start) {
        place--;
    }
    entry_t *entries = block->entries + place;

    memmove(entries + 1, entries, (block->count - place) * sizeof(*entries));
    *entries = *entry;
    block->count++;
    index->regions++;
    summarize(block);
    return true;
}

static void merge_with_next(regx_index_t *index, size_t at)
{
    block_t *block = &index->blocks[at], *next = block + 1;

    memcpy(block->entries + block->count, next->entries, next->count * sizeof(entry_t));
    block->count += next->count;
    drop_block(index, at + 1);
}

static void remove_entry(regx_index_t *index, size_t at, uint32_t which)
{
    block_t *block = &index->blocks[at];
    entry_t *entry = block->entries + which;

    block->count--;
    index->regions--;
    memmove(entry, entry + 1, (block->count - which) * sizeof(*entry));
    if (block->count == 0) {
        drop_block(index, at);
        return;
    }
    if (at + 1 < index->count && block->count + index->blocks[at + 1].count <= MERGED) {
        merge_with_next(index, at);
    }
    summarize(block);
}

void regx_index_remove(regx_index_t *index, uintptr_t start, uint32_t number)
{
    for (size_t at = blocks_upto(index, start); at-- > 0;) {
        const block_t *block = &index->blocks[at];

        for (uint32_t i = 0; i < block->count; i++) {
            if (block->entries[i].number == number) {
                remove_entry(index, at, i);
                return;
            }
        }
    }
}

uint32_t regx_index_cover(const regx_index_t *index, uintptr_t start, uintptr_t end,
                          unsigned access)
{
    for (size_t at = blocks_upto(index, start); at-- > 0;) {
        const block_t *block = &index->blocks[at];

        if (block->end < end) {
            continue;
        }
        for (uint32_t i = block->count; i-- > 0;) {
            const entry_t *entry = &block->entries[i];

            if (entry->start <= start && entry->end >= end && (access & ~entry->access) == 0) {
                return entry->number;
            }
        }
    }
    return 0;
}

uint32_t regx_index_exact(const regx_index_t *index, uintptr_t start, uintptr_t end)
{
    for (size_t at = blocks_upto(index, start); at-- > 0;) {
        const block_t *block = &index->blocks[at];

        for (uint32_t i = block->count; i-- > 0;) {
            if (block->entries[i].start == start && block->entries[i].end == end) {
                return block->entries[i].number;
            }
        }
        if (block->start < start) {
            return 0;
        }
    }
    return 0;
}

uint32_t regx_index_next(const regx_index_t *index, regx_index_place_t *place)
{
    if (place->block < index->count && place->entry >= index->blocks[place->block].count) {
        *place = (regx_index_place_t){.block = place->block + 1};
    }
    if (place->block >= index->count) {
        *place = (regx_index_place_t){0};
    }
    return index->count > 0 ? index->blocks[place->block].entries[place->entry++].number : 0;
}

/* Removes those of the block that overlap; returns whether any is left. */
static bool cut_block(block_t *block, uintptr_t start, uintptr_t end, regx_index_removed_t removed,
                      void *context)
{
    uint32_t numbers[BLOCK];
    uint32_t kept = 0;

    for (uint32_t i = 0; i < block->count; i++) {
        const entry_t *entry = &block->entries[i];

        if (entry->start < end && start < entry->end) {
            numbers[i - kept] = entry->number;
        } else {
            block->entries[kept++] = *entry;
        }
    }
    if (kept < block->count) {
        removed(context, numbers, block->count - kept);
    }
    block->count = kept;
    if (kept == 0) {
        free(block->entries);
        return false;
    }
    summarize(block);
    return true;
}

void regx_index_cut(regx_index_t *index, uintptr_t start, uintptr_t end,
                    regx_index_removed_t removed, void *context)
{
    size_t left = 0, regions = 0;

    for (size_t at = 0; at < index->count; at++) {
        block_t *block = &index->blocks[at];

        if (block->start >= end || block->end <= start ||
            cut_block(block, start, end, removed, context)) {
            regions += block->count;
            index->blocks[left++] = *block;
        }
    }
    index->count = left;
    index->regions = regions;
}
