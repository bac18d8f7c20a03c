/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/piece.h"

static void begin_watched(regx_shm_t *shm, const regx_shm_piece_t *piece)
{
    atomic_store_explicit(&regx_shm_main(shm)->copying, 1, memory_order_relaxed);
    if (atomic_load_explicit(&piece->main->copying, memory_order_relaxed) != 0) {
        regx_count_transport(shm->config.counters, REGX_COUNTER_copies_overlapped, 1);
    }
}

static void end_watched(regx_shm_t *shm)
{
    atomic_store_explicit(&regx_shm_main(shm)->copying, 0, memory_order_relaxed);
}

/* As regx_vm_copy. */
static regx_status_t copy_some(regx_shm_t *shm, const regx_shm_piece_t *piece, size_t *copied)
{
    const bool watched = piece->length >= REGX_PIECE_WATCHED;

    if (watched) {
        begin_watched(shm, piece);
    }
    const regx_status_t status = regx_vm_copy(piece->vm, piece->direction, piece->local,
                                              piece->remote, piece->length, copied);
    if (watched) {
        end_watched(shm);
    }
    regx_count_transport(shm->config.counters, REGX_COUNTER_bytes_shm, *copied);
    return status;
}

regx_status_t regx_shm_copy(regx_shm_t *shm, regx_shm_piece_t piece)
{
    regx_status_t status = REGX_OK;

    while (piece.length > 0 && status == REGX_OK) {
        size_t copied;

        status = copy_some(shm, &piece, &copied);
        piece.local += copied;
        piece.remote += copied;
        piece.length -= copied;
    }
    return status;
}
