/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/claim.h"

#include "base/util.h"

static uint64_t pack(uint32_t high, uint32_t low)
{
    return (uint64_t)high << 32 | low;
}

static regx_claim_piece_t bytes_of(uint32_t begin, uint32_t end, uint64_t length)
{
    return (regx_claim_piece_t){(uint64_t)begin * REGX_CLAIM_PAGE,
                                regx_min((uint64_t)end * REGX_CLAIM_PAGE, length)};
}

void regx_claim_open(regx_claim_cell_t *cell, uint32_t number)
{
    atomic_store_explicit(&cell->failed, 0, memory_order_relaxed);
    atomic_store_explicit(&cell->ended, 0, memory_order_relaxed);
    atomic_store_explicit(&cell->claimed, pack(number, 0), memory_order_release);
}

regx_status_t regx_claim_take(regx_claim_cell_t *cell, uint32_t number, uint64_t length,
                              regx_claim_piece_t *piece)
{
    const uint32_t units = regx_claim_units(length);
    uint64_t seen = atomic_load_explicit(&cell->claimed, memory_order_acquire);

    for (;;) {
        const uint32_t at = (uint32_t)seen;

        if (seen >> 32 != number || at > units) {
            return REGX_INVALID;
        }
        if (at == units) {
            return REGX_AGAIN;
        }
        const uint32_t end =
            at + regx_claim_units(regx_claim_piece((uint64_t)(units - at) * REGX_CLAIM_PAGE));

        if (atomic_compare_exchange_weak_explicit(&cell->claimed, &seen, pack(number, end),
                                                  memory_order_acq_rel, memory_order_acquire)) {
            *piece = number % 2 != 0 ? bytes_of(units - end, units - at, length)
                                     : bytes_of(at, end, length);
            return REGX_OK;
        }
    }
}

bool regx_claim_withdraw(regx_claim_cell_t *cell, uint32_t number, uint64_t length)
{
    uint64_t untouched = pack(number, 0);

    return atomic_compare_exchange_strong_explicit(&cell->claimed, &untouched,
                                                   pack(number, regx_claim_units(length)),
                                                   memory_order_acq_rel, memory_order_relaxed);
}

uint32_t regx_claim_close(regx_claim_cell_t *cell, uint32_t number, uint64_t length)
{
    return (uint32_t)atomic_exchange_explicit(
        &cell->claimed, pack(number, regx_claim_units(length)), memory_order_acq_rel);
}

void regx_claim_end(regx_claim_cell_t *cell, const regx_claim_piece_t *piece, bool copied)
{
    const uint32_t begin = (uint32_t)(piece->begin / REGX_CLAIM_PAGE);
    const uint32_t end = regx_claim_units(piece->end);

    if (!copied) {
        atomic_store_explicit(&cell->failed, pack(begin, end), memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&cell->ended, end - begin, memory_order_release);
}

regx_status_t regx_claim_failed(const regx_claim_cell_t *cell, uint64_t length,
                                regx_claim_piece_t *piece)
{
    const uint64_t failed = atomic_load_explicit(&cell->failed, memory_order_relaxed);
    const uint32_t begin = (uint32_t)(failed >> 32), end = (uint32_t)failed;

    if (failed == 0) {
        return REGX_AGAIN;
    }
    if (begin >= end || end > regx_claim_units(length) ||
        end - begin > regx_claim_units(REGX_CLAIM_PIECE_MAX)) {
        return REGX_INVALID;
    }
    *piece = bytes_of(begin, end, length);
    return REGX_OK;
}
