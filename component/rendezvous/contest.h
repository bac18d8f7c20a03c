/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which of two ways moves messages faster on this node: bounce, where both processes copy through
 * the pool at once, or single copy, where the kernel copies from one process into the other. That
 * depends on the machine and on the program. Where a line that one core has written reaches the
 * other slowly, and the program sends again what it has not written since, single copy is twice as
 * fast; elsewhere bounce is.
 *
 * So it is tried, on the program's own messages; on its own for each power of two of sizes, and for
 * messages that come alone and those that come while others are under way. Some go the one way,
 * then as many the other, and what they took decides until the next trial, which is 64 times as
 * many messages later; while the outcome stays the same, twice as many, and so on up to 1024 times,
 * so that trying costs little. Bounce wins unless single copy saves an
 * eighth; where the two are closer than a quarter, as many again decide.
 *
 * A lone message takes from when it is opened to when it is closed. The first of three does not
 * count, as it finds the caches as the other way left them; should another be opened beside one,
 * there was no trial. Where others are under way, a message takes from when the last of them was
 * closed: the stream's time per message. The receiver may be behind the sender by what the pool's
 * window holds, and closes faster or slower until that is made up for; so those do not count, and
 * then as many do.
 *
 * One set per engine, under its lock. Peers are not told apart.
 */
#ifndef REGX_RENDEZVOUS_CONTEST_H
#define REGX_RENDEZVOUS_CONTEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REGX_CONTEST_SIZES 10u /* from 16 KiB, doubled; what is larger or smaller joins */
#define REGX_CONTEST_LEAST 64u /* trials' lengths between two trials */
#define REGX_CONTEST_MOST 1024u

typedef enum regx_way { REGX_WAY_BOUNCE, REGX_WAY_SINGLE, REGX_WAYS } regx_way_t;

typedef struct regx_contest {
    regx_way_t winner;
    uint32_t wait;            /* messages before the next trial */
    uint32_t factor;          /* that made it so many; 0: there was no trial */
    uint32_t entered, left;   /* messages of the trial */
    int64_t taken[REGX_WAYS]; /* by those that count, in nanoseconds */
    bool again;               /* the second time */
    bool spoiled;             /* some went another way than they were to */
} regx_contest_t;

typedef struct regx_contests { /* all zero at the start, but for */
    size_t lag;                /* bytes by which a receiver may be behind */
    regx_contest_t alone[REGX_CONTEST_SIZES], among[REGX_CONTEST_SIZES];
    unsigned open;     /* messages */
    unsigned on_trial; /* of them */
    uint32_t opened;   /* so far */
    int64_t closed_at; /* the last one, while some are on trial */
} regx_contests_t;

typedef struct regx_entry { /* a message's part; all zero: it has none */
    bool open, among;
    uint32_t number; /* in a trial, from 1 */
    uint32_t opened; /* as it was then */
    int64_t at;
} regx_entry_t;

/* A message of that length is opened: its way. */
regx_way_t regx_contest_enter(regx_contests_t *contests, uint64_t length, regx_entry_t *entry);

/* It is closed. went: all of it is there, by the way it was to go. Does nothing for one that has no
 * part. */
void regx_contest_leave(regx_contests_t *contests, uint64_t length, regx_entry_t *entry, bool went);

#endif
