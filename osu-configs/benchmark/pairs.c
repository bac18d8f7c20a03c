// SPDX-License-Identifier: BSD-3-Clause
//
// The exchanges of two ranks, as osu_latency, osu_bw and osu_bibw make them.

#include "bench.h"

#define TAG_LATENCY 1
#define TAG_TO_1 100
#define TAG_TO_0 10
#define TAG_REPLY 101

static void send_one(struct bench *b, uint64_t iteration)
{
    unsigned char *send = source_of(b, iteration, 0);
    write_message(b, send, iteration);
    if (b->set.buffers == BUFFERED)
        MPI_Bsend(send, b->items, b->type, !b->rank, TAG_LATENCY, MPI_COMM_WORLD);
    else
        MPI_Send(send, b->items, b->type, !b->rank, TAG_LATENCY, MPI_COMM_WORLD);
}

static void receive_one(struct bench *b, uint64_t iteration)
{
    unsigned char *receive = target_of(b, iteration, 0);
    MPI_Recv(receive, b->items, b->type, !b->rank, TAG_LATENCY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    read_message(b, receive);
}

double exchange_latency(struct bench *b, uint64_t iteration)
{
    double start = MPI_Wtime();
    if (b->rank == 0) {
        send_one(b, iteration);
        receive_one(b, iteration);
    } else {
        receive_one(b, iteration);
        send_one(b, iteration);
    }
    return MPI_Wtime() - start;
}

static void start_receives(struct bench *b, uint64_t iteration)
{
    int tag = b->rank == 0 ? TAG_TO_0 : TAG_TO_1;
    for (int j = 0; j < b->set.window; j++)
        MPI_Irecv(target_of(b, iteration, j), b->items, b->type, !b->rank, tag, MPI_COMM_WORLD,
                  &b->receive_request[j]);
}

static void start_sends(struct bench *b, uint64_t iteration)
{
    int tag = b->rank == 0 ? TAG_TO_1 : TAG_TO_0;
    for (int j = 0; j < b->set.window; j++) {
        unsigned char *send = source_of(b, iteration, j);
        write_message(b, send, iteration);
        b->send_request[j] = MPI_REQUEST_NULL;
        if (b->set.buffers == BUFFERED)
            MPI_Bsend(send, b->items, b->type, !b->rank, tag, MPI_COMM_WORLD);
        else
            MPI_Isend(send, b->items, b->type, !b->rank, tag, MPI_COMM_WORLD, &b->send_request[j]);
    }
}

static void finish_receives(struct bench *b, uint64_t iteration)
{
    MPI_Waitall(b->set.window, b->receive_request, MPI_STATUSES_IGNORE);
    for (int j = 0; j < b->set.window; j++)
        read_message(b, target_of(b, iteration, j));
}

double exchange_bw(struct bench *b, uint64_t iteration)
{
    char reply[4] = {0};
    double start = MPI_Wtime();
    if (b->rank == 0) {
        start_sends(b, iteration);
        MPI_Waitall(b->set.window, b->send_request, MPI_STATUSES_IGNORE);
        MPI_Recv(reply, sizeof reply, MPI_CHAR, 1, TAG_REPLY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        start_receives(b, iteration);
        finish_receives(b, iteration);
        MPI_Send(reply, sizeof reply, MPI_CHAR, 0, TAG_REPLY, MPI_COMM_WORLD);
    }
    return MPI_Wtime() - start;
}

double exchange_bibw(struct bench *b, uint64_t iteration)
{
    double start = MPI_Wtime();
    start_receives(b, iteration);
    start_sends(b, iteration);
    MPI_Waitall(b->set.window, b->send_request, MPI_STATUSES_IGNORE);
    finish_receives(b, iteration);
    return MPI_Wtime() - start;
}
