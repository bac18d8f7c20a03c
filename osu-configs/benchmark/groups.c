// SPDX-License-Identifier: BSD-3-Clause
//
// The exchanges of two or more ranks: a shift around a ring, a halo of two dimensions, and many to
// one. Each message of an iteration has a buffer of its own.

#include "bench.h"

#define TAG_RING 200
#define TAG_HALO 300 // and the direction in which the message goes
#define TAG_INCAST 400
#define TAG_REPLY 401

bool is_for_groups(enum mode mode)
{
    return mode == SENDRECV || mode == HALO || mode == INCAST;
}

// Of the directions, 2k goes back in dimension k, and 2k+1 forth.
static int opposite(int direction)
{
    return direction ^ 1;
}

// A torus that is as square as can be. A dimension in which a rank would be its own neighbour has
// no messages.
static void find_neighbours(struct bench *b)
{
    int dims[2] = {0, 0}, periods[2] = {1, 1};
    MPI_Comm grid;
    MPI_Dims_create(b->ranks, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
    for (int k = 0; k < 2; k++) {
        int *back = &b->neighbour[2 * k], *forth = &b->neighbour[2 * k + 1];
        MPI_Cart_shift(grid, k, 1, back, forth);
        if (dims[k] == 1)
            *back = *forth = MPI_PROC_NULL;
    }
    MPI_Comm_free(&grid);
}

struct part part_of(struct bench *b)
{
    switch (b->set.mode) {
    case LATENCY:
    case PERCENTILES:
    case SENDRECV:
        return (struct part){1, 1};
    case HALO:
        find_neighbours(b);
        return (struct part){DIRECTIONS, DIRECTIONS};
    case INCAST:
        return b->rank == 0 ? (struct part){0, (b->ranks - 1) * b->set.window}
                            : (struct part){b->set.window, 0};
    default:
        return (struct part){b->set.window, b->set.window};
    }
}

static int right_of(const struct bench *b)
{
    return (b->rank + 1) % b->ranks;
}

static int left_of(const struct bench *b)
{
    return (b->rank + b->ranks - 1) % b->ranks;
}

int sender_of(const struct bench *b, int j)
{
    switch (b->set.mode) {
    case SENDRECV:
        return left_of(b);
    case HALO:
        return b->neighbour[j];
    case INCAST:
        return 1 + j / b->set.window;
    default:
        return !b->rank;
    }
}

int index_at_sender(const struct bench *b, int j)
{
    switch (b->set.mode) {
    case HALO:
        return opposite(j);
    case INCAST:
        return j % b->set.window;
    default:
        return j;
    }
}

bool is_column(const struct bench *b, int j)
{
    return b->set.mode == HALO && j >= 2;
}

double exchange_sendrecv(struct bench *b, uint64_t iteration)
{
    unsigned char *send = source_of(b, iteration, 0), *receive = target_of(b, iteration, 0);
    double start = MPI_Wtime();
    write_message(b, send, iteration);
    MPI_Sendrecv(send, b->items, b->type, right_of(b), TAG_RING, receive, b->items, b->type,
                 left_of(b), TAG_RING, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    read_message(b, receive);
    return MPI_Wtime() - start;
}

double exchange_halo(struct bench *b, uint64_t iteration)
{
    double start = MPI_Wtime();
    for (int d = 0; d < DIRECTIONS; d++)
        MPI_Irecv(target_of(b, iteration, d), is_column(b, d) ? 1 : b->items,
                  is_column(b, d) ? b->column : b->type, b->neighbour[d], TAG_HALO + opposite(d),
                  MPI_COMM_WORLD, &b->receive_request[d]);
    for (int d = 0; d < DIRECTIONS; d++)
        MPI_Isend(source_of(b, iteration, d), is_column(b, d) ? 1 : b->items,
                  is_column(b, d) ? b->column : b->type, b->neighbour[d], TAG_HALO + d,
                  MPI_COMM_WORLD, &b->send_request[d]);
    MPI_Waitall(DIRECTIONS, b->send_request, MPI_STATUSES_IGNORE);
    MPI_Waitall(DIRECTIONS, b->receive_request, MPI_STATUSES_IGNORE);
    return MPI_Wtime() - start;
}

double exchange_incast(struct bench *b, uint64_t iteration)
{
    char reply[4] = {0};
    double start = MPI_Wtime();
    if (b->rank == 0) {
        for (int j = 0; j < b->part.receives; j++)
            MPI_Irecv(target_of(b, iteration, j), b->items, b->type, sender_of(b, j), TAG_INCAST,
                      MPI_COMM_WORLD, &b->receive_request[j]);
        MPI_Waitall(b->part.receives, b->receive_request, MPI_STATUSES_IGNORE);
        for (int j = 0; j < b->part.receives; j++)
            read_message(b, target_of(b, iteration, j));
        for (int rank = 1; rank < b->ranks; rank++)
            MPI_Send(reply, sizeof reply, MPI_CHAR, rank, TAG_REPLY, MPI_COMM_WORLD);
    } else {
        for (int j = 0; j < b->part.sends; j++) {
            unsigned char *send = source_of(b, iteration, j);
            write_message(b, send, iteration);
            MPI_Isend(send, b->items, b->type, 0, TAG_INCAST, MPI_COMM_WORLD, &b->send_request[j]);
        }
        MPI_Waitall(b->part.sends, b->send_request, MPI_STATUSES_IGNORE);
        MPI_Recv(reply, sizeof reply, MPI_CHAR, 0, TAG_REPLY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return MPI_Wtime() - start;
}
