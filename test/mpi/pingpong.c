/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pingpong ROUNDS: ranks 0 and 1 exchange 8 bytes, each checked.
 *
 * Rank 0 calls getpgid before the first and after the last round, after a few to warm up: marks
 * for those who trace its system calls.
 */
#include <unistd.h>

#include "check.h"

enum { TAG = 5, WARM = 100 };

static void play(int rank, uint64_t rounds)
{
    const int peer = 1 - rank;

    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t ball = round;

        if (rank == 0) {
            MPI_Send(&ball, 8, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
        }
        ball = ~UINT64_C(0);
        MPI_Recv(&ball, 8, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (ball != round) {
            check_fail("round %llu brought %llu", (unsigned long long)round,
                       (unsigned long long)ball);
        }
        check_bytes += 8;
        if (rank == 1) {
            MPI_Send(&ball, 8, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
        }
    }
}

int main(int argc, char **argv)
{
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    play(rank, WARM);
    if (rank == 0) {
        getpgid(0);
    }
    play(rank, argc > 1 ? strtoull(argv[1], NULL, 0) : 1000);
    if (rank == 0) {
        getpgid(0);
    }
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
