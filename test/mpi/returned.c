/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * returned ROUNDS SIZE: rank 0 sends, and rank 1 sends back what it has received, from the same
 * buffer; each byte is checked at both ends.
 */
#include "check.h"

enum { SEED = 77 };

int main(int argc, char **argv)
{
    const int rank = check_begin(&argc, &argv, 3);
    const uint64_t rounds = strtoull(argv[1], NULL, 0);
    const int size = atoi(argv[2]);
    void *memory = check_memory((size_t)size);
    for (uint64_t round = 0; round < rounds; round++) {
        const uint64_t key = stamp_key(SEED, round, 0, 0);
        check_transfer(memory, (size_t)size, key, "what was sent");
        if (rank == 1) {
            MPI_Send(memory, size, MPI_BYTE, 0, CHECK_TAG, MPI_COMM_WORLD);
        } else {
            memset(memory, 0, (size_t)size);
            MPI_Recv(memory, size, MPI_BYTE, 1, CHECK_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check_stamp(memory, (size_t)size, key, 0, "what came back");
        }
    }
    return check_end();
}
