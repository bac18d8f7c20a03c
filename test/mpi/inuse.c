/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hazard 7: a buffer that is unmapped, in part or whole, while a transfer uses it.
 *
 *     inuse SIDE PART SIZE FILE
 *
 * SIDE: send, receive, or neither (the control). PART: some pages, or all; or byte, which changes
 * one and unmaps nothing. Rank 0 sends SIZE bytes to rank 1; when the first bytes or the last have
 * arrived, and not both, that side unmaps. Both must get to the end, and what is still mapped must
 * have arrived. Then, with new memory in place, the same buffer is used again. The ranks share
 * FILE, by which they go step by step until something has arrived, so that the transfer is under
 * way then.
 */
#include <sched.h>
#include <stdatomic.h>

#include "mapping.h"

enum { TAG = 3, SEED = 61, LOOKS = 200, HOLE = 16 * 4096 };

struct shared {
    atomic_bool receivers_turn; /* else the sender's */
    atomic_bool landed;         /* the sender's last turn: it changes its buffer, or does not */
    atomic_bool changed;        /* from now on both do as they like */
};

static int rank;
static size_t size, hole, hole_size; /* of size 0: a byte changes */
static struct shared *shared;

/* In two steps: when the second munmap returns, the monitor has dealt with the first. */
static void change(unsigned char *memory)
{
    const size_t half = (hole_size / 2) & ~(size_t)4095;
    if (hole_size == 0) {
        memory[hole] ^= 1;
    } else {
        mapping_drop(memory + hole, half, false);
        mapping_drop(memory + hole + half, hole_size - half, false);
    }
}

/* A transfer may begin with the last piece. */
static bool has_first(const unsigned char *memory, uint64_t key)
{
    return stamp_check(memory, 64, key, 0) == 64;
}

static bool has_last(const unsigned char *memory, uint64_t key)
{
    return stamp_check(memory + size - 64, 64, key, size - 64) == 64;
}

/* Progress that no transfer needs. */
static void look(void)
{
    int flag;
    for (int n = 0; n < LOOKS; n++) {
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
}

static void send(unsigned char *memory, uint64_t key, bool changes)
{
    MPI_Request request;
    int done = 0;
    stamp_fill(memory, size, key, 0);
    MPI_Isend(memory, (int)size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
    while (!shared->landed) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        shared->receivers_turn = true;
        while (shared->receivers_turn) {
            sched_yield();
        }
    }
    if (changes) {
        if (done) {
            check_fail("the transfer was too fast");
        }
        change(memory);
    }
    shared->changed = true;
    if (!done) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void receive(unsigned char *memory, uint64_t key, bool changes)
{
    MPI_Request request;
    int done = 0;
    memset(memory, 0, size);
    MPI_Irecv(memory, (int)size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
    while (!has_first(memory, key) && !has_last(memory, key)) {
        shared->receivers_turn = false;
        while (!shared->receivers_turn) {
            sched_yield();
        }
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
    if (changes) {
        if (done || (has_first(memory, key) && has_last(memory, key))) {
            check_fail("the transfer was too fast");
        }
        change(memory);
        look();
    }
    shared->landed = true;
    shared->receivers_turn = false;
    while (!shared->changed) { /* or it would read all before */
        sched_yield();
    }
    if (!done) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

int main(int argc, char **argv)
{
    rank = check_begin(&argc, &argv, 5);
    const bool all = strcmp(argv[2], "all") == 0;
    const char *sides[] = {"send", "receive"};
    const bool unmaps = strcmp(argv[1], sides[rank]) == 0;
    size = strtoul(argv[3], NULL, 0);
    hole = all ? 0 : (size / 4 * 3) & ~(size_t)4095;
    hole_size = all ? (size + 4095) & ~(size_t)4095 : strcmp(argv[2], "byte") == 0 ? 0 : HOLE;
    shared = mapping_share(argv[4], sizeof *shared);
    unsigned char *memory = mapping_make_below_room(size);
    for (uint64_t round = 0; round < 2; round++) {
        const uint64_t key = stamp_key(SEED, round, 0, 0);
        const bool first = round == 0;
        if (rank == 0) {
            send(memory, key, unmaps && first);
        } else {
            receive(memory, key, unmaps && first);
            const bool whole = !first || hole_size == 0 || strcmp(argv[1], "neither") == 0;
            if (whole || !all) {
                check_stamp(memory, whole ? size : hole, key, 0, "before the hole");
            }
            if (!whole && !all) {
                check_stamp(memory + hole + hole_size, size - hole - hole_size, key,
                            hole + hole_size, "behind the hole");
            }
        }
        MPI_Barrier(MPI_COMM_WORLD);
        shared->landed = shared->changed = shared->receivers_turn = false;
        MPI_Barrier(MPI_COMM_WORLD);
        if (unmaps && first && hole_size > 0) {
            mapping_make(memory + hole, hole_size, false);
        }
    }
    return check_end();
}
