/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random operations on some buffers of each rank, of which every rank knows what they must hold.
 *
 *     shadow SEED OPERATIONS FILE [WAY...]
 *
 * Operation number i is made of SEED and i alone: so every rank carries out all of them on its
 * shadow, a copy of all ranks' buffers, and those that concern it on its memory. Operations are
 * messages, several at once; puts, gets and atomic operations on windows; new content; new buffers
 * of any kind (buffer.h); other pages under the same addresses. Whatever may have been written to
 * is compared with the shadow, with what lies around it, and now and then all.
 *
 * A WAY is a freedom that a parameter of regx gives a program: `drain`, that a buffer is unmapped
 * while a message uses it (btl_regx_inuse=drain), and `replace`, that other pages come under a
 * receive buffer's addresses meanwhile (btl_regx_grant=revocable). By FILE, which the ranks
 * share, they see to it that the message is under way then.
 */
#include "shadows/shadow.h"

enum { CHECK_ALL = 8 }; /* operations */

struct shared *shared;

static bool drains, replaces;

enum {
    AROUND = 2 * BUFFER_PAGE /* what is compared before and behind */
};

/* Of the run, of the operation, and what is next of it. */
static uint64_t seed, number, chance;
int rank, ranks;
struct buffer buffers[BUFFERS];
static struct model *shadow; /* BUFFERS of each rank */

uint64_t below(uint64_t limit)
{
    return chance_next(&chance) % limit;
}

int any_rank(void)
{
    return (int)below((uint64_t)ranks);
}

int any_rank_but(int other)
{
    return (other + 1 + (int)below((uint64_t)ranks - 1)) % ranks;
}

struct model *model_of(int of, int buffer)
{
    return &shadow[of * BUFFERS + buffer];
}

struct part any_part(int of, int buffer, size_t length)
{
    const size_t left = model_of(of, buffer)->size - length;
    size_t offset = below(left + 1);

    if (below(3) == 0) {
        offset -= offset % BUFFER_PAGE;
    }
    return (struct part){of, buffer, offset};
}

static size_t any_length(size_t most)
{
    return 1 + below(below(4) == 0 ? BUFFER_PAGE : most);
}

unsigned char *bytes_of(struct part part)
{
    return model_of(part.rank, part.buffer)->bytes + part.offset;
}

unsigned char *memory_of(struct part part)
{
    return buffers[part.buffer].memory + part.offset;
}

void compare(const unsigned char *memory, struct part part, size_t length, const char *what)
{
    const unsigned char *right = bytes_of(part);

    if (memcmp(memory, right, length) == 0) {
        check_bytes += length;
        return;
    }
    size_t at = 0;
    while (memory[at] == right[at]) {
        at++;
    }
    check_fail("seed %llu, operation %llu: %s: buffer %d (kind %d), byte %zu is 0x%02x instead of "
               "0x%02x",
               (unsigned long long)seed, (unsigned long long)number, what, part.buffer,
               (int)model_of(part.rank, part.buffer)->kind, part.offset + at, memory[at],
               right[at]);
}

void check(struct part part, size_t length, const char *what)
{
    const size_t size = model_of(part.rank, part.buffer)->size;
    const size_t before = part.offset < AROUND ? part.offset : AROUND;
    const size_t behind =
        size - part.offset - length < AROUND ? size - part.offset - length : AROUND;

    if (part.rank == rank) {
        part.offset -= before;
        compare(memory_of(part), part, before + length + behind, what);
    }
}

static void check_all(void)
{
    for (int b = 0; b < BUFFERS; b++) {
        compare(buffers[b].memory, (struct part){rank, b, 0}, model_of(rank, b)->size, "at rest");
    }
}

void copy(struct part to, struct part from, size_t length)
{
    memcpy(bytes_of(to), bytes_of(from), length);
}

void renew_bytes(struct part part, size_t length)
{
    const uint64_t key = stamp_key(seed, number, part.rank, part.buffer);

    stamp_fill(bytes_of(part), length, key, part.offset);
    if (part.rank == rank) {
        stamp_fill(memory_of(part), length, key, part.offset);
    }
}

/* ---- buffers are made and given back ---- */

enum { SMALLEST = 24 << 10 };

static MPI_Win windows[WINDOWS];

void make_buffer(int of, int b)
{
    static const buffer_kind_t often[] = {BUFFER_PRIVATE, BUFFER_PRIVATE, BUFFER_SHARED,
                                          BUFFER_HEAP,    BUFFER_ALLOC,   BUFFER_ALLOC};
    struct model *model = model_of(of, b);

    model->kind = often[below(sizeof often / sizeof *often)];
    model->size = SMALLEST + below(LARGEST - SMALLEST);
    if (of == rank) {
        buffers[b] = buffer_make(model->kind, model->size);
    }
    renew_bytes((struct part){of, b, 0}, model->size);
}

static void give_back(int of, int b)
{
    if (of == rank) {
        buffer_take_away(&buffers[b]);
        buffer_forget(&buffers[b]);
    }
}

static void open_window(int b)
{
    for (int of = 0; of < ranks; of++) {
        make_buffer(of, b);
    }
    MPI_Win_create(buffers[b].memory, (MPI_Aint)buffers[b].size, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                   &windows[b]);
    MPI_Win_lock_all(0, windows[b]);
}

static void close_window(int b)
{
    MPI_Win_unlock_all(windows[b]);
    MPI_Win_free(&windows[b]);
    for (int of = 0; of < ranks; of++) {
        give_back(of, b);
    }
}

static void renew_window(void)
{
    const int b = (int)below(WINDOWS);

    close_window(b);
    open_window(b);
}

static void renew_buffer(void)
{
    const int of = any_rank(), b = WINDOWS + (int)below(BUFFERS - WINDOWS);

    give_back(of, b);
    make_buffer(of, b);
}

static void renew_content(void)
{
    const int of = any_rank(), b = (int)below(BUFFERS);
    const size_t length = any_length(model_of(of, b)->size);

    renew_bytes(any_part(of, b, length), length);
}

/* One that is PRIVATE and no window; -1: there is none. */
static int private_buffer(int of)
{
    for (int b = WINDOWS; b < BUFFERS; b++) {
        if (model_of(of, b)->kind == BUFFER_PRIVATE) {
            return b;
        }
    }
    return -1;
}

static void replace_pages(void)
{
    const int of = any_rank(), b = private_buffer(of);
    const buffer_change_t change = (buffer_change_t)below(BUFFER_CHANGES);

    if (b < 0) {
        return;
    }
    const size_t pages = model_of(of, b)->size / BUFFER_PAGE;
    const struct part part = {of, b, below(pages) * BUFFER_PAGE};
    const size_t length = (1 + below(pages - part.offset / BUFFER_PAGE)) * BUFFER_PAGE;

    memset(bytes_of(part), 0, length);
    if (of == rank) {
        buffer_replace(&buffers[b], change, part.offset, length);
    }
}

/* ---- messages ---- */

enum { MOST_MESSAGES = 3 };

static struct message any_message(int sender, int from, int to)
{
    const int receiver = any_rank_but(sender);
    const size_t there = model_of(receiver, to)->size, here = model_of(sender, from)->size;
    const size_t length = any_length(here < there ? here : there);

    return (struct message){any_part(sender, from, length), any_part(receiver, to, length), length};
}

void start(const struct message *message, int tag, MPI_Request *request)
{
    *request = MPI_REQUEST_NULL;
    if (message->from.rank == rank) {
        MPI_Isend(memory_of(message->from), (int)message->length, MPI_BYTE, message->to.rank, tag,
                  MPI_COMM_WORLD, request);
    } else if (message->to.rank == rank) {
        MPI_Irecv(memory_of(message->to), (int)message->length, MPI_BYTE, message->from.rank, tag,
                  MPI_COMM_WORLD, request);
    }
}

/* Several at once, no two of them from or to the same buffer. */
static void send_messages(void)
{
    struct message messages[MOST_MESSAGES];
    MPI_Request requests[MOST_MESSAGES];
    const int count = 1 + (int)below(MOST_MESSAGES), first = (int)below(BUFFERS);

    for (int n = 0; n < count; n++) {
        messages[n] =
            any_message(any_rank(), (first + 2 * n) % BUFFERS, (first + 2 * n + 1) % BUFFERS);
        if (below(4) > 0) {
            renew_bytes(messages[n].from, messages[n].length);
        }
    }
    for (int n = 0; n < count; n++) {
        start(&messages[n], n, &requests[n]);
        copy(messages[n].to, messages[n].from, messages[n].length);
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    for (int n = 0; n < count; n++) {
        check(messages[n].to, messages[n].length, "received");
    }
}

/* ---- operations on windows ---- */

enum { WORDS = 64 };

/* What was stored before is seen by all, and what was put is seen here. */
static void meet(int window)
{
    MPI_Win_sync(windows[window]);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(windows[window]);
}

static void put_or_get(void)
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
static void accumulate(void)
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
static void fetch(void)
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
        check_that(before == old, "seed %llu, operation %llu: fetched 0x%llx instead of 0x%llx",
                   (unsigned long long)seed, (unsigned long long)number, (unsigned long long)before,
                   (unsigned long long)old);
    }
    if (!swaps || expected) {
        set_word(target, swaps ? value : old + value);
    }
    meet(w);
    check(target, sizeof old, "exchanged");
}

/* ---- all of them ---- */

static const struct operation {
    void (*make)(void);
    unsigned weight;
    const bool *allowed;
} operations[] = {{send_messages, 20, NULL},     {put_or_get, 8, NULL},
                  {accumulate, 2, NULL},         {fetch, 4, NULL},
                  {renew_content, 4, NULL},      {renew_buffer, 4, NULL},
                  {renew_window, 1, NULL},       {replace_pages, 4, NULL},
                  {unmap_under_way, 6, &drains}, {replace_under_way, 6, &replaces}};

static void operate(void)
{
    const unsigned count = sizeof operations / sizeof *operations;
    uint64_t total = 0;
    unsigned which = 0;

    chance = stamp_key(seed, number, 0, 0);
    for (unsigned n = 0; n < count; n++) {
        total += operations[n].weight;
    }
    for (uint64_t drawn = below(total); drawn >= operations[which].weight; which++) {
        drawn -= operations[which].weight;
    }
    if (operations[which].allowed == NULL || *operations[which].allowed) {
        operations[which].make();
    }
    if (number % CHECK_ALL == 0) {
        check_all();
    }
}

int main(int argc, char **argv)
{
    rank = check_begin(&argc, &argv, 4);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    seed = strtoull(argv[1], NULL, 0);
    const uint64_t operations_wanted = strtoull(argv[2], NULL, 0);
    shared = mapping_share(argv[3], sizeof *shared);
    for (int n = 4; n < argc; n++) {
        drains = drains || strcmp(argv[n], "drain") == 0;
        replaces = replaces || strcmp(argv[n], "replace") == 0;
    }
    shadow = calloc((size_t)ranks * BUFFERS, sizeof *shadow);
    for (int n = 0; n < ranks * BUFFERS; n++) {
        shadow[n].bytes = check_memory(LARGEST);
    }
    chance = ~seed;
    for (int b = 0; b < WINDOWS; b++) {
        open_window(b);
    }
    for (int n = 0; n < ranks * (BUFFERS - WINDOWS); n++) {
        make_buffer(n / (BUFFERS - WINDOWS), WINDOWS + n % (BUFFERS - WINDOWS));
    }
    for (number = 1; number <= operations_wanted; number++) {
        operate();
    }
    check_all();
    for (int b = 0; b < BUFFERS; b++) {
        b < WINDOWS ? close_window(b) : give_back(rank, b);
    }
    return check_end();
}
