/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows: each way to make one, to synchronise and to change it, each byte and number checked.
 *
 *     window FLAVOUR SIZE CASE...
 *
 * FLAVOUR is create, allocate or dynamic. The cases are in the table below. SIZE is the bytes
 * of a put or get; every rank's window has a part of that size for each rank. The case alone is
 * for where the target need not do anything.
 */

#include "check.h"

enum { SEED = 17 };

static int rank, ranks;
static size_t size; /* of a put or get */
static const char *flavour;

/* Its memory here, and where memory at another rank is in it. */
static unsigned char *memory;
static MPI_Aint *origins;
static MPI_Win window;

/* Where that byte of another rank's memory is in the window. */
static MPI_Aint at(int target, size_t offset)
{
    return origins[target] + (MPI_Aint)offset;
}

/* A window of that flavour, with so many bytes, all zero, at each rank. */
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
    return stamp_key(SEED, round, from, to);
}

/* The bytes of such a put; the caller frees them. */
static unsigned char *filled(uint64_t round, int to)
{
    unsigned char *bytes = check_memory(size + 1);

    stamp_fill(bytes, size, key(round, rank, to), 0);
    return bytes;
}

/* Puts them to this rank's part of that one's memory. */
static void put(const void *bytes, int to)
{
    MPI_Put(bytes, (int)size, MPI_BYTE, to, at(to, (size_t)rank * size), (int)size, MPI_BYTE,
            window);
}

static void check_part(uint64_t round, int from)
{
    check_stamp(memory + (size_t)from * size, size, key(round, from, rank), 0, "put here");
}

/* ---- puts and gets ---- */

/* Everybody puts to everybody, also to itself, and gets from the next one what a third put
 * there. */
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

/* More puts and gets than any queue holds, none waited for before the end. */
static void flood(void)
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

/* Waits for a put of that value or a later, greater one, by looking at the memory alone. */
static void await_bytes(const unsigned char *at, unsigned char value)
{
    await(__atomic_load_n(at, __ATOMIC_ACQUIRE) >= value);
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

/* ---- operations that change what is there ---- */

enum { ROUNDS = 300 };

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
    check_that(here == (double)each * (ranks - 1), "added up to %f", here);
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
        check_that(tickets[n] < all && seen[tickets[n]]++ == 0, "ticket %zu is %llu", n,
                   (unsigned long long)tickets[n]);
    }
    check_bytes += all;
    free(tickets);
    free(seen);
}

/* Everybody takes tickets from every rank, of 8 and of 4 bytes, and by an accumulate that
 * fetches. */
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
            check_that(before[1] == 2 * before[0], "two numbers were not changed as one");
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
        check_that(now[0] == (uint64_t)ranks * ROUNDS && now[1] >> 32 == (uint64_t)ranks * ROUNDS,
                   "counters are %llu and %llu at the end", (unsigned long long)now[0],
                   (unsigned long long)(now[1] >> 32));
    }
    MPI_Win_unlock_all(window);
    close_window();
    free(mine);
}

/*
 * Different atomic operations on the same words at once. MPI promises nothing for such mixtures by
 * default (accumulate_ops); queue locks and other programs use them nevertheless.
 *
 * A word is a sum, and above it a bit for each rank. What ranks add, flip and take away has to come
 * out even with what is there at the end. Operations that change nothing write back what they
 * read: they show it if an update comes in between. The halves of 8 bytes are equal. In front of the
 * words is a count, of which a rank takes the next number before it swaps.
 */

enum { WORDS = 256, HOT = 3, TURNS = 600, TRIES = 3, BITS = 24, ADDED_MAX = 7 };
enum { COUNT = 8 }; /* bytes in front of the words */

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
    check_that(width != sizeof halves || halves[0] == halves[1],
               "the halves of a word are %08x and %08x", halves[0], halves[1]);
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
    uint64_t one = 1, number;

    MPI_Fetch_and_op(&one, &number, MPI_UINT64_T, target, at(target, 0), MPI_SUM, window);
    MPI_Win_flush(target, window);
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
    MPI_Get_accumulate(nothing, WORDS, type, before, WORDS, type, target, at(target, COUNT), WORDS,
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
    const MPI_Aint place = at(target, COUNT + (chance >> 8) % HOT * width);
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
    open_window(COUNT + WORDS * width);
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
    check_that(all == 0 && bits == 0,
               "words of %zu bytes: %lld are missing of what was added, bits 0x%llx", width,
               (long long)all, (unsigned long long)bits);
    close_window();
}

static void mixed(void)
{
    mixed_of(4, MPI_UINT32_T);
    mixed_of(8, MPI_UINT64_T);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"fence", fence},         {"lock", lock},   {"flood", flood}, {"fetch", fetch},
             {"alternate", alternate}, {"mixed", mixed}, {"alone", alone}};

int main(int argc, char **argv)
{
    rank = check_begin(&argc, &argv, 4);
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
    return check_end();
}
