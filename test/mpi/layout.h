/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layouts: how a message of some bytes lies in memory, as an MPI datatype and as a list of blocks.
 *
 * An arena is memory around one such message. All of it carries a background stamp, so that a
 * byte written before, after or between the blocks is found like a wrong byte within them.
 */
#pragma once

#include "check.h"

enum { ARENA_GUARD = 8192 };

enum layout_kind { LAYOUT_CONTIGUOUS, LAYOUT_VECTOR, LAYOUT_INDEXED };

struct block {
    size_t offset; /* from the start of the buffer */
    size_t length;
    size_t position; /* in the stream of the message's bytes */
};

struct layout {
    MPI_Datatype type; /* one element of it is the whole message */
    size_t size;
    size_t extent;
    size_t blocks;
    struct block *block; /* by ascending offset */
};

struct arena {
    const struct layout *layout;
    bool owned; /* of MPI_Alloc_mem */
    size_t size;
    size_t start; /* of the buffer, from the start of the memory */
    uint64_t background;
    unsigned char *memory;
};

static inline struct layout layout_make(enum layout_kind kind, size_t size)
{
    enum { VECTOR_MOST = 1000, VECTOR_GAP = 24, INDEXED_MOST = 3000, INDEXED_GAP = 40 };
    struct layout layout = {.size = size};
    size_t vector = size / 4 < VECTOR_MOST ? size / 4 + 1 : VECTOR_MOST;
    size_t most = kind == LAYOUT_CONTIGUOUS ? 1 : size / (VECTOR_MOST / 8) + 4;
    int *lengths = check_memory(most * sizeof *lengths);
    MPI_Aint *offsets = check_memory(most * sizeof *offsets);
    size_t left = size;

    layout.block = check_memory(most * sizeof *layout.block);
    while (left > 0) {
        size_t n = layout.blocks;
        size_t length = left;
        size_t offset = 0;
        if (kind == LAYOUT_VECTOR) {
            length = vector;
            offset = n * (vector + VECTOR_GAP);
        } else if (kind == LAYOUT_INDEXED) { /* irregular lengths and gaps */
            length = n % 16 == 0 ? INDEXED_MOST : 1 + stamp_mix(n) % INDEXED_MOST;
            offset = layout.extent + (n == 0 ? 0 : stamp_mix(~n) % INDEXED_GAP);
        }
        length = length < left ? length : left;
        left -= length;
        check_that(n != most, "layout of %zu bytes needs more than %zu blocks", size, most);
        layout.block[n] = (struct block){offset, length, size - left - length};
        layout.extent = offset + length;
        layout.blocks++;
    }
    if (kind == LAYOUT_INDEXED) { /* the stream runs against the addresses */
        for (size_t n = 0; n < layout.blocks; n++) {
            layout.block[n].position = size - layout.block[n].position - layout.block[n].length;
        }
    }
    for (size_t n = 0; n < layout.blocks; n++) {
        size_t slot = kind == LAYOUT_INDEXED ? layout.blocks - 1 - n : n;
        lengths[slot] = (int)layout.block[n].length;
        offsets[slot] = (MPI_Aint)layout.block[n].offset;
    }
    if (kind == LAYOUT_VECTOR && size % vector == 0) {
        MPI_Type_create_hvector((int)layout.blocks, (int)vector, (MPI_Aint)vector + VECTOR_GAP,
                                MPI_BYTE, &layout.type);
    } else if (kind == LAYOUT_CONTIGUOUS) {
        MPI_Type_contiguous((int)size, MPI_BYTE, &layout.type);
    } else {
        MPI_Type_create_hindexed((int)layout.blocks, lengths, offsets, MPI_BYTE, &layout.type);
    }
    MPI_Type_commit(&layout.type);
    free(lengths);
    free(offsets);
    return layout;
}

static inline void layout_free(struct layout *layout)
{
    MPI_Type_free(&layout->type);
    free(layout->block);
}

static inline void *arena_buffer(const struct arena *arena)
{
    return arena->memory + arena->start;
}

/* page_offset: where the buffer starts within a page. */
static inline struct arena arena_make(const struct layout *layout, size_t page_offset,
                                      uint64_t background, bool owned)
{
    struct arena arena = {.layout = layout, .owned = owned, .background = background};
    arena.start = ARENA_GUARD + page_offset;
    arena.size = arena.start + layout->extent + ARENA_GUARD;
    if (owned) {
        MPI_Alloc_mem((MPI_Aint)arena.size, MPI_INFO_NULL, &arena.memory);
    } else {
        arena.memory = check_memory(arena.size);
    }
    stamp_fill(arena.memory, arena.size, background, 0);
    return arena;
}

static inline void arena_fill(const struct arena *arena, uint64_t key)
{
    for (size_t n = 0; n < arena->layout->blocks; n++) {
        const struct block *block = &arena->layout->block[n];
        stamp_fill(arena->memory + arena->start + block->offset, block->length, key,
                   block->position);
    }
}

static inline void arena_check_background(const struct arena *arena, size_t from, size_t to,
                                          const char *what)
{
    size_t good = from + stamp_check(arena->memory + from, to - from, arena->background, from);
    check_that(good == to,
               "%s: a byte outside the message was written, at %td from the start of the "
               "buffer (extent %zu)",
               what, (ptrdiff_t)good - (ptrdiff_t)arena->start, arena->layout->extent);
}

/* That the message is right and nothing around it was touched. */
static inline void arena_check(const struct arena *arena, uint64_t key, const char *what)
{
    size_t done = 0;
    for (size_t n = 0; n < arena->layout->blocks; n++) {
        const struct block *block = &arena->layout->block[n];
        size_t from = arena->start + block->offset;
        arena_check_background(arena, done, from, what);
        check_stamp(arena->memory + from, block->length, key, block->position, what);
        done = from + block->length;
    }
    arena_check_background(arena, done, arena->size, what);
}

static inline void arena_free(struct arena *arena)
{
    if (arena->owned) {
        MPI_Free_mem(arena->memory);
    } else {
        free(arena->memory);
    }
    arena->memory = NULL;
}
