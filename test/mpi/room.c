/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every rank talks with every other; then at least half of /dev/shm must be free for the program.
 *
 *     room
 */
#include <sys/statvfs.h>

#include "check.h"

enum { SEED = 98, TAG = 7 };

static const int sizes[] = {100, 30000, 300000};

static void exchange(int to, int from, int rank, int size)
{
    unsigned char *sent = check_memory((size_t)size), *got = check_memory((size_t)size);

    stamp_fill(sent, (size_t)size, stamp_key(SEED, size, rank, to), 0);
    MPI_Sendrecv(sent, size, MPI_BYTE, to, TAG, got, size, MPI_BYTE, from, TAG, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    check_stamp(got, (size_t)size, stamp_key(SEED, size, from, rank), 0, "an exchange");
    free(sent);
    free(got);
}

int main(int argc, char **argv)
{
    const int rank = check_begin(&argc, &argv, 1);
    struct statvfs room;
    int ranks;

    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (unsigned n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        for (int by = 1; by < ranks; by++) {
            exchange((rank + by) % ranks, (rank + ranks - by) % ranks, rank, sizes[n]);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (statvfs("/dev/shm", &room) != 0 || room.f_bavail < room.f_blocks / 2) {
        check_fail("of /dev/shm %llu KiB are free of %llu",
                   (unsigned long long)(room.f_bavail * room.f_frsize >> 10),
                   (unsigned long long)(room.f_blocks * room.f_frsize >> 10));
    }
    return check_end();
}
