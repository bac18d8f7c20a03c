/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/claim.h"

/* Of what is left a piece is one third: two sides that are equally fast then end together. */
#define PARTS 3u

static uint64_t in_first_unit(const regx_claim_range_t *range)
{
    return range->destination % REGX_CLAIM_PAGE;
}

uint32_t regx_claim_units(const regx_claim_range_t *range)
{
    const uint64_t most = (uint64_t)(REGX_CLAIM_OVER - 1) * REGX_CLAIM_PAGE - REGX_CLAIM_PAGE;

    if (range->length == 0 || range->length > most ||
        range->destination > UINT64_MAX - range->length) {
        return 0;
    }
    return (uint32_t)((in_first_unit(range) + range->length + REGX_CLAIM_PAGE - 1) /
                      REGX_CLAIM_PAGE);
}

uint64_t regx_claim_offset(const regx_claim_range_t *range, uint32_t unit)
{
    const uint64_t at = (uint64_t)unit * REGX_CLAIM_PAGE;

    if (at <= in_first_unit(range)) {
        return 0;
    }
    return at - in_first_unit(range) < range->length ? at - in_first_unit(range) : range->length;
}

static uint64_t pack(uint32_t high, uint32_t low)
{
    return (uint64_t)high << 32 | low;
}

void regx_claim_open(regx_claim_cell_t *cell, uint32_t number)
{
    atomic_store_explicit(&cell->failed, 0, memory_order_relaxed);
    atomic_store_explicit(&cell->ended, 0, memory_order_relaxed);
    atomic_store_explicit(&cell->claimed, pack(number, 0), memory_order_release);
}

static uint32_t size_of_piece(uint32_t left, bool large)
{
    uint32_t size = left / PARTS;

    if (large || size > REGX_CLAIM_MOST) {
        size = REGX_CLAIM_MOST;
    }
    if (size < REGX_CLAIM_LEAST) {
        size = REGX_CLAIM_LEAST;
    }
    /* A rest that is not worth a call goes along. */
    return size + REGX_CLAIM_LEAST / 2 >= left ? left : size;
}

regx_status_t regx_claim_take(regx_claim_cell_t *cell, uint32_t number, uint32_t units, bool large,
                              regx_claim_piece_t *piece)
{
    uint64_t seen = atomic_load_explicit(&cell->claimed, memory_order_acquire);

    for (;;) {
        const uint32_t at = (uint32_t)seen;

        if (seen >> 32 != number || at > units) {
            return REGX_INVALID;
        }
        if (at == units) {
            return REGX_AGAIN;
        }
        const uint32_t end = at + size_of_piece(units - at, large);

        if (atomic_compare_exchange_weak_explicit(&cell->claimed, &seen, pack(number, end),
                                                  memory_order_acq_rel, memory_order_acquire)) {
            *piece = (regx_claim_piece_t){at, end};
            return REGX_OK;
        }
    }
}

uint32_t regx_claim_close(regx_claim_cell_t *cell, uint32_t number, uint32_t units)
{
    return (uint32_t)atomic_exchange_explicit(&cell->claimed, pack(number, units),
                                              memory_order_acq_rel);
}

void regx_claim_end(regx_claim_cell_t *cell, const regx_claim_piece_t *piece, bool copied)
{
    if (!copied) {
        atomic_store_explicit(&cell->failed, pack(piece->begin, piece->end), memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&cell->ended, piece->end - piece->begin, memory_order_release);
}
