/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The memory that property changes, page by page, and the places in it that its operations get by
 * chance.
 */
#pragma once

#include <stdbool.h>

#include "change.h"

enum {
    PAGE = 4096,
    PAGES = 4096,   /* of the arena */
    MOSTLY = 8,     /* pages of a change, or of a transfer, at the most; */
    LARGEST = 1024, /* one in 500 has so many */
    FAVOURITES = 64
};

/* ---- chance ---- */

extern uint64_t seed;    /* of the run */
extern uint64_t current; /* the operation that is made */

/* The operation begins: what is random from here on is made of the seed and its number alone. */
void random_begin(uint64_t number);
uint64_t random_next(void);
unsigned below(unsigned limit);

/* Ends the program: the arena, or what else there must be, cannot be had. */
_Noreturn void give_up(const char *what);

/* ---- the pages ---- */

typedef enum { NOTHING, PRIVATE, SHARED } state_t; /* what is mapped at a page of the arena */

extern state_t arena_states[PAGES];

uint8_t *arena_at(unsigned page);
void arena_set(unsigned page, unsigned pages, state_t state);
bool arena_all_mapped(unsigned page, unsigned pages);
bool arena_all_are(unsigned page, unsigned pages, state_t state);
/* After something that may have failed half way: what is mapped, is of that kind. */
void arena_look(unsigned page, unsigned pages, state_t state);
/* New memory, which must be had. */
void arena_map(by_t by, unsigned page, unsigned pages, int flags);
/* Whatever is not mapped there, is then. */
void arena_fill(by_t by, unsigned page, unsigned pages);

/* ---- places ---- */

/* Where something happens: often near where transfers often are. */
typedef struct extent {
    unsigned page, pages;
    unsigned before, after; /* bytes of the first and last page that a transfer leaves out */
} extent_t;

extent_t arena_any(void);
/* Where transfers often are. */
extent_t arena_favourite(unsigned which);
extent_t arena_place_of_change(void);
