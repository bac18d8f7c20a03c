/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Programs whose messages go as eager.h has them go, by a clock of the test's own: what each way
 * costs them is given.
 */
#ifndef REGX_TEST_EAGER_PROGRAM_H
#define REGX_TEST_EAGER_PROGRAM_H

#include "../unit.h"

#include "btl/eager.h"

enum {
    CONFIGURED = 16448,
    HEADER = 80,
    SHORT = 8192,
    LONG = 16000,
    LEAST = REGX_EAGER_MIN + HEADER,
    WAYS = REGX_EAGER_WAYS,
    TABLES = 8,
    PROGRAMS = 10,
    TUNED = -1
};

extern regx_eager_t eager;
extern size_t limit, configured;
extern int64_t now;
extern unsigned progress, header, sent, went[WAYS], looks;
extern regx_eager_way_t last; /* the way of the last message */

void begin_with(size_t bytes, bool tunes);
int begin(void **state); /* for cmocka: tuned, from the limit that is configured */
/* ob1 with a message to a process of the node. */
regx_eager_way_t note(size_t length);

/* Nanoseconds of a message. */
typedef struct table {
    const char *name;
    size_t length;
    int64_t takes[WAYS];
} table_t;

/* Bursts of so many messages; 1: a ping-pong. */
typedef struct program {
    const char *name;
    unsigned burst;
    bool no_progress;
    unsigned noise;   /* a message takes longer by up to so many percent, */
    bool interrupted; /* and by a millisecond once in 4,000, */
    unsigned hiccups; /* and by 85 us once in so many */
    int64_t computes; /* after each burst */
} program_t;

extern const table_t tables[TABLES];
extern const program_t programs[PROGRAMS];

/* A figure that scatters, the same in each run. */
uint32_t scatter(uint32_t seed, uint32_t index);
/* What so many messages take, tuned or all by one way. The sender of a burst goes on at once: all
 * of it has been sent before any of its time has passed. */
int64_t run(const table_t *table, const program_t *program, unsigned messages, uint32_t seed,
            int fixed);

#endif
