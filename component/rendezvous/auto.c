/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Auto. Where both processes map the pool: bounce, in which two cores copy at once in user space,
 * or the kernel's single copy, by the sender (pipeline) or half each (together); whichever is
 * fastest (autotune.h). Elsewhere: pipeline, where the wire writes the user's buffer in chunks and
 * spares the copy out; a buffer that is registered already goes as one chunk. Never read: a chunk
 * takes one or two requests more than written, and a round trip before its first byte moves
 * (osu-configs/counts).
 */
#include "rendezvous/auto.h"

static const struct {
    regx_path_t path;
    const char *reason;
} decisions[REGX_DECISIONS] = {
    [REGX_DECISION_APART] = {REGX_PATH_pipeline, "pipeline: the pool is not shared"},
    [REGX_DECISION_REFUSED] = {REGX_PATH_bounce, "bounce: the kernel does not copy to this peer"},
    [REGX_DECISION_UNKNOWN] = {REGX_PATH_bounce, "bounce: the trial was inconclusive"},
    [REGX_DECISION_TRIAL + REGX_AUTOTUNE_BOUNCE] = {REGX_PATH_bounce, "bounce: on trial"},
    [REGX_DECISION_TRIAL + REGX_AUTOTUNE_SINGLE_COPY] = {REGX_PATH_pipeline, "pipeline: on trial"},
    [REGX_DECISION_TRIAL + REGX_AUTOTUNE_TOGETHER] = {REGX_PATH_together, "together: on trial"},
    [REGX_DECISION_WINNER +
        REGX_AUTOTUNE_BOUNCE] = {REGX_PATH_bounce, "bounce: not slower when tried"},
    [REGX_DECISION_WINNER +
        REGX_AUTOTUNE_SINGLE_COPY] = {REGX_PATH_pipeline, "pipeline: faster when tried"},
    [REGX_DECISION_WINNER +
        REGX_AUTOTUNE_TOGETHER] = {REGX_PATH_together, "together: faster when tried"}};

static unsigned decide(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    const regx_conn_t *conn = recv->peer->conn;

    if (!conn->shares_pool) {
        return REGX_DECISION_APART;
    }
    if (!conn->single_copy || recv->peer->no_puts || recv->peer->no_gets) {
        return REGX_DECISION_REFUSED;
    }
    regx_lock(&rndv->lock);
    recv->trial = regx_autotune_enter(rndv->autotune, recv->length);
    regx_unlock(&rndv->lock);
    if (recv->trial.trial > 0) {
        return REGX_DECISION_TRIAL + recv->trial.path;
    }
    return recv->trial.known ? REGX_DECISION_WINNER + recv->trial.path : REGX_DECISION_UNKNOWN;
}

regx_path_t regx_auto_choose(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    const unsigned decision = decide(rndv, recv);

    if (rndv->auto_tally[decision] == NULL) {
        rndv->auto_tally[decision] =
            regx_tally_find(rndv->counters->decisions, decisions[decision].reason);
    }
    regx_count(rndv->counters, &rndv->auto_tally[decision]->count, 1);
    return decisions[decision].path;
}
