/* SPDX-License-Identifier: BSD-3-Clause */
#include "operations.h"

#include <stdlib.h>
#include <string.h>

#define ELSEWHERE (arena_at(0) + ((size_t)1 << 30)) /* where memory is moved for a moment */

enum { BLOCKS = 32 };

const kind_row_t kinds[KINDS] = {
    [MAP_OVER] = {"mmap FIXED", 120},
    [MAP_SHARED_OVER] = {"mmap FIXED, shared", 20},
    [UNMAP] = {"munmap", 300},
    [SHRINK] = {"mremap to less", 60},
    [GROW] = {"mremap to more", 60},
    [MOVE] = {"mremap", 80},
    [MOVE_AND_STAY] = {"mremap DONTUNMAP", 60},
    [MOVE_AWAY_AND_BACK] = {"mremap away and back", 30},
    [DONTNEED] = {"MADV_DONTNEED", 120},
    [DONTNEED_LOCKED] = {"MADV_DONTNEED_LOCKED", 20},
    [FREE] = {"MADV_FREE", 30},
    [REMOVE] = {"MADV_REMOVE", 40},
    [HEAP] = {"free, malloc", 60},
};

bool hooks_only;

static uint8_t *blocks[BLOCKS];
static size_t block_sizes[BLOCKS];

uint8_t *operations_block(size_t *length)
{
    const unsigned which = below(BLOCKS);

    *length = block_sizes[which];
    return blocks[which];
}

/* ---- operations: each answers whether it was made ---- */

/* Of shared memory more than there is cannot be touched. */
static bool resize(by_t by, extent_t at, bool more)
{
    const unsigned less = (at.pages + 1) / 2;

    if (!arena_all_are(at.page, more ? less : at.pages, PRIVATE) ||
        (more && !arena_all_are(at.page + less, at.pages - less, NOTHING))) {
        return false;
    }
    const void *moved =
        change_mremap(by, arena_at(at.page), (size_t)(more ? less : at.pages) * PAGE,
                      (size_t)(more ? at.pages : less) * PAGE, 0, NULL);
    arena_look(at.page, at.pages, PRIVATE);
    return moved != MAP_FAILED;
}

static bool move(by_t by, extent_t from, extent_t to, int flags)
{
    const size_t length = (size_t)from.pages * PAGE;
    state_t moving[LARGEST];

    to.pages = from.pages;
    if (to.page > PAGES - to.pages) {
        to.page = PAGES - to.pages;
    }
    /* Shared memory that also stays would be at two addresses. */
    if (!(flags == 0 ? arena_all_mapped(from.page, from.pages)
                     : arena_all_are(from.page, from.pages, PRIVATE)) ||
        (from.page < to.page + to.pages && to.page < from.page + from.pages)) {
        return false;
    }
    if (hooks_only && !change_munmap(by, arena_at(to.page), length)) {
        arena_set(to.page, to.pages, NOTHING);
    }
    memcpy(moving, &arena_states[from.page], from.pages * sizeof(moving[0]));
    const void *moved = change_mremap(by, arena_at(from.page), length, length,
                                      MREMAP_MAYMOVE | MREMAP_FIXED | flags, arena_at(to.page));
    arena_look(from.page, from.pages, PRIVATE);
    arena_look(to.page, to.pages, SHARED); /* a part may have been moved */
    if (moved == MAP_FAILED) {
        return false;
    }
    memcpy(&arena_states[to.page], moving, from.pages * sizeof(moving[0]));
    return true;
}

static bool away_and_back(by_t by, extent_t at)
{
    const size_t length = (size_t)at.pages * PAGE;

    if (!arena_all_mapped(at.page, at.pages)) {
        return false;
    }
    void *moved = change_mremap(by, arena_at(at.page), length, length,
                                MREMAP_MAYMOVE | MREMAP_FIXED, ELSEWHERE);
    if (moved != MAP_FAILED) {
        moved = change_mremap(by, ELSEWHERE, length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
                              arena_at(at.page));
    }
    arena_look(at.page, at.pages, PRIVATE);
    munmap(ELSEWHERE, length);
    return moved != MAP_FAILED;
}

static bool advise(by_t by, extent_t at, int advice)
{
    return arena_all_mapped(at.page, at.pages) &&
           change_madvise(by, arena_at(at.page), (size_t)at.pages * PAGE, advice) == 0;
}

static bool reallocate(void)
{
    static const size_t sizes[] = {3000, 20000, 100000, 300000};
    const unsigned which = below(BLOCKS);

    free(blocks[which]);
    block_sizes[which] = sizes[below(4)];
    blocks[which] = malloc(block_sizes[which]);
    return blocks[which] != NULL;
}

bool operations_make(kind_t kind, by_t by, extent_t at, extent_t to)
{
    switch (kind) {
    case MAP_OVER:
        arena_map(by, at.page, at.pages, MAP_PRIVATE | MAP_FIXED);
        return true;
    case MAP_SHARED_OVER:
        arena_map(by, at.page, at.pages, MAP_SHARED | MAP_FIXED);
        return true;
    case UNMAP:
        if (change_munmap(by, arena_at(at.page), (size_t)at.pages * PAGE) != 0) {
            give_up("munmap");
        }
        arena_set(at.page, at.pages, NOTHING);
        return true;
    case SHRINK:
        return resize(by, at, false);
    case GROW:
        return resize(by, at, true);
    case MOVE:
        return move(by, at, to, 0);
    case MOVE_AND_STAY:
        return move(by, at, to, MREMAP_DONTUNMAP);
    case MOVE_AWAY_AND_BACK:
        return away_and_back(by, at);
    case DONTNEED:
        return advise(by, at, MADV_DONTNEED);
    case DONTNEED_LOCKED:
        return !hooks_only && advise(by, at, MADV_DONTNEED_LOCKED);
    case FREE:
        return advise(by, at, MADV_FREE);
    case REMOVE:
        return !hooks_only && advise(by, at, MADV_REMOVE);
    case HEAP:
        return reallocate();
    case KINDS:
        break;
    }
    return false;
}
