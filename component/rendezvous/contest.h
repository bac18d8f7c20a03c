/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which of two ways moves messages faster on this node: bounce, where both processes copy through
 * the pool at once, or single copy, where the kernel copies from one process into the other. That
 * depends on the machine and on the program. Where cores share a cache slowly, and the program
 * sends what it has not written since, single copy is twice as fast; elsewhere bounce is.
 *
 * So it is tried, on the program's own messages, for each power of two of sizes: six of them go the
 * one and the other way, three each, and what they took decides for the next 256. Then it is tried
 * again; while the outcome stays the same, after 512, and so on up to 8192, so that being wrong
 * three times costs nothing that can be measured. A message's time runs from when it is opened, or,
 * where others were under way, from when the last of them was closed: that is one message's time
 * alone, and a stream's time per message. The first of three is not counted, as it finds the caches
 * as the other way left them. Bounce wins unless single copy saves an eighth; where the two are
 * closer than a quarter, three more of each decide.
 *
 * One set per engine, under its lock. Peers are not told apart.
 */
#ifndef REGX_RENDEZVOUS_CONTEST_H
#define REGX_RENDEZVOUS_CONTEST_H

#include <stdbool.h>
#include <stdint.h>

#define REGX_CONTESTS 10u       /* sizes from 16 KiB, doubled; what is larger or smaller joins */
#define REGX_CONTEST_LEAST 256u /* messages between two trials */
#define REGX_CONTEST_MOST 8192u

typedef enum regx_way { REGX_WAY_BOUNCE, REGX_WAY_SINGLE, REGX_WAYS } regx_way_t;

typedef struct regx_contest {
    regx_way_t winner;
    uint32_t wait;            /* messages before the next trial */
    uint32_t period;          /* of them after the last; 0: there was none */
    unsigned entered, left;   /* messages of the trial */
    int64_t taken[REGX_WAYS]; /* by those that count, in nanoseconds */
    bool again;               /* three more of each */
    bool spoiled;             /* some went another way than they were to */
} regx_contest_t;

typedef struct regx_contests { /* all zero at the start */
    regx_contest_t of_size[REGX_CONTESTS];
    unsigned under_way; /* messages on trial */
    int64_t left_at;    /* when the last message was closed, while there are such */
} regx_contests_t;

typedef struct regx_entry { /* a message's part; all zero: none */
    uint8_t number;         /* in a trial, from 1 */
    int64_t at;             /* when it was opened */
} regx_entry_t;

/* The way for a message of that length. */
regx_way_t regx_contest_enter(regx_contests_t *contests, uint64_t length, regx_entry_t *entry);

/* A message is closed, whether it had a part or not. went: it is all there, by the way it was to
 * go. */
void regx_contest_leave(regx_contests_t *contests, uint64_t length, const regx_entry_t *entry,
                        bool went);

#endif
