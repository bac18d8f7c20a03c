/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What property does to its memory: each operation makes sense in whatever state it meets, or
 * answers that it was not made.
 */
#ifndef REGX_TEST_OPERATIONS_H
#define REGX_TEST_OPERATIONS_H

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
    ADVICE, /* that changes nothing */
    PROTECT,
    BREAK,
    ATTACH,
    ATTACH_OVER,
    DETACH,
    HEAP,
    HUGE_PAGES,
    FORK,
    KINDS
} kind_t;

typedef struct kind_row {
    const char *name;
    unsigned weight;
} kind_row_t;

extern const kind_row_t kinds[KINDS];

extern bool hooks_only; /* makes what hooks can see, and nothing else */
extern bool remap_seen; /* shmat(SHM_REMAP), by libc */

/* First: where the break is. */
void operations_open(void);

/* Whether it was made. */
bool operations_make(kind_t kind, by_t by, extent_t at, extent_t to);

/* Memory outside the arena that operations made, for transfers; NULL: none just now. */
uint8_t *operations_block(size_t *length); /* some block of malloc's */
uint8_t *operations_break(size_t *length);

#endif
