/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages from and to memory of MPI_Alloc_mem, both ways at once between two ranks.
 *
 *     alloc_mem SIZE TIMES SEND RECEIVE [THREADS]
 *
 * SEND, RECEIVE: where the buffers lie. ordinary: malloc; owned: MPI_Alloc_mem; renewed: the same,
 * freed and allocated again after each message; kept: as owned, and not freed: it is looked at
 * after MPI_Finalize. Each of the THREADS (1) does all that.
 */
#include "check.h"

#include <pthread.h>
#include <stdbool.h>

enum { SEED = 41, MOST_THREADS = 8 };

enum place { ORDINARY, OWNED, RENEWED, KEPT };

static const char *const places[] = {"ordinary", "owned", "renewed", "kept"};

struct part {
    size_t size;
    int times;
    int thread;
    enum place send, receive;
    unsigned char *sent, *received;
    uint64_t key; /* of what was received last */
};

static unsigned char *allocate(enum place place, size_t size)
{
    unsigned char *memory = NULL;

    if (place == ORDINARY) {
        return check_memory(size);
    }
    MPI_Alloc_mem((MPI_Aint)size, MPI_INFO_NULL, &memory);
    return memory;
}

static void give_back(enum place place, unsigned char *memory)
{
    if (place == ORDINARY) {
        free(memory);
    } else {
        MPI_Free_mem(memory);
    }
}

static void exchange(struct part *part, int rank, int time)
{
    const int tag = CHECK_TAG + part->thread, stamp = time * MOST_THREADS + part->thread;
    MPI_Request requests[2];

    stamp_fill(part->sent, part->size, stamp_key(SEED, 0, rank, stamp), 0);
    MPI_Irecv(part->received, (int)part->size, MPI_BYTE, !rank, tag, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(part->sent, (int)part->size, MPI_BYTE, !rank, tag, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    part->key = stamp_key(SEED, 0, !rank, stamp);
    check_stamp(part->received, part->size, part->key, 0, "of an exchange");
}

static void *run(void *context)
{
    struct part *part = context;
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int time = 0; time < part->times; time++) {
        if (time == 0 || part->send == RENEWED) {
            part->sent = allocate(part->send, part->size);
        }
        if (time == 0 || part->receive == RENEWED) {
            part->received = allocate(part->receive, part->size);
        }
        exchange(part, rank, time);
        if (part->send == RENEWED || (part->send != KEPT && time == part->times - 1)) {
            give_back(part->send, part->sent);
        }
        if (part->receive == RENEWED || (part->receive != KEPT && time == part->times - 1)) {
            give_back(part->receive, part->received);
        }
    }
    return NULL;
}

static enum place place_of(const char *word)
{
    for (int i = ORDINARY; i <= KEPT; i++) {
        if (strcmp(word, places[i]) == 0) {
            return (enum place)i;
        }
    }
    check_fail("%s: no such place", word);
}

int main(int argc, char **argv)
{
    struct part parts[MOST_THREADS];
    pthread_t threads[MOST_THREADS];
    int provided;

    MPI_Init_thread(&argc, &argv, argc > 5 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    const int count = argc > 5 ? atoi(argv[5]) : 1;
    if (argc < 5 || count < 1 || count > MOST_THREADS) {
        check_fail("size, times and two places are needed, and no more than 8 threads");
    }
    for (int i = 0; i < count; i++) {
        parts[i] = (struct part){.size = strtoul(argv[1], NULL, 0),
                                 .times = atoi(argv[2]),
                                 .thread = i,
                                 .send = place_of(argv[3]),
                                 .receive = place_of(argv[4])};
    }
    for (int i = 1; i < count; i++) {
        pthread_create(&threads[i], NULL, run, &parts[i]);
    }
    run(&parts[0]);
    for (int i = 1; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    if (parts[0].receive == KEPT &&
        stamp_check(parts[0].received, parts[0].size, parts[0].key, 0) != parts[0].size) {
        fprintf(stderr, "what was not freed has changed\n");
        return 1;
    }
    return 0;
}
