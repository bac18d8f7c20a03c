// SPDX-License-Identifier: BSD-3-Clause
//
// The ways in which messages move between two processes without MPI, and how long each takes.

#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "probe.h"

#define PIECE_MIN (4u << 10)
#define PIECE_MAX (128u << 10)
#define BATCHES 3

static uint64_t slot_count(size_t piece)
{
    uint64_t fit = SLOT_BYTES / piece;
    return fit < 2 ? 2 : fit > SLOTS_MAX ? SLOTS_MAX : fit;
}

static void bounce_send(struct side *s, const struct order *o)
{
    struct channel *c = &s->shared->channel[s->me];
    uint64_t slots = slot_count(o->piece);
    for (size_t at = 0; at < o->size; at += o->piece, s->put++) {
        size_t slot = s->put % slots, left = o->size - at;
        size_t bytes = left < o->piece ? left : o->piece;
        if (s->put >= slots)
            await(&c->freed.number, s->put - slots + 1);
        unsigned char *to =
            bytes <= INLINE_BYTES ? c->header[slot].data : c->slots + slot * o->piece;
        memcpy(to, s->source + at, bytes);
        atomic_store_explicit(&c->header[slot].number, s->put + 1, memory_order_release);
    }
}

static void bounce_receive(struct side *s, const struct order *o)
{
    struct channel *c = &s->shared->channel[!s->me];
    uint64_t slots = slot_count(o->piece);
    for (size_t at = 0; at < o->size; at += o->piece, s->got++) {
        size_t slot = s->got % slots, left = o->size - at;
        size_t bytes = left < o->piece ? left : o->piece;
        await(&c->header[slot].number, s->got + 1);
        const unsigned char *from =
            bytes <= INLINE_BYTES ? c->header[slot].data : c->slots + slot * o->piece;
        memcpy(s->sink + at, from, bytes);
        atomic_store_explicit(&c->freed.number, s->got + 1, memory_order_release);
    }
}

typedef ssize_t vm_call(pid_t, const struct iovec *, unsigned long, const struct iovec *,
                        unsigned long, unsigned long);

// Has the kernel copy [at, end) between this process and the peer.
static void copy(struct side *s, vm_call *call, unsigned char *mine, unsigned char *theirs,
                 size_t at, size_t end)
{
    while (at < end) {
        struct iovec here = {mine + at, end - at}, there = {theirs + at, end - at};
        ssize_t done = call(s->peer, &here, 1, &there, 1, 0);
        if (done <= 0)
            die("process_vm_* (a seccomp filter or ptrace_scope may refuse it)");
        at += (size_t)done;
    }
}

// In whole pages.
static size_t half_of(size_t size)
{
    size_t half = (size / 2 + 4095) / 4096 * 4096;
    return half < size ? half : size;
}

static void send_one(struct side *s, const struct order *o)
{
    if (o->way == BOUNCE) {
        bounce_send(s, o);
        return;
    }
    if (o->way == HALVES)
        post(s); // the receiver may begin
    size_t end = o->way == HALVES ? half_of(o->size) : o->size;
    copy(s, process_vm_writev, s->source, s->sink, 0, end);
    post(s);
}

static void receive_one(struct side *s, const struct order *o)
{
    if (o->way == BOUNCE) {
        bounce_receive(s, o);
        return;
    }
    if (o->way == HALVES) {
        await_post(s);
        copy(s, process_vm_readv, s->sink, s->source, half_of(o->size), o->size);
    }
    await_post(s);
}

static void one_round(struct side *s, const struct order *o)
{
    int messages = o->shape == STREAM ? WINDOW : 1;
    if (s->me == 0) {
        for (int i = 0; i < messages; i++)
            send_one(s, o);
        if (o->shape == STREAM)
            await_post(s);
        else
            receive_one(s, o);
    } else {
        for (int i = 0; i < messages; i++)
            receive_one(s, o);
        if (o->shape == STREAM)
            post(s);
        else
            send_one(s, o);
    }
}

// ---- orders: the parent announces one, both carry it out, both check what arrived ------------

static unsigned char pattern(int from, size_t at)
{
    return (unsigned char)((at * 131u) ^ (at >> 8) ^ (from ? 0x5a : 0xa5));
}

void fill(struct side *s, size_t size)
{
    for (size_t at = 0; at < size; at++) {
        s->source[at] = pattern(s->me, at);
        s->expected[at] = pattern(!s->me, at);
    }
}

// Seconds of each batch go to batch[], which only the parent, who times, looks at.
static void carry_out(struct side *s, const struct order *o, double *batch)
{
    struct channel *out = &s->shared->channel[s->me];
    memset(s->sink, 0, o->size);
    for (int i = 0; i < SLOTS_MAX; i++)
        atomic_store(&out->header[i].number, 0);
    atomic_store(&s->shared->channel[!s->me].freed.number, 0);
    s->put = s->got = 0;
    post(s);
    await_post(s); // both are ready

    one_round(s, o);
    for (int b = 0; b < o->batches; b++) {
        double start = now();
        for (uint64_t i = 0; i < o->rounds; i++)
            one_round(s, o);
        batch[b] = now() - start;
    }

    post(s);
    await_post(s); // both are done: only now may the sink be read
    bool received = o->shape == PING_PONG || s->me == 1;
    if (received && memcmp(s->sink, s->expected, o->size) != 0)
        atomic_store(&s->shared->failed, true);
}

static void run(struct side *s, struct order o, double *batch)
{
    s->shared->order = o;
    post(s);
    carry_out(s, &o, batch);
}

void serve(struct side *s)
{
    double batch[BATCHES];
    for (;;) {
        await_post(s);
        struct order o = s->shared->order;
        if (o.rounds == 0)
            return;
        carry_out(s, &o, batch);
    }
}

// Seconds per round: the median of batches of two milliseconds each, or of one round.
static double measure(struct side *s, struct order o)
{
    double batch[BATCHES];
    o.rounds = o.size < 8192 ? 100 : 1;
    o.batches = 1;
    run(s, o, batch);
    double once = batch[0] / (double)o.rounds;
    o.rounds = once > 0 ? (uint64_t)(0.002 / once) + 1 : 1000;
    o.batches = BATCHES;
    run(s, o, batch);
    qsort(batch, BATCHES, sizeof batch[0], compare_doubles);
    return batch[BATCHES / 2] / (double)o.rounds;
}

// The quickest so far, in seconds per round, and the pieces in which it was.
struct best {
    double time, stream;
    size_t time_piece, stream_piece;
};

static void try_piece(struct side *s, enum way way, size_t size, size_t piece, enum shape shapes,
                      struct best *best)
{
    if (shapes & PING_PONG) {
        double time = measure(s, (struct order){way, PING_PONG, size, piece, 0, 0});
        if (best->time == 0 || time < best->time)
            best->time = time, best->time_piece = piece;
    }
    if (shapes & STREAM) {
        double stream = measure(s, (struct order){way, STREAM, size, piece, 0, 0});
        if (best->stream == 0 || stream < best->stream)
            best->stream = stream, best->stream_piece = piece;
    }
}

// Whether the kernel copies between the two processes.
static bool may_copy(struct side *s)
{
    unsigned char byte;
    struct iovec mine = {&byte, 1}, theirs = {s->source, 1};
    return process_vm_readv(s->peer, &mine, 1, &theirs, 1, 0) == 1;
}

void measure_size(struct side *s, enum mode mode, size_t size, enum shape shapes)
{
    struct best best = {0};
    size_t first = size < PIECE_MIN ? size : PIECE_MIN, last = size < PIECE_MAX ? size : PIECE_MAX;
    if (mode == MODE_PROCESS_VM)
        try_piece(s, PROCESS_VM, size, 0, shapes, &best);
    if (mode == MODE_HALVES || (mode == MODE_FASTEST && may_copy(s)))
        try_piece(s, HALVES, size, 0, shapes, &best);
    if (mode == MODE_BOUNCE || mode == MODE_FASTEST) {
        for (size_t piece = first; piece <= last; piece *= 2)
            try_piece(s, BOUNCE, size, piece, shapes, &best);
    }
    printf("%-10zu", size);
    if (shapes & PING_PONG)
        printf("%20.3f%20zu", 1e6 * best.time / 2, best.time_piece);
    if (shapes & STREAM)
        printf("%20.2f%20zu", (double)size * WINDOW / 1e6 / best.stream, best.stream_piece);
    printf("\n");
    fflush(stdout);
}
