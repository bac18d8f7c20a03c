/* SPDX-License-Identifier: BSD-3-Clause
 *
 * btl_regx_costs: what messages between processes of a node cost, as `osu-configs/compare --recommend`
 * has measured it once for all nodes of a kind.
 *
 * Without it eager.c and auto.c find out on the job's own messages which way is the fastest, and a
 * program of twenty bursts ends before that has paid. With it each size begins with the way that was
 * the fastest there, as if a trial had just ended. The next trial comes after 4,096 messages, so
 * what the file has wrong for this program, or for this machine, does not stay.
 *
 * A file of lines of words:
 *
 *   regx-costs 1                     the format
 *   regx 0.1.0                       the version of regx that it was measured with
 *   processor AuthenticAMD 25 17     as /proc/cpuinfo has the first one (regx_costs_read)
 *   l3 64K 9000 8100 5200 7400       nanoseconds of a message: neighbour, size, eager, bounce,
 *                                    together, read; "-": not measured
 *   end
 *
 * A neighbour is told apart by what its cores and this process's share, as Open MPI has it of hwloc:
 * a cache of the second level (l2), of the third (l3), a package, or neither (node). Of a neighbour
 * that has no line, and of all if this process may run on every core, those of `any` hold. The
 * tuners do not tell peers apart: of several neighbours the one that is farthest away counts.
 *
 * Each process reads it once, as a whole. The ends of a message need not have the same: the sender
 * alone decides whether it goes eagerly, and the receiver by which path it is moved.
 */
#ifndef REGX_BTL_COSTS_H
#define REGX_BTL_COSTS_H

#include "btl/eager.h"
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

/* The fastest ways of one size. */
typedef struct regx_best {
    bool known;             /* there is a line */
    bool compared;          /* both eager and a rendezvous were measured */
    bool eager;             /* and eager was faster */
    regx_path_t rendezvous; /* REGX_PATH_COUNT: none was measured */
} regx_best_t;

typedef struct regx_costs {
    regx_best_t best[REGX_NEIGHBOURS][REGX_COSTS_SIZES];
} regx_costs_t;

/* Reads a file; "": none. false: `error` names what is wrong, and nothing is known. It never waits
 * for a writer. processor: of this machine, NULL if it is to be asked. */
bool regx_costs_read(const char *name, const char *processor, regx_costs_t *costs,
                     regx_error_t error);

/* The tuners begin with them: of sizes of which no message has gone yet. */
void regx_costs_tell(const regx_costs_t *costs, regx_neighbour_t neighbour, regx_eager_t *eager,
                     regx_rndv_t *rndv);

#endif
