/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Up to which length a message goes eagerly between processes of a node.
 *
 * An eager message is copied twice, once by each process. A longer one goes by rendezvous: an RTS,
 * then one copy, by the kernel or by both processes (rendezvous/exposed.c). From 4 to 32 KiB either
 * way may be two or three times as fast as the other, so it is found out on the program's own
 * messages (rendezvous/tuner.h), apart for those above 4, 8 and 16 KiB. The sender decides: ob1
 * compares each message with btl_eager_limit. After each message of 4 to 32 KiB the limit is set for the
 * next one.
 *
 * One limit serves all sizes, so one size is on trial at a time. A size that goes eagerly keeps all shorter
 * ones eager if it is the one on trial, or if that was found or told and one of the last 64 messages had this
 * size. While a size is on trial nothing that is known of longer ones overrules it. If a rendezvous was
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
#ifndef REGX_BTL_EAGER_H
#define REGX_BTL_EAGER_H

#include "rendezvous/rendezvous.h"

#define REGX_EAGER_MIN 4096u  /* bytes of data that always go eagerly */
#define REGX_EAGER_SIZES 3u   /* each twice the one before */
#define REGX_EAGER_HEADER 80u /* bytes of the limit that ob1 takes for its header, at most */
#define REGX_EAGER_MAX ((REGX_EAGER_MIN << REGX_EAGER_SIZES) + REGX_EAGER_HEADER)

/* The tuner's candidates; the first is its prior. */
typedef enum regx_eager_way {
    REGX_EAGER_SEND,
    REGX_EAGER_RENDEZVOUS,
    REGX_EAGER_WAYS
} regx_eager_way_t;

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

/* Those ways are the faster ones of a size, as was measured elsewhere (costs.c), for messages that come alone
 * and in bursts (regx_eager_way_t, or REGX_TUNE_UNTOLD). Messages of that size begin so. It has no effect once
 * one has been sent. */
void regx_eager_tell(regx_eager_t *eager, unsigned number, uint8_t single, uint8_t stream);

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

/* ---- btl_regx_costs (costs.c) ----
 * What messages between processes of a node cost, as `osu-configs/compare --recommend` has measured
 * it once for all nodes of a kind.
 *
 * Without it eager.c and auto.c find out on the job's own messages which way is the fastest, and a
 * program of twenty bursts ends before that has paid. With it messages begin by the way that was the fastest
 * for messages that come as they do: one by one, in a stream, or in an exchange (regx_traffic_t).
 *
 * The file has four patterns: `single` messages that the program never looks at; `touched` ones, which it
 * writes before and reads after; a `stream`; and streams both ways at once, the `exchange`. Two things the
 * process that decides does not see. Whether a program touches its data it cannot know, so for single
 * messages the file has a say only where one way is good for both patterns. And a sender does not know
 * whether its receiver sends, too, so for bursts of up to 32 KiB it has a say only where one way is good
 * for streams in one direction and in both. (costs.c, least_regret.) Messages of which the file says nothing
 * go as without it.
 *
 * What was told holds for 4,096 messages, above 32 KiB for 241 that come alone. Then comes the first
 * trial, so what the file has wrong for this program, or for this machine, does not stay.
 *
 * A file of lines of words:
 *
 *   regx-costs 3                        the format
 *   regx 0.1.0                          the version of regx that it was measured with
 *   processor AuthenticAMD 25 17        as /proc/cpuinfo has the first one (regx_costs_read)
 *   l3 64K stream 9000 8100 5200 7400   neighbour, size, pattern; nanoseconds of a message
 *                                       by eager, staged, together, read; "-": not measured
 *   end
 *
 * Neighbours are classed by what the neighbour's core has in common with this process's core, as Open MPI
 * has it of hwloc: a cache of the second level (l2), one of the third (l3), a package, or none of these
 * (node). Where a class has no line for a size and pattern, the line of `any` is used. It is always used if
 * this process may run on every core. The tuners do not tell peers apart: of several neighbours the one that
 * is farthest away counts.
 *
 * Each process reads it once, as a whole. The ends of a message need not have the same: the sender
 * alone decides whether it goes eagerly, and the receiver by which path it is moved. */

#define REGX_COSTS_SMALLEST (2ull * REGX_EAGER_MIN) /* bytes: the first size that has a choice */
#define REGX_COSTS_SIZES (REGX_AUTO_SIZES + 1)      /* each twice the one before */

/* From the nearest on. */
typedef enum regx_neighbour {
    REGX_NEIGHBOUR_L2,
    REGX_NEIGHBOUR_L3,
    REGX_NEIGHBOUR_PACKAGE,
    REGX_NEIGHBOUR_NODE,
    REGX_NEIGHBOUR_ANY,
    REGX_NEIGHBOURS
} regx_neighbour_t;

typedef enum regx_pattern {
    REGX_PATTERN_SINGLE,
    REGX_PATTERN_TOUCHED,
    REGX_PATTERN_STREAM,
    REGX_PATTERN_EXCHANGE,
    REGX_PATTERNS
} regx_pattern_t;

/* In the order of a line. */
typedef enum regx_costs_way {
    REGX_COSTS_EAGER,
    REGX_COSTS_STAGED,
    REGX_COSTS_TOGETHER,
    REGX_COSTS_READ,
    REGX_COSTS_WAYS
} regx_costs_way_t;

/* Nanoseconds; 0: not measured. */
typedef struct regx_costs {
    uint64_t of[REGX_NEIGHBOURS][REGX_COSTS_SIZES][REGX_PATTERNS][REGX_COSTS_WAYS];
} regx_costs_t;

/* Reads a file; "": none. false: `error` names what is wrong, and nothing is known. It never waits
 * for a writer. processor: of this machine, NULL if it is to be asked. */
bool regx_costs_read(const char *name, const char *processor, regx_costs_t *costs,
                     regx_error_t error);

/* The tuners begin with them: of sizes of which no message has gone yet. */
void regx_costs_tell(const regx_costs_t *costs, regx_neighbour_t neighbour, regx_eager_t *eager,
                     regx_rndv_t *rndv);

#endif
