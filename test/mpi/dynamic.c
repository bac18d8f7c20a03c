/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes that meet after MPI_Init, each byte checked.
 *
 *     dynamic spawn CHILDREN
 *     dynamic connect CHILDREN TIMES
 *
 * spawn: the job starts children, talks with them over the intercommunicator, merges with them,
 * talks over the merged one and disconnects; then once more.
 * connect: the job starts two groups of children that know nothing of each other; they meet over a
 * port, talk, disconnect, and meet again, TIMES times.
 */

#include "check.h"

enum { TAG = 9, SIZES = 4, SEED = 5, LARGEST = 1 << 20 };

static void exchange(MPI_Comm comm, int me, int peer, uint64_t round, size_t size)
{
    check_exchange(comm, size, peer, stamp_key(SEED, round, me, peer), peer,
                   stamp_key(SEED, round, peer, me), "message between jobs");
}

/* In each round rank r of one side talks with rank (round - r) of the other, or neither talks. */
static void talk_across(MPI_Comm inter)
{
    const size_t sizes[SIZES] = {1, 5000, 100000, LARGEST};
    int rank, here, there;
    MPI_Comm_rank(inter, &rank);
    MPI_Comm_size(inter, &here);
    MPI_Comm_remote_size(inter, &there);
    for (int round = 0; round < here + there - 1; round++) {
        int peer = round - rank;
        for (int n = 0; n < SIZES && peer >= 0 && peer < there; n++) {
            exchange(inter, rank, peer, (uint64_t)(SIZES * round + n), sizes[n]);
        }
    }
    MPI_Barrier(inter);
}

static void talk_within(MPI_Comm intra)
{
    int rank, ranks;
    uint64_t sum = 0;
    MPI_Comm_rank(intra, &rank);
    MPI_Comm_size(intra, &ranks);
    for (int round = 0; round < 2 * ranks - 1; round++) {
        int peer = round - rank;
        if (peer >= 0 && peer < ranks && peer != rank) {
            exchange(intra, rank, peer, (uint64_t)round, LARGEST);
        }
    }
    uint64_t mine = (uint64_t)rank + 1;
    MPI_Allreduce(&mine, &sum, 1, MPI_UINT64_T, MPI_SUM, intra);
    check_that(sum == (uint64_t)ranks * (uint64_t)(ranks + 1) / 2,
               "sum over %d merged ranks is %llu", ranks, (unsigned long long)sum);
}

static MPI_Comm start(const char *program, const char *role, int children, const char *times)
{
    const char *arguments[] = {role, times, NULL};
    MPI_Comm inter;

    MPI_Comm_spawn(program, (char **)arguments, children, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                   MPI_ERRCODES_IGNORE);
    return inter;
}

static void merge_and_leave(MPI_Comm inter, bool high)
{
    MPI_Comm merged;
    MPI_Intercomm_merge(inter, high, &merged);
    talk_within(merged);
    MPI_Comm_free(&merged); /* 4.1.4 hangs in PMIx when it is disconnected, whatever the BTL */
    MPI_Comm_disconnect(&inter);
}

static void run_spawn(const char *program, int children)
{
    for (int round = 0; round < 2; round++) {
        MPI_Comm inter = start(program, "spawned", children, NULL);
        talk_across(inter);
        merge_and_leave(inter, false);
    }
}

/* The parents only pass the port's name from one group to the other. */
static void run_connect(const char *program, int children, const char *times)
{
    MPI_Comm servers = start(program, "server", children, times);
    MPI_Comm clients = start(program, "client", children, times);
    char port[MPI_MAX_PORT_NAME];
    const int rank = check_rank();
    if (rank == 0) {
        MPI_Recv(port, sizeof port, MPI_CHAR, 0, TAG, servers, MPI_STATUS_IGNORE);
        MPI_Send(port, sizeof port, MPI_CHAR, 0, TAG, clients);
    }
    MPI_Comm_disconnect(&servers);
    MPI_Comm_disconnect(&clients);
}

static void meet(MPI_Comm parent, bool server, int times)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm inter;
    const int rank = check_rank();
    if (rank == 0 && server) {
        MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Send(port, sizeof port, MPI_CHAR, 0, TAG, parent);
    } else if (rank == 0) {
        MPI_Recv(port, sizeof port, MPI_CHAR, 0, TAG, parent, MPI_STATUS_IGNORE);
    }
    for (int n = 0; n < times; n++) {
        if (server) {
            MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
        } else {
            MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
        }
        talk_across(inter);
        MPI_Comm_disconnect(&inter);
    }
    if (rank == 0 && server) {
        MPI_Close_port(port);
    }
    MPI_Comm_disconnect(&parent);
}

int main(int argc, char **argv)
{
    MPI_Comm parent;

    check_begin(&argc, &argv, 2);
    MPI_Comm_get_parent(&parent);
    const char *role = argv[1], *number = argc > 2 ? argv[2] : "1";
    const char *times = argc > 3 ? argv[3] : "1";
    if (strcmp(role, "spawn") == 0) {
        run_spawn(argv[0], atoi(number));
    } else if (strcmp(role, "connect") == 0) {
        run_connect(argv[0], atoi(number), times);
    } else if (strcmp(role, "spawned") == 0) {
        talk_across(parent);
        merge_and_leave(parent, true);
    } else if (strcmp(role, "server") == 0 || strcmp(role, "client") == 0) {
        meet(parent, strcmp(role, "server") == 0, atoi(number));
    } else {
        check_fail("spawn or connect, not \"%s\"", role);
    }
    return check_end(); /* one line per job: the children's too */
}
