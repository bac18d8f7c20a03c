/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Different atomic operations on the same words at once. MPI promises nothing for such mixtures by
 * default (accumulate_ops); queue locks and other programs use them nevertheless.
 *
 * A word is a sum, and above it a bit for each rank. What ranks add, flip and take away has to come
 * out even with what is there at the end. Operations that change nothing write back what they
 * read: they show it if an update comes in between. The halves of 8 bytes are equal.
 */
#include "window.h"

enum { WORDS = 256, HOT = 3, TURNS = 600, TRIES = 3, BITS = 24, ADDED_MAX = 7, LOCKED = 150 };

static size_t width; /* of a word: 4 or 8 bytes */
static MPI_Datatype type;
static int64_t balance; /* added minus taken by this rank */
static uint64_t flipped;

/* A value in the memory of a word, both halves alike. */
static const void *word_of(uint64_t *memory_of_word, uint32_t value)
{
    *memory_of_word = value * UINT64_C(0x100000001);
    return memory_of_word;
}

static uint32_t value_of(const void *word)
{
    uint32_t halves[2];

    memcpy(halves, word, width);
    if (width == sizeof halves && halves[0] != halves[1]) {
        check_fail("the halves of a word are %08x and %08x", halves[0], halves[1]);
    }
    check_bytes += width;
    return halves[0];
}

static void take(uint32_t value)
{
    balance -= value & ((1u << BITS) - 1);
    flipped ^= value >> BITS;
}

static uint32_t fetched(int target, MPI_Aint place, uint32_t operand, MPI_Op operation)
{
    uint64_t mine, before = 0;

    MPI_Fetch_and_op(word_of(&mine, operand), &before, type, target, place, operation, window);
    MPI_Win_flush(target, window);
    return value_of(&before);
}

static void add_by_swap(int target, MPI_Aint place, uint32_t step)
{
    uint32_t expected = 0;

    for (int n = 0; n < TRIES; n++) {
        uint64_t next, compared, before = 0;

        MPI_Compare_and_swap(word_of(&next, expected + step), word_of(&compared, expected), &before,
                             type, target, place, window);
        MPI_Win_flush(target, window);
        if (value_of(&before) == expected) {
            balance += step;
            return;
        }
        expected = value_of(&before);
    }
}

static void accumulate_one(int target, MPI_Aint place, uint32_t operand, MPI_Op operation)
{
    uint64_t mine;

    MPI_Accumulate(word_of(&mine, operand), 1, type, target, place, 1, type, operation, window);
    MPI_Win_flush(target, window);
}

/* Takes all words of a rank as one. */
static void take_all(int target)
{
    char *before = check_memory(WORDS * width), *nothing = check_memory(WORDS * width);

    memset(nothing, 0, WORDS * width);
    MPI_Get_accumulate(nothing, WORDS, type, before, WORDS, type, target, at(target, 0), WORDS,
                       type, MPI_REPLACE, window);
    MPI_Win_flush(target, window);
    for (size_t n = 0; n < WORDS; n++) {
        take(value_of(before + n * width));
    }
    free(before);
    free(nothing);
}

/* One operation; `chance` says which, and on which word. */
static void operate(uint64_t chance)
{
    const struct {
        MPI_Op operation;
        uint32_t operand;
    } neutral[] = {{MPI_MIN, UINT32_MAX}, {MPI_MAX, 0}, {MPI_BAND, UINT32_MAX},
                   {MPI_BOR, 0},          {MPI_SUM, 0}, {MPI_BXOR, 0}};
    const int target = (int)(chance % (uint64_t)ranks);
    const MPI_Aint place = at(target, (chance >> 8) % HOT * width);
    const uint32_t step = (uint32_t)(1 + (chance >> 16) % ADDED_MAX), bit = 1u << (BITS + rank);
    const size_t n = (chance >> 24) % (sizeof neutral / sizeof *neutral);

    switch ((chance >> 32) % 10) {
    case 0:
        balance += step;
        fetched(target, place, step, MPI_SUM);
        break;
    case 1:
        balance += step;
        accumulate_one(target, place, step, MPI_SUM);
        break;
    case 2:
        flipped ^= bit >> BITS;
        fetched(target, place, bit, MPI_BXOR);
        break;
    case 3:
        take(fetched(target, place, 0, MPI_REPLACE));
        break;
    case 4:
        fetched(target, place, 0, MPI_NO_OP);
        break;
    case 5:
        accumulate_one(target, place, neutral[n].operand, neutral[n].operation);
        break;
    case 6:
        take_all(target);
        break;
    default:
        add_by_swap(target, place, step);
    }
}

static void mixed_of(size_t bytes, MPI_Datatype of)
{
    uint64_t bits = 0;
    int64_t all = 0;

    width = bytes;
    type = of;
    balance = 0;
    flipped = 0;
    open_window(WORDS * width);
    MPI_Win_lock_all(0, window);
    MPI_Barrier(MPI_COMM_WORLD);
    for (uint64_t turn = 0; turn < TURNS; turn++) {
        operate(key(turn, rank, (int)width));
    }
    MPI_Win_flush_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    take_all(rank);
    MPI_Win_unlock_all(window);
    MPI_Allreduce(&balance, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&flipped, &bits, 1, MPI_UINT64_T, MPI_BXOR, MPI_COMM_WORLD);
    if (all != 0 || bits != 0) {
        check_fail("words of %zu bytes: %lld are missing of what was added, bits 0x%llx", width,
                   (long long)all, (unsigned long long)bits);
    }
    close_window();
}

void mixed(void)
{
    mixed_of(4, MPI_UINT32_T);
    mixed_of(8, MPI_UINT64_T);
}

/* ---- a queue lock ---- */

enum { NEXT, TAIL, GUARDED, PLACES };

enum { NOBODY = -1 };

static const void *packed(uint64_t *place, int value)
{
    *place = (uint64_t)(int64_t)value;
    return place; /* of 4 bytes the first half counts */
}

static int swapped(int target, int place, int compared, int value)
{
    uint64_t mine, other, before = 0;

    MPI_Compare_and_swap(packed(&mine, value), packed(&other, compared), &before, type, target,
                         at(target, (size_t)place * width), window);
    MPI_Win_flush(target, window);
    return (int)(uint32_t)before;
}

static int exchanged(int target, int place, int value, MPI_Op operation)
{
    uint64_t mine, before = 0;

    MPI_Fetch_and_op(packed(&mine, value), &before, type, target, at(target, (size_t)place * width),
                     operation, window);
    MPI_Win_flush(target, window);
    return (int)(uint32_t)before;
}

/* Odd ranks try until the lock is free, even ones wait in a line for the one before them. */
static void lock_queue(void)
{
    exchanged(rank, NEXT, NOBODY, MPI_REPLACE);
    if (rank % 2 == 1) {
        while (swapped(0, TAIL, NOBODY, rank) != NOBODY) {
        }
        return;
    }
    const int before = exchanged(0, TAIL, rank, MPI_REPLACE);
    if (before != NOBODY) {
        uint64_t mine;

        MPI_Accumulate(packed(&mine, rank), 1, type, before, at(before, NEXT * width), 1, type,
                       MPI_REPLACE, window);
        MPI_Win_flush(before, window);
        MPI_Recv(NULL, 0, MPI_BYTE, before, CHECK_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void unlock_queue(void)
{
    int next = exchanged(rank, NEXT, NOBODY, MPI_NO_OP);

    if (next == NOBODY) {
        if (swapped(0, TAIL, rank, NOBODY) == rank) {
            return;
        }
        while (next == NOBODY) {
            next = exchanged(rank, NEXT, NOBODY, MPI_NO_OP);
        }
    }
    MPI_Send(NULL, 0, MPI_BYTE, next, CHECK_TAG, MPI_COMM_WORLD);
}

/* Raises a number by get and put, which the lock has to make one. */
static void raise_guarded(void)
{
    const MPI_Aint place = at(0, GUARDED * width);
    uint64_t number = 0;

    MPI_Get(&number, 1, type, 0, place, 1, type, window);
    MPI_Win_flush(0, window);
    number++;
    MPI_Put(&number, 1, type, 0, place, 1, type, window);
    MPI_Win_flush(0, window);
}

static void queue_of(size_t bytes, MPI_Datatype of)
{
    width = bytes;
    type = of;
    open_window(PLACES * width);
    MPI_Win_lock_all(0, window);
    exchanged(rank, TAIL, NOBODY, MPI_REPLACE);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int turn = 0; turn < LOCKED; turn++) {
        lock_queue();
        raise_guarded();
        unlock_queue();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const int raised = exchanged(0, GUARDED, 0, MPI_NO_OP);
    if (raised != ranks * LOCKED) {
        check_fail("raised to %d under a queue lock of %zu bytes", raised, width);
    }
    check_bytes += width;
    MPI_Win_unlock_all(window);
    close_window();
}

void queue(void)
{
    queue_of(4, MPI_INT32_T);
    queue_of(8, MPI_INT64_T);
}
