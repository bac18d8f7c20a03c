/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hazard 18: memory that is used once and given back, and then nothing is sent any more.
 *
 *     idle ROUNDS SIZE
 *
 * In each round both ranks allocate, exchange, check and free. Then they look for messages that do
 * not come. SIZE below 128 KiB comes from the heap, and round after round at the same address;
 * larger blocks are mapped and unmapped.
 */
#include <malloc.h>

#include "check.h"
#include "settle.h"

enum { TAG = 3, SEED = 47, LOOKS = 2000 };

int main(int argc, char **argv)
{
    int flag;
    const int rank = check_begin(&argc, &argv, 3);
    const uint64_t rounds = strtoul(argv[1], NULL, 0);
    const size_t size = strtoul(argv[2], NULL, 0);
    mallopt(M_MMAP_THRESHOLD, 128 * 1024); /* else it grows with what is freed */
    free(malloc(1));
    for (uint64_t round = 0; round < rounds; round++) {
        unsigned char *out = malloc(size), *in = malloc(size);
        if (out == NULL || in == NULL) {
            check_fail("no memory");
        }
        stamp_fill(out, size, stamp_key(SEED, round, rank, 0), 0);
        settle();
        MPI_Sendrecv(out, (int)size, MPI_BYTE, 1 - rank, TAG, in, (int)size, MPI_BYTE, 1 - rank,
                     TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check_stamp(in, size, stamp_key(SEED, round, 1 - rank, 0), 0, "allocated anew");
        free(in);
        free(out);
    }
    check_done(MPI_COMM_WORLD);
    for (int look = 0; look < LOOKS; look++) {
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        if (flag) {
            check_fail("a message that was not sent");
        }
    }
    MPI_Finalize();
    return 0;
}
