// SPDX-License-Identifier: BSD-3-Clause
//
// What the parts of the probe share: the memory between its two processes, and waiting in it.

#ifndef PROBE_H
#define PROBE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>

#define LINE 64
#define INLINE_BYTES (LINE - sizeof(uint64_t))
#define WINDOW 64
#define SLOTS_MAX 256
#define SLOT_BYTES (256u << 10) // all slots of one direction together: they stay in the cache
#define MAILBOX_PLACES 32

// A line that carries its own number and, for small messages, the message.
struct line {
    _Alignas(LINE) _Atomic uint64_t number;
    unsigned char data[INLINE_BYTES];
};

// One direction of the bounce: full slots are announced in their header, freed ones counted.
struct channel {
    struct line header[SLOTS_MAX];
    struct line freed;
    _Alignas(4096) unsigned char slots[SLOT_BYTES];
};

enum way { BOUNCE, PROCESS_VM, HALVES };
enum shape { PING_PONG = 1, STREAM = 2, BOTH = PING_PONG | STREAM };
enum mode { MODE_MAILBOX, MODE_BOUNCE, MODE_PROCESS_VM, MODE_HALVES, MODE_FASTEST, MODES };

struct order {
    enum way way;
    enum shape shape;
    size_t size, piece;
    uint64_t rounds; // per batch; 0 ends the other process
    int batches;
};

struct shared {
    struct line box[2];                    // one mailbox per direction
    struct line places[MAILBOX_PLACES][2]; // those that "probe mailbox" measures
    struct order order; // what the other process shall mirror, announced by its mailbox
    _Atomic bool failed, stop;
    struct channel channel[2];
};

// Each process has one of these; "me" is 0 for the parent, which times, and 1 for the child.
struct side {
    struct shared *shared;
    int me;
    pid_t peer;
    // Private pages, at the same addresses in both processes. "expected" is what the peer sends.
    unsigned char *source, *sink, *expected;
    uint64_t posted, seen; // mailbox numbers
    uint64_t put, got;     // pieces sent and received since the channels were reset
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void await(_Atomic uint64_t *number, uint64_t value)
{
    while (atomic_load_explicit(number, memory_order_acquire) < value)
        relax();
}

static inline void post(struct side *s)
{
    atomic_store_explicit(&s->shared->box[s->me].number, ++s->posted, memory_order_release);
}

static inline void await_post(struct side *s)
{
    await(&s->shared->box[!s->me].number, ++s->seen);
}

static inline int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// cores.c: ends the process with what errno says.
void die(const char *what);
void choose_cores(int core[2]);
void bind_to(int cpu);

// mailbox.c: the parent measures and prints, the child serves until that is done.
void measure_mailbox(struct side *s);
void serve_mailbox(struct side *s);

// move.c: fill before anything else; the parent measures and prints one size, the child serves
// until an order of no rounds comes.
void fill(struct side *s, size_t size);
void measure_size(struct side *s, enum mode mode, size_t size, enum shape shapes);
void serve(struct side *s);

#endif
