// SPDX-License-Identifier: BSD-3-Clause
//
// What "instructions" counts: two ranks that exchange 8-byte messages in batches, so that nothing
// depends on time. All messages of a batch have been sent before the receiver looks for the first,
// and all have been received before the next batch begins. The ranks tell each other so by a page
// of shared memory, beside MPI.
//
//   mpirun -n 2 messages send|receive|idle BATCHES
//
//   send, receive   a batch is BATCH messages from rank 0 to rank 1
//   idle            a batch is IDLE_CALLS calls of MPI_Test at both ranks, while no message comes
//
// callgrind begins a new file at each call of batch_begins, and counts from zero again at each call
// of counting_begins. The first file is of what came before the batches, the last one of what came
// after them.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BATCH 16 // few enough that no queue of any library is ever full
#define IDLE_CALLS                                                                                 \
    16              // as often as a library looks at everything; few, for what happens by the clock
#define SETTLING 16 // calls before them: writing a file takes so long that the clock is due
#define MESSAGE 8
#define WARMUP 2000 // round trips: connections are made, and queues have their full length
#define TAG 7

// One counter of batches per line: each is written by one rank and read by the other.
struct page {
    _Alignas(64) _Atomic uint64_t posted;   // by rank 1
    _Alignas(64) _Atomic uint64_t sent;     // by rank 0
    _Alignas(64) _Atomic uint64_t received; // by rank 1
};

static void fail(const char *what)
{
    fprintf(stderr, "messages: %s: %s\n", what, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// Rank 0 makes the page, and rank 1 opens it by its name in /proc.
static struct page *share_page(int rank)
{
    char name[64] = "";
    int fd = -1;
    if (rank == 0) {
        fd = memfd_create("messages", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, sizeof(struct page)) != 0)
            fail("memfd_create");
        snprintf(name, sizeof name, "/proc/%d/fd/%d", (int)getpid(), fd);
    }
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 1 && (fd = open(name, O_RDWR | O_CLOEXEC)) < 0)
        fail(name);
    void *page = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        fail("mmap");
    MPI_Barrier(MPI_COMM_WORLD); // both have it
    close(fd);
    return page;
}

static void await(_Atomic uint64_t *number, uint64_t value)
{
    while (atomic_load_explicit(number, memory_order_acquire) < value)
        sched_yield();
}

static void announce(_Atomic uint64_t *number, uint64_t value)
{
    atomic_store_explicit(number, value, memory_order_release);
}

// The names by which callgrind is told where a batch begins, and where its counting does.
void batch_begins(uint64_t batch);
__attribute__((noipa)) void batch_begins(uint64_t batch)
{
    (void)batch;
}

void counting_begins(uint64_t batch);
__attribute__((noipa)) void counting_begins(uint64_t batch)
{
    (void)batch;
}

static void warm_up(int rank)
{
    unsigned char message[MESSAGE] = {0};
    for (int i = 0; i < WARMUP; i++) {
        if (rank == 0)
            MPI_Send(message, MESSAGE, MPI_CHAR, 1, TAG, MPI_COMM_WORLD);
        MPI_Recv(message, MESSAGE, MPI_CHAR, !rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(message, MESSAGE, MPI_CHAR, 0, TAG, MPI_COMM_WORLD);
    }
}

static uint64_t content(uint64_t batch, uint64_t message)
{
    return (batch * BATCH + message + 1) * 0x9e3779b97f4a7c15u;
}

static void send_batches(struct page *page, uint64_t batches)
{
    static uint64_t message[BATCH];
    MPI_Request request[BATCH];
    for (uint64_t batch = 0; batch < batches; batch++) {
        for (uint64_t i = 0; i < BATCH; i++)
            message[i] = content(batch, i);
        await(&page->posted, batch + 1);
        batch_begins(batch);
        for (int i = 0; i < BATCH; i++)
            MPI_Isend(&message[i], MESSAGE, MPI_CHAR, 1, TAG, MPI_COMM_WORLD, &request[i]);
        MPI_Waitall(BATCH, request, MPI_STATUSES_IGNORE);
        announce(&page->sent, batch + 1);
        await(&page->received, batch + 1);
    }
    batch_begins(batches);
}

static bool receive_batches(struct page *page, uint64_t batches)
{
    static uint64_t message[BATCH];
    MPI_Request request[BATCH];
    bool right = true;
    for (uint64_t batch = 0; batch < batches; batch++) {
        batch_begins(batch);
        for (int i = 0; i < BATCH; i++)
            MPI_Irecv(&message[i], MESSAGE, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, &request[i]);
        announce(&page->posted, batch + 1);
        await(&page->sent, batch + 1);
        MPI_Waitall(BATCH, request, MPI_STATUSES_IGNORE);
        for (uint64_t i = 0; i < BATCH; i++)
            right &= message[i] == content(batch, i);
        announce(&page->received, batch + 1);
    }
    batch_begins(batches);
    return right;
}

static void idle_batches(struct page *page, int rank, uint64_t batches)
{
    unsigned char message[MESSAGE] = {0};
    MPI_Request request;
    MPI_Irecv(message, MESSAGE, MPI_CHAR, !rank, TAG, MPI_COMM_WORLD, &request);
    for (uint64_t batch = 0; batch < batches; batch++) {
        batch_begins(batch);
        for (int i = 0, done; i < SETTLING + IDLE_CALLS; i++) {
            if (i == SETTLING)
                counting_begins(batch);
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        }
    }
    batch_begins(batches);
    // Only now may the message come that ends the other rank's receive.
    announce(rank == 0 ? &page->sent : &page->received, 1);
    await(rank == 0 ? &page->received : &page->sent, 1);
    MPI_Send(message, MESSAGE, MPI_CHAR, !rank, TAG, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static bool run(const char *what, int rank, uint64_t batches)
{
    bool right = true;
    warm_up(rank);
    struct page *page = share_page(rank);
    if (strcmp(what, "idle") == 0) {
        idle_batches(page, rank, batches);
    } else if (rank == 0) {
        send_batches(page, batches);
    } else {
        right = receive_batches(page, batches);
    }
    munmap(page, sizeof *page);
    return right;
}

int main(int argc, char **argv)
{
    int rank, ranks, status = 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    const char *what = argc == 3 ? argv[1] : "";
    unsigned long batches = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    bool known =
        strcmp(what, "send") == 0 || strcmp(what, "receive") == 0 || strcmp(what, "idle") == 0;
    if (ranks != 2 || !known || batches < 1 || batches > 10000) {
        if (rank == 0)
            fprintf(stderr, "messages: usage: mpirun -n 2 messages send|receive|idle BATCHES (1 to "
                            "10000)\n");
    } else {
        bool right = run(what, rank, batches);
        if (!right)
            fprintf(stderr, "messages: WRONG DATA: rank %d received other bytes than were sent\n",
                    rank);
        status = right ? 0 : 1;
    }
    MPI_Finalize();
    return status;
}
