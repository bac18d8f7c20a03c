/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Traffic both ways between two ranks, while the link between them is lost and comes back.
 *
 *     flap ROUNDS COMMAND
 *
 * In each round rank 1 starts COMMAND, which is to take the link away, print a line, and give the
 * link back later. When the line has come, both ranks send, and wait for all. All that arrives is
 * checked. There are so many rounds, and more until each rank has replaced a queue pair: the link
 * may come back before a device has tried often enough.
 */
#include "check.h"

#include <string.h>

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

/* Finds how many queue pairs this rank has replaced (btl_regx_restarts). */
static MPI_T_pvar_handle find_restarts(MPI_T_pvar_session session)
{
    static const char wanted[] = "btl_regx_restarts";
    MPI_T_pvar_handle handle;
    int total, values;

    MPI_T_pvar_get_num(&total);
    for (int n = 0; n < total; n++) {
        char name[128], help[1024];
        int name_length = sizeof name, help_length = sizeof help;
        int verbosity, class, binding, readonly, continuous, atomic;
        MPI_Datatype type;
        MPI_T_enum words;

        if (MPI_T_pvar_get_info(n, name, &name_length, &verbosity, &class, &type, &words, help,
                                &help_length, &binding, &readonly, &continuous,
                                &atomic) == MPI_SUCCESS &&
            strcmp(name, wanted) == 0 && type == MPI_UNSIGNED_LONG_LONG &&
            MPI_T_pvar_handle_alloc(session, n, NULL, &handle, &values) == MPI_SUCCESS) {
            return handle;
        }
    }
    check_fail("there is no %s", wanted);
}

/* The fewest that a rank has replaced. */
static unsigned long long fewest_restarts(MPI_T_pvar_session session, MPI_T_pvar_handle handle)
{
    unsigned long long own, fewest;

    if (MPI_T_pvar_read(session, handle, &own) != MPI_SUCCESS) {
        check_fail("the number of restarts cannot be read");
    }
    MPI_Allreduce(&own, &fewest, 1, MPI_UNSIGNED_LONG_LONG, MPI_MIN, MPI_COMM_WORLD);
    return fewest;
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
    MPI_T_pvar_session session;
    unsigned long long restarts = 0;
    int rank, level;

    MPI_T_init_thread(MPI_THREAD_SINGLE, &level);
    MPI_T_pvar_session_create(&session);
    MPI_Init(&argc, &argv);
    const MPI_T_pvar_handle handle = find_restarts(session);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 3) {
        check_fail("needs a number of rounds and a command");
    }
    for (int i = 0; i < MESSAGES; i++) {
        from[i] = check_memory((size_t)sizes[i % SIZES]);
        to[i] = check_memory((size_t)sizes[i % SIZES]);
    }
    exchange(0, rank, from, to);
    for (uint64_t round = 1; round <= strtoull(argv[1], NULL, 10) || restarts == 0; round++) {
        FILE *output = rank == 1 ? lose_link(argv[2]) : NULL;

        exchange(round, rank, from, to);
        if (output != NULL && pclose(output) != 0) {
            check_fail("the command failed: %s", argv[2]);
        }
        restarts = fewest_restarts(session, handle);
    }
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
