/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of strategies. A strategy decides, when a receive opens, by which path its bytes go. A
 * path has a protocol (proto.h), which moves them.
 *
 * To add a strategy NAME: its path in base/counters.h (REGX_RENDEZVOUS_PATHS), and a file that
 * defines regx_strategy_NAME and the protocol.
 */
#ifndef REGX_RENDEZVOUS_STRATEGY_H
#define REGX_RENDEZVOUS_STRATEGY_H

#include "rendezvous/proto.h"

struct regx_strategy {
    const char *name;                /* as btl_regx_rendezvous names it */
    const char *help;                /* of the parameter: what it is */
    const char *more;                /* for the documentation only, or NULL */
    regx_path_t path;                /* always this one, unless it chooses */
    const regx_protocol_t *protocol; /* of that path; NULL: it chooses among other strategies' */
    /* The path for a receive whose peer and length are known; prepares nothing. May be NULL. */
    regx_path_t (*choose)(regx_rndv_t *rndv, regx_rndv_recv_t *recv);
    bool grants_known_whole; /* see put.c */
    bool exposes;            /* as the sender: see exposed.c */
    bool copies;             /* by the kernel, within a node alone */
    bool revocable;          /* what it grants can be revoked: see revoke.h */
};

/* `auto` chooses; each other has the path of its name. */
extern const regx_strategy_t regx_strategy_auto;
#define REGX_STRATEGY_DECLARED(name, help) extern const regx_strategy_t regx_strategy_##name;
REGX_RENDEZVOUS_PATHS(REGX_STRATEGY_DECLARED)
#undef REGX_STRATEGY_DECLARED

/* Fills in the protocol of each path; NULL for a path that no strategy has. */
void regx_strategy_protocols(const regx_protocol_t *protocols[REGX_PATH_COUNT]);

#endif
