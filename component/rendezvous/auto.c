/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Auto. Where both processes map the pool: bounce, in which two cores copy at once in user space;
 * read, the kernel's single copy by the receiver; or together, where the sender copies a part.
 * Elsewhere: pipeline, where the wire writes the user's buffer in chunks and spares the copy out (a
 * buffer that is registered already goes as one chunk), or bounce, which registers nothing. Which
 * of them is found out on the job's own messages (autotune.h), or as btl_regx_auto_choice says.
 *
 * The priors are measured, on a node on two cores of a Xeon, from 64 KiB to 1 MiB, one message at a
 * time: together takes a third to a half of bounce's time if nobody touches the buffers, and 1.0 to
 * 1.3 times as long if they are written before each message and read after it. So where it is
 * wrong, it is less wrong than bounce would be. The first messages find caches and page tables
 * cold, and were seen to take up to five times as long: on a node four are not compared.
 *
 * Over an RDMA device a short message into a buffer that is new goes by bounce if buffers have not
 * come back lately (reuse.h). It has no part in what is found out: that is about registered ones.
 */
#include "rendezvous/auto.h"

#include <stdio.h>

#include "base/util.h"
#include "rendezvous/strategy.h"

/* On this kind of wire. The prior is the first. */
static const struct {
    unsigned candidates;
    regx_path_t path[REGX_AUTOTUNE_CANDIDATES];
    uint32_t patience;
} wires[REGX_AUTO_WIRES] = {
    [REGX_AUTO_NODE] = {3, {REGX_PATH_together, REGX_PATH_bounce, REGX_PATH_read}, 4},
    [REGX_AUTO_APART] = {2, {REGX_PATH_pipeline, REGX_PATH_bounce}, 512}};

static const char *const reasons[REGX_DECISIONS] = {[REGX_DECISION_REFUSED] =
                                                        "the kernel does not copy to this peer",
                                                    [REGX_DECISION_PINNED] = "pinned",
                                                    [REGX_DECISION_NEW] = "the buffer is new",
                                                    [REGX_DECISION_PRIOR] = "not tried yet",
                                                    [REGX_DECISION_TRIAL] = "on trial",
                                                    [REGX_DECISION_WINNER] = "fastest when tried"};

void regx_auto_init(regx_rndv_t *rndv)
{
    for (unsigned wire = 0; wire < REGX_AUTO_WIRES; wire++) {
        const regx_autotune_prior_t prior = {.candidates = wires[wire].candidates,
                                             .patience = wires[wire].patience};

        regx_autotune_init(rndv->autotune[wire], &prior);
    }
    regx_reuse_init(&rndv->reuse);
}

regx_path_t regx_auto_path(regx_auto_wire_t wire, unsigned candidate)
{
    return wires[wire].path[candidate];
}

/* Over a device: the buffer is registered, or is to be. */
static bool is_worth_registering(regx_rndv_t *rndv, const regx_rndv_recv_t *recv)
{
    const regx_registry_t *registry = rndv->registry;

    if (recv->length > REGX_REUSE_MAX || !recv->peer->conn->transport->registers ||
        registry->cache == NULL || registry->on_demand) {
        return true;
    }
    /* The first chunk is enough: a buffer may be registered chunk by chunk. */
    const bool known = regx_region_seems_kept(rndv->registry, recv->base,
                                              regx_min(recv->length, rndv->config.chunk_size),
                                              REGX_ACCESS_REMOTE_WRITE);
    regx_lock(&rndv->lock);
    const bool expected = regx_reuse_expects(&rndv->reuse, known);
    regx_unlock(&rndv->lock);
    return expected;
}

static regx_decision_t decide(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_path_t *path)
{
    const regx_conn_t *conn = recv->peer->conn;
    const regx_auto_wire_t wire = conn->shares_pool ? REGX_AUTO_NODE : REGX_AUTO_APART;
    const uint8_t pinned = rndv->config.auto_choice.path[regx_autotune_size(recv->length)];

    if (pinned != 0) {
        *path = (regx_path_t)pinned;
        return REGX_DECISION_PINNED;
    }
    if (wire == REGX_AUTO_NODE &&
        (!conn->single_copy || recv->peer->no_puts || recv->peer->no_gets)) {
        *path = REGX_PATH_bounce;
        return REGX_DECISION_REFUSED;
    }
    if (wire == REGX_AUTO_APART && !is_worth_registering(rndv, recv)) {
        *path = REGX_PATH_bounce;
        return REGX_DECISION_NEW;
    }
    regx_lock(&rndv->lock);
    recv->trial = regx_autotune_enter(rndv->autotune[wire], recv->length);
    regx_unlock(&rndv->lock);
    *path = wires[wire].path[recv->trial.candidate];
    return recv->trial.trial   ? REGX_DECISION_TRIAL
           : recv->trial.known ? REGX_DECISION_WINNER
                               : REGX_DECISION_PRIOR;
}

static regx_tally_t *find_tally(regx_rndv_t *rndv, regx_decision_t decision, regx_path_t path)
{
    char text[REGX_REASON_LENGTH];

    snprintf(text, sizeof(text), "%s: %s", regx_path_name(path), reasons[decision]);
    return regx_tally_find(rndv->counters->decisions, text);
}

static regx_path_t choose(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    regx_path_t path;
    const regx_decision_t decision = decide(rndv, recv, &path);
    regx_tally_t *_Atomic *tally = &rndv->auto_tally[decision][path];

    if (*tally == NULL) {
        *tally = find_tally(rndv, decision, path);
    }
    regx_count(rndv->counters, &(*tally)->count, 1);
    return path;
}

const regx_strategy_t regx_strategy_auto = {
    .name = "auto",
    .choose = choose,
    .grants_known_whole = true,
    .exposes = true,
    .help = "on a node bounce, read or together, else pipeline or bounce, whichever makes the "
            "job's own messages of that size go fastest; see btl_regx_auto_choice",
    .more = "For each power of two of sizes, and apart for messages that come alone and in "
            "bursts, some messages go each way. What counts is the time from one message to the "
            "next, so also what the program does with the data, in the long run within 3 % of "
            "the best. Trials become rarer, but do not end. One choice holds for all peers on "
            "the node, another for the others. Where the kernel does not copy to the other "
            "process, bounce is used. Between nodes, or over an RDMA device, a buffer that is "
            "registered already, of up to btl_regx_chunk_depth chunks, is written at once. It is "
            "registered because it was received into before. To a sender whose own buffer is new "
            "that makes no difference: it registers and writes in chunks. Over an RDMA device up "
            "to 64 KiB go by bounce into a buffer that is not registered, if the program has not "
            "used its buffers again lately. There, "
            "where both buffers are registered already and one port is used, the receiver reads "
            "the whole, which is counted as read; but more than 256 KiB are written if this "
            "process sends such a message at the same time."};
