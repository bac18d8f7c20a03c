/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which path moves messages fastest on this node. There are three candidates: bounce, where both
 * processes copy through the pool at once; single copy, where the sender has the kernel copy into
 * the receiver; together, where the receiver has it copy one half. The answer depends on the
 * machine and on the program. Where a line that one core has written reaches the other slowly, and
 * the program sends again what it has not written since, single copy is up to twice as fast as
 * bounce, and together up to 2.7 times as fast as that. Elsewhere bounce is the fastest.
 *
 * So the candidates are tried, for each power of two of sizes, on the program's own messages, in
 * rounds. A round lasts until none of its messages is under way, or until REGX_AUTOTUNE_ROUND of
 * them, and as many as were under way at once, have been closed. So it is one message that comes
 * alone, one burst, or a part of a long stream. Its cost is the time that it took per byte. Each
 * candidate has three rounds, and the quickest counts: the first finds the caches as the candidate
 * before left them, any may be interrupted, and hardly anything makes one too short. Another
 * candidate than bounce wins if it saves an eighth; of two such the quicker.
 *
 * The outcome holds for 64 times as many messages as the trial had. Each time that it stays the
 * same it holds for twice as many, up to 1024 times, so that trying costs little. What is not seen:
 * after a single copy the receiver's core has yet to fetch what it reads.
 *
 * One set per engine, under its lock. Peers are not told apart, near or far.
 */
#ifndef REGX_RENDEZVOUS_AUTOTUNE_H
#define REGX_RENDEZVOUS_AUTOTUNE_H

#include <stdbool.h>
#include <stdint.h>

#define REGX_AUTOTUNE_SIZES 20u /* from 16 KiB, doubled; what is larger or smaller joins */
#define REGX_AUTOTUNE_ROUND 64u /* messages */
#define REGX_AUTOTUNE_ROUNDS 3u /* per candidate */
#define REGX_AUTOTUNE_MIN 64u   /* an outcome holds for so many times the trial's messages, … */
#define REGX_AUTOTUNE_MAX 1024u /* … at most for so many */

typedef enum regx_autotune_path {
    REGX_AUTOTUNE_BOUNCE,
    REGX_AUTOTUNE_SINGLE_COPY,
    REGX_AUTOTUNE_TOGETHER,
    REGX_AUTOTUNE_PATHS
} regx_autotune_path_t;

/* What is known of one power of two of sizes. */
typedef struct regx_autotune {
    regx_autotune_path_t winner;
    uint32_t wait;     /* messages before the next trial */
    uint32_t factor;   /* of the last outcome, MIN to MAX; 0: there was none yet */
    uint32_t trial;    /* the number of the last trial */
    uint32_t messages; /* that this trial had so far; 0: there is none */
    uint32_t round;    /* of this trial: those of the first candidate, then those of the next */
    uint32_t open;     /* messages of this and earlier trials that are under way */
    uint32_t open_max; /* of them at once, in this round */
    uint32_t closed;   /* in this round */
    uint64_t bytes;    /* closed in this round that went the candidate's path */
    int64_t began;     /* when this round did, in nanoseconds */
    uint64_t best[REGX_AUTOTUNE_PATHS]; /* the quickest round: picoseconds a byte; 0: none yet */
    bool invalid;                       /* some messages went another path than they were to */
} regx_autotune_t;

/* A message's part in it. */
typedef struct regx_trial {
    regx_autotune_path_t path;
    bool known;     /* the path is a trial's outcome */
    uint32_t trial; /* the number of the trial that the message is part of; 0: none */
} regx_trial_t;

/* A message of that length is opened. */
regx_trial_t regx_autotune_enter(regx_autotune_t autotune[REGX_AUTOTUNE_SIZES], uint64_t length);

/* It is closed. went: all of it arrived, by the path that it was to go. */
void regx_autotune_leave(regx_autotune_t autotune[REGX_AUTOTUNE_SIZES], uint64_t length,
                         const regx_trial_t *trial, bool went);

#endif
