/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every rank talks with every other; then at least half of /dev/shm must be free for the program.
 *
 *     room
 */
#include <sys/statvfs.h>

#include "check.h"

enum { SEED = 98 };

static const size_t sizes[] = {100, 30000, 300000};

int main(int argc, char **argv)
{
    const int rank = check_begin(&argc, &argv, 1);
    struct statvfs room;
    int ranks;

    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (unsigned n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        for (int by = 1; by < ranks; by++) {
            const int to = (rank + by) % ranks, from = (rank + ranks - by) % ranks;

            check_exchange(MPI_COMM_WORLD, sizes[n], to, stamp_key(SEED, sizes[n], rank, to), from,
                           stamp_key(SEED, sizes[n], from, rank), "an exchange");
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
