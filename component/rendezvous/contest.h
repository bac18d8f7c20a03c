/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which way moves messages fastest on this node: bounce, where both processes copy through the pool
 * at once; single copy, where the sender has the kernel copy into the receiver; or together, where
 * the receiver has it copy one half. That depends on the machine and on the program. Where a line
 * that one core has written reaches the other slowly, and the program sends again what it has not
 * written since, single copy is up to twice as fast as bounce, and together up to 2.7 times as
 * fast as that; elsewhere bounce is the fastest.
 *
 * So it is tried, for each power of two of sizes, on the program's own messages, in rounds. A round
 * lasts until none of its messages is under way, or ROUND of them and as many as were under way at
 * once have been closed: it is one message that comes alone, one burst, or a part of a long stream.
 * What counts is how long it took for each byte. Three rounds go each way, one way after the other,
 * and the quickest of three counts: the first finds the caches as the other way left them, any may
 * be interrupted, and next to nothing makes one too short. Another way than bounce wins if it saves
 * an eighth; of the two the quicker.
 *
 * The outcome holds for 64 times as many messages as the trial had; while it stays the same, for
 * twice as many the next time, and so on up to 1024 times, so that trying costs little. What is not
 * seen: after a single copy the receiver's core has yet to fetch what it reads.
 *
 * One set per engine, under its lock. Peers are not told apart, near or far.
 */
#ifndef REGX_RENDEZVOUS_CONTEST_H
#define REGX_RENDEZVOUS_CONTEST_H

#include <stdbool.h>
#include <stdint.h>

#define REGX_CONTEST_SIZES 20u /* from 16 KiB, doubled; what is larger or smaller joins */
#define REGX_CONTEST_ROUND 64u /* messages */
#define REGX_CONTEST_ROUNDS 3u /* each way */
#define REGX_CONTEST_LEAST 64u /* trials' lengths between two trials */
#define REGX_CONTEST_MOST 1024u

typedef enum regx_way { REGX_WAY_BOUNCE, REGX_WAY_SINGLE, REGX_WAY_TOGETHER, REGX_WAYS } regx_way_t;

typedef struct regx_contest {
    regx_way_t winner;
    uint32_t wait;            /* messages before the next trial */
    uint32_t factor;          /* that made it so many; 0: there was no outcome yet */
    uint32_t trial;           /* the last one's number */
    uint32_t messages;        /* it had so far; 0: none is going on */
    uint32_t round;           /* of it: those of the first way, then of the next */
    uint32_t open;            /* messages of this and earlier trials that are under way */
    uint32_t most;            /* of them at once, in this round */
    uint32_t closed;          /* in this round */
    uint64_t bytes;           /* closed in this round that went its way */
    int64_t began;            /* when this round did */
    uint64_t best[REGX_WAYS]; /* the quickest round: picoseconds a byte; 0: none yet */
    bool spoiled;             /* some went another way than they were to */
} regx_contest_t;

typedef struct regx_entry { /* a message's part */
    regx_way_t way;
    bool known;     /* … is a trial's outcome */
    uint32_t trial; /* that it is of; 0: none */
} regx_entry_t;

/* A message of that length is opened. */
regx_entry_t regx_contest_enter(regx_contest_t contests[REGX_CONTEST_SIZES], uint64_t length);

/* It is closed. went: all of it is there, by the way it was to go. */
void regx_contest_leave(regx_contest_t contests[REGX_CONTEST_SIZES], uint64_t length,
                        const regx_entry_t *entry, bool went);

#endif
