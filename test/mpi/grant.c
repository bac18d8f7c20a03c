/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Grants that are revoked: the receive buffer's memory is replaced while it is being written, and
 * everything must have arrived in the pages that are there at the end.
 *
 *     grant HOW WHO SIZE ROUNDS CHANGES FILE
 *
 * HOW: munmap (and mmap), fixed (mmap over it), mremap (other pages are moved there), dontneed, raw
 * (munmap and mmap by system calls); all: one after the other; shared (shared memory over it);
 * nothing (the control). WHO: self: the receiver itself, when the first bytes have arrived and the
 * last have not; thread: another thread of it, in the same moment, while both ranks take some
 * further steps. Rank 0 sends SIZE bytes to rank 1, ROUNDS
 * times, and each time the memory is replaced CHANGES times, with its first page, so that this has
 * to arrive anew. The ranks share FILE, by which they go step by step until then: the transfer
 * cannot be over before.
 */
#include <pthread.h>

#include "buffer.h"

enum { TAG = 3, SEED = 83, PAGE = 4096, EDGE = 64, STEPS = 8 };

struct shared {
    atomic_bool receivers_turn; /* else the sender's */
    atomic_bool changed;        /* from now on both do as they like */
};

/* From UNMAP on as buffer_change_t. all: to RAW. */
typedef enum { NOTHING, UNMAP, FIXED, MOVE, DONTNEED, RAW, SHARED } how_t;

static const char *const hows[] = {"nothing",  "munmap", "fixed", "mremap",
                                   "dontneed", "raw",    "shared"};

static how_t how;
static bool all;
static uint64_t rounds, changes;
static int rank;
static size_t size;
static unsigned char *memory;
static struct shared *shared;
static uint64_t seed = SEED;
static atomic_bool asked, replaced; /* of the thread */

static void replace(unsigned char *at, size_t length)
{
    const struct buffer buffer = {.kind = BUFFER_PRIVATE, .size = length, .memory = at};

    if (how == RAW) {
        mapping_drop(at, length, true);
        mapping_make(at, length, true);
    } else if (how == SHARED) {
        check_that(mmap(at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
                        -1, 0) == at,
                   "mmap of shared memory over the buffer: %s", strerror(errno));
    } else if (how != NOTHING) {
        buffer_replace(&buffer, (buffer_change_t)(how - UNMAP), 0, length);
    }
}

/* Some of it, which may have arrived or not; then what had. */
static void change(void)
{
    const size_t pages = size / PAGE;
    const size_t first = stamp_mix(seed++) % pages;
    const size_t count = 1 + stamp_mix(seed++) % (pages - first);
    replace(memory + first * PAGE, count * PAGE);
    replace(memory, PAGE);
}

static void *thread(void *unused)
{
    for (uint64_t n = 0; n < rounds * changes; n++) {
        await(atomic_load(&asked));
        asked = false;
        change();
        replaced = true;
    }
    return NULL;
}

static bool has(size_t offset, uint64_t key)
{
    return stamp_check(memory + offset, EDGE, key, offset) == EDGE;
}

static void send(uint64_t key)
{
    MPI_Request request;
    int done = 0;
    stamp_fill(memory, size, key, 0);
    MPI_Isend(memory, (int)size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
    while (!shared->changed) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        check_that(!done, "the transfer was too fast");
        mapping_give_turn(&shared->receivers_turn, true);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* The sender takes a step, and the receiver. */
static void step(MPI_Request *request)
{
    int done;
    mapping_give_turn(&shared->receivers_turn, false);
    MPI_Test(request, &done, MPI_STATUS_IGNORE);
    check_that(!done, "the receive was over too early");
}

static void receive(uint64_t key, bool by_thread)
{
    MPI_Request request;
    memset(memory, 0, size);
    MPI_Irecv(memory, (int)size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
    for (uint64_t n = 0; n < changes; n++) {
        until(has(0, key) || has(size - EDGE, key), step(&request));
        check_that(!has(0, key) || !has(size - EDGE, key), "the transfer was too fast");
        if (by_thread) {
            asked = true;
            for (int steps = 0; !replaced; steps++) {
                steps < STEPS ? step(&request) : (void)sched_yield();
            }
            replaced = false;
        } else {
            change();
        }
    }
    shared->changed = true;
    shared->receivers_turn = false;
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_stamp(memory, size, key, 0, hows[how]);
}

int main(int argc, char **argv)
{
    int level;
    pthread_t other;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    all = strcmp(argv[1], "all") == 0;
    while (!all && strcmp(hows[how], argv[1]) != 0) {
        how++;
    }
    const bool by_thread = strcmp(argv[2], "thread") == 0;
    size = strtoul(argv[3], NULL, 0);
    rounds = strtoul(argv[4], NULL, 0);
    changes = strtoul(argv[5], NULL, 0);
    shared = mapping_share(argv[6], sizeof *shared);
    memory = mapping_make_below_room(size);
    check_that(!by_thread || rank != 1 || pthread_create(&other, NULL, thread, NULL) == 0,
               "no thread");
    for (uint64_t round = 0; round < rounds; round++) {
        const uint64_t key = stamp_key(SEED, round, 0, 0);
        how = all ? (how_t)(1 + round % RAW) : how;
        if (rank == 0) {
            send(key);
        } else {
            receive(key, by_thread);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        shared->changed = shared->receivers_turn = false;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (by_thread && rank == 1) {
        pthread_join(other, NULL);
    }
    return check_end();
}
