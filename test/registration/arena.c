/* SPDX-License-Identifier: BSD-3-Clause */
#include "arena.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "../stamp.h"

#define BASE ((uint8_t *)((uintptr_t)1 << 45))

uint64_t seed, current;
state_t arena_states[PAGES];

static uint64_t random_state;

void random_begin(uint64_t number)
{
    current = number;
    random_state = seed * UINT64_C(0x2545f4914f6cdd1d) + number;
}

uint64_t random_next(void)
{
    return chance_next(&random_state);
}

unsigned below(unsigned limit)
{
    return (unsigned)(random_next() % limit);
}

_Noreturn void give_up(const char *what)
{
    fprintf(stderr, "property: seed %llu, operation %llu: %s: %s\n", (unsigned long long)seed,
            (unsigned long long)current, what, strerror(errno));
    exit(2);
}

/* ---- the pages ---- */

uint8_t *arena_at(unsigned page)
{
    return BASE + (size_t)page * PAGE;
}

void arena_set(unsigned page, unsigned pages, state_t state)
{
    for (unsigned i = 0; i < pages; i++) {
        arena_states[page + i] = state;
    }
}

bool arena_all_mapped(unsigned page, unsigned pages)
{
    for (unsigned i = 0; i < pages; i++) {
        if (arena_states[page + i] == NOTHING) {
            return false;
        }
    }
    return true;
}

bool arena_all_are(unsigned page, unsigned pages, state_t state)
{
    for (unsigned i = 0; i < pages; i++) {
        if (arena_states[page + i] != state) {
            return false;
        }
    }
    return true;
}

void arena_look(unsigned page, unsigned pages, state_t state)
{
    unsigned char there;

    for (unsigned i = 0; i < pages; i++) {
        if (mincore(arena_at(page + i), PAGE, &there) != 0) {
            arena_states[page + i] = NOTHING;
        } else if (arena_states[page + i] == NOTHING) {
            arena_states[page + i] = state;
        }
    }
}

void arena_map(by_t by, unsigned page, unsigned pages, int flags)
{
    void *memory = change_mmap(by, arena_at(page), (size_t)pages * PAGE, PROT_READ | PROT_WRITE,
                               MAP_ANONYMOUS | flags, -1);

    if (memory != arena_at(page)) {
        give_up("mmap");
    }
    arena_set(page, pages, (flags & MAP_SHARED) != 0 ? SHARED : PRIVATE);
}

void arena_fill(by_t by, unsigned page, unsigned pages)
{
    for (unsigned i = 0; i < pages; i++) {
        unsigned hole = 0;

        while (i + hole < pages && arena_states[page + i + hole] == NOTHING) {
            hole++;
        }
        if (hole > 0) {
            arena_map(by, page + i, hole, MAP_PRIVATE | MAP_FIXED_NOREPLACE);
            i += hole;
        }
    }
}

/* ---- places ---- */

static extent_t any_extent(uint64_t *state)
{
    const unsigned most = chance_next(state) % 500 == 0 ? LARGEST : MOSTLY;
    extent_t extent = {.pages = 1 + (unsigned)(chance_next(state) % most)};

    extent.page = (unsigned)(chance_next(state) % (PAGES - extent.pages));
    if (chance_next(state) % 2 == 0) {
        extent.before = (unsigned)(chance_next(state) % (PAGE / 2));
        extent.after = (unsigned)(chance_next(state) % (PAGE / 2));
    }
    return extent;
}

extent_t arena_any(void)
{
    return any_extent(&random_state);
}

extent_t arena_favourite(unsigned which)
{
    uint64_t state = seed * 1000 + which;

    return any_extent(&state);
}

extent_t arena_place_of_change(void)
{
    extent_t extent = arena_any();

    if (below(2) == 0) {
        const unsigned near = arena_favourite(below(FAVOURITES)).page + below(MOSTLY);

        extent.page = near < 4 ? 0 : near - below(4);
        if (extent.page > PAGES - extent.pages) {
            extent.page = PAGES - extent.pages;
        }
    }
    return extent;
}
