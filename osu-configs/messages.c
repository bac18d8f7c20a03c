// SPDX-License-Identifier: BSD-3-Clause
//
// What "instructions" counts: rank 0 sends 8-byte messages to rank 1 in batches, so that nothing
// depends on time. All messages of a batch have been sent before the receiver looks for the first,
// and all have been received before the next batch begins. The ranks tell each other so by a file
// that both map, beside MPI: messages FILE.
//
// callgrind begins a new file at each call of batch_begins: the first file is of what came before
// the batches, the last one of what came after them.

#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define BATCHES 64
#define PER_BATCH 16 // few enough that no queue of any library is ever full
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
    fprintf(stderr, "messages: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static struct page *share_page(const char *file)
{
    int fd = file != NULL ? open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0 || ftruncate(fd, sizeof(struct page)) != 0)
        fail("wanted: a file that can be written, and shared by both ranks");
    void *page = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        fail("mmap failed");
    close(fd);
    return page;
}

static void await(const _Atomic uint64_t *number, uint64_t value)
{
    while (atomic_load(number) < value)
        sched_yield();
}

// The name by which callgrind is told where a batch begins.
void batch_begins(void);
__attribute__((noipa)) void batch_begins(void)
{
}

static void warm_up(int rank)
{
    unsigned char message[MESSAGE] = {0};
    for (int i = 0; i < 2 * WARMUP; i++) {
        if (i % 2 == rank)
            MPI_Send(message, MESSAGE, MPI_CHAR, !rank, TAG, MPI_COMM_WORLD);
        else
            MPI_Recv(message, MESSAGE, MPI_CHAR, !rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static uint64_t content(uint64_t batch, uint64_t message)
{
    return (batch * PER_BATCH + message + 1) * 0x9e3779b97f4a7c15u;
}

static void send_batch(struct page *page, uint64_t batch)
{
    static uint64_t message[PER_BATCH];
    MPI_Request request[PER_BATCH];
    for (uint64_t i = 0; i < PER_BATCH; i++)
        message[i] = content(batch, i);
    await(&page->posted, batch + 1);
    batch_begins();
    for (int i = 0; i < PER_BATCH; i++)
        MPI_Isend(&message[i], MESSAGE, MPI_CHAR, 1, TAG, MPI_COMM_WORLD, &request[i]);
    for (int i = 0; i < PER_BATCH; i++) // not MPI_Waitall, which is counted
        MPI_Wait(&request[i], MPI_STATUS_IGNORE);
    atomic_store(&page->sent, batch + 1);
    await(&page->received, batch + 1);
}

static void receive_batch(struct page *page, uint64_t batch)
{
    static uint64_t message[PER_BATCH];
    MPI_Request request[PER_BATCH];
    batch_begins();
    for (int i = 0; i < PER_BATCH; i++)
        MPI_Irecv(&message[i], MESSAGE, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, &request[i]);
    atomic_store(&page->posted, batch + 1);
    await(&page->sent, batch + 1);
    MPI_Waitall(PER_BATCH, request, MPI_STATUSES_IGNORE);
    for (uint64_t i = 0; i < PER_BATCH; i++)
        if (message[i] != content(batch, i))
            fail("WRONG DATA: other bytes came than were sent");
    atomic_store(&page->received, batch + 1);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2)
        fail("two ranks are wanted (mpirun -n 2)");
    warm_up(rank);
    struct page *page = share_page(argv[1]);
    for (uint64_t batch = 0; batch < BATCHES; batch++) {
        rank == 0 ? send_batch(page, batch) : receive_batch(page, batch);
    }
    batch_begins();
    MPI_Finalize();
    return 0;
}
