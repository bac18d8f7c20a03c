/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The job that regx-doctor starts: each rank sends to its neighbour, and looks at every byte that
 * it gets. It says on stdout how many bytes were right if all were, on stderr what was not. It does
 * so before MPI_Finalize, in which Open MPI 4.1 may crash by itself (mca-params/openmpi.md).
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 8 };

static const unsigned sizes[] = {8, 65536, 4194304};

/* Another value for each place, round and rank. */
static unsigned char stamp(int place, int round, int rank)
{
    return (unsigned char)((unsigned)place * 31u + (unsigned)place / 251u + (unsigned)round * 7u +
                           (unsigned)rank * 101u);
}

static int count_wrong(const unsigned char *got, int size, int round, int rank)
{
    int wrong = 0;

    for (int i = 0; i < size; i++) {
        wrong += got[i] != stamp(i, round, rank);
    }
    return wrong;
}

int main(int argc, char **argv)
{
    const unsigned most = sizes[sizeof(sizes) / sizeof(sizes[0]) - 1];
    long long right = 0;
    int rank, ranks, wrong = 0, wrong_anywhere = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    unsigned char *sent = malloc(most), *got = malloc(most);
    if (sent == NULL || got == NULL) {
        fprintf(stderr, "exchange: no memory for messages of %u bytes\n", most);
        MPI_Abort(MPI_COMM_WORLD, 1);
        return 1;
    }
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (int round = 0; round < ROUNDS; round++) {
            const int length = (int)sizes[s];

            for (int i = 0; i < length; i++) {
                sent[i] = stamp(i, round, rank);
            }
            memset(got, ~stamp(0, round, from), sizes[s]);
            MPI_Sendrecv(sent, length, MPI_BYTE, to, 0, got, length, MPI_BYTE, from, 0,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            wrong += count_wrong(got, length, round, from);
            right += length;
        }
    }
    free(sent);
    free(got);
    if (wrong > 0) {
        fprintf(stderr, "exchange: rank %d: %d bytes of %lld were wrong\n", rank, wrong, right);
    }
    MPI_Allreduce(&wrong, &wrong_anywhere, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0 && wrong_anywhere == 0) {
        printf("%lld bytes were right\n", right);
        fflush(stdout);
    }
    MPI_Finalize();
    return wrong_anywhere == 0 ? 0 : 1;
}
