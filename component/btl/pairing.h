/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which ports of two processes talk to each other. Plain C, without Open MPI.
 *
 * Each process decides by itself, from what both have published. Both must come to the same result:
 * Open MPI answers a large message over the module on which it arrived.
 */
#ifndef REGX_BTL_PAIRING_H
#define REGX_BTL_PAIRING_H

#include <stdbool.h>
#include <stddef.h>

#define REGX_PAIRING_MAX 64 /* ports of one process */
#define REGX_PAIRING_NONE (-1)

typedef struct regx_pairing {
    unsigned our_count, their_count; /* at most REGX_PAIRING_MAX, in the order of publishing */
    /* Whether one of ours leads to one of theirs. The other process gets the same answer. */
    bool (*reaches)(void *context, unsigned ours, unsigned theirs);
    void *context;
} regx_pairing_t;

/* For each of ours, to which of theirs it talks, or REGX_PAIRING_NONE. As many as can be: those at
 * the same place in both lists first, then by how far apart their places are. */
void regx_pair(const regx_pairing_t *pairing, int talks_to[REGX_PAIRING_MAX]);

#endif
