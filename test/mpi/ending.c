/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A job that ends in the middle of large transfers.
 *
 *     ending abort|kill
 *
 * Every rank has large messages under way to and from every other; when the first of rank 1's has
 * come, rank 1 calls MPI_Abort, or is killed.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

enum { SIZE = 16 << 20, MOST_RANKS = 8 };

int main(int argc, char **argv)
{
    static unsigned char *buffer[2 * MOST_RANKS];
    MPI_Request requests[2 * MOST_RANKS];
    int rank, ranks, first;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 2 || ranks > MOST_RANKS) {
        check_fail("needs abort or kill, and at most %d ranks", MOST_RANKS);
    }
    for (int peer = 0; peer < ranks; peer++) {
        for (int way = 0; way < 2; way++) {
            int n = way * ranks + peer;
            buffer[n] = check_memory(SIZE);
            memset(buffer[n], n, SIZE);
            requests[n] = MPI_REQUEST_NULL;
            if (peer != rank && way == 0) {
                MPI_Irecv(buffer[n], SIZE, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[n]);
            } else if (peer != rank) {
                MPI_Isend(buffer[n], SIZE, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[n]);
            }
        }
    }
    if (rank == 1) {
        MPI_Waitany(ranks, requests, &first, MPI_STATUS_IGNORE);
        if (strcmp(argv[1], "abort") == 0) {
            MPI_Abort(MPI_COMM_WORLD, 7);
        }
        raise(SIGKILL);
    }
    MPI_Waitall(2 * ranks, requests, MPI_STATUSES_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD); /* rank 1 never comes */
    return 0;
}
