/* SPDX-License-Identifier: BSD-3-Clause */
#include <sched.h>

#include "window.h"

/* Everybody puts to everybody, also to itself, and gets from the next one what a third put
 * there. */
void fence(void)
{
    const int next = (rank + 1) % ranks, third = (rank + 2) % ranks;
    unsigned char *back = check_memory(size + 1);

    open_window((size_t)ranks * size);
    for (uint64_t round = 0; round < 3; round++) {
        unsigned char **mine = check_memory((size_t)ranks * sizeof *mine);

        MPI_Win_fence(0, window);
        for (int to = 0; to < ranks; to++) {
            put(mine[to] = filled(round, to), to);
        }
        MPI_Win_fence(0, window);
        for (int n = 0; n < ranks; n++) {
            check_part(round, n);
            free(mine[n]);
        }
        free(mine);
        MPI_Get(back, (int)size, MPI_BYTE, next, at(next, (size_t)third * size), (int)size,
                MPI_BYTE, window);
        MPI_Win_fence(0, window);
        check_stamp(back, size, key(round, third, next), 0, "got");
    }
    close_window();
    free(back);
}

/* Post, start, complete and wait, around a ring. */
void pscw(void)
{
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Group world, target, origin;

    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &to, &target);
    MPI_Group_incl(world, 1, &from, &origin);
    open_window((size_t)ranks * size);
    for (uint64_t round = 0; round < 5; round++) {
        unsigned char *mine = filled(round, to);

        MPI_Win_post(origin, 0, window);
        MPI_Win_start(target, 0, window);
        put(mine, to);
        MPI_Win_complete(window);
        MPI_Win_wait(window);
        check_part(round, from);
        free(mine);
    }
    close_window();
    MPI_Group_free(&world);
    MPI_Group_free(&target);
    MPI_Group_free(&origin);
}

/* Under an exclusive lock of each rank in turn. */
void lock(void)
{
    unsigned char *back = check_memory(size + 1);

    open_window((size_t)ranks * size);
    for (int n = 0; n < ranks; n++) {
        const int to = (rank + n) % ranks;
        unsigned char *mine = filled(1, to);

        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, window);
        put(mine, to);
        MPI_Win_flush(to, window);
        MPI_Get(back, (int)size, MPI_BYTE, to, at(to, (size_t)rank * size), (int)size, MPI_BYTE,
                window);
        MPI_Win_unlock(to, window);
        check_stamp(back, size, key(1, rank, to), 0, "got back");
        free(mine);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    for (int from = 0; from < ranks; from++) {
        check_part(1, from);
    }
    MPI_Win_unlock(rank, window);
    close_window();
    free(back);
}

/* With requests, under a lock of all. */
void requests(void)
{
    unsigned char *back = check_memory(size + 1);
    MPI_Request request;

    open_window((size_t)ranks * size);
    MPI_Win_lock_all(0, window);
    for (int n = 0; n < ranks; n++) {
        const int to = (rank + n) % ranks;
        unsigned char *mine = filled(2, to);

        MPI_Rput(mine, (int)size, MPI_BYTE, to, at(to, (size_t)rank * size), (int)size, MPI_BYTE,
                 window, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Win_flush(to, window);
        free(mine);
        MPI_Rget(back, (int)size, MPI_BYTE, to, at(to, (size_t)rank * size), (int)size, MPI_BYTE,
                 window, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check_stamp(back, size, key(2, rank, to), 0, "got back");
    }
    MPI_Win_flush_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(window);
    for (int from = 0; from < ranks; from++) {
        check_part(2, from);
    }
    MPI_Win_unlock_all(window);
    close_window();
    free(back);
}

/* More puts and gets than any queue holds, none waited for before the end. */
void flood(void)
{
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    const size_t pieces = 3 * 4096, piece = 16;
    unsigned char *mine = check_memory(pieces * piece), *back = check_memory(pieces * piece);

    open_window(pieces * piece);
    stamp_fill(mine, pieces * piece, key(3, rank, to), 0);
    MPI_Win_lock_all(0, window);
    for (size_t n = 0; n < pieces; n++) {
        MPI_Put(mine + n * piece, (int)piece, MPI_BYTE, to, at(to, n * piece), (int)piece, MPI_BYTE,
                window);
    }
    MPI_Win_flush(to, window);
    for (size_t n = 0; n < pieces; n++) {
        MPI_Get(back + n * piece, (int)piece, MPI_BYTE, to, at(to, n * piece), (int)piece, MPI_BYTE,
                window);
    }
    MPI_Win_flush(to, window);
    MPI_Win_unlock_all(window);
    check_stamp(back, pieces * piece, key(3, rank, to), 0, "got back");
    MPI_Barrier(MPI_COMM_WORLD);
    check_stamp(memory, pieces * piece, key(3, from, rank), 0, "put here");
    close_window();
    free(mine);
    free(back);
}

/* Every second number at the target, from every third here; got back in one piece and in two. */
void derived(void)
{
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    const int count = (int)(size / 8) + 1;
    uint64_t *mine = check_memory((size_t)count * 24), *back = check_memory((size_t)count * 16);
    MPI_Datatype second, third;

    MPI_Type_vector(count, 1, 2, MPI_UINT64_T, &second);
    MPI_Type_vector(count, 1, 3, MPI_UINT64_T, &third);
    MPI_Type_commit(&second);
    MPI_Type_commit(&third);
    for (int n = 0; n < count; n++) {
        mine[3 * n] = key(4, rank, to) + (uint64_t)n;
    }
    open_window((size_t)count * 16);
    MPI_Win_fence(0, window);
    MPI_Put(mine, 1, third, to, at(to, 0), 1, second, window);
    MPI_Win_fence(0, window);
    MPI_Get(back, 2 * count - 1, MPI_UINT64_T, to, at(to, 0), 2 * count - 1, MPI_UINT64_T, window);
    MPI_Win_fence(0, window);
    for (int n = 0; n < count; n++) {
        const uint64_t *here = (const uint64_t *)(const void *)memory;

        if (here[2 * n] != key(4, from, rank) + (uint64_t)n || here[2 * n + 1] != 0 ||
            back[2 * n] != key(4, rank, to) + (uint64_t)n ||
            (n + 1 < count && back[2 * n + 1] != 0)) {
            check_fail("element %d of a vector", n);
        }
        check_bytes += 16;
    }
    MPI_Get(back, 1, second, to, at(to, 0), 1, second, window);
    MPI_Win_fence(0, window);
    for (int n = 0; n < count; n++) {
        if (back[2 * n] != key(4, rank, to) + (uint64_t)n) {
            check_fail("element %d of a vector that was got as one", n);
        }
    }
    close_window();
    MPI_Type_free(&second);
    MPI_Type_free(&third);
    free(mine);
    free(back);
}

/* Waits for a put of that value or a later, greater one, by looking at the memory alone. */
static void await_bytes(const unsigned char *at, unsigned char value)
{
    while (__atomic_load_n(at, __ATOMIC_ACQUIRE) < value) {
        sched_yield();
    }
}

/* Puts and gets between pairs, whose second is not inside MPI from the first one to the last. */
void alone(void)
{
    const int other = rank ^ 1;
    unsigned char *mine = check_memory(size), *back = check_memory(size);
    const unsigned char begun = 1, ended = 2;

    open_window(2 * size + 1);
    stamp_fill(memory + size, size, key(0, rank, rank), 0);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (other < ranks && rank % 2 == 0) {
        stamp_fill(mine, size, key(1, rank, other), 0);
        MPI_Put(&begun, 1, MPI_BYTE, other, at(other, 2 * size), 1, MPI_BYTE, window);
        MPI_Win_flush(other, window);
        MPI_Put(mine, (int)size, MPI_BYTE, other, at(other, 0), (int)size, MPI_BYTE, window);
        MPI_Get(back, (int)size, MPI_BYTE, other, at(other, size), (int)size, MPI_BYTE, window);
        MPI_Win_flush(other, window);
        check_stamp(back, size, key(0, other, other), 0, "got from who is not inside MPI");
        MPI_Put(&ended, 1, MPI_BYTE, other, at(other, 2 * size), 1, MPI_BYTE, window);
        MPI_Win_flush(other, window);
    } else if (other < ranks) {
        await_bytes(memory + 2 * size, begun);
        await_bytes(memory + 2 * size, ended);
        check_stamp(memory, size, key(1, other, rank), 0, "put here meanwhile");
    }
    MPI_Win_unlock_all(window);
    close_window();
    free(mine);
    free(back);
}
