/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A buffer that is unmapped while a large message uses it, by a call that waits until the message
 * is through (btl_regx_inuse=drain).
 *
 *     drain SIDE CALL SIZE FILE
 *
 * SIDE: send or receive: who unmaps its whole buffer. CALL: munmap, or free, of a buffer that
 * malloc had of mmap. Rank 0 sends SIZE bytes to rank 1. When the first bytes have arrived rank 1
 * makes no progress until the other says that it is about to unmap: since the message needs grants
 * of rank 1, it is not through then. The ranks share FILE, by which they say so. What arrives must
 * be whole. The receiver that unmaps sees it in a second mapping of its buffer's pages.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "mapping.h"

enum { SEED = 67 };

struct shared {
    atomic_bool landed; /* the first bytes */
    atomic_bool going;  /* the sender is about to unmap */
};

static struct shared *shared;
static size_t size;
static bool frees;

static void *map(size_t length, int file)
{
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        check_fail("mmap: %s", strerror(errno));
    }
    return memory;
}

static void take_away(unsigned char *memory)
{
    if (frees) {
        free(memory);
    } else {
        mapping_drop(memory, size, false);
    }
}

static void send(bool unmaps)
{
    unsigned char *memory = frees ? malloc(size) : mapping_make(NULL, size, false);
    MPI_Request request;
    int done = 0;

    stamp_fill(memory, size, stamp_key(SEED, 0, 0, 0), 0);
    MPI_Isend(memory, (int)size, MPI_BYTE, 1, CHECK_TAG, MPI_COMM_WORLD, &request);
    while (!shared->landed) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
    if (done) {
        check_fail("it was through before it was unmapped");
    }
    shared->going = true;
    if (unmaps) {
        take_away(memory);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (!unmaps) {
        take_away(memory);
    }
}

static void receive(bool unmaps)
{
    const uint64_t key = stamp_key(SEED, 0, 0, 0);
    const int file = memfd_create("drain", 0);
    if (file < 0 || ftruncate(file, (off_t)size) != 0) {
        check_fail("memfd: %s", strerror(errno));
    }
    unsigned char *memory = map(size, file), *seen = map(size, file);
    MPI_Request request;
    int done = 0;

    MPI_Irecv(memory, (int)size, MPI_BYTE, 0, CHECK_TAG, MPI_COMM_WORLD, &request);
    while (stamp_check(seen, 64, key, 0) != 64) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
    if (done) {
        check_fail("it was through before it was unmapped");
    }
    shared->landed = true;
    while (!shared->going) {
        sched_yield();
    }
    if (unmaps) {
        mapping_drop(memory, size, false);
        check_stamp(seen, size, key, 0, "when munmap has returned");
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_stamp(seen, size, key, 0, "at the end");
}

int main(int argc, char **argv)
{
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 5) {
        check_fail("side, call, size and a file are needed");
    }
    frees = strcmp(argv[2], "free") == 0;
    size = strtoul(argv[3], NULL, 0);
    shared = mapping_share(argv[4], sizeof *shared);
    if (rank == 0) {
        send(strcmp(argv[1], "send") == 0);
    } else {
        receive(strcmp(argv[1], "receive") == 0);
    }
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
