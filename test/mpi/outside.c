/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * outside FILE: rank 0 begins to send, and is outside MPI until rank 1 says by that file that it has
 * received: one message of each size, and of the large ones a burst, as many as surely fit the
 * mailbox. FILE is shared memory, new.
 */
#include "mapping.h"

enum { SEED = 89, MOST = 3000001, BURST = 40 };

static const int sizes[] = {8, 40000, 70001, 140003, 1048576, MOST};

int main(int argc, char **argv)
{
    const int rank = check_begin(&argc, &argv, 2);
    atomic_int *received = mapping_share(argv[1], 4096);
    unsigned char *memory = check_memory(MOST);

    for (int n = 0; n < (int)(sizeof sizes / sizeof *sizes); n++) {
        const uint64_t key = stamp_key(SEED, n, 0, 1);
        const int count = sizes[n] > 65536 ? BURST : 1;
        MPI_Request requests[BURST];

        if (rank == 0) {
            stamp_fill(memory, (size_t)sizes[n], key, 0);
            for (int i = 0; i < count; i++) {
                MPI_Isend(memory, sizes[n], MPI_BYTE, 1, CHECK_TAG, MPI_COMM_WORLD, &requests[i]);
            }
            await(*received > n);
            MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        } else {
            for (int i = 0; i < count; i++) {
                memset(memory, 0, (size_t)sizes[n]);
                MPI_Recv(memory, sizes[n], MPI_BYTE, 0, CHECK_TAG, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
                check_stamp(memory, (size_t)sizes[n], key, 0, "what came from outside MPI");
            }
            *received = n + 1;
        }
    }
    free(memory);
    return check_end();
}
