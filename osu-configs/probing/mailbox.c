// SPDX-License-Identifier: BSD-3-Clause
//
// One cache line handed back and forth: what tells the phase of the machine.

#define _GNU_SOURCE
#include <stdio.h>

#include "probe.h"

#define MAILBOX_BATCHES 4096 // at most
#define MAILBOX_SECONDS 0.1
#define MAILBOX_ROUNDS 1000

static struct line *place_of(struct side *s, uint64_t number)
{
    return s->shared->places[number / MAILBOX_ROUNDS % MAILBOX_PLACES];
}

// The other side of measure_mailbox: every number that comes goes back.
void serve_mailbox(struct side *s)
{
    for (uint64_t number = 0; !atomic_load(&s->shared->stop); number++) {
        struct line *place = place_of(s, number);
        await(&place[0].number, number + 1);
        atomic_store_explicit(&place[1].number, number + 1, memory_order_release);
    }
}

// How long a line takes depends a little on which line it is, so many are used; the median of the
// batches leaves out those during which something else ran on a core.
void measure_mailbox(struct side *s)
{
    static double batch[MAILBOX_BATCHES];
    int batches = 0;
    uint64_t number = 0;
    for (double begin = now(); batches < MAILBOX_BATCHES && now() - begin < MAILBOX_SECONDS;) {
        double start = now();
        for (int i = 0; i < MAILBOX_ROUNDS; i++, number++) {
            struct line *place = place_of(s, number);
            atomic_store_explicit(&place[0].number, number + 1, memory_order_release);
            await(&place[1].number, number + 1);
        }
        batch[batches++] = (now() - start) / (2 * MAILBOX_ROUNDS);
    }
    atomic_store(&s->shared->stop, true);
    atomic_store(&place_of(s, number)[0].number, number + 1); // lets the other side see it
    qsort(batch, (size_t)batches, sizeof batch[0], compare_doubles);
    printf("%-10d%20.3f\n", 8, 1e6 * batch[batches / 2]);
}
