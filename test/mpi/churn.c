/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hazard 10: threads that allocate, exchange and free, and others that only allocate, free, trim
 * the heap, map and unmap, all at once.
 *
 *     churn THREADS ROUNDS LARGEST
 *
 * Each of THREADS threads of the two ranks exchanges ROUNDS messages with its counterpart, from and
 * to memory of that round alone. Some of it comes from the heap, some is mapped.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

#include "mapping.h"

enum { SEED = 59, MOST = 32, STORMS = 2, BLOCKS = 64, SMALLEST = 17000 };

static int rank;
static uint64_t rounds;
static size_t largest;
static atomic_bool over;

/* Both ends compute it. */
static size_t size_of(uint64_t round, int thread)
{
    return SMALLEST + stamp_key(~(uint64_t)SEED, round, 0, thread) % (largest - SMALLEST);
}

static void *exchange(void *argument)
{
    const int thread = *(const int *)argument;
    for (uint64_t round = 0; round < rounds; round++) {
        const size_t size = size_of(round, thread);
        const bool mapped = round % 4 == 0;
        unsigned char *out = mapped ? mapping_make(NULL, size, false) : malloc(size);
        unsigned char *in = mapped ? mapping_make(NULL, size, false) : malloc(size);
        stamp_fill(out, size, stamp_key(SEED, round, rank, thread), 0);
        MPI_Sendrecv(out, (int)size, MPI_BYTE, 1 - rank, thread, in, (int)size, MPI_BYTE, 1 - rank,
                     thread, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check_stamp(in, size, stamp_key(SEED, round, 1 - rank, thread), 0, "a thread's message");
        if (mapped) {
            mapping_drop(out, size, false);
            mapping_drop(in, size, round % 8 == 0);
        } else {
            free(out);
            free(in);
        }
    }
    return NULL;
}

static void *storm(void *argument)
{
    unsigned char *blocks[BLOCKS] = {NULL};
    (void)argument;
    for (uint64_t n = 0; !over; n++) {
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

int main(int argc, char **argv)
{
    pthread_t threads[MOST], storms[STORMS];
    int numbers[MOST], provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 4 || provided != MPI_THREAD_MULTIPLE || atoi(argv[1]) > MOST) {
        check_fail("threads (at most %d), rounds and the largest size are needed", MOST);
    }
    const int count = atoi(argv[1]);
    rounds = strtoul(argv[2], NULL, 0);
    largest = strtoul(argv[3], NULL, 0);
    malloc_trim(0); /* where malloc is another's, libc's starts here, and threads must not race */
    for (int n = 0; n < STORMS; n++) {
        pthread_create(&storms[n], NULL, storm, NULL);
    }
    for (int n = 0; n < count; n++) {
        numbers[n] = n;
        pthread_create(&threads[n], NULL, exchange, &numbers[n]);
    }
    for (int n = 0; n < count; n++) {
        pthread_join(threads[n], NULL);
    }
    over = true;
    for (int n = 0; n < STORMS; n++) {
        pthread_join(storms[n], NULL);
    }
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
