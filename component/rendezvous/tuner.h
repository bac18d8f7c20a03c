/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which way moves the messages of one size fastest: found out on the job's own messages.
 *
 * Two things are decided so. The receiver of a large message chooses the path of its rendezvous
 * (auto.c). The sender of 4 to 32 KiB on a node chooses whether they go eagerly, or by rendezvous
 * (btl/eager.c). Which is faster, and by how much, depends on the processor, on what the program
 * does with its buffers, and on how many messages are under way. Each end decides alone, so the two
 * cannot disagree. Peers are not told apart.
 *
 * What is measured. A time per byte, from the first message of a batch to the first of the next one:
 * so what the program does with the data counts, too. A batch is
 *   - of messages that come alone, six (in a candidate's first batch two, as one that is far worse
 *     costs a short program most). Each has a time of its own; their median counts, which a long
 *     computation now and then does not change. In the first batch it is the lower of the two;
 *   - of bursts, whole bursts, sixteen messages at least. A burst goes by one candidate as a whole: if
 *     only a part of it did, the rest would wait for that part;
 *   - where some messages are always open, 64.
 * A message is open, at the receiver, until all of it is there. At the sender an eager message is gone
 * before anything was copied by its receiver, so its own time means nothing. It counts as open until
 * the program calls progress: one that waits for an answer does, one that sends a burst does not. (At
 * 64 that are open the next one counts as the first, for programs that never call it.)
 * The first messages of a batch pay for where the other way has left the data, and are not counted.
 * Now and then a burst is left out, so that batches do not fall into step with the program. It goes
 * by what was fastest so far.
 *
 * When a trial is made. The receiver's first one on a node begins at once, so that what bounce pays
 * for its pages falls into a benchmark's warm-up; over a device after 512 messages. The sender's
 * begins after 112, so that short programs and collective benchmarks have none, with 16 messages by
 * rendezvous, for which the receiver tries its paths. Later ones come after 128 times as many messages
 * as the last one took, 256, 512 and at last 1,024 times while the outcome stays the same, at most
 * 65,536; after the sender's first trial, or if the outcome is known from a file (btl/costs.h), after
 * 4,096. What is known of one size is told to the larger ones that were not tried (tell_larger).
 *
 * What a trial costs. Candidates are tried in turn, each in up to three batches: no second if
 * the first was far worse than the best, no third if it was clearly worse. Of those with the fewest
 * batches the last one goes on (of two: ABBAAB), so what drifts, or was left in the caches, is no
 * advantage to either. The median of a candidate's three batches counts (of two the lesser, as
 * there may be a third), since the best of them may be luck that does not last: the first eager
 * burst after others by rendezvous took a third of the time of later ones (16 KiB, Zen 4, far).
 * While bounce's batches still become faster it goes on, since its first ones map the pages of its
 * slots; its first does not count if the second was faster. The first candidate is the prior; to
 * win, another one has to save a 32nd. What all of that loses, compared with the best single
 * candidate, and how soon a change of the costs is noticed, stands in test_regret.c and
 * test_eager.c.
 *
 * When it is given up. A candidate has no more batches after messages went another way in two. The
 * trial ends after 18 batches. Messages that come alone are not compared with bursts: a batch of
 * another kind is repeated; after three in a row both are compared. The winner is tried anew if
 * several messages that were to go by it went another way. The sender gives a trial up if 64
 * messages of a batch do not go as they are to, or 512 of other sizes come meanwhile. Where a long
 * computation follows every second burst a slow candidate may win.
 *
 * While there is no trial no clock is read. Nothing here takes a lock: what the receiver decides is
 * under the engine's, what the sender decides is for a job of one thread.
 */
#ifndef REGX_RENDEZVOUS_TUNER_H
#define REGX_RENDEZVOUS_TUNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/counters.h"

/* Between what it chooses: paths where both processes map the pool, and where they do not; and
 * whether a message goes eagerly. */
typedef enum regx_auto_wire {
    REGX_AUTO_NODE,
    REGX_AUTO_APART,
    REGX_AUTO_WIRES, /* of the receiver */
    REGX_AUTO_EAGER = REGX_AUTO_WIRES
} regx_auto_wire_t;

#define REGX_AUTO_SMALLEST 0x4000ULL /* bytes of the first size of messages that auto tells apart */
#define REGX_AUTO_SIZES 20u     /* each twice the one before; what is larger or smaller joins */
#define REGX_AUTO_CANDIDATES 3u /* at most */
#define REGX_AUTO_ROUNDS 3u     /* batches of a candidate that count, at most */
#define REGX_AUTO_SAMPLES 6u    /* of a batch, at most */
#define REGX_AUTO_STREAM 64u    /* messages of a batch, where some are always open */
#define REGX_AUTO_SOON 4096u    /* messages until a trial of what is known from elsewhere */

/* A candidate's batch in a trial. */
typedef struct regx_batch {
    uint8_t candidate;
    bool opening; /* messages by the rendezvous, before the sender's first trial */
    bool idle;    /* all go by what was fastest so far, and nothing is measured */
    bool amid;    /* it began amid a burst */
    bool failed;  /* a message of the batch went another way */
    bool bursts;  /* some of its messages did not come alone */
    uint8_t samples;
    uint32_t number;                 /* of the batch, never the same */
    uint32_t entered;                /* messages since none was open, or it began */
    uint32_t before;                 /* so many have yet to close before it is measured, */
    uint32_t closed;                 /* and so many have since then, */
    uint64_t bytes;                  /* with so many bytes */
    uint64_t sampled;                /* bytes until the last sample, */
    int64_t began;                   /* when the measuring began; 0: not yet */
    int64_t last;                    /* when the last sample was taken; else `began` */
    float sample[REGX_AUTO_SAMPLES]; /* picoseconds a byte, the least first */
} regx_batch_t;

/* What a trial has found out of a candidate. */
typedef struct regx_tried {
    float cost; /* picoseconds a byte, the median of the batches that are kept; 0: none */
    float batch[REGX_AUTO_ROUNDS]; /* those, the least first */
    uint8_t kept;
    uint8_t batches; /* that count */
    uint8_t failed;  /* batches of which messages went another way */
    bool warming;    /* its last batch was still faster than those before, or bounce's first */
} regx_tried_t;

/* The messages of one size. A candidate is known here by its number; 0 is the prior. */
typedef struct regx_autotune {
    uint8_t wire;      /* regx_auto_wire_t */
    uint8_t larger;    /* sizes that follow this one in the array, and are told */
    uint8_t winner;    /* of the last trial; before it the prior */
    uint8_t repeated;  /* trials in a row that it won */
    bool known;        /* it was measured, */
    bool told;         /* elsewhere, and no trial has begun since then */
    bool trying;       /* there is a trial */
    uint8_t kind;      /* of its batches: bits, 1 messages alone, 2 bursts; 0: not known yet */
    uint8_t batches;   /* that have begun */
    uint8_t repeats;   /* batches in a row whose messages were of another kind */
    uint32_t messages; /* of the trial */
    uint32_t rest;     /* messages until the next one */
    uint32_t failures; /* of late, by the winner while there is no trial */
    uint32_t open;     /* messages, now */
    uint32_t open_max; /* of them at once, since none was open, or in this batch */
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

/* So many sizes, from the smallest on. */
void regx_tune_init(regx_autotune_t *tunes, unsigned sizes, regx_auto_wire_t wire);
/* That candidate is the fastest, as was measured elsewhere: it begins as if a trial had just ended. */
void regx_tune_tell(regx_autotune_t *tune, uint8_t candidate);
/* The candidate by which a message is to go, if none comes that ends a batch. */
uint8_t regx_tune_way(const regx_autotune_t *tune);
/* A message is opened. It is to be left. */
regx_trial_t regx_tune_enter(regx_autotune_t *tune);
/* It is closed. went: all of it arrived, by the way that it was to go. Does nothing for a message
 * that has no part. */
void regx_tune_leave(const regx_trial_t *trial, uint64_t length, bool went);
/* The trial ends without an outcome. */
void regx_tune_give_up(regx_autotune_t *tune);

#endif
