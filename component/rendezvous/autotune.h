/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which candidate moves a program's messages fastest: a path, known here by its number. It is found
 * out on the program's own messages, for each power of two of sizes, and apart for messages that
 * come alone and in bursts (REGX_AUTOTUNE_BURST of them open at once).
 *
 * Measure. A segment is from the opening of a message while no other of its size is open to the
 * next such opening: one message that comes alone, or one burst. Its cost is that time per byte. So
 * what the program does between messages counts: it reads what has come, writes and sends its own.
 * Where some are always open, a segment ends after REGX_AUTOTUNE_SEGMENT of them.
 *
 * Regret. Compared with the best single candidate, costs being as they were, and the slowest
 * candidate taking at most 4 times as long as the fastest (test_regret.c), or in bursts 32 times if
 * the prior is the best (test_probes.c):
 *   - of messages that come alone, 100 take at most 10 % longer, 10,000 at most 3 %, whichever
 *     candidate is the prior, if trials begin at once. Where four messages go by the prior first,
 *     100 take at most 10 % longer if the prior takes at most 1.5 times as long as the best;
 *   - in bursts 100 messages go by the prior, 1,400 take at most 5 % longer if the prior is the
 *     best and the others take at most 4 times as long, and 10,000 take at most 3 % longer if the
 *     prior takes at most 1.5 times as long as the best, at most 5 % if twice as long. Where every
 *     other burst is interrupted, they take at most 3 % longer if the prior is the best. No rule
 *     can do better with the first hundred: 64 may be opened before the first of them has ended;
 *   - where 64 are always open, 10,000 take at most 6 % longer, since a change of the candidate
 *     tells nothing until twice as many have gone through.
 *
 * The receiver of a message decides alone, so the two ends of a pair cannot disagree. All
 * processes try in the same order, so that in a symmetric program both directions do the same.
 *
 * One set per engine and kind of wire, under the engine's lock. Peers are not told apart. While
 * there is no trial, a message that comes alone reads no clock, and a burst reads it once.
 */
#ifndef REGX_RENDEZVOUS_AUTOTUNE_H
#define REGX_RENDEZVOUS_AUTOTUNE_H

#include "rendezvous/tune.h"

#define REGX_AUTOTUNE_SMALLEST 0x4000ULL /* bytes of the first size */
#define REGX_AUTOTUNE_SIZES 20u   /* each twice the one before; what is larger or smaller joins */
#define REGX_AUTOTUNE_BURST 4u    /* messages open at once: they do not come alone */
#define REGX_AUTOTUNE_SEGMENT 64u /* messages */

/* One size. */
typedef struct regx_autotune {
    regx_tune_t tune[2];  /* alone; in bursts */
    uint32_t open;        /* messages */
    uint64_t messages[2]; /* that came alone; in bursts */

    /* The present segment. */
    bool burst; /* it is of tune[burst] */
    regx_turn_t turn;
    regx_told_t told;
    uint32_t number;
    uint32_t open_max; /* messages at once */
    uint32_t before;   /* so many have yet to close before it can be measured */
    int64_t began;
} regx_autotune_t;

/* A message's part in it. Zero: none. */
typedef struct regx_trial {
    regx_autotune_t *of; /* its size */
    bool trial;          /* part of a trial */
    bool known;          /* the candidate is a trial's outcome; else the prior */
    uint8_t candidate;
    uint32_t number; /* of the segment */
} regx_trial_t;

/* What is known when nothing was tried. */
typedef struct regx_autotune_prior {
    unsigned candidates; /* how many */
    uint8_t winner[REGX_AUTOTUNE_SIZES];
    uint32_t patience; /* messages that come alone before the first trial */
} regx_autotune_prior_t;

void regx_autotune_init(regx_autotune_t autotune[REGX_AUTOTUNE_SIZES],
                        const regx_autotune_prior_t *prior);

/* The number of a message's size. */
unsigned regx_autotune_size(uint64_t length);

/* A message of that length is opened. It is to be left. */
regx_trial_t regx_autotune_enter(regx_autotune_t autotune[REGX_AUTOTUNE_SIZES], uint64_t length);

/* It is closed. went: all of it arrived, by the path that it was to go. Does nothing for a message
 * that has no part. */
void regx_autotune_leave(const regx_trial_t *trial, uint64_t length, bool went);

/* The outcome of the trials for that size: the candidate for what most of its bytes came in. false:
 * there was none. */
bool regx_autotune_outcome(const regx_autotune_t *size, unsigned *candidate);

#endif
