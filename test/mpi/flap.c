/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Traffic both ways between two ranks, while the link between them is lost and comes back.
 *
 *     flap ROUNDS COMMAND
 *
 * In each round rank 1 starts COMMAND, which is to take the link away, print a line, and give the
 * link back later. When the line has come, both ranks send, and wait for all. All that arrives is
 * checked.
 */
#include "check.h"

enum { SIZES = 4, EACH = 4, MESSAGES = SIZES * EACH };

static const int sizes[SIZES] = {8, 5000, 70001, 1000003};

/* Returns when the link is gone. */
static FILE *lose_link(const char *command)
{
    char line[80];
    FILE *output = popen(command, "r");

    if (output == NULL || fgets(line, sizeof(line), output) == NULL) {
        check_fail("the command failed: %s", command);
    }
    return output;
}

static void exchange(uint64_t round, int rank, unsigned char **from, unsigned char **to)
{
    MPI_Request requests[2 * MESSAGES];

    for (int i = 0; i < MESSAGES; i++) {
        const int length = sizes[i % SIZES];

        stamp_fill(from[i], (size_t)length, stamp_key(0, round, rank, i), 0);
        MPI_Irecv(to[i], length, MPI_BYTE, 1 - rank, i, MPI_COMM_WORLD, &requests[i]);
        MPI_Isend(from[i], length, MPI_BYTE, 1 - rank, i, MPI_COMM_WORLD, &requests[MESSAGES + i]);
    }
    MPI_Waitall(2 * MESSAGES, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < MESSAGES; i++) {
        check_stamp(to[i], (size_t)sizes[i % SIZES], stamp_key(0, round, 1 - rank, i), 0, "round");
    }
}

int main(int argc, char **argv)
{
    unsigned char *from[MESSAGES], *to[MESSAGES];
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 3) {
        check_fail("needs a number of rounds and a command");
    }
    for (int i = 0; i < MESSAGES; i++) {
        from[i] = check_memory((size_t)sizes[i % SIZES]);
        to[i] = check_memory((size_t)sizes[i % SIZES]);
    }
    exchange(0, rank, from, to);
    for (uint64_t round = 1; round <= strtoull(argv[1], NULL, 10); round++) {
        FILE *output = rank == 1 ? lose_link(argv[2]) : NULL;

        exchange(round, rank, from, to);
        if (output != NULL && pclose(output) != 0) {
            check_fail("the command failed: %s", argv[2]);
        }
    }
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
