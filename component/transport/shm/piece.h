/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A piece: what is copied at once between this process and a neighbour. The kernel does it by one
 * system call. If the neighbour's bytes lie in its owned memory (owned.h) this process copies, and
 * that is counted (pieces_owned). Then a buffer of the program's that is gone ends the process by a
 * signal, where the kernel's copy would fail. So where this process's bytes are is a neighbour's
 * word, as in an assisted get, the kernel copies.
 *
 * While the kernel copies, a word in this process's main segment says so. A copy that begins while
 * the neighbour's word is set is counted (copies_overlapped): it proves that both copy at once. To
 * look takes the word's cache line from the neighbour, so that is done for one piece of several.
 */
#ifndef REGX_TRANSPORT_PIECE_H
#define REGX_TRANSPORT_PIECE_H

#include "transport/shm/shm_internal.h"

#define REGX_PIECE_LOOKS 8u /* one piece of so many is looked at, the first one too */

typedef struct regx_shm_piece {
    regx_vm_peer_t *vm;
    const regx_shm_main_t *main; /* the neighbour's */
    regx_owned_view_t **owned;   /* the neighbour's; NULL: the kernel is to copy */
    regx_vm_direction_t direction;
    char *local;
    uint64_t remote;
    size_t length;
} regx_shm_piece_t;

/* Copies the whole piece, though the kernel may stop early. On an error, as of regx_vm_copy, some
 * of it may be copied. Only in progress. */
regx_status_t regx_piece_copy(regx_shm_t *shm, regx_shm_piece_t piece);

#endif
