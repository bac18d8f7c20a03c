/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A claim cell: how two processes divide the copying of one range between them while neither waits
 * for the other. The idea is guided self-scheduling (Polychronopoulos and Kuck, 1987): whoever is
 * free claims the next piece, and pieces become smaller towards the end.
 *
 * The cell lies in the memory of the receiver, who owns the range and begins and closes its use.
 * The peer is told of it by a frame. Both claim from one word by compare-and-swap, in pages of the
 * destination, so that no page is written by both. What the peer has ended it adds to `ended`,
 * behind the bytes. The receiver knows what it claimed itself, so it knows how much the peer did.
 *
 * The word holds the number of this use. A peer that comes late finds another number, or nothing
 * left, and has no effect. The number comes back after four thousand million uses of a cell.
 *
 * Nothing here is a system call, and nothing waits. The receiver's calls for one use are serialised
 * by the caller, the peer's likewise; the two sides run at the same time.
 */
#ifndef REGX_TRANSPORT_CLAIM_H
#define REGX_TRANSPORT_CLAIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define REGX_CLAIM_PAGE 4096u /* the unit, whatever the machine's page is: both sides agree */
#define REGX_CLAIM_LEAST 8u   /* units of a piece: 32 KiB */
#define REGX_CLAIM_MOST 128u  /* 512 KiB: some 30 us */

typedef struct regx_claim_cell {
    _Alignas(64) _Atomic uint64_t claimed; /* number of the use << 32 | units, from the start */
    _Atomic uint64_t failed; /* begin << 32 | end of the piece that the peer could not copy; or 0 */
    _Atomic uint32_t ended;  /* units of the peer's pieces that have ended, well or not */
} regx_claim_cell_t;

/* What is divided. */
typedef struct regx_claim_range {
    uint64_t destination; /* address in the receiver */
    uint64_t length;      /* bytes, at least one */
} regx_claim_range_t;

/* A piece, in units: [begin, end). */
typedef struct regx_claim_piece {
    uint32_t begin, end;
} regx_claim_piece_t;

/* Units of a range, or 0: it is empty, goes round the address space, or is too long (16 TiB). */
uint32_t regx_claim_units(const regx_claim_range_t *range);
/* Where in the range a unit begins, in bytes. For its last piece's end: the length. */
uint64_t regx_claim_offset(const regx_claim_range_t *range, uint32_t unit);

/* The receiver begins use `number`. Nobody uses the cell. */
void regx_claim_open(regx_claim_cell_t *cell, uint32_t number);

/* Claims the next piece; either side. `large`: as long as may be, because other work waits.
 * REGX_OK; REGX_AGAIN: nothing is left; REGX_INVALID: the cell is in another use, or holds what no
 * use writes. */
regx_status_t regx_claim_take(regx_claim_cell_t *cell, uint32_t number, uint32_t units, bool large,
                              regx_claim_piece_t *piece);

/* How many units are claimed. REGX_CLAIM_OVER: the cell is in another use. */
#define REGX_CLAIM_OVER UINT32_MAX
static inline uint32_t regx_claim_look(const regx_claim_cell_t *cell, uint32_t number)
{
    const uint64_t claimed = atomic_load_explicit(&cell->claimed, memory_order_acquire);

    return claimed >> 32 == number ? (uint32_t)claimed : REGX_CLAIM_OVER;
}

/* The receiver: nobody claims any more. Returns how many units had been claimed. */
uint32_t regx_claim_close(regx_claim_cell_t *cell, uint32_t number, uint32_t units);

/* The peer has ended a piece; not copied: the receiver is to copy it. */
void regx_claim_end(regx_claim_cell_t *cell, const regx_claim_piece_t *piece, bool copied);

#endif
