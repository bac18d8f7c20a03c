/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Three ranks, of which rank 1 is outside MPI while rank 0 and rank 2 go on.
 *
 *     neighbours FILE
 *
 * Rank 0 has for rank 1 more eager messages than its mailbox holds, and RTSs without an answer, sends
 * rank 2 a message of fragments and receives a large one of it.
 *
 * Rank 1 returns to MPI only when rank 2 says, by FILE, that its message is over: a rank that waits for
 * another's affairs hangs the job. FILE is shared memory, new.
 */
#include "mapping.h"

enum { LARGE = 4 << 20, PIECE = 8, FRAGMENTED = 40, SMALL = 400, EAGER = 32768, SEED = 83 };
enum { TAG_LARGE = 1, TAG_EAGER, TAG_FRAGMENTED = 10 };

static const int eager_sizes[] = {3000, 8192, EAGER, 2017};

static MPI_Datatype scattered; /* LARGE bytes, every other piece of PIECE bytes */

static uint64_t key(int sender, int message)
{
    return stamp_key(SEED, 0, sender, message);
}

static void receive_large(int from, int tag)
{
    unsigned char *memory = check_memory(LARGE);
    MPI_Recv(memory, LARGE, MPI_BYTE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check_stamp(memory, LARGE, key(from, tag), 0, "the large message");
    free(memory);
}

static void send_large(int rank, int to)
{
    unsigned char *memory = check_memory(LARGE);
    stamp_fill(memory, LARGE, key(rank, TAG_LARGE), 0);
    MPI_Send(memory, LARGE, MPI_BYTE, to, TAG_LARGE, MPI_COMM_WORLD);
    free(memory);
}

/* What rank 0 sends in fragments, each time the same. */
static unsigned char *stamped_pieces(void)
{
    unsigned char *memory = check_memory(2 * LARGE);

    for (size_t piece = 0; piece < LARGE / PIECE; piece++) {
        stamp_fill(memory + 2 * piece * PIECE, PIECE, key(0, TAG_FRAGMENTED), piece * PIECE);
    }
    return memory;
}

static void receive_eager(int n)
{
    unsigned char memory[EAGER];
    const int size = eager_sizes[n % 4];

    memset(memory, 0, EAGER);
    MPI_Recv(memory, size, MPI_BYTE, 0, TAG_EAGER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check_stamp(memory, (size_t)size, key(0, TAG_EAGER), 0, "an eager message");
}

static void exchange(int rank, atomic_bool *released)
{
    static MPI_Request requests[SMALL + FRAGMENTED];
    unsigned char *memory = stamped_pieces(), *small = check_memory(EAGER);

    stamp_fill(small, EAGER, key(0, TAG_EAGER), 0);
    if (rank == 0) {
        for (int n = 0; n < FRAGMENTED; n++) {
            MPI_Isend(memory, 1, scattered, 1, TAG_FRAGMENTED, MPI_COMM_WORLD,
                      &requests[SMALL + n]);
        }
        for (int n = 0; n < SMALL; n++) {
            MPI_Isend(small, eager_sizes[n % 4], MPI_BYTE, 1, TAG_EAGER, MPI_COMM_WORLD,
                      &requests[n]);
        }
        MPI_Send(memory, 1, scattered, 2, TAG_FRAGMENTED, MPI_COMM_WORLD);
        for (int n = 0; n < 4; n++) {
            MPI_Send(small, eager_sizes[n], MPI_BYTE, 2, TAG_EAGER, MPI_COMM_WORLD);
        }
        receive_large(2, TAG_LARGE);
        MPI_Waitall(SMALL + FRAGMENTED, requests, MPI_STATUSES_IGNORE);
    } else if (rank == 1) {
        await(*released); /* outside MPI */
        for (int n = 0; n < SMALL; n++) {
            receive_eager(n);
        }
        for (int n = 0; n < FRAGMENTED; n++) {
            receive_large(0, TAG_FRAGMENTED);
        }
    } else {
        receive_large(0, TAG_FRAGMENTED);
        for (int n = 0; n < 4; n++) {
            receive_eager(n);
        }
        send_large(2, 0);
        *released = true;
    }
    free(memory);
    free(small);
}

int main(int argc, char **argv)
{
    const int rank = check_begin(&argc, &argv, 2);
    atomic_bool *released = mapping_share(argv[1], 4096);
    MPI_Type_vector(LARGE / PIECE, PIECE, 2 * PIECE, MPI_BYTE, &scattered);
    MPI_Type_commit(&scattered);
    MPI_Barrier(MPI_COMM_WORLD);
    exchange(rank, released);
    MPI_Type_free(&scattered);
    return check_end();
}
