/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a job of many ranks takes of the machine's memory.
 *
 *     ranks FILE SIZE
 *
 * Every rank exchanges 100 bytes with every other one, and SIZE bytes with the two beside it. Rank
 * 0 writes to FILE what the kernel says of all processes together, before that and after it: the
 * bytes of anonymous and shared memory, what several of them share divided by their number (Pss of
 * smaps_rollup). Pages of files are left out: other jobs on the machine share the libraries.
 */
#include <string.h>

#include "check.h"

enum { SEED = 91, TAG = 5, SMALL = 100 };

static int rank, ranks;
static FILE *output;

static uint64_t own_bytes(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    uint64_t kilobytes = 0;

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "Pss_Anon:", 9) == 0 || strncmp(line, "Pss_Shmem:", 10) == 0) {
            kilobytes += strtoull(strchr(line, ':') + 1, NULL, 10);
        }
    }
    if (file == NULL || fclose(file) != 0 || kilobytes == 0) {
        check_fail("/proc/self/smaps_rollup has no Pss_Anon");
    }
    return kilobytes << 10;
}

/* Nobody goes on before all have looked. */
static void tell(const char *when)
{
    uint64_t bytes, all;

    MPI_Barrier(MPI_COMM_WORLD);
    bytes = own_bytes();
    MPI_Reduce(&bytes, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        fprintf(output, "%s %llu\n", when, (unsigned long long)all);
    }
}

/* Sends to the one so many ranks ahead, and receives from the one so many behind. */
static void shift(int by, size_t size, unsigned char *out, unsigned char *in)
{
    const int to = (rank + by) % ranks, from = (rank + ranks - by) % ranks;

    stamp_fill(out, size, stamp_key(SEED, (uint64_t)by, rank, to), 0);
    MPI_Sendrecv(out, (int)size, MPI_BYTE, to, TAG, in, (int)size, MPI_BYTE, from, TAG,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check_stamp(in, size, stamp_key(SEED, (uint64_t)by, from, rank), 0, "from another rank");
}

int main(int argc, char **argv)
{
    rank = check_begin(&argc, &argv, 3);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const size_t size = strtoul(argv[2], NULL, 0);
    unsigned char *out = check_memory(size + SMALL), *in = check_memory(size + SMALL);

    if (rank == 0 && (output = fopen(argv[1], "w")) == NULL) {
        check_fail("%s cannot be written", argv[1]);
    }
    memset(out, 1, size + SMALL); /* that it is the program's is no news */
    memset(in, 1, size + SMALL);
    tell("begun");
    for (int by = 1; by < ranks; by++) {
        shift(by, SMALL, out, in);
    }
    shift(1, size, out, in);
    shift(ranks - 1, size, out, in);
    tell("talked");
    if (rank == 0 && fclose(output) != 0) {
        check_fail("%s cannot be written", argv[1]);
    }
    return check_end();
}
