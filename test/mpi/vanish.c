/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A buffer of which some pages are unmapped after MPI was given it and before the transfer.
 *
 *     vanish SIDE OFFSET SIZE [protect|protect-later]
 *
 * Or, with protect, that are still mapped, but may not be used so any more; with protect-later the
 * buffer was used once before. SIDE: send, receive, or
 * neither (the control). Rank 0 sends SIZE bytes to rank 1, and the other
 * one is late, so that nothing is on its way when that side unmaps the pages at OFFSET. Both must
 * get to the end, and what is still mapped must have arrived. Then, with new memory in place, the
 * same buffer is used again.
 */
#include "mapping.h"

enum { TAG = 3, SEED = 62, HOLE = 2 * 4096 };

static int rank;
static size_t size, hole;
static bool protects;
static unsigned char *memory;

static void protect(int access)
{
    if (mprotect(memory + hole, HOLE, access) != 0) {
        check_fail("mprotect: %s", strerror(errno));
    }
}

static void take_away(void)
{
    if (protects) {
        protect(rank == 0 ? PROT_NONE : PROT_READ);
    } else {
        mapping_drop(memory + hole, HOLE, false);
    }
}

static void give_back(void)
{
    if (protects) {
        protect(PROT_READ | PROT_WRITE);
    } else {
        mapping_make(memory + hole, HOLE, false);
    }
}

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
        take_away();
    }
    if ((rank == 0) == sender_first) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    rank = check_begin(&argc, &argv, 4);
    const bool later = argc == 5 && strcmp(argv[4], "protect-later") == 0;
    const uint64_t bad = later ? 1 : 0;
    protects = later || (argc == 5 && strcmp(argv[4], "protect") == 0);
    const bool sender_first = strcmp(argv[1], "send") == 0;
    const bool neither = strcmp(argv[1], "neither") == 0;
    const bool unmaps = !neither && rank == !sender_first;
    hole = strtoul(argv[2], NULL, 0);
    size = strtoul(argv[3], NULL, 0);
    memory = mapping_make_below_room(size);
    for (uint64_t round = 0; round < bad + 2; round++) {
        const uint64_t key = stamp_key(SEED, round, 0, 0);
        const bool whole = neither || round != bad;
        exchange(key, sender_first, unmaps && round == bad);
        if (rank == 1 && whole) {
            check_stamp(memory, size, key, 0, "all of it");
        } else if (rank == 1) {
            check_stamp(memory, hole, key, 0, "before the hole");
            check_stamp(memory + hole + HOLE, size - hole - HOLE, key, hole + HOLE,
                        "behind the hole");
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (unmaps && round == bad) {
            give_back();
        }
    }
    return check_end();
}
