/* SPDX-License-Identifier: BSD-3-Clause
 *
 * btl_regx_costs: what messages between processes of a node cost, as `osu-configs/compare --recommend` has measured
 * it once for all nodes of a kind.
 *
 * Without it the tuners (rendezvous/tuner.h) find out on the job's own messages which way is the fastest, and a
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
 * alone decides whether it goes eagerly, and the receiver by which path it is moved.
 */
#ifndef REGX_BTL_COSTS_H
#define REGX_BTL_COSTS_H

#include "rendezvous/rendezvous.h"

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
