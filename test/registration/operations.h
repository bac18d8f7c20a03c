/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What property does to its memory: each operation makes sense in whatever state it meets, or
 * answers that it was not made. Other ways to change memory, one by one: the table's rows.
 */
#pragma once

#include "arena.h"

typedef enum {
    MAP_OVER,
    MAP_SHARED_OVER,
    UNMAP,
    SHRINK,
    GROW,
    MOVE,
    MOVE_AND_STAY,
    MOVE_AWAY_AND_BACK,
    DONTNEED,
    DONTNEED_LOCKED,
    FREE,
    REMOVE,
    HEAP,
    KINDS
} kind_t;

typedef struct kind_row {
    const char *name;
    unsigned weight;
} kind_row_t;

extern const kind_row_t kinds[KINDS];

extern bool hooks_only; /* makes what hooks can see, and nothing else */

/* Whether it was made. */
bool operations_make(kind_t kind, by_t by, extent_t at, extent_t to);

/* Some block of malloc's, for transfers; NULL: none just now. */
uint8_t *operations_block(size_t *length);
