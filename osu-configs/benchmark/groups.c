// SPDX-License-Identifier: BSD-3-Clause
//
// The exchanges of two ranks or more: around a ring, and with the neighbours on a torus.

#include "bench.h"

enum { TAG_RING = 200, TAG_HALO = 300 }; // TAG_HALO and the direction in which the message goes

static int opposite(int direction)
{
    return direction ^ 1;
}

// The torus is as square as can be. Between two ranks two messages go each way.
void find_neighbours(struct bench *b)
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

static int left_of(const struct bench *b)
{
    return (b->rank + b->ranks - 1) % b->ranks;
}

int sender_of(const struct bench *b, int j)
{
    if (b->set.mode == HALO)
        return b->neighbour[j];
    return b->set.mode == SENDRECV ? left_of(b) : !b->rank;
}

int index_at_sender(const struct bench *b, int j)
{
    return b->set.mode == HALO ? opposite(j) : j;
}

void exchange_sendrecv(struct bench *b, size_t size, uint64_t iteration)
{
    unsigned char *send = source_of(b, iteration, 0), *receive = target_of(b, iteration, 0);
    write_message(b, send, size, iteration);
    MPI_Sendrecv(send, (int)size, MPI_CHAR, (b->rank + 1) % b->ranks, TAG_RING, receive, (int)size,
                 MPI_CHAR, left_of(b), TAG_RING, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    read_message(b, receive, size);
}

void exchange_halo(struct bench *b, size_t size, uint64_t iteration)
{
    for (int d = 0; d < DIRECTIONS; d++)
        MPI_Irecv(target_of(b, iteration, d), (int)size, MPI_CHAR, b->neighbour[d],
                  TAG_HALO + opposite(d), MPI_COMM_WORLD, &b->receive_request[d]);
    for (int d = 0; d < DIRECTIONS; d++)
        MPI_Isend(source_of(b, iteration, d), (int)size, MPI_CHAR, b->neighbour[d], TAG_HALO + d,
                  MPI_COMM_WORLD, &b->send_request[d]);
    MPI_Waitall(DIRECTIONS, b->send_request, MPI_STATUSES_IGNORE);
    MPI_Waitall(DIRECTIONS, b->receive_request, MPI_STATUSES_IGNORE);
}
