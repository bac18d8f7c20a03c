/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hazards 9 and 18: one munmap over very many regions, and then nothing is sent any more.
 *
 *     many COUNT SIZE
 *
 * Rank 0 sends from COUNT buffers of SIZE bytes that lie in one mapping, each twice; then it unmaps
 * them all with one call, maps new memory there and sends from each once more, unmaps all again and
 * looks for messages that do not come. Rank 1 receives all of it in one buffer, the control.
 */
#include "mapping.h"
#include "settle.h"

enum { TAG = 3, SEED = 43, PASSES = 3, LOOKS = 20000 };

int main(int argc, char **argv)
{
    const int rank = check_begin(&argc, &argv, 3);
    const size_t count = strtoul(argv[1], NULL, 0), size = strtoul(argv[2], NULL, 0);
    unsigned char *all = mapping_make_below_room(count * size);
    unsigned char *one = mapping_make(NULL, size, false);
    for (int pass = 0; pass < PASSES; pass++) {
        if (rank == 0 && pass == PASSES - 1) {
            mapping_drop(all, count * size, false);
            mapping_make(all, count * size, false);
            settle();
        }
        for (size_t n = 0; n < count; n++) {
            const uint64_t key = stamp_key(SEED, n, 0, pass);
            if (rank == 0) {
                stamp_fill(all + n * size, size, key, 0);
                MPI_Send(all + n * size, (int)size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
            } else {
                MPI_Recv(one, (int)size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                check_stamp(one, size, key, 0, "one of many buffers");
            }
        }
    }
    if (rank == 0) {
        mapping_drop(all, count * size, false);
        settle();
    }
    for (int look = 0; look < LOOKS; look++) {
        int flag;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        check_that(!flag, "a message that was not sent");
    }
    return check_end();
}
