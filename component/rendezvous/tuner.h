/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The tuner: which way moves the messages of one size fastest. It finds that out on the job's own
 * messages.
 *
 * What it decides. The receiver of a large message chooses the path of its rendezvous (auto.c). The
 * sender of 4 to 32 KiB on a node chooses whether they go eagerly or by rendezvous (regx_eager_note).
 * Which is faster depends on the processor, on what the program does with its buffers, and on how many
 * messages are under way. Each end decides alone, so the two cannot disagree. Peers are not told
 * apart.
 *
 * Terms. What can be chosen is called a candidate. Candidate 0 is the prior: it goes while nothing is
 * known. A message is open from when it is announced until, at the receiver, all of it is there. A batch
 * is a number of messages in a row that go by one candidate, and whose time is taken. A trial is a sequence
 * of batches.
 *
 * A size rests or is on trial (regx_tune_state_t). At rest all messages go by the winner, no clock is
 * read, and `rest` counts down. At 0 a trial begins as soon as no message is open, or after 128 messages
 * where some always are. (On a node, also at the sender, the first trial does not
 * wait for that: it begins even amid a burst, since its first messages are not timed.)
 *
 *     UNTRIED, FOUND  ─────────────────── rest is 0 ────────────────────▶  FIRST_TRIAL, NEXT_TRIAL
 *     FOUND, UNTRIED  ◀── no candidate may have a batch more, or 18 were ──
 *
 * (UNTRIED again if nothing was found out.) The receiver's first trial on a node begins with the first
 * message, and by staged, so that what staged pays for its pages falls into a benchmark's warm-up;
 * over a device it begins after 512 messages. The sender's begins after 112, so that short programs
 * and collective benchmarks, which send 110, have none.
 *
 * A timed batch takes whole bursts: the part of one that goes by a fast candidate would wait for the rest.
 * (Messages that are not timed, and traffic of which some is always open, may be divided.)
 *
 *     begin_batch ──▶ `before` messages, not timed ──▶ timed since `began` ──▶ is_over ──▶ judge
 *          ▲                                                                                │
 *          └──────── the candidate with the fewest batches (next_batch) ◀───────────────────┘
 *
 * The messages that are not timed absorb what the candidate before has left in the caches. For example,
 * two messages of 128 KiB go each way, first by staged and then by read (a Xeon): the first two that are to
 * be read were still copied ahead by their sender, the next two are slow (28 us), as their bytes still
 * lie in the sender's cache; from then on each takes 16 us. How long a batch is depends on how messages come:
 *
 *     messages come            not timed                   timed                        samples
 *     alone (up to 3 open)     a candidate's first         2                            one each
 *                              batch: 1
 *                              later batches: 2            6                            one each
 *                              at the sender: 8            2, later 6                   one each
 *     in bursts                none                        whole bursts, 16 at least    one
 *     some are always open     twice the open ones,        64                           one
 *                              64 at least
 *
 * (If several that come alone are open at once, twice their number is not timed where that is more.)
 *
 * A sample is a time per byte, in picoseconds. It ends with the first message after those that it times,
 * so what the program does with the data counts, too. The median of a batch's samples is the batch's cost,
 * so a long computation now and then changes nothing; of the two samples of a first batch it is the lesser.
 * The median of a candidate's batches is the candidate's cost: the best of them may be luck that does not
 * last. While a candidate has two batches only, their lesser cost counts, until a third decides. For messages
 * that come alone, the first batch only sorts out what is far worse: a second batch replaces it. These are not
 * compared with bursts: a batch whose messages come otherwise than those before is thrown away and repeated.
 * If that happens three times in a row the program has changed, or the candidate is so fast that a burst
 * looks like single messages. Then earlier costs are forgotten, and from then on both kinds count.
 *
 * What is kept where, all of it by size: `tried`, by candidate, is what this trial has found so far;
 * `found`, by candidate, its last cost, which stays after the trial; `winner` is the outcome.
 *
 * When the winner changes: at the end of a trial, if another candidate costs less than 31/32 of it. The
 * outcome is also told to the larger sizes that were not tried (tell_larger). A winner by which several
 * messages cannot go is tried anew at once.
 *
 * What bounds the loss. A candidate has at most three batches that count. One that is far worse than the
 * best has one, one that is clearly worse has two (FAR_WORSE, WORSE). But at the sender eager has three
 * unless bursts are long, since a lap of the ring that brings in new pages makes it seem ten times as slow
 * as it is. A batch that costs at most half of the candidate's cost so far (at the sender 7/8) shows that it
 * was still warming up, and does not count as one of the three. A candidate by which messages could not go in
 * two batches has no more.
 *
 * The next trial comes after 128 times as many messages as this one took, and after 256, 512 and at last
 * 1,024 times while the outcome stays the same, at most 65,536; after 16 times as many if nothing was
 * found out, and after 4,096 if the trial was given up. The sender's second trial comes after
 * 4,096 at the latest. test_regret.c and test_eager.c have what is lost, compared with the best single
 * candidate, and how soon changed costs are noticed.
 *
 * An example: bursts of 64 messages of 64 KiB, of which the receiver knows nothing. A burst by staged takes
 * 73 ps a byte, by read 130, together 105. (OPENING and IDLE: regx_batch_use_t.)
 *
 *     burst   goes by           costs   what follows
 *     1       staged, OPENING     -     its pages are mapped now
 *     2       staged             73
 *     3       read              130     FAR_WORSE: it has no other batch
 *     4       staged, IDLE        -     the fastest so far
 *     5       together          105     FAR_WORSE
 *     6, 7    staged         73, 72     three batches: the trial is over, staged has won. Neither of the
 *                                       others is twice as slow (TOLD_WORSE), so messages twice as
 *                                       long try all three
 *
 * At the sender an eager message is gone before its receiver has copied anything, so its own time means
 * nothing. There a message counts as open until the program calls progress: a program that waits for an
 * answer calls it, one that sends a burst does not. (For programs that never call it a new burst begins
 * after 64 open messages.) The sender gives a trial up if 64 messages of a batch do not
 * go as they are to, or 512 of other sizes come meanwhile.
 *
 * Where a long computation follows every second burst a slow candidate may win, if its batches fall on the
 * other bursts.
 *
 * Nothing here takes a lock: what the receiver decides is under the engine's, what the sender decides
 * is for a job of one thread.
 */
#ifndef REGX_RENDEZVOUS_TUNER_H
#define REGX_RENDEZVOUS_TUNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/counters.h"

/* What the tuner chooses between: paths where both processes map the pool, paths where they do not, or
 * whether a message goes eagerly. */
typedef enum regx_auto_wire {
    REGX_AUTO_NODE,
    REGX_AUTO_DEVICE,
    REGX_AUTO_WIRES, /* of the receiver */
    REGX_AUTO_EAGER = REGX_AUTO_WIRES
} regx_auto_wire_t;

/* The numbers that others need as well; tuner.c has the rest. Where a value comes from stands in brackets, as
 * there: a machine on which it was seen, or [replay]. */
#define REGX_AUTO_SMALLEST 0x4000ULL /* bytes of the first size of messages that auto tells apart */
#define REGX_AUTO_SIZES 20u /* each twice the one before; what is larger or smaller joins */
/* On a node messages of up to so many bytes go eagerly or are read: there staging costs as much as eager, and to
 * share so short a copy costs more than it gains [two cores of a Xeon: 16 KiB took 2.3 us read, 2.8
 * together]. */
#define REGX_AUTO_SHORT 0x8000ULL
#define REGX_AUTO_CANDIDATES 3u /* at most */
#define REGX_AUTO_ROUNDS 3u     /* batches of a candidate that count, at most [replay] */
/* Messages that come alone, and are a batch, each a sample; even, as some programs alternate [replay]. */
#define REGX_AUTO_SAMPLES 6u
/* Many messages: of a batch, where some are always open; of the sender's batch, if they cannot go as they are
 * to, so that the trial is given up; or of other sizes, since one was last seen [replay]. */
#define REGX_AUTO_STREAM 64u
#define REGX_AUTO_SOON 4096u /* messages until a trial of what is known from elsewhere [replay] */

/* Over a device (auto.c): bytes of a message that may go by bounce because its buffer is new [Soft-RoCE, one way, a
 * new buffer for each: bounce takes 0.65 of pipeline's time at 32 KiB, 0.88 at 64 KiB, and 1.4 times as
 * long at 128 KiB]; how far buffers that come back outweigh those that do not; and of how many new ones one is
 * registered all the same [nothing is recorded of these two]. */
#define REGX_AUTO_NEW_MAX (64u * 1024u)
#define REGX_AUTO_CREDIT_MAX 32u
#define REGX_AUTO_NEW_TRIED 16u

typedef enum regx_tune_state {
    REGX_TUNE_UNTRIED,     /* rests: the prior goes, or what was fastest for a smaller size */
    REGX_TUNE_FOUND,       /* rests: the fastest goes, as a trial has found */
    REGX_TUNE_FIRST_TRIAL, /* on trial; the winner was not measured */
    REGX_TUNE_NEXT_TRIAL   /* on trial; the winner was measured */
} regx_tune_state_t;

typedef enum regx_batch_use {
    REGX_BATCH_TIMED,  /* finds out what its candidate costs */
    REGX_BATCH_IDLE,   /* goes by the fastest so far and finds out nothing: some bursts are left out
                          so, lest the batches fall into step with the program */
    REGX_BATCH_OPENING /* begins the first trial, and finds out nothing. By staged, which maps the
                          pages of its staging buffers so; at the sender by the rendezvous: what is
                          read first still lies in the sender's cache, and takes three times as long */
} regx_batch_use_t;

/* A candidate's batch in a trial. */
typedef struct regx_batch {
    uint8_t candidate;
    regx_batch_use_t use;
    bool amid;   /* it began amid a burst */
    bool failed; /* a message of the batch went another way */
    bool bursts; /* some of its messages did not come alone */
    uint8_t samples;
    uint32_t number;  /* of the batch, never the same */
    uint32_t entered; /* messages since the batch began or, if that was later, none was open */
    uint32_t before;  /* messages that have yet to close before the measuring begins */
    uint32_t closed;  /* messages that have closed since it began */
    uint64_t bytes;   /* of these */
    uint64_t sampled; /* of these, until the last sample */
    int64_t began;    /* when the measuring began; 0: not yet */
    int64_t last;     /* when the last sample was taken; else `began` */
    float sample[REGX_AUTO_SAMPLES]; /* picoseconds a byte, the least first */
} regx_batch_t;

/* What a trial has found out of a candidate. */
typedef struct regx_tried {
    float cost; /* picoseconds a byte, the median of the batches that are kept; 0: none */
    float batch[REGX_AUTO_ROUNDS]; /* those, the least first */
    uint8_t kept;
    uint8_t batches; /* that count */
    uint8_t failed;  /* batches of which messages went another way */
    bool warming;    /* its last batch was still clearly faster than those before */
} regx_tried_t;

/* The messages of one size. A candidate is known here by its number; 0 is the prior. */
typedef struct regx_autotune {
    regx_tune_state_t state;
    uint8_t wire;      /* regx_auto_wire_t */
    uint8_t larger;    /* sizes that follow this one in the array, and are told */
    uint8_t winner;    /* of the last trial; before it the prior, or what another size told */
    uint8_t repeated;  /* trials in a row that it won */
    uint8_t kind;      /* of its batches: bits, 1 messages alone, 2 bursts; 0: not known yet */
    uint8_t batches;   /* that have begun */
    uint8_t repeats;   /* batches in a row whose messages were of another kind */
    uint32_t messages; /* of the trial */
    uint32_t rest;     /* messages until the next one */
    uint32_t failures; /* of late, by the winner while there is no trial */
    uint32_t open;     /* messages, now */
    uint32_t open_max; /* the most at once since none was open, or in this batch */
    regx_batch_t batch;
    regx_tried_t tried[REGX_AUTO_CANDIDATES];
    float found[REGX_AUTO_CANDIDATES]; /* the last costs; 0: none */
} regx_autotune_t;

/* A message's part in it. Zero: none. */
typedef struct regx_trial {
    regx_autotune_t *of; /* its size */
    uint8_t candidate;
    regx_why_t why;  /* that one */
    uint32_t number; /* of the batch */
} regx_trial_t;

/* There is a trial. */
static inline bool regx_tune_tries(const regx_autotune_t *tune)
{
    return tune->state >= REGX_TUNE_FIRST_TRIAL;
}

/* The winner was measured. */
static inline bool regx_tune_knows(const regx_autotune_t *tune)
{
    return tune->state == REGX_TUNE_FOUND || tune->state == REGX_TUNE_NEXT_TRIAL;
}

/* So many sizes, from the smallest on. */
void regx_tune_init(regx_autotune_t *tunes, unsigned sizes, regx_auto_wire_t wire);
/* The candidate by which the next message goes, unless that message ends the batch: then it goes by the next
 * batch's. */
uint8_t regx_tune_way(const regx_autotune_t *tune);
/* A message is opened. It is to be left. */
regx_trial_t regx_tune_enter(regx_autotune_t *tune);
/* It is closed. went: all of it arrived, by the way that it was to go. Does nothing for a message
 * that has no part. */
void regx_tune_leave(const regx_trial_t *trial, uint64_t length, bool went);

/* ---- the sender: up to which length a message goes eagerly between processes of a node ----
 *
 * An eager message is copied twice, once by each process. A longer one goes by rendezvous: an RTS,
 * then one copy, by the kernel or by both processes (exposed.c). From 4 to 32 KiB either way may be two or
 * three times as fast as the other, so it is found out, apart for those above 4, 8 and 16 KiB. The sender
 * decides: ob1 compares each message with btl_eager_limit. After each message of 4 to 32 KiB the limit is set
 * for the next one.
 *
 * One limit serves all sizes, so one size is on trial at a time, and all that are shorter than an eager size
 * go eagerly, too. The tuner raises the limit to the size on trial, or to a size that was found to be faster
 * eagerly and that one of the last 64 messages had. The size on trial comes first. If a rendezvous was
 * faster for one size, longer messages begin with it. If it took 2.5 times as long, the first trials of shorter
 * messages come after 4,096; so do those of messages twice as long if it took 5 times as long, and so on. What
 * cannot go by rendezvous whole (data that is not contiguous, MPI_Bsend) counts as eager: after 64 such messages
 * in a batch the trial is given up, and eager wins.
 *
 * Regret. Compared with the better way, if costs do not change and one way takes at most three
 * times as long as the other (test_eager.c):
 *   - of messages in a ping-pong, or in bursts of up to 16, 10,000 take at most 4.5 % longer, and
 *     1,000 at most 33 %, or 15 % if the better way is eager;
 *   - in bursts of 64, 10,000 take at most 6.5 % longer, 1,000 at most 50 %, and 10,000 where
 *     progress is never called 8.5 %.
 *
 * Not thread-safe: for a job of one thread.
 */

#define REGX_EAGER_MIN 4096u  /* bytes of data that always go eagerly */
#define REGX_EAGER_SIZES 3u   /* each twice the one before */
#define REGX_EAGER_HEADER 80u /* bytes of the limit that ob1 takes for its header, at most */
#define REGX_EAGER_MAX ((REGX_EAGER_MIN << REGX_EAGER_SIZES) + REGX_EAGER_HEADER)

/* The candidates; the first is the prior. */
typedef enum regx_eager_way { REGX_EAGER_SEND, REGX_EAGER_RENDEZVOUS } regx_eager_way_t;

typedef struct regx_eager {
    bool tunes;
    size_t *limit;     /* Open MPI's: bytes, with its header */
    size_t configured; /* the parameter's value, the highest limit */
    regx_autotune_t of[REGX_EAGER_SIZES];
    uint32_t unseen[REGX_EAGER_SIZES];   /* messages of the others since the last of this size */
    unsigned progress[REGX_EAGER_SIZES]; /* as it was at the last message of this size */
    regx_autotune_t *trial;              /* the size that is on trial. NULL: none. */
    uint32_t batch;                      /* the number of its batch */
    uint32_t strays;                     /* messages of that batch that went the other way */
    uint32_t others;                     /* messages of other sizes since that batch began */
} regx_eager_t;

/* limit: the module's, as configured. tunes: it may be changed. */
void regx_eager_init(regx_eager_t *eager, size_t *limit, bool tunes);

/* A message of `length` bytes of data goes that way. Sets the limit for the next one.
 * node: to a process of the node, from which the kernel lets it read. The first message to any
 * other restores the limit for good: there a rendezvous costs a journey to the peer and back, and
 * the limit is the same for all peers. progress: a number that each call of progress changes. */
void regx_eager_note(regx_eager_t *eager, size_t length, regx_eager_way_t way, bool node,
                     unsigned progress);

/* Whether so many bytes, with the header, go by rendezvous only because the limit is lowered. */
static inline bool regx_eager_is_lowered(const regx_eager_t *eager, size_t length)
{
    return length > *eager->limit && length <= eager->configured;
}

#endif
