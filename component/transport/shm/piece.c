/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/piece.h"

#include <string.h>

#include "base/copy.h"

static void look_for_overlap(regx_shm_t *shm, const regx_shm_piece_t *piece)
{
    if (shm->pieces++ % REGX_PIECE_LOOKS == 0 &&
        atomic_load_explicit(&piece->main->copying, memory_order_relaxed) != 0) {
        regx_count_transport(shm->config.counters, REGX_COUNTER_copies_overlapped, 1);
    }
}

/* As regx_vm_copy. */
static regx_status_t copy_some(regx_shm_t *shm, const regx_shm_piece_t *piece, size_t *copied)
{
    _Atomic uint32_t *copying = &regx_shm_main(shm)->copying;

    atomic_store_explicit(copying, 1, memory_order_relaxed);
    look_for_overlap(shm, piece);
    const regx_status_t status = regx_vm_copy(piece->vm, piece->direction, piece->local,
                                              piece->remote, piece->length, copied);
    atomic_store_explicit(copying, 0, memory_order_relaxed);
    regx_count_transport(shm->config.counters, REGX_COUNTER_bytes_shm, *copied);
    return status;
}

/* Copies the piece without the kernel, if the neighbour's bytes are mapped here. */
static bool copy_owned(const regx_shm_t *shm, const regx_shm_piece_t *piece)
{
    char *remote = piece->owned == NULL
                       ? NULL
                       : regx_owned_find(piece->owned, &piece->main->owned, piece->vm->pid,
                                         piece->remote, piece->length, &shm->config);

    if (remote == NULL) {
        return false;
    }
    if (piece->direction == REGX_VM_READ) {
        regx_copy(piece->local, remote, piece->length);
    } else {
        regx_copy(remote, piece->local, piece->length);
    }
    regx_count_transport(shm->config.counters, REGX_COUNTER_pieces_owned, 1);
    regx_count_transport(shm->config.counters, REGX_COUNTER_bytes_shm, piece->length);
    return true;
}

regx_status_t regx_piece_copy(regx_shm_t *shm, regx_shm_piece_t piece)
{
    regx_status_t status = REGX_OK;

    if (copy_owned(shm, &piece)) {
        return REGX_OK;
    }
    while (piece.length > 0 && status == REGX_OK) {
        size_t copied;

        status = copy_some(shm, &piece, &copied);
        piece.local += copied;
        piece.remote += copied;
        piece.length -= copied;
    }
    return status;
}
