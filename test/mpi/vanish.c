/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A buffer of which some pages are unmapped after MPI was given it and before the transfer.
 *
 *     vanish SIDE OFFSET SIZE
 *
 * SIDE: send, receive, or neither (the control). Rank 0 sends SIZE bytes to rank 1, and the other
 * one is late, so that nothing is on its way when that side unmaps the pages at OFFSET. Both must
 * get to the end, and what is still mapped must have arrived. Then, with new memory in place, the
 * same buffer is used again.
 */
#include "mapping.h"

enum { TAG = 3, SEED = 62, HOLE = 2 * 4096 };

static int rank;
static size_t size, hole;
static unsigned char *memory;

/* The receiver's match starts the transfer, so the sender has to go first for its own to be late.
 */
static void exchange(uint64_t key, bool sender_first, bool unmaps)
{
    MPI_Request request;
    if ((rank == 0) != sender_first) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0) {
        stamp_fill(memory, size, key, 0);
        MPI_Isend(memory, (int)size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
    } else {
        memset(memory, 0, size);
        MPI_Irecv(memory, (int)size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
    }
    if (unmaps) {
        mapping_drop(memory + hole, HOLE, false);
    }
    if ((rank == 0) == sender_first) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 4) {
        check_fail("side, offset and size are needed");
    }
    const bool sender_first = strcmp(argv[1], "send") == 0;
    const bool neither = strcmp(argv[1], "neither") == 0;
    const bool unmaps = !neither && rank == !sender_first;
    hole = strtoul(argv[2], NULL, 0);
    size = strtoul(argv[3], NULL, 0);
    memory = mapping_make(NULL, size, false);
    for (uint64_t round = 0; round < 2; round++) {
        const uint64_t key = stamp_key(SEED, round, 0, 0);
        const bool whole = neither || round == 1;
        exchange(key, sender_first, unmaps && round == 0);
        if (rank == 1 && whole) {
            check_stamp(memory, size, key, 0, "all of it");
        } else if (rank == 1) {
            check_stamp(memory, hole, key, 0, "before the hole");
            check_stamp(memory + hole + HOLE, size - hole - HOLE, key, hole + HOLE,
                        "behind the hole");
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (unmaps && round == 0) {
            mapping_make(memory + hole, HOLE, false);
        }
    }
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
