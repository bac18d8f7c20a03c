/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows: each way to make one, to synchronise and to change it, each byte and number checked.
 *
 *     window FLAVOUR SIZE CASE...
 *
 * FLAVOUR is create, allocate or dynamic. The cases are in the table at the end. SIZE is the bytes
 * of a put or get; every rank's window has a part of that size for each rank. The case renew is of
 * dynamic windows; alone is for where the target need not do anything.
 */
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

enum { COUNTS = 600, ROUNDS = 300, POLLS = 50 };

static uint64_t seed = 17;
static int rank, ranks;
static size_t size;
static const char *flavour;

/* The window under test: its memory here, and where memory at another rank is in it. */
static unsigned char *memory;
static MPI_Aint *origins;
static MPI_Win window;

static MPI_Aint at(int target, size_t offset)
{
    return origins[target] + (MPI_Aint)offset;
}

static void open_window(size_t bytes)
{
    MPI_Aint origin = 0;

    origins = check_memory((size_t)ranks * sizeof *origins);
    if (strcmp(flavour, "allocate") == 0) {
        MPI_Win_allocate((MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    } else {
        memory = check_memory(bytes);
        if (strcmp(flavour, "create") == 0) {
            MPI_Win_create(memory, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
        } else {
            MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
            MPI_Win_attach(window, memory, (MPI_Aint)bytes);
            MPI_Get_address(memory, &origin);
        }
    }
    memset(memory, 0, bytes);
    MPI_Allgather(&origin, 1, MPI_AINT, origins, 1, MPI_AINT, MPI_COMM_WORLD);
}

static void close_window(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (strcmp(flavour, "dynamic") == 0) {
        MPI_Win_detach(window, memory);
    }
    MPI_Win_free(&window);
    if (strcmp(flavour, "allocate") != 0) {
        free(memory);
    }
    free(origins);
}

/* What the rank `from` puts to the rank `to`. */
static uint64_t key(uint64_t round, int from, int to)
{
    return stamp_key(seed, round, from, to);
}

static unsigned char *filled(uint64_t round, int to)
{
    unsigned char *bytes = check_memory(size + 1);

    stamp_fill(bytes, size, key(round, rank, to), 0);
    return bytes;
}

static void put(const void *bytes, int to)
{
    MPI_Put(bytes, (int)size, MPI_BYTE, to, at(to, (size_t)rank * size), (int)size, MPI_BYTE,
            window);
}

static void check_part(uint64_t round, int from)
{
    check_stamp(memory + (size_t)from * size, size, key(round, from, rank), 0, "put here");
}

/* Everybody puts to everybody, also to itself, and gets from the next one what a third put there. */
static void fence(void)
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
static void pscw(void)
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
static void lock(void)
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
static void requests(void)
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
static void flood(void)
{
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    const size_t pieces = 3 * 4096, piece = 16;
    unsigned char *mine = check_memory(pieces * piece), *back = check_memory(pieces * piece);

    open_window(pieces * piece + 1); /* of whole pages it would have no key */
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
static void derived(void)
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

/* All ranks add to, and compare with, all ranks; numbers of each size, few and many. */
#define ACCUMULATE(name, type, mpi, operation, value, right)                                       \
    static void accumulate_##name(void)                                                            \
    {                                                                                              \
        static const int counts[] = {1, 7, COUNTS};                                                \
                                                                                                   \
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {                              \
            type *mine = check_memory(COUNTS * sizeof *mine);                                      \
                                                                                                   \
            open_window(COUNTS * sizeof(type));                                                    \
            MPI_Win_fence(0, window);                                                              \
            for (int i = 0; i < counts[c]; i++) {                                                  \
                mine[i] = (type)(value);                                                           \
            }                                                                                      \
            for (int to = 0; to < ranks; to++) {                                                   \
                MPI_Accumulate(mine, counts[c], mpi, to, at(to, 0), counts[c], mpi, operation,     \
                               window);                                                            \
            }                                                                                      \
            MPI_Win_fence(0, window);                                                              \
            for (int i = 0; i < COUNTS; i++) {                                                     \
                type here;                                                                         \
                                                                                                   \
                memcpy(&here, memory + (size_t)i * sizeof here, sizeof here);                      \
                if (here != (i < counts[c] ? (type)(right) : (type)0)) {                           \
                    check_fail(#name ": element %d of %d", i, counts[c]);                          \
                }                                                                                  \
                check_bytes += sizeof here;                                                        \
            }                                                                                      \
            close_window();                                                                        \
            free(mine);                                                                            \
        }                                                                                          \
    }

#define SUM_OF_RANKS (ranks * (ranks + 1) / 2)

ACCUMULATE(sum64, int64_t, MPI_INT64_T, MPI_SUM, (rank + 1) * ((int64_t)i + 1000000007),
           SUM_OF_RANKS *((int64_t)i + 1000000007))
ACCUMULATE(sum32, int32_t, MPI_INT32_T, MPI_SUM, -(rank + 1) * (i + 1), -SUM_OF_RANKS *(i + 1))
ACCUMULATE(sum8, uint8_t, MPI_UINT8_T, MPI_SUM, rank + i % 50,
           SUM_OF_RANKS - ranks + i % 50 * ranks)
ACCUMULATE(double, double, MPI_DOUBLE, MPI_SUM, (rank + 1) * (i + 0.5), SUM_OF_RANKS *(i + 0.5))
ACCUMULATE(float, float, MPI_FLOAT, MPI_SUM, (rank + 1) * (i + 0.5), SUM_OF_RANKS *(i + 0.5))
ACCUMULATE(max, uint64_t, MPI_UINT64_T, MPI_MAX, UINT64_MAX - (uint64_t)(rank + i),
           UINT64_MAX - (uint64_t)i)
ACCUMULATE(min, int32_t, MPI_INT32_T, MPI_MIN, -rank - i - 1, -ranks - i)
ACCUMULATE(or, uint64_t, MPI_UINT64_T, MPI_BOR, UINT64_C(1) << (rank + i % 32),
           ((UINT64_C(1) << ranks) - 1) << (i % 32))
ACCUMULATE(xor, uint32_t, MPI_UINT32_T, MPI_BXOR, 1u << rank | 0x100u * (uint32_t)i << 4,
           ((1u << ranks) - 1) | (ranks % 2 == 1 ? 0x100u * (uint32_t)i << 4 : 0))
ACCUMULATE(lor, int32_t, MPI_INT32_T, MPI_LOR, rank == 0 ? 0x700 + i : 0, 1)
ACCUMULATE(replace, uint64_t, MPI_UINT64_T, MPI_REPLACE, UINT64_C(0x0123456789) * (uint64_t)i,
           UINT64_C(0x0123456789) * (uint64_t)i)

static void accumulate(void)
{
    accumulate_sum64();
    accumulate_sum32();
    accumulate_sum8();
    accumulate_double();
    accumulate_float();
    accumulate_max();
    accumulate_min();
    accumulate_or();
    accumulate_xor();
    accumulate_lor();
    accumulate_replace();
}

/* Everybody adds to one number of each other rank in turn, and waits for none of it before the end:
 * osc/rdma then begins operations inside the completions of others, and waits there for memory. */
static void alternate(void)
{
    const int each = 1000;
    const double one = 1;
    double here;

    open_window(sizeof here);
    MPI_Win_lock_all(0, window);
    for (int n = 0; n < each * (ranks - 1); n++) {
        const int to = (rank + 1 + n % (ranks - 1)) % ranks;

        MPI_Accumulate(&one, 1, MPI_DOUBLE, to, at(to, 0), 1, MPI_DOUBLE, MPI_SUM, window);
    }
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    memcpy(&here, memory, sizeof here);
    if (here != (double)each * (ranks - 1)) {
        check_fail("added up to %f", here);
    }
    check_bytes += sizeof here;
    close_window();
}

/* Each value of a counter is given to exactly one. */
static void check_tickets(const uint64_t *mine)
{
    const size_t all = (size_t)ranks * ROUNDS;
    uint64_t *tickets = check_memory(all * sizeof *tickets);
    char *seen = check_memory(all);

    memset(seen, 0, all);
    MPI_Allgather(mine, ROUNDS, MPI_UINT64_T, tickets, ROUNDS, MPI_UINT64_T, MPI_COMM_WORLD);
    for (size_t n = 0; n < all; n++) {
        if (tickets[n] >= all || seen[tickets[n]]++ != 0) {
            check_fail("ticket %zu is %llu", n, (unsigned long long)tickets[n]);
        }
    }
    check_bytes += all;
    free(tickets);
    free(seen);
}

/* Everybody takes tickets from every rank, of 8 and of 4 bytes, and by an accumulate that fetches. */
static void fetch(void)
{
    uint64_t *mine = check_memory(ROUNDS * sizeof *mine);

    open_window(64);
    MPI_Win_lock_all(0, window);
    for (int target = 0; target < ranks; target++) {
        for (int n = 0; n < ROUNDS; n++) {
            const uint64_t one = 1;

            MPI_Fetch_and_op(&one, &mine[n], MPI_UINT64_T, target, at(target, 0), MPI_SUM, window);
            MPI_Win_flush(target, window);
        }
        check_tickets(mine);
        for (int n = 0; n < ROUNDS; n++) {
            const uint32_t one = 1;
            uint32_t ticket;

            MPI_Fetch_and_op(&one, &ticket, MPI_UINT32_T, target, at(target, 12), MPI_SUM, window);
            MPI_Win_flush(target, window);
            mine[n] = ticket;
        }
        check_tickets(mine);
        for (int n = 0; n < ROUNDS; n++) {
            const double step[2] = {1, 2};
            double before[2];

            MPI_Get_accumulate(step, 2, MPI_DOUBLE, before, 2, MPI_DOUBLE, target, at(target, 16),
                               2, MPI_DOUBLE, MPI_SUM, window);
            MPI_Win_flush(target, window);
            if (before[1] != 2 * before[0]) {
                check_fail("two numbers were not changed as one");
            }
            mine[n] = (uint64_t)before[0];
        }
        check_tickets(mine);
    }
    for (int target = 0; target < ranks; target++) {
        uint64_t now[8], nothing[8] = {0};

        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Get_accumulate(nothing, 2, MPI_UINT64_T, now, 2, MPI_UINT64_T, target, at(target, 0), 2,
                           MPI_UINT64_T, MPI_NO_OP, window);
        MPI_Win_flush(target, window);
        if (now[0] != (uint64_t)ranks * ROUNDS || now[1] >> 32 != (uint64_t)ranks * ROUNDS) {
            check_fail("counters are %llu and %llu at the end", (unsigned long long)now[0],
                       (unsigned long long)(now[1] >> 32));
        }
    }
    MPI_Win_unlock_all(window);
    close_window();
    free(mine);
}

/* A number is counted up by compare-and-swap; and one by get and put, under a lock made of that. */
static void swap(void)
{
    open_window(64);
    MPI_Win_lock_all(0, window);
    for (int n = 0; n < ROUNDS; n++) {
        const int target = n % ranks;
        uint64_t seen = 0, expected, next;

        do {
            expected = seen;
            next = expected + 1;
            MPI_Compare_and_swap(&next, &expected, &seen, MPI_UINT64_T, target, at(target, 0),
                                 window);
            MPI_Win_flush(target, window);
        } while (seen != expected);
    }
    for (int n = 0; n < POLLS; n++) {
        const uint32_t free_ = 0, taken = (uint32_t)rank + 1;
        uint32_t seen, number;

        do {
            MPI_Compare_and_swap(&taken, &free_, &seen, MPI_UINT32_T, 0, at(0, 12), window);
            MPI_Win_flush(0, window);
        } while (seen != 0);
        MPI_Get(&number, 1, MPI_UINT32_T, 0, at(0, 20), 1, MPI_UINT32_T, window);
        MPI_Win_flush(0, window);
        number++;
        MPI_Put(&number, 1, MPI_UINT32_T, 0, at(0, 20), 1, MPI_UINT32_T, window);
        MPI_Win_flush(0, window);
        MPI_Compare_and_swap(&free_, &taken, &seen, MPI_UINT32_T, 0, at(0, 12), window);
        MPI_Win_flush(0, window);
        if (seen != taken) {
            check_fail("a lock of rank %d is of %u", rank, seen);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(window);
    uint64_t counted, all = 0;
    memcpy(&counted, memory, sizeof counted);
    MPI_Allreduce(&counted, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (all != (uint64_t)ranks * ROUNDS) {
        check_fail("counted to %llu by compare-and-swap", (unsigned long long)all);
    }
    uint32_t guarded;
    memcpy(&guarded, memory + 20, sizeof guarded);
    if (rank == 0 && guarded != (uint32_t)ranks * POLLS) {
        check_fail("counted to %u under a lock", guarded);
    }
    check_bytes += 12;
    MPI_Win_unlock_all(window);
    close_window();
}

/* Other pages at that place, all zero. Never unmapped meanwhile: another thread's mapping could come
 * there. */
static unsigned char *renewed(unsigned char *place, size_t bytes)
{
    static const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;

    if (mmap(place, bytes, PROT_NONE, how, -1, 0) != place ||
        mmap(place, bytes, PROT_READ | PROT_WRITE, how, -1, 0) != place) {
        check_fail("the memory cannot be mapped anew");
    }
    return place;
}

/* What is put to, and got from, `memory`, whose last byte is behind the part of a put. */
static void exchange(uint64_t round)
{
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    unsigned char *mine = filled(round, to);
    unsigned char back;

    memory[size] = (unsigned char)round;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, to, 0, window);
    MPI_Put(mine, (int)size, MPI_BYTE, to, at(to, 0), (int)size, MPI_BYTE, window);
    MPI_Get(&back, 1, MPI_BYTE, to, at(to, size), 1, MPI_BYTE, window);
    MPI_Win_unlock(to, window);
    MPI_Barrier(MPI_COMM_WORLD);
    check_stamp(memory, size, key(round, from, rank), 0, "put to new pages");
    if (back != (unsigned char)round) {
        check_fail("got 0x%02x of old pages in round %d", back, (int)round);
    }
    free(mine);
}

/* Attached memory that is detached, replaced by other pages and attached again: what is put and got
 * is that of the new pages. Also where something else is attached in its last page all the time, for
 * which Open MPI keeps the first registration. For a dynamic window. */
static void renew(void)
{
    enum { ROUNDS_OF_EACH = 4 };
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t whole = (size + page) / page * page; /* more than `size` */
    unsigned char *place =
        mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *other = place + whole + page / 2;
    MPI_Aint origin;

    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    origins = check_memory((size_t)ranks * sizeof *origins);
    memory = place;
    MPI_Get_address(place, &origin);
    MPI_Allgather(&origin, 1, MPI_AINT, origins, 1, MPI_AINT, MPI_COMM_WORLD);
    for (uint64_t round = 0; round < ROUNDS_OF_EACH; round++) {
        renewed(memory, whole);
        MPI_Win_attach(window, memory, (MPI_Aint)size + 1);
        exchange(round);
        MPI_Win_detach(window, memory);
    }
    MPI_Win_attach(window, memory, other - memory);
    MPI_Win_attach(window, other, 1);
    for (uint64_t round = ROUNDS_OF_EACH; round < 2 * ROUNDS_OF_EACH; round++) {
        exchange(round);
        MPI_Win_detach(window, memory);
        renewed(memory, whole);
        MPI_Win_attach(window, memory, (MPI_Aint)whole);
    }
    MPI_Win_detach(window, memory);
    MPI_Win_detach(window, other);
    MPI_Win_free(&window);
    munmap(place, whole + page);
    free(origins);
}

/* Waits for a put of that value or a later, greater one, by looking at the memory alone. */
static void await_bytes(const unsigned char *at, unsigned char value)
{
    while (__atomic_load_n(at, __ATOMIC_ACQUIRE) < value) {
        sched_yield();
    }
}

/* Puts and gets between pairs, whose second is not inside MPI from the first one to the last. */
static void alone(void)
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

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"fence", fence},           {"pscw", pscw},   {"lock", lock},
             {"requests", requests},     {"flood", flood}, {"derived", derived},
             {"accumulate", accumulate}, {"fetch", fetch}, {"swap", swap},
             {"alternate", alternate},   {"renew", renew}, {"alone", alone}};

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    flavour = argv[1];
    size = strtoul(argv[2], NULL, 0);
    for (int n = 3; n < argc; n++) {
        size_t c = 0;

        while (strcmp(cases[c].name, argv[n]) != 0) {
            c++;
        }
        cases[c].run();
    }
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
