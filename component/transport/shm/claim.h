/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A claim cell: how two processes divide the copying of one range between them while neither waits
 * for the other. Whoever is free claims the next piece.
 *
 * The cell lies in the memory of the receiver, who owns the range and begins and closes its use.
 * The peer is notified of it by a frame. Both claim from one word by compare-and-swap, in pages, so
 * that no page is written by both if the range begins with one. What the peer has ended it adds to
 * `ended`, behind the bytes. The receiver knows what it claimed itself, so it knows how much the
 * peer did.
 *
 * A use with an odd number is divided from the end of the range. Buffers that do not fit a cache
 * are used again, and what was copied last is then best copied first: see copies.c.
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
#define REGX_CLAIM_PIECE (512u << 10) /* bytes of a piece: some 30 us */
#define REGX_CLAIM_PIECE_MAX (REGX_CLAIM_PIECE + REGX_CLAIM_PIECE / 8)
/* Bytes of a range, at most: its units are counted in 32 bits. */
#define REGX_CLAIM_MAX ((uint64_t)(UINT32_MAX / 2) * REGX_CLAIM_PAGE)

typedef struct regx_claim_cell {
    _Alignas(64) _Atomic uint64_t claimed; /* number of the use << 32 | units */
    _Atomic uint64_t failed; /* units, begin << 32 | end, that the peer could not copy; or 0 */
    _Atomic uint32_t ended;  /* units of the peer's pieces that have ended, well or not */
} regx_claim_cell_t;

/* A piece, in bytes from the start of the range: [begin, end). */
typedef struct regx_claim_piece {
    uint64_t begin, end;
} regx_claim_piece_t;

/* Units of so many bytes. */
static inline uint32_t regx_claim_units(uint64_t length)
{
    return (uint32_t)((length + REGX_CLAIM_PAGE - 1) / REGX_CLAIM_PAGE);
}

/* Bytes of the next piece of so many: what little would be left over goes along. */
static inline uint64_t regx_claim_piece(uint64_t left)
{
    return left <= REGX_CLAIM_PIECE_MAX ? left : REGX_CLAIM_PIECE;
}

/* The receiver begins use `number`. Nobody uses the cell. */
void regx_claim_open(regx_claim_cell_t *cell, uint32_t number);

/* Claims the next piece of a range of `length` bytes; either side. REGX_OK; REGX_AGAIN: nothing is
 * left; REGX_INVALID: the cell is in another use, or holds what no use writes. */
regx_status_t regx_claim_take(regx_claim_cell_t *cell, uint32_t number, uint64_t length,
                              regx_claim_piece_t *piece);

/* How many units are claimed. REGX_CLAIM_OVER: the cell is in another use. */
#define REGX_CLAIM_OVER UINT32_MAX
static inline uint32_t regx_claim_look(const regx_claim_cell_t *cell, uint32_t number)
{
    const uint64_t claimed = atomic_load_explicit(&cell->claimed, memory_order_acquire);

    return claimed >> 32 == number ? (uint32_t)claimed : REGX_CLAIM_OVER;
}

/* The receiver takes the whole range if nobody has claimed anything of it. Returns whether it
 * did. */
bool regx_claim_withdraw(regx_claim_cell_t *cell, uint32_t number, uint64_t length);

/* The receiver: nobody claims any more. Returns how many units had been claimed. */
uint32_t regx_claim_close(regx_claim_cell_t *cell, uint32_t number, uint64_t length);

/* The peer has ended a piece; not copied: the receiver is to copy it. */
void regx_claim_end(regx_claim_cell_t *cell, const regx_claim_piece_t *piece, bool copied);

/* The receiver, when all pieces have ended: which one the peer could not copy. REGX_OK; REGX_AGAIN:
 * there is none; REGX_INVALID: the cell holds what no use writes. */
regx_status_t regx_claim_failed(const regx_claim_cell_t *cell, uint64_t length,
                                regx_claim_piece_t *piece);

#endif
