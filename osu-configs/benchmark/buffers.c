// SPDX-License-Identifier: BSD-3-Clause
//
// The buffers of the companion benchmark: where each message lies, and what it holds.

#define _GNU_SOURCE
#include "bench.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SLIDE_STEP 4096
#define CHECKED_MAX ((size_t)256 << 20) // bytes of the buffers of one kind
#define TOUCHED_MAX ((size_t)1 << 30)   // the same
#define COLUMN_PIECE 8                  // bytes of a column in each row of a halo's grid

// ---- freed and allocated again ------------------------------------------------------------------

// A block is marked in its middle, where malloc keeps nothing of its own: if it is given again in
// the same place with the same pages, the mark is still there. Pages that the kernel has taken back
// come again as zeroes.
static volatile uint64_t *mark_of(unsigned char *buffer, size_t bytes)
{
    return (volatile uint64_t *)(buffer + bytes / 2 / sizeof(uint64_t) * sizeof(uint64_t));
}

static uint64_t mark_at(const unsigned char *buffer, size_t bytes)
{
    return ~(uint64_t)(uintptr_t)buffer ^ bytes;
}

static void free_marked(unsigned char *buffer, size_t bytes)
{
    *mark_of(buffer, bytes) = mark_at(buffer, bytes);
    free(buffer);
}

static unsigned char *allocate(struct bench *b, size_t bytes)
{
    unsigned char *buffer = malloc(bytes);
    b->freed++;
    if (buffer == NULL)
        fail(b, "cannot allocate %zu bytes", bytes);
    else if (*mark_of(buffer, bytes) == mark_at(buffer, bytes))
        b->came_back++;
    return buffer;
}

// ---- memory ------------------------------------------------------------------------------------

static void map_each(struct bench *b, unsigned char **buffers, size_t count, size_t bytes)
{
    for (size_t i = 0; i < count; i++) {
        if (b->set.buffers == FREED) {
            buffers[i] = allocate(b, bytes);
            continue;
        }
        if (b->set.owned) {
            MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &buffers[i]);
            continue;
        }
        int protection = PROT_READ | PROT_WRITE;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        buffers[i] = mmap(NULL, bytes, protection, flags, -1, 0);
        if (buffers[i] == MAP_FAILED)
            fail(b, "cannot map %zu buffers of %zu bytes: %s", count, bytes, strerror(errno));
    }
}

static void map_all(struct bench *b, size_t bytes)
{
    map_each(b, b->send, b->sources, bytes);
    map_each(b, b->receive, b->targets, bytes);
    b->mapped = bytes;
}

static void unmap(const struct bench *b, unsigned char *buffer)
{
    if (b->set.owned)
        MPI_Free_mem(buffer);
    else if (b->set.buffers == FREED)
        free_marked(buffer, b->mapped);
    else
        munmap(buffer, b->mapped);
}

static void unmap_all(struct bench *b)
{
    for (size_t i = 0; i < b->sources && b->mapped != 0; i++)
        unmap(b, b->send[i]);
    for (size_t i = 0; i < b->targets && b->mapped != 0; i++)
        unmap(b, b->receive[i]);
    b->mapped = 0;
}

// How much further into its buffer than the first an iteration's messages begin. All of one
// iteration begin at the same place: ranges that overlap may not be received into at once.
static size_t offset_of(const struct bench *b, uint64_t iteration)
{
    return b->set.buffers == SLIDE ? (size_t)(iteration % b->set.places) * SLIDE_STEP : 0;
}

static struct layout layout_of(const struct bench *b, size_t size, int j)
{
    size_t piece = b->set.buffers == STRIDED ? b->set.places : size;
    bool strided = b->set.buffers == STRIDED || is_column(b, j);
    if (is_column(b, j))
        piece = COLUMN_PIECE;
    return (struct layout){.size = size, .piece = piece < size ? piece : size, .strided = strided};
}

// Of a message in memory: if it is not contiguous, each piece is followed by as much that is not
// the message's.
static size_t extent(const struct bench *b, size_t size)
{
    return b->set.buffers == STRIDED || b->set.mode == HALO ? 2 * size : size;
}

// Bytes of a buffer for messages of that size.
static size_t buffer_bytes(const struct bench *b, size_t size)
{
    return extent(b, size) + (b->set.buffers == SLIDE ? (b->set.places - 1) * SLIDE_STEP : 0);
}

static int make_type(const struct bench *b, size_t size, size_t piece, MPI_Datatype *type)
{
    *type = MPI_CHAR;
    if (piece >= size)
        return (int)size;
    if (size % piece != 0)
        fail(b, "messages of %zu bytes have no whole number of pieces of %zu bytes", size, piece);
    MPI_Type_vector((int)(size / piece), (int)piece, (int)(2 * piece), MPI_CHAR, type);
    MPI_Type_commit(type);
    return 1;
}

static bool is_new_each_time(const struct bench *b)
{
    return b->set.buffers == FRESH || b->set.buffers == FREED;
}

void begin_size(struct bench *b, size_t size)
{
    size_t bytes = is_new_each_time(b) ? 0 : buffer_bytes(b, size);
    b->items = make_type(b, size, b->set.buffers == STRIDED ? b->set.places : size, &b->type);
    if (b->set.mode == HALO && size < COLUMN_PIECE)
        fail(b, "the messages of a halo have at least %d bytes", COLUMN_PIECE);
    if (b->set.mode == HALO && size > COLUMN_PIECE)
        make_type(b, size, COLUMN_PIECE, &b->column);
    else if (b->set.mode == HALO) // a column of one row
        MPI_Type_contiguous(COLUMN_PIECE, MPI_CHAR, &b->column), MPI_Type_commit(&b->column);
    for (size_t i = 0; i < b->sources && bytes > 0; i++)
        memset(b->send[i], 'a', bytes);
    for (size_t i = 0; i < b->targets && bytes > 0; i++)
        memset(b->receive[i], 'b', bytes);
}

void end_size(struct bench *b)
{
    if (b->type != MPI_CHAR)
        MPI_Type_free(&b->type);
    if (b->set.mode == HALO)
        MPI_Type_free(&b->column);
}

// Which of its sender's buffers the j-th message of an iteration comes from. Between two ranks it
// goes to the receiver's buffer of the same number.
static size_t buffer_of(const struct bench *b, uint64_t iteration, int j, size_t count)
{
    uint64_t window = is_for_groups(b->set.mode) ? 0 : (uint64_t)b->part.sends;
    return (size_t)(iteration * window + (uint64_t)j) % count;
}

unsigned char *source_of(const struct bench *b, uint64_t iteration, int j)
{
    return b->send[buffer_of(b, iteration, j, b->sources)] + offset_of(b, iteration);
}

unsigned char *target_of(const struct bench *b, uint64_t iteration, int j)
{
    return b->receive[buffer_of(b, iteration, j, b->targets)] + offset_of(b, iteration);
}

// The number that both ends stamp and check a message by.
static size_t stamp_of(const struct bench *b, uint64_t iteration, int j)
{
    return is_for_groups(b->set.mode) ? (size_t)j : buffer_of(b, iteration, j, b->sources);
}

// ---- contents --------------------------------------------------------------------------------

// What a receive buffer holds before a message of that iteration.
static unsigned char filling(uint64_t iteration)
{
    return (unsigned char)((iteration & 0x7f) | 0x80);
}

void prepare(struct bench *b, size_t size, uint64_t iteration)
{
    bool fresh = is_new_each_time(b);
    if (!fresh && !b->set.check)
        return; // as OSU: nothing happens between iterations
    if (fresh) {
        unmap_all(b);
        map_all(b, size);
    }
    for (int j = 0; j < b->part.sends; j++) {
        uint64_t seed = content_seed(b->rank, size, iteration, stamp_of(b, iteration, j));
        unsigned char *send = source_of(b, iteration, j);
        if (b->set.check)
            content_stamp(layout_of(b, size, j), send, seed);
        else
            memset(send, 'a', size);
    }
    for (int j = 0; j < b->part.receives; j++)
        memset(target_of(b, iteration, j), filling(iteration), extent(b, size));
    MPI_Barrier(MPI_COMM_WORLD);
}

void check(struct bench *b, size_t size, uint64_t iteration)
{
    if (!b->set.check || (b->set.mode == BW && b->rank == 0))
        return;
    for (int j = 0; j < b->part.receives; j++) {
        if (sender_of(b, j) == MPI_PROC_NULL)
            continue;
        size_t stamp = stamp_of(b, iteration, index_at_sender(b, j));
        uint64_t seed = content_seed(sender_of(b, j), size, iteration, stamp);
        size_t at = content_first_wrong(layout_of(b, size, j), target_of(b, iteration, j), seed,
                                        filling(iteration));
        if (at == size)
            continue;
        if (b->wrong++ == 0)
            fprintf(stderr,
                    "companion: WRONG DATA: rank %d, size %zu, iteration %llu, message %d: first "
                    "wrong byte at %zu\n",
                    b->rank, size, (unsigned long long)iteration, j, at);
    }
}

static size_t contiguous_bytes(const struct bench *b)
{
    return (size_t)b->items; // of MPI_CHAR: TOUCHED messages are contiguous
}

void write_message(const struct bench *b, unsigned char *message, uint64_t iteration)
{
    if (b->set.buffers == TOUCHED && !b->set.check)
        memset(message, (int)(iteration & 0xff), contiguous_bytes(b));
}

void read_message(const struct bench *b, const unsigned char *message)
{
    size_t bytes = contiguous_bytes(b);
    uint64_t sum = 0, word = 0;
    if (b->set.buffers != TOUCHED || b->set.check)
        return;
    for (size_t at = 0; at < bytes; at += sizeof word) {
        size_t left = bytes - at;
        memcpy(&word, message + at, left < sizeof word ? left : sizeof word);
        sum += word;
    }
    __asm__ volatile("" : : "r"(sum)); // the sum is wanted
}

// ---- how many --------------------------------------------------------------------------------

// To check every message, each of a window has a buffer of its own, where that is not too much
// memory: in one buffer, what the last message writes hides what the others did. So it is where
// messages are written while others are under way, and between more than two ranks.
static size_t count_of(const struct bench *b, int messages)
{
    size_t window = messages > 0 ? (size_t)messages : 1;
    size_t fit = CHECKED_MAX / extent(b, b->set.max);
    if (b->set.buffers == ROTATE)
        return b->set.places;
    if (is_new_each_time(b))
        return window;
    if (b->set.buffers == TOUCHED || is_for_groups(b->set.mode)) {
        if (window > TOUCHED_MAX / extent(b, b->set.max))
            fail(b, "%zu messages of %zu bytes at once are too many; see -W", window, b->set.max);
        return window;
    }
    return !b->set.check || fit <= 1 ? 1 : fit < window ? fit : window;
}

// For all messages of two iterations: of the one before, some may still be on their way.
static void attach(struct bench *b)
{
    size_t each = b->set.max + MPI_BSEND_OVERHEAD;
    size_t bytes = 2 * (size_t)b->part.sends * each;
    void *memory = bytes <= INT_MAX ? malloc(bytes) : NULL;
    if (memory == NULL)
        fail(b, "cannot buffer %d messages of %zu bytes twice", b->part.sends, b->set.max);
    else
        MPI_Buffer_attach(memory, (int)bytes);
}

static void *table(struct bench *b, size_t count, size_t each)
{
    void *entries = calloc(count > 0 ? count : 1, each);
    if (entries == NULL)
        fail(b, "out of memory");
    return entries;
}

void open_buffers(struct bench *b)
{
    b->sources = count_of(b, b->part.sends);
    b->targets = count_of(b, b->part.receives);
    b->send = table(b, b->sources, sizeof *b->send);
    b->receive = table(b, b->targets, sizeof *b->receive);
    b->send_request = table(b, (size_t)b->part.sends, sizeof(MPI_Request));
    b->receive_request = table(b, (size_t)b->part.receives, sizeof(MPI_Request));
    if (!is_new_each_time(b))
        map_all(b, buffer_bytes(b, b->set.max));
    if (b->set.buffers == BUFFERED)
        attach(b);
}

void close_buffers(struct bench *b)
{
    if (b->set.buffers == BUFFERED) {
        void *attached;
        int bytes;
        MPI_Buffer_detach(&attached, &bytes);
        free(attached);
    }
    unmap_all(b);
    free(b->send);
    free(b->receive);
    free(b->send_request);
    free(b->receive_request);
}
