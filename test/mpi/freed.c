/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives that the program frees before they are complete (MPI_Request_free), as the standard
 * allows: that they are, it learns from a later message.
 *
 *     freed SIZE TIMES
 *
 * Rank 0 receives, every other time into the same buffer without freeing, so that the library uses
 * its records again.
 */
#include "check.h"

enum { SEED = 29, TELL = CHECK_TAG + 1 };

static void receive(unsigned char *buffer, size_t size, int time)
{
    MPI_Request request;

    memset(buffer, 0, size);
    MPI_Irecv(buffer, (int)size, MPI_BYTE, 1, CHECK_TAG, MPI_COMM_WORLD, &request);
    if (time % 2 == 0) {
        MPI_Request_free(&request);
    } else {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Recv(NULL, 0, MPI_BYTE, 1, TELL, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check_stamp(buffer, size, stamp_key(SEED, 0, 1, time), 0, "of a freed receive");
}

/* A synchronous send ends when the receive has begun; this size only when all was read or written,
 * since nothing of it is buffered. */
static void send(unsigned char *buffer, size_t size, int time)
{
    stamp_fill(buffer, size, stamp_key(SEED, 0, 1, time), 0);
    MPI_Ssend(buffer, (int)size, MPI_BYTE, 0, CHECK_TAG, MPI_COMM_WORLD);
    MPI_Send(NULL, 0, MPI_BYTE, 0, TELL, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    const int rank = check_begin(&argc, &argv, 3);
    const size_t size = strtoul(argv[1], NULL, 0);
    unsigned char *buffer = malloc(size);
    for (int time = 0; time < atoi(argv[2]); time++) {
        (rank == 0 ? receive : send)(buffer, size, time);
    }
    free(buffer);
    return check_end();
}
