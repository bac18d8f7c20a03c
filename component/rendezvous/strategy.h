/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A strategy decides, when a landing opens, by which path its bytes go. The path then decides who
 * grants what: landing_slots.c for bounce, landing_chunks.c for pipeline and direct,
 * and for read the source, source_exposures.c, and who reads, landing_gets.c. For together, both of
 * these: the source writes one half, the landing reads the other.
 */
#ifndef REGX_RENDEZVOUS_STRATEGY_H
#define REGX_RENDEZVOUS_STRATEGY_H

#include "rendezvous/engine.h"

struct regx_strategy {
    const char *name; /* as btl_regx_rendezvous names it */
    const char *help; /* of the parameter: what it is */
    const char *more; /* what only the documentation says of it, or NULL */
    /* The path for a landing whose peer and length are known. Chooses, does not prepare. */
    regx_path_t (*choose)(regx_rndv_t *rndv, regx_landing_t *landing);
    bool grants_known_whole; /* see landing_chunks.c */
    bool copies;             /* by the kernel, within a node alone */
};

#endif
