/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which ranges were asked for before, cheaply and forgetfully: a table of fixed size of their
 * hashes. Under the cache's lock.
 */
#ifndef REGX_REGISTRATION_GHOST_H
#define REGX_REGISTRATION_GHOST_H

#include <stdbool.h>
#include <stdint.h>

#define REGX_GHOST_SETS 4096u
#define REGX_GHOST_WAYS 4u

typedef struct regx_ghost {
    uint64_t seen[REGX_GHOST_SETS][REGX_GHOST_WAYS]; /* the latest first */
} regx_ghost_t;

/* Has the processor fetch what the next function is going to look at. Needs no lock. */
void regx_ghost_fetch(regx_ghost_t *ghost, uintptr_t start, uintptr_t end);
/* Whether the range was seen lately; it now is. */
bool regx_ghost_seen(regx_ghost_t *ghost, uintptr_t start, uintptr_t end);

#endif
