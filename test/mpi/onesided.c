/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided operations on windows of MPI_Win_create, each byte checked.
 *
 *     onesided BYTES...
 *
 * Every rank's window has one part per rank. Each rank puts into its part at the next rank and
 * gets it back, under fence and under lock; all ranks accumulate into the parts of rank 0.
 */
#include "check.h"

static uint64_t seed = 11;
static int rank;
static int ranks;

enum synchronisation { FENCE, LOCK };

static void open_epoch(enum synchronisation how, int target, MPI_Win window)
{
    if (how == FENCE) {
        MPI_Win_fence(0, window);
    } else {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window);
    }
}

static void close_epoch(enum synchronisation how, int target, MPI_Win window)
{
    if (how == FENCE) {
        MPI_Win_fence(0, window);
    } else {
        MPI_Win_unlock(target, window);
    }
}

static void put_and_get(size_t size, uint64_t round, enum synchronisation how)
{
    size_t all = size * (size_t)ranks;
    int to = (rank + 1) % ranks;
    int from = (rank + ranks - 1) % ranks;
    unsigned char *memory = check_memory(all + 1);
    unsigned char *mine = check_memory(size + 1);
    unsigned char *back = check_memory(size + 1);
    uint64_t background = stamp_key(~seed, round, rank, 0);
    MPI_Aint at = (MPI_Aint)((size_t)rank * size);
    MPI_Win window;

    stamp_fill(memory, all, background, 0);
    stamp_fill(mine, size, stamp_key(seed, round, rank, to), 0);
    MPI_Win_create(memory, (MPI_Aint)all, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    open_epoch(how, to, window);
    MPI_Put(mine, (int)size, MPI_BYTE, to, at, (int)size, MPI_BYTE, window);
    close_epoch(how, to, window);
    open_epoch(how, to, window);
    MPI_Get(back, (int)size, MPI_BYTE, to, at, (int)size, MPI_BYTE, window);
    close_epoch(how, to, window);
    check_stamp(back, size, stamp_key(seed, round, rank, to), 0, "got back");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&window);
    for (int part = 0; part < ranks; part++) {
        unsigned char *piece = memory + (size_t)part * size;
        if (part == from) {
            check_stamp(piece, size, stamp_key(seed, round, from, rank), 0, "put here");
        } else {
            check_stamp(piece, size, background, (size_t)part * size, "not put here");
        }
    }
    free(memory);
    free(mine);
    free(back);
}

static void accumulate(size_t size, uint64_t round)
{
    size_t count = size / sizeof(uint64_t);
    uint64_t *sum = check_memory(size + 1);
    uint64_t *mine = check_memory(size + 1);
    MPI_Win window;

    memset(sum, 0, size);
    for (size_t n = 0; n < count; n++) {
        mine[n] = (uint64_t)(rank + 1) * (round + n);
    }
    MPI_Win_create(sum, (MPI_Aint)size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    MPI_Accumulate(mine, (int)count, MPI_UINT64_T, 0, 0, (int)count, MPI_UINT64_T, MPI_SUM, window);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
    for (size_t n = 0; rank == 0 && n < count; n++) {
        uint64_t right = (uint64_t)(ranks * (ranks + 1) / 2) * (round + n);
        if (sum[n] != right) {
            check_fail("accumulated element %zu is %llu instead of %llu", n,
                       (unsigned long long)sum[n], (unsigned long long)right);
        }
        check_bytes += sizeof sum[n];
    }
    free(sum);
    free(mine);
}

int main(int argc, char **argv)
{
    uint64_t round = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int n = 1; n < argc; n++) {
        size_t size = strtoul(argv[n], NULL, 0);
        put_and_get(size, round++, FENCE);
        put_and_get(size, round++, LOCK);
        accumulate(size, round++);
    }
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
