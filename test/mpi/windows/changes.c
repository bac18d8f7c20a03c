/* SPDX-License-Identifier: BSD-3-Clause */
#include "window.h"

enum { COUNTS = 600, ROUNDS = 300, POLLS = 50 };

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

void accumulate(void)
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
void alternate(void)
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

/* Everybody takes tickets from every rank, of 8 and of 4 bytes, and by an accumulate that
 * fetches. */
void fetch(void)
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
void swap(void)
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
