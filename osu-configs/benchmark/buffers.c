// SPDX-License-Identifier: BSD-3-Clause
//
// The buffers of the companion benchmark: where each message lies, and what it holds: every word is
// stamped by sender, size, iteration, buffer and position.

#define _GNU_SOURCE
#include "bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SLIDE_STEP 4096
#define CHECKED_MAX ((size_t)256 << 20) // bytes of the buffers of one kind
#define TOUCHED_MAX ((size_t)1 << 30)   // the same
#define KEPT_MIN ((size_t)4 << 20)      // so that few sizes are larger than what is kept

// ---- freed and allocated again

// A block is marked in its middle, where malloc keeps nothing of its own: if it is given again in
// the same place with the same pages, the mark is still there. Pages that the kernel has taken back
// come again as zeroes.
static volatile uint64_t *mark_of(unsigned char *buffer, size_t bytes)
{
    return (volatile uint64_t *)(buffer + bytes / 2 / sizeof(uint64_t) * sizeof(uint64_t));
}

static unsigned char *allocate(struct bench *b, size_t bytes)
{
    unsigned char *buffer = malloc(bytes);
    __asm__ volatile("" : "+r"(buffer)); // what is there before it is written is wanted
    b->freed++;
    if (buffer != NULL && *mark_of(buffer, bytes) == ~(uintptr_t)buffer)
        b->came_back++;
    return buffer;
}

// ---- memory

static unsigned char *map(struct bench *b, size_t bytes)
{
    void *buffer;
    if (b->set.buffers == FREED) {
        buffer = allocate(b, bytes);
    } else if (b->set.owned) {
        MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &buffer);
    } else {
        buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        buffer = buffer == MAP_FAILED ? NULL : buffer;
    }
    if (buffer == NULL)
        fail(b, "cannot map %zu buffers of %zu bytes: %s", b->count, bytes, strerror(errno));
    return buffer;
}

static void map_all(struct bench *b, size_t bytes)
{
    for (size_t i = 0; i < b->count; i++)
        b->send[i] = map(b, bytes);
    for (size_t i = 0; i < b->count; i++)
        b->receive[i] = map(b, bytes);
    b->mapped = bytes;
}

static void unmap(const struct bench *b, unsigned char *buffer)
{
    if (b->set.owned)
        MPI_Free_mem(buffer);
    else if (b->set.buffers == FREED)
        *mark_of(buffer, b->mapped) = ~(uintptr_t)buffer, free(buffer);
    else
        munmap(buffer, b->mapped);
}

static void unmap_all(struct bench *b)
{
    for (size_t i = 0; i < b->count && b->mapped != 0; i++)
        unmap(b, b->send[i]);
    for (size_t i = 0; i < b->count && b->mapped != 0; i++)
        unmap(b, b->receive[i]);
    b->mapped = 0;
}

bool is_new_each_time(const struct bench *b)
{
    return b->set.buffers == FRESH || b->set.buffers == FREED;
}

// Bytes of a buffer for messages of that size.
static size_t buffer_bytes(const struct bench *b, size_t size)
{
    return size + (b->set.buffers == SLIDE ? (b->set.places - 1) * SLIDE_STEP : 0);
}

static void fill(struct bench *b, size_t bytes)
{
    for (size_t i = 0; i < b->count; i++) {
        memset(b->send[i], 'a', bytes);
        memset(b->receive[i], 'b', bytes);
    }
}

// A message goes to the receiver's buffer of the same number as its sender's.
static size_t buffer_of(const struct bench *b, uint64_t iteration, int j)
{
    return (size_t)(iteration * (uint64_t)b->set.window + (uint64_t)j) % b->count;
}

// How much further into its buffer than the first an iteration's messages begin. All of one
// iteration begin at the same place: ranges that overlap may not be received into at once.
static size_t offset_of(const struct bench *b, uint64_t iteration)
{
    return b->set.buffers == SLIDE ? (size_t)(iteration % b->set.places) * SLIDE_STEP : 0;
}

unsigned char *source_of(const struct bench *b, uint64_t iteration, int j)
{
    return b->send[buffer_of(b, iteration, j)] + offset_of(b, iteration);
}

unsigned char *target_of(const struct bench *b, uint64_t iteration, int j)
{
    return b->receive[buffer_of(b, iteration, j)] + offset_of(b, iteration);
}

// ---- contents

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t seed_of(const struct bench *b, int sender, size_t size, uint64_t iteration, int j)
{
    return mix(mix(mix((uint64_t)sender + 1 + size) + iteration) + buffer_of(b, iteration, j));
}

static uint64_t word_of(uint64_t seed, size_t at)
{
    return (seed + at) * 0x9e3779b97f4a7c15u;
}

static void stamp(unsigned char *to, size_t size, uint64_t seed)
{
    for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
        uint64_t word = word_of(seed, at);
        memcpy(to + at, &word, size - at < sizeof word ? size - at : sizeof word);
    }
}

// Its position, or the size.
static size_t first_wrong(const unsigned char *from, size_t size, uint64_t seed)
{
    size_t at = 0;
    for (uint64_t word; at < size; at += sizeof word) {
        word = word_of(seed, at);
        if (memcmp(from + at, &word, size - at < sizeof word ? size - at : sizeof word) != 0)
            break;
    }
    while (at < size && from[at] == (word_of(seed, at / 8 * 8) >> (at % 8 * 8) & 0xff))
        at++;
    return at < size ? at : size;
}

// What a receive buffer holds before a message of that iteration.
static unsigned char filling(uint64_t iteration)
{
    return (unsigned char)((iteration & 0x7f) | 0x80);
}

void prepare(struct bench *b, size_t size, uint64_t iteration)
{
    if (!is_new_each_time(b) && b->set.check == 0)
        return; // as OSU: nothing happens between iterations
    if (is_new_each_time(b)) {
        unmap_all(b);
        map_all(b, size);
    }
    for (int j = 0; j < b->set.window; j++) {
        uint64_t seed = seed_of(b, b->rank, size, iteration, j);
        unsigned char *send = source_of(b, iteration, j);
        if (b->set.check > 0)
            stamp(send, size, seed);
        else
            memset(send, 'a', size);
        memset(target_of(b, iteration, j), filling(iteration), size);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

void check(struct bench *b, size_t size, uint64_t iteration)
{
    if (b->set.check == 0 || (b->set.mode == BW && b->rank == 0))
        return;
    for (int j = 0; j < b->set.window; j++) {
        int sender = sender_of(b, j);
        if (sender == MPI_PROC_NULL)
            continue;
        uint64_t seed = seed_of(b, sender, size, iteration, index_at_sender(b, j));
        size_t at = first_wrong(target_of(b, iteration, j), size, seed);
        if (at < size && b->wrong++ == 0)
            fprintf(stderr,
                    "companion: WRONG DATA: rank %d, size %zu, iteration %llu, message %d: first "
                    "wrong byte at %zu\n",
                    b->rank, size, (unsigned long long)iteration, j, at);
    }
}

void write_message(const struct bench *b, unsigned char *message, size_t size, uint64_t iteration)
{
    if (b->set.buffers == TOUCHED && b->set.check == 0)
        memset(message, (int)(iteration & 0xff), size);
}

void read_message(const struct bench *b, const unsigned char *message, size_t size)
{
    uint64_t sum = 0, word;
    size_t at = 0;
    if (b->set.buffers != TOUCHED || b->set.check > 0)
        return;
    for (; size - at >= sizeof word; at += sizeof word, sum += word)
        memcpy(&word, message + at, sizeof word);
    for (; at < size; at++)
        sum += message[at];
    __asm__ volatile("" : : "r"(sum)); // the sum is wanted
}

// ---- how many

// To check every message, each of a window has a buffer of its own, where that is not too much
// memory: in one buffer, what the last message writes hides what the others did. So it is where
// messages are written while others are under way, and for the sides of a halo.
static size_t count_of(const struct bench *b)
{
    size_t window = (size_t)b->set.window, fit = CHECKED_MAX / b->set.size;
    if (b->set.buffers == ROTATE)
        return b->set.places;
    if (b->set.buffers == TOUCHED && window > TOUCHED_MAX / b->set.size)
        fail(b, "%zu messages of %zu bytes at once are too many; see -W", window, b->set.size);
    if (is_new_each_time(b) || b->set.buffers == TOUCHED || b->set.mode == HALO)
        return window;
    return b->set.check == 0 || fit <= 1 ? 1 : fit < window ? fit : window;
}

static void *table(struct bench *b, size_t count, size_t each)
{
    void *entries = calloc(count, each);
    if (entries == NULL)
        fail(b, "out of memory");
    return entries;
}

// Whether the buffers stay, for later slices.
static bool is_kept(const struct bench *b)
{
    return b->set.buffers == SAME && b->set.check == 0 && b->set.mode != HALO;
}

static void take_kept(struct bench *b)
{
    struct kept *kept = &b->kept[b->set.owned];
    b->send[0] = kept->send;
    b->receive[0] = kept->receive;
    b->mapped = kept->mapped;
    if (kept->mapped >= b->set.size)
        return;
    unmap_all(b);
    map_all(b, b->set.size < KEPT_MIN ? KEPT_MIN : b->set.size);
    fill(b, b->mapped);
    *kept = (struct kept){b->send[0], b->receive[0], b->mapped};
}

void open_buffers(struct bench *b)
{
    b->count = count_of(b);
    b->mapped = 0;
    b->send = table(b, b->count, sizeof *b->send);
    b->receive = table(b, b->count, sizeof *b->receive);
    b->send_request = table(b, (size_t)b->set.window, sizeof(MPI_Request));
    b->receive_request = table(b, (size_t)b->set.window, sizeof(MPI_Request));
    if (is_kept(b)) {
        take_kept(b);
    } else if (!is_new_each_time(b)) {
        map_all(b, buffer_bytes(b, b->set.size));
        fill(b, b->mapped);
    }
}

void close_buffers(struct bench *b)
{
    if (!is_kept(b))
        unmap_all(b);
    free(b->send);
    free(b->receive);
    free(b->send_request);
    free(b->receive_request);
}
