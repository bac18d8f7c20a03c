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
 * A trial compares the candidates in turn, in several rounds, each of which begins with another
 * one. The first time, a burst goes by the candidate with its first REGX_AUTOTUNE_PROBE messages
 * alone, the others by the best so far. Of a candidate's bursts the lower quartile counts, so that
 * most of them may be interrupted, or be followed by a computation.
 *
 * In a probe, messages that both processes copy take too long: their control messages wait for the
 * copies of the rest of the burst. Where that showed them slower, and yet two copies like the
 * receiver's take less time than the best so far, the next burst goes that way all the same. Once,
 * one such burst more is made and not counted, since it pays for slots that are mapped at their
 * first use. In a first trial that is so in large bursts alone.
 *
 * Messages that come alone go by a candidate in runs: one to four that are not counted, since they
 * pay for where the candidate before them left the data, and REGX_AUTOTUNE_RUN that are. A run's
 * cost is the mean without the slowest third, which may have been interrupted. Of several runs of a
 * candidate the fastest counts. Single messages would not do: where a program has two in each of
 * its steps, every other one bears all that the program does with the data, and the cheap ones take
 * equally long by all candidates. The first trial begins with two messages each, by which what is
 * far worse is dropped.
 *
 * The first trial of a size leaves out what took more than four times as long as the winner at the
 * nearest size, up to a factor of four away, where all were tried: a burst of what is that slow
 * costs a short program more than it can ever gain. The second one tries it.
 *
 * A candidate that is clearly worse is dropped: the fewer messages it had, the clearer it must be.
 * So is one by which messages do not go; it does not win as long as there is another. Then no trial
 * is made for 64 times as many messages as this one has lost, and, as long as the outcome stays the
 * same, 128, 256 and at last 512 times as many, but never for more than 2^20; earlier if bursts
 * begin to take clearly longer, or if messages do not go by the winner any more. Later trials
 * compare more messages, and so resolve smaller differences: at first a candidate must save a 16th
 * to win, at last a 64th.
 *
 * Regret. Compared with the best single candidate, costs being as they were, and the slowest
 * candidate taking at most 4 times as long as the fastest (test_regret.c):
 *   - of messages that come alone, 100 take at most 10 % longer, 10,000 at most 3 %, whichever
 *     candidate is the prior, if trials begin at once. Where four messages go by the prior first,
 *     100 take at most 10 % longer if the prior takes at most 1.5 times as long as the best;
 *   - in bursts 100 messages go by the prior, 1,400 take at most 6 % longer if the prior is the
 *     best, and 10,000 take at most 3 % longer if the prior takes at most 1.5 times as long as the
 *     best, at most 5 % if twice as long. No rule can do better with the first hundred: 64 may be
 *     opened before the first of them has ended;
 *   - where 64 are always open, 10,000 take at most 8 % longer, since a change of the candidate
 *     means nothing until twice as many have gone through;
 *   - if a candidate's copies are quick and its messages are not, as where one sender copies for
 *     many receivers, a trial has one burst of it more, the first one two.
 *
 * The receiver of a message decides alone, so the two ends of a pair cannot disagree. All
 * processes try in the same order, so that in a symmetric program both directions do the same.
 *
 * One set per engine and kind of wire, under the engine's lock. Peers are not told apart. While
 * there is no trial, a message that comes alone reads no clock, and a burst reads it once.
 */
#ifndef REGX_RENDEZVOUS_AUTOTUNE_H
#define REGX_RENDEZVOUS_AUTOTUNE_H

#include <stdbool.h>
#include <stdint.h>

#define REGX_AUTOTUNE_SMALLEST 0x4000ULL /* bytes of the first size */
#define REGX_AUTOTUNE_SIZES 20u     /* each twice the one before; what is larger or smaller joins */
#define REGX_AUTOTUNE_CANDIDATES 3u /* at most */
#define REGX_AUTOTUNE_SAMPLES 8u    /* bursts or runs of a candidate in one trial */
#define REGX_AUTOTUNE_RUN 6u        /* messages that come alone */
#define REGX_AUTOTUNE_BURST 4u      /* messages open at once: they do not come alone */
#define REGX_AUTOTUNE_SEGMENT 64u   /* messages */
#define REGX_AUTOTUNE_PROBE 16u     /* messages */
#define REGX_AUTOTUNE_PATIENCE 64u  /* messages in bursts before the first trial */

/* One size, alone or in bursts. */
typedef struct regx_tune {
    uint8_t candidates; /* 0 to candidates - 1 */
    uint8_t winner;
    uint8_t trials;    /* that had an outcome, up to 255 */
    uint8_t repeated;  /* the outcome was the same so many times, up to 3 */
    bool trying;       /* there is a trial: */
    uint8_t base;      /* the best so far */
    uint8_t alive;     /* bits of those that are not dropped */
    uint8_t left_out;  /* of those that were not in the last trial, */
    uint8_t hopeless;  /* and that took several times what its winner did; */
    uint8_t promising; /* a candidate whose copies were quick: its next burst does not count; */
    bool promised;     /* there was one: the slots are mapped */
    uint8_t round, turn;
    uint8_t failures;             /* segments without a result */
    uint64_t wait;                /* no trial: messages until the next one, */
    uint64_t waits;               /* of so many after the last one, or before the first; */
    float expected;               /* the winner's cost there, */
    uint8_t slower;               /* and how many bursts in a row took clearly longer; */
    uint8_t vain;                 /* or how many segments in a row mostly did not go by it */
    uint32_t messages;            /* of the trial */
    float short_cost;             /* the least cost in short runs, */
    uint8_t passed;               /* messages of the present run, counted or not, */
    float run[REGX_AUTOTUNE_RUN]; /* and what the counted ones cost, in ascending order */
    struct {
        uint8_t told;    /* bursts or runs */
        uint8_t suspect; /* of these, the last ones that showed it clearly worse than the base */
        uint8_t samples;
        uint32_t messages; /* they are of */
        uint64_t bytes;    /* that went by it */
        float cost;        /* its quartile in picoseconds a byte, or what the probe told; 0: none */
        float sample[REGX_AUTOTUNE_SAMPLES]; /* in ascending order */
    } of[REGX_AUTOTUNE_CANDIDATES];
} regx_tune_t;

/* One size. */
typedef struct regx_autotune {
    uint8_t place;        /* its number */
    regx_tune_t tune[2];  /* alone; in bursts */
    uint32_t open;        /* messages */
    uint64_t messages[2]; /* that came alone; in bursts */

    /* The present segment. */
    bool burst;        /* it is of tune[burst] */
    bool timed;        /* it is part of a trial: */
    uint8_t failed;    /* bits of candidates of which a message went another path than it was to */
    uint8_t candidate; /* that it is about, */
    uint8_t rest;      /* and what goes after `limit` messages */
    uint32_t limit;
    uint32_t number;     /* of the segment */
    uint32_t entered;    /* messages */
    uint32_t open_max;   /* of them at once */
    uint32_t before;     /* so many have yet to close before it can be measured */
    uint32_t closed;     /* since then */
    uint32_t refused;    /* of those, the ones that `failed` is of */
    uint64_t bytes, own; /* of those, and of these by the candidate */
    float copying;       /* picoseconds a byte of its receiver's quickest copy; 0: not known */
    int64_t began;
} regx_autotune_t;

/* A message's part in it. Zero: none. */
typedef struct regx_trial {
    regx_autotune_t *of; /* its size */
    bool trial;          /* part of a trial */
    bool known;          /* the candidate is a trial's outcome; else the prior */
    uint8_t candidate;
    uint32_t number;   /* of the segment */
    int64_t copied_ns; /* the receiver itself copied it for so long; 0: not known */
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
