/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_THREAD_MULTIPLE: several threads per rank exchange messages of mixed sizes with their
 * counterparts on every other rank, all at once, each byte checked.
 *
 *     threads [--seed N] [--threads N] [--rounds N] [--largest BYTES] [--shared] [--storm] [--owned]
 *
 * Each thread has a communicator of its own; with --shared all use one and differ by tag. Memory is
 * of one message alone; with --storm two more threads allocate, free, trim the heap, map and unmap
 * meanwhile (hazard 10).
 */
#include <malloc.h>
#include <pthread.h>

#include "layout.h"
#include "mapping.h"

struct worker {
    pthread_t thread;
    MPI_Comm comm;
    int number;
};

enum { WINDOW = 3, STORMS = 2, BLOCKS = 64 };

static uint64_t seed;
static int threads;
static int rounds;
static int storms; /* threads that only allocate */
static bool shared;
static bool owned; /* the memory of messages */
static size_t largest;
static int rank;
static int ranks;

/* Both ends compute it: mostly small, sometimes up to the largest. */
static size_t message_size(int sender, int thread, int round, int message)
{
    uint64_t value = stamp_key(~seed, (uint64_t)round, sender, thread * WINDOW + message);
    return (size_t)((value >> 8) % (value % 4 == 0 ? largest + 1 : 6000));
}

static void exchange(const struct worker *worker, int round, int to, int from)
{
    struct layout layouts[2 * WINDOW];
    struct arena arenas[2 * WINDOW];
    MPI_Request requests[2 * WINDOW];

    for (int n = 0; n < 2 * WINDOW; n++) {
        int message = n % WINDOW;
        bool receives = n < WINDOW;
        int tag = worker->number * WINDOW + message;
        uint64_t iteration = (uint64_t)round;
        layouts[n] = layout_make(LAYOUT_CONTIGUOUS, message_size(receives ? from : rank,
                                                                 worker->number, round, message));
        arenas[n] = arena_make(&layouts[n], (size_t)tag % 64,
                               stamp_key(~seed, iteration, rank, tag), owned);
        if (receives) {
            MPI_Irecv(arena_buffer(&arenas[n]), 1, layouts[n].type, from, tag, worker->comm,
                      &requests[n]);
        } else {
            arena_fill(&arenas[n], stamp_key(seed, iteration, rank, tag));
            MPI_Isend(arena_buffer(&arenas[n]), 1, layouts[n].type, to, tag, worker->comm,
                      &requests[n]);
        }
    }
    MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
    for (int n = 0; n < 2 * WINDOW; n++) {
        int tag = worker->number * WINDOW + n % WINDOW;
        arena_check(&arenas[n], stamp_key(seed, (uint64_t)round, n < WINDOW ? from : rank, tag),
                    n < WINDOW ? "thread's receive" : "thread's send buffer");
        arena_free(&arenas[n]);
        layout_free(&layouts[n]);
    }
}

static void *storm(void *over)
{
    unsigned char *blocks[BLOCKS] = {NULL};

    for (uint64_t n = 0; !*(atomic_bool *)over; n++) {
        const uint64_t chance = stamp_mix(n);
        unsigned char **block = &blocks[chance % BLOCKS];

        free(*block);
        *block = malloc(chance >> 8 & (chance % 8 == 0 ? 0xfffff : 0x3fff));
        if (*block != NULL) {
            **block = 1;
        }
        if (n % 256 == 0) {
            malloc_trim(0);
            mapping_drop(mapping_make(NULL, largest, false), largest, n % 512 == 0);
        }
    }
    for (int n = 0; n < BLOCKS; n++) {
        free(blocks[n]);
    }
    return NULL;
}

static void *work(void *argument)
{
    const struct worker *worker = argument;
    for (int round = 0; round < rounds; round++) {
        int distance = round % ranks; /* itself too */
        exchange(worker, round, (rank + distance) % ranks, (rank + ranks - distance) % ranks);
    }
    return NULL;
}

static void parse(int argc, char **argv)
{
    seed = check_number(&argc, argv, "--seed", 1);
    threads = (int)check_number(&argc, argv, "--threads", 4);
    rounds = (int)check_number(&argc, argv, "--rounds", 20);
    largest = check_number(&argc, argv, "--largest", 1 << 20);
    shared = check_option(&argc, argv, "--shared", 1) != NULL;
    storms = check_option(&argc, argv, "--storm", 1) != NULL ? STORMS : 0;
    owned = check_option(&argc, argv, "--owned", 1) != NULL;
    check_that(argc == 1, "unknown option %s", argv[1]);
}

int main(int argc, char **argv)
{
    atomic_bool over = false;
    pthread_t storm_threads[STORMS];
    int provided;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    parse(argc, argv);
    check_that(provided == MPI_THREAD_MULTIPLE, "MPI_THREAD_MULTIPLE is not given");
    malloc_trim(0); /* where malloc is another's, libc's starts here, and threads must not race */
    for (int n = 0; n < storms; n++) {
        pthread_create(&storm_threads[n], NULL, storm, &over);
    }
    struct worker *workers = check_memory((size_t)threads * sizeof *workers);
    for (int n = 0; n < threads; n++) {
        workers[n] = (struct worker){.comm = MPI_COMM_WORLD, .number = n};
        if (!shared) {
            MPI_Comm_dup(MPI_COMM_WORLD, &workers[n].comm);
        }
    }
    for (int n = 0; n < threads; n++) {
        check_that(pthread_create(&workers[n].thread, NULL, work, &workers[n]) == 0, "no thread");
    }
    for (int n = 0; n < threads; n++) {
        pthread_join(workers[n].thread, NULL);
        if (!shared) {
            MPI_Comm_free(&workers[n].comm);
        }
    }
    over = true;
    for (int n = 0; n < storms; n++) {
        pthread_join(storm_threads[n], NULL);
    }
    free(workers);
    return check_end();
}
