/* SPDX-License-Identifier: BSD-3-Clause */
#include "shadow.h"

enum { WORDS = 64 };

/* What was stored before is seen by all, and what was put is seen here. */
static void meet(int window)
{
    MPI_Win_sync(windows[window]);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(windows[window]);
}

void put_or_get(void)
{
    const bool puts = below(2) == 0;
    const int origin = any_rank(), w = (int)below(WINDOWS);
    const int b = WINDOWS + (int)below(BUFFERS - WINDOWS);
    const struct message message = any_message(origin, b, w);
    const struct part here = message.from, there = message.to;
    const int length = (int)message.length;

    meet(w);
    if (rank == origin && puts) {
        MPI_Put(memory_of(here), length, MPI_BYTE, there.rank, (MPI_Aint)there.offset, length,
                MPI_BYTE, windows[w]);
    } else if (rank == origin) {
        MPI_Get(memory_of(here), length, MPI_BYTE, there.rank, (MPI_Aint)there.offset, length,
                MPI_BYTE, windows[w]);
    }
    if (rank == origin) {
        MPI_Win_flush(there.rank, windows[w]);
    }
    meet(w);
    if (puts) {
        copy(there, here, message.length);
        check(there, message.length, "put");
    } else {
        copy(here, there, message.length);
        check(here, message.length, "got");
    }
}

static uint64_t word(struct part part)
{
    uint64_t value;

    memcpy(&value, bytes_of(part), sizeof value);
    return value;
}

static void set_word(struct part part, uint64_t value)
{
    memcpy(bytes_of(part), &value, sizeof value);
}

/* Whole words of a window. */
static struct part any_words(int of, int window, size_t count)
{
    struct part part = any_part(of, window, count * sizeof(uint64_t));

    part.offset -= part.offset % sizeof(uint64_t);
    return part;
}

/* All ranks add to the same words. */
void accumulate(void)
{
    const int w = (int)below(WINDOWS);
    const size_t count = 1 + below(WORDS);
    const struct part target = any_words(any_rank(), w, count);
    const uint64_t step = below(UINT64_C(1) << 40);
    uint64_t mine[WORDS];

    meet(w);
    for (size_t n = 0; n < count; n++) {
        mine[n] = ((uint64_t)rank + 1) * (step + n);
    }
    MPI_Accumulate(mine, (int)count, MPI_UINT64_T, target.rank, (MPI_Aint)target.offset, (int)count,
                   MPI_UINT64_T, MPI_SUM, windows[w]);
    MPI_Win_flush(target.rank, windows[w]);
    for (size_t n = 0; n < count; n++) {
        const struct part at = {target.rank, w, target.offset + n * sizeof *mine};

        set_word(at, word(at) + (uint64_t)(ranks * (ranks + 1) / 2) * (step + n));
    }
    meet(w);
    check(target, count * sizeof *mine, "accumulated");
}

/* One rank exchanges a word for the sum, or for another if it is as expected, which it may not
 * be. */
void fetch(void)
{
    const bool swaps = below(2) == 0, expected = below(2) == 0;
    const int w = (int)below(WINDOWS), origin = any_rank();
    const struct part target = any_words(any_rank_but(origin), w, 1);
    const uint64_t old = word(target), value = below(UINT64_MAX), compared = old + !expected;
    uint64_t before = ~old;

    meet(w);
    if (rank == origin && swaps) {
        MPI_Compare_and_swap(&value, &compared, &before, MPI_UINT64_T, target.rank,
                             (MPI_Aint)target.offset, windows[w]);
    } else if (rank == origin) {
        MPI_Fetch_and_op(&value, &before, MPI_UINT64_T, target.rank, (MPI_Aint)target.offset,
                         MPI_SUM, windows[w]);
    }
    if (rank == origin) {
        MPI_Win_flush(target.rank, windows[w]);
        if (before != old) {
            check_fail("seed %llu, operation %llu: fetched 0x%llx instead of 0x%llx",
                       (unsigned long long)seed, (unsigned long long)number,
                       (unsigned long long)before, (unsigned long long)old);
        }
    }
    if (!swaps || expected) {
        set_word(target, swaps ? value : old + value);
    }
    meet(w);
    check(target, sizeof old, "exchanged");
}
