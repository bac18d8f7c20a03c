/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is known of one size of messages, alone or in bursts: which candidate moves them fastest. It
 * is found out in trials, and what they lose is bounded (autotune.h).
 *
 * A trial compares the candidates in turn, in several rounds, each of which begins with another
 * one.
 *
 * Of a burst one message goes by a candidate at first, the others by the best so far. If the burst
 * takes up to a 64th longer than usual, eight times as many go by it next, if up to a 16th, twice
 * as many, and if that were more than half of the burst, all. If it takes longer, as many go again
 * in the next round, and a candidate with which it takes an eighth longer twice is dropped. So a
 * probe promises to lose an eighth of a burst at most, whatever its candidate costs: of bounces
 * among others some take 16 times as long, since they pay for the first use of memory. Besides that
 * a probe tells nothing of its candidate, since others go on at the same time. If it takes an
 * eighth less, which so few cannot save, the best was slow by chance, and has a burst of its own
 * once more. Of whole bursts the lower quartile counts, so that most of them may be interrupted, or
 * be followed by a computation.
 *
 * Messages that come alone go by a candidate in runs: one to four that are not counted, since they
 * pay for where the candidate before them left the data, and REGX_TUNE_RUN that are. A run's cost
 * is the mean without the slowest third, which may have been interrupted. Of several runs of a
 * candidate the fastest counts. Single messages would not do: where a program has two in each of
 * its steps, every other one bears all that the program does with the data, and the cheap ones take
 * equally long by all candidates. The first trial begins with two messages each, by which what is
 * far worse is dropped.
 *
 * A candidate that is clearly worse is dropped: the fewer messages it had, the clearer it must be.
 * So is one by which messages do not go; it does not win as long as there is another. Then no trial
 * is made for 64 times as many messages as this one has lost, and, as long as the outcome stays the
 * same, 128, 256 and at last 512 times as many, but never for more than 2^20; earlier if bursts
 * begin to take clearly longer, or if messages do not go by the winner any more. Later trials
 * compare more messages, and so tell smaller differences: at first a candidate must save a 16th to
 * win, at last a 64th.
 */
#ifndef REGX_RENDEZVOUS_TUNE_H
#define REGX_RENDEZVOUS_TUNE_H

#include <stdbool.h>
#include <stdint.h>

#define REGX_TUNE_CANDIDATES 3u /* at most */
#define REGX_TUNE_SAMPLES 8u    /* bursts or runs of a candidate in one trial */
#define REGX_TUNE_RUN 6u        /* messages that come alone */
#define REGX_TUNE_PATIENCE 60u  /* messages in bursts before the first trial */

typedef struct regx_tune {
    bool burst;
    uint8_t candidates; /* 0 to candidates - 1 */
    uint8_t winner;
    uint8_t trials;   /* that had an outcome, up to 255 */
    uint8_t repeated; /* the outcome was the same so many times, up to 3 */
    bool trying;      /* there is a trial: */
    uint8_t base;     /* the best so far */
    uint8_t alive;    /* bits of those that are not dropped */
    uint8_t round, turn;
    bool check;               /* first the base's own burst once more: it was slow by chance */
    uint8_t failures;         /* segments that told nothing */
    uint64_t wait;            /* no trial: messages until the next one, */
    uint64_t waits;           /* of so many after the last one, or before the first; */
    float expected;           /* the winner's cost there, */
    uint8_t slower;           /* and how many bursts in a row took clearly longer; */
    uint8_t vain;             /* or how many segments in a row mostly did not go by it */
    uint32_t messages;        /* of the trial */
    float lost;               /* in probes: so many messages could have been sent */
    float glanced;            /* the least cost in the glance, */
    uint8_t passed;           /* messages of the present run, counted or not, */
    float run[REGX_TUNE_RUN]; /* and what the counted ones cost, in ascending order */
    struct {
        uint8_t suspect; /* the last bursts or runs that showed it clearly worse than the base */
        uint32_t probe;  /* messages of its next burst, or all */
        uint8_t samples;
        uint32_t messages;               /* they are of */
        uint64_t bytes;                  /* that went by it, but for its probes */
        float cost;                      /* its quartile in picoseconds a byte; 0: none */
        float sample[REGX_TUNE_SAMPLES]; /* in ascending order */
    } of[REGX_TUNE_CANDIDATES];
} regx_tune_t;

/* How a segment's messages go: one that comes alone, or a burst. */
typedef struct regx_turn {
    bool trial;
    uint8_t candidate; /* the first ones, */
    uint32_t limit;    /* so many, or all; */
    uint8_t rest;      /* the others */
} regx_turn_t;

/* What became of them. */
typedef struct regx_told {
    uint32_t messages;
    uint32_t closed;  /* while it lasted, and since there was no other's, */
    uint32_t refused; /* of those, the ones that `failed` is of */
    uint64_t bytes;   /* of those */
    uint64_t own;     /* and of these by the candidate */
    uint8_t failed;   /* bits of candidates of which a message went another path than it was to */
    float cost;       /* picoseconds a byte; 0: not known */
} regx_told_t;

void regx_tune_init(regx_tune_t *tune, bool burst, unsigned candidates, unsigned winner,
                    uint32_t patience);

/* A segment begins. */
regx_turn_t regx_tune_next(regx_tune_t *tune);

/* It has ended. */
void regx_tune_tell(regx_tune_t *tune, const regx_turn_t *turn, const regx_told_t *told);

#endif
