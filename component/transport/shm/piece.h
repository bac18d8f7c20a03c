/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A piece: what the kernel copies in one system call, for this process and a neighbour.
 *
 * While it copies, a word in this process's main segment says so. A copy that begins while the
 * neighbour's word is set is counted (copies_overlapped): it proves that both copy at once.
 */
#ifndef REGX_TRANSPORT_PIECE_H
#define REGX_TRANSPORT_PIECE_H

#include "transport/shm/shm_internal.h"

typedef struct regx_shm_piece {
    const regx_vm_peer_t *vm;
    const regx_shm_main_t *main; /* the neighbour's */
    regx_vm_direction_t direction;
    char *local;
    uint64_t remote;
    size_t length;
} regx_shm_piece_t;

/* As regx_vm_copy. Only in progress. */
regx_status_t regx_shm_copy_some(regx_shm_t *shm, const regx_shm_piece_t *piece, size_t *copied);

/* The whole piece, though the kernel may stop early. */
regx_status_t regx_shm_copy_all(regx_shm_t *shm, regx_shm_piece_t piece);

#endif
