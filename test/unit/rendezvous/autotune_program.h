/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A program whose messages autotune measures, by a clock of the test's own: what each candidate
 * costs it, and what cannot be had.
 */
#ifndef REGX_TEST_AUTOTUNE_PROGRAM_H
#define REGX_TEST_AUTOTUNE_PROGRAM_H

#include "../unit.h"

#include "rendezvous/autotune.h"

enum { KIB = 1024, MIB = 1024 * KIB, LAG = 4 * MIB, WINDOW = 64 };
enum { BOUNCE, READ, TOGETHER, WAYS }; /* of which bounce is copied by the receiver, too */

extern regx_autotune_t autotune[REGX_AUTOTUNE_SIZES];
extern int64_t now;
extern int64_t costs[WAYS]; /* of a KiB, in nanoseconds */
/* Messages that went each way, that took part in a trial, and looks at the clock; since again. */
extern unsigned went[WAYS], tried, looks;
extern unsigned refused; /* bits of ways that cannot be had, */
extern bool refused_one; /* by the first message of a stream alone */

typedef struct message {
    uint64_t length;
    regx_trial_t trial;
    int64_t opened, closed;
} message_t;

void begin_of(unsigned candidates, uint8_t winner, uint32_t patience);
void begin_with(uint8_t winner, uint32_t patience);
int begin(void **state); /* for cmocka: bounce is the prior, which needs no patience */
void again(void);
void cost(int64_t bounce, int64_t read, int64_t together);

void enter(message_t *message, uint64_t length);
void leave(const message_t *message, bool whole);
int64_t time_of(const message_t *message);

/* One message after the other. */
void alone(unsigned count, uint64_t length);
/* Messages `ahead` of which are open at any time, to be closed in that order. Of a bounce each
 * process has its part, and the sender is ahead by no more than LAG; the others are the sender's
 * alone. The receiver looks at what has come when it has done what came before. */
void stream(unsigned count, unsigned ahead, uint64_t length);
/* Steps in which one message comes from each of several neighbours. Bounces are copied in turns,
 * so that all end at the same time; the others are copied by the senders, all at once. */
void halo(unsigned steps, unsigned neighbours, uint64_t length);

/* What the trials found for messages of that length. */
unsigned winner(uint64_t length);

#endif
