/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/regions.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

bool regx_regions_init(regx_regions_t *regions, uint64_t max)
{
    /* Some more than may be alive: those that are dead and not yet deregistered. */
    const size_t capacity = 2 * regx_min(max, REGX_REGIONS_MAX / 2) + 64;

    *regions = (regx_regions_t){.capacity = (uint32_t)capacity, .used = 1};
    regions->records = mmap(NULL, capacity * sizeof(regx_record_t), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return regions->records != MAP_FAILED;
}

void regx_regions_fini(regx_regions_t *regions)
{
    if (regions->records != MAP_FAILED) {
        munmap(regions->records, regions->capacity * sizeof(regx_record_t));
    }
}

void regx_regions_push(regx_regions_t *regions, uint32_t *stack, uint32_t number)
{
    regions->records[number].next = *stack;
    *stack = number;
}

uint32_t regx_regions_pop(regx_regions_t *regions, uint32_t *stack)
{
    const uint32_t number = *stack;

    if (number != 0) {
        *stack = regions->records[number].next;
    }
    return number;
}

uint32_t regx_regions_take(regx_regions_t *regions)
{
    const uint32_t number = regx_regions_pop(regions, &regions->unused);

    return number == 0 && regions->used < regions->capacity ? regions->used++ : number;
}

void regx_regions_put(regx_regions_t *regions, uint32_t number)
{
    regx_record_t *record = &regions->records[number];

    assert(number > 0 && number < regions->used && record->state != REGX_REGION_ALIVE);
    record->state = REGX_REGION_NONE;
    regx_regions_push(regions, &regions->unused, number);
}

/* ---- by address ---- */

#define BLOCK 64u
#define LOOKS 16u /* blocks looked at, while one region is ended */

typedef regx_index_block_t block_t;
typedef regx_index_entry_t entry_t;

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
        block->end = regx_max(block->end, block->entries[i].end);
    }
}

/* Makes an empty block at that place; the caller fills it. */
static bool add_block(regx_index_t *index, size_t at)
{
    if (index->count == index->room) {
        const size_t room = 2 * index->room + 16;
        block_t *blocks = realloc(index->blocks, room * sizeof(*blocks));

        if (blocks == NULL) {
            return false;
        }
        index->blocks = blocks;
        index->room = room;
    }
    entry_t *entries = malloc(BLOCK * sizeof(*entries));

    if (entries == NULL) {
        return false;
    }
    block_t *block = &index->blocks[at];

    memmove(block + 1, block, (index->count - at) * sizeof(*block));
    index->count++;
    *block = (block_t){.entries = entries};
    return true;
}

bool regx_index_insert(regx_index_t *index, const regx_index_entry_t *entry)
{
    size_t at = blocks_upto(index, entry->start);

    if (index->count == 0 && !add_block(index, 0)) {
        return false;
    }
    at -= at > 0;
    if (index->blocks[at].count == BLOCK) { /* its upper half becomes one of its own, behind it */
        if (!add_block(index, at + 1)) {
            return false;
        }
        block_t *lower = &index->blocks[at], *upper = lower + 1;

        lower->count = BLOCK / 2;
        upper->count = BLOCK / 2;
        memcpy(upper->entries, lower->entries + BLOCK / 2, BLOCK / 2 * sizeof(entry_t));
        summarize(lower);
        summarize(upper);
        at += entry->start >= upper->start;
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
    index->longest = regx_max(index->longest, entry->end - entry->start);
    block->start = block->entries[0].start;
    block->end = regx_max(block->end, entry->end);
    return true;
}

void regx_index_remove(regx_index_t *index, uintptr_t start, uint32_t number)
{
    for (size_t at = blocks_upto(index, start); at-- > 0;) {
        block_t *block = &index->blocks[at];
        uint32_t which = 0;

        while (which < block->count && block->entries[which].number != number) {
            which++;
        }
        if (which == block->count) {
            continue;
        }
        entry_t *entry = block->entries + which;

        block->count--;
        memmove(entry, entry + 1, (block->count - which) * sizeof(*entry));
        if (block->count > 0) {
            summarize(block);
        } else {
            free(block->entries);
            index->count--;
            memmove(block, block + 1, (index->count - at) * sizeof(*block));
        }
        return;
    }
}

uint32_t regx_index_cover(const regx_index_t *index, uintptr_t start, uintptr_t end,
                          unsigned access)
{
    for (size_t at = blocks_upto(index, start); at-- > 0;) {
        const block_t *block = &index->blocks[at];

        for (uint32_t i = block->end >= end ? block->count : 0; i-- > 0;) {
            const entry_t *entry = &block->entries[i];

            if (entry->start <= start && entry->end >= end && (access & ~entry->access) == 0) {
                return entry->number;
            }
        }
        if (end - block->start > index->longest) { /* none that begins so early reaches it */
            break;
        }
    }
    return 0;
}

/* Removes those of the block that overlap, up to `max`; returns how many. */
static uint32_t cut_block(block_t *block, uintptr_t start, uintptr_t end, size_t max,
                          regx_index_removed_t removed, void *context)
{
    uint32_t numbers[BLOCK];
    uint32_t count = 0;

    for (uint32_t i = 0; i < block->count; i++) {
        const entry_t *entry = &block->entries[i];

        if (entry->start < end && start < entry->end && count < max) {
            numbers[count++] = entry->number;
        } else {
            block->entries[i - count] = *entry;
        }
    }
    if (count > 0) {
        block->count -= count;
        removed(context, numbers, count);
    }
    if (block->count == 0) {
        free(block->entries);
    } else if (count > 0) {
        summarize(block);
    }
    return count;
}

bool regx_index_cut(regx_index_t *index, uintptr_t start, uintptr_t end, size_t *max,
                    regx_index_removed_t removed, void *context)
{
    /* The first block of which a region may reach beyond `start`: no region is longer than `longest`, so
     * one that does begins at most `longest` before it. */
    const size_t below = start > index->longest ? blocks_upto(index, start - index->longest) : 0;
    const size_t first = below > 0 ? below - 1 : 0, last = blocks_upto(index, end - 1);
    size_t at = first, left = first, cut = 0;

    for (; at < last && cut < *max; at++) {
        block_t *block = &index->blocks[at];

        if (block->end > start) {
            cut += cut_block(block, start, end, *max - cut, removed, context);
        }
        if (block->count > 0) {
            index->blocks[left++] = *block;
        }
    }
    if (left < at) {
        memmove(index->blocks + left, index->blocks + at, (index->count - at) * sizeof(block_t));
        index->count -= at - left;
    }

    const bool all = cut < *max;
    const size_t work = cut + (at - first) / LOOKS;

    *max -= work < *max ? work : *max;
    return all;
}
