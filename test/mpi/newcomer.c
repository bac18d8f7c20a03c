/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Somebody connects to rank 0 while it talks with a neighbour without a break. Each byte is
 * checked.
 *
 *     newcomer late    rank 1 sends its first message to rank 0
 *     newcomer spawn   rank 0 spawns a process on each host, talks with them and disconnects
 *
 * Three ranks: 0 talks with rank 2 all the time, and rank 1 is the newcomer. Nothing collective
 * comes before that, since it would connect them.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "check.h"

enum { NEIGHBOUR = 2, NEWCOMER = 1, TAG = 7, BALL = 8, LENGTH = 100001, CHILDREN = 2 };

static atomic_bool over;

/* Rank 0's side of the conversation: the neighbour answers each ball, until it is told to stop. */
static void play_ball(uint64_t number, bool last)
{
    uint64_t ball[2] = {number, last};

    MPI_Sendrecv_replace(ball, sizeof ball, MPI_BYTE, NEIGHBOUR, BALL, NEIGHBOUR, BALL,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (ball[0] != ~number || ball[1] != last) {
        check_fail("ball %llu came back as %llu", (unsigned long long)number,
                   (unsigned long long)~ball[0]);
    }
    check_bytes += sizeof ball;
}

static void answer_balls(void)
{
    uint64_t ball[2] = {0, 0};

    while (ball[1] == 0) {
        MPI_Recv(ball, sizeof ball, MPI_BYTE, 0, BALL, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        ball[0] = ~ball[0];
        MPI_Send(ball, sizeof ball, MPI_BYTE, 0, BALL, MPI_COMM_WORLD);
    }
}

static void *play(void *unused)
{
    for (uint64_t number = 0; !atomic_load(&over); number++) {
        play_ball(number, false);
    }
    return unused;
}

static void wait_for_late_rank(void)
{
    unsigned char *memory = check_memory(LENGTH);
    uint64_t number = 0;
    MPI_Request request;
    int arrived = 0;

    MPI_Irecv(memory, LENGTH, MPI_BYTE, NEWCOMER, TAG, MPI_COMM_WORLD, &request);
    while (!arrived) {
        play_ball(number++, false);
        MPI_Test(&request, &arrived, MPI_STATUS_IGNORE);
    }
    check_stamp(memory, LENGTH, NEWCOMER, 0, "the newcomer's message");
    free(memory);
    play_ball(number, true);
}

static void send_stamp(uint64_t key, int to, MPI_Comm comm)
{
    unsigned char *memory = check_memory(LENGTH);

    stamp_fill(memory, LENGTH, key, 0);
    MPI_Send(memory, LENGTH, MPI_BYTE, to, TAG, comm);
    free(memory);
}

static void receive_stamp(uint64_t key, int from, MPI_Comm comm)
{
    unsigned char *memory = check_memory(LENGTH);

    MPI_Recv(memory, LENGTH, MPI_BYTE, from, TAG, comm, MPI_STATUS_IGNORE);
    check_stamp(memory, LENGTH, key, 0, "a message between parent and child");
    free(memory);
}

static void spawn_children(const char *program)
{
    const char *arguments[] = {"child", NULL};
    pthread_t player;
    MPI_Comm children;
    MPI_Info one_per_host;

    if (pthread_create(&player, NULL, play, NULL) != 0) {
        check_fail("no thread");
    }
    MPI_Info_create(&one_per_host);
    MPI_Info_set(one_per_host, "map_by", "node");
    MPI_Comm_spawn(program, (char **)arguments, CHILDREN, one_per_host, 0, MPI_COMM_SELF, &children,
                   MPI_ERRCODES_IGNORE);
    MPI_Info_free(&one_per_host);
    for (int child = 0; child < CHILDREN; child++) {
        receive_stamp((uint64_t)child, child, children);
        send_stamp((uint64_t)child + CHILDREN, child, children);
    }
    MPI_Comm_disconnect(&children);
    atomic_store(&over, true);
    pthread_join(player, NULL);
    play_ball(0, true);
}

static void be_child(void)
{
    MPI_Comm parent;
    int rank;

    MPI_Comm_get_parent(&parent);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    send_stamp((uint64_t)rank, 0, parent);
    receive_stamp((uint64_t)rank + CHILDREN, 0, parent);
    MPI_Comm_disconnect(&parent);
}

int main(int argc, char **argv)
{
    const char *role = argc > 1 ? argv[1] : "";
    const bool spawns = strcmp(role, "spawn") == 0;
    int rank, threads;

    MPI_Init_thread(&argc, &argv, spawns ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &threads);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (strcmp(role, "child") == 0) {
        be_child();
    } else if (rank == NEIGHBOUR) {
        answer_balls();
    } else if (rank == 0 && spawns) {
        spawn_children(argv[0]);
    } else if (rank == 0) {
        wait_for_late_rank();
    } else if (!spawns) {
        send_stamp(NEWCOMER, 0, MPI_COMM_WORLD);
    }
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
