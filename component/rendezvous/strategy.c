/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/strategy.h"

#include <string.h>

#include "rendezvous/landing.h"

static regx_path_t choose_bounce(regx_rndv_t *rndv, regx_landing_t *landing)
{
    (void)rndv, (void)landing;
    return REGX_PATH_bounce;
}

static regx_path_t choose_pipeline(regx_rndv_t *rndv, regx_landing_t *landing)
{
    (void)rndv, (void)landing;
    return REGX_PATH_pipeline;
}

static regx_path_t choose_direct(regx_rndv_t *rndv, regx_landing_t *landing)
{
    (void)rndv, (void)landing;
    return REGX_PATH_direct;
}

static regx_path_t choose_read(regx_rndv_t *rndv, regx_landing_t *landing)
{
    (void)rndv, (void)landing;
    return REGX_PATH_read;
}

static regx_path_t choose_together(regx_rndv_t *rndv, regx_landing_t *landing)
{
    (void)rndv, (void)landing;
    return REGX_PATH_together;
}

static const struct {
    regx_path_t path;
    const char *reason;
} decisions[REGX_DECISIONS] = {
    [REGX_DECISION_APART] = {REGX_PATH_pipeline, "pipeline: the pool is not shared"},
    [REGX_DECISION_REFUSED] = {REGX_PATH_bounce, "bounce: the kernel does not copy to this peer"},
    [REGX_DECISION_UNKNOWN] = {REGX_PATH_bounce, "bounce: trying told nothing"},
    [REGX_DECISION_TRIAL + REGX_WAY_BOUNCE] = {REGX_PATH_bounce, "bounce: on trial"},
    [REGX_DECISION_TRIAL + REGX_WAY_SINGLE] = {REGX_PATH_pipeline, "pipeline: on trial"},
    [REGX_DECISION_TRIAL + REGX_WAY_TOGETHER] = {REGX_PATH_together, "together: on trial"},
    [REGX_DECISION_WINNER + REGX_WAY_BOUNCE] = {REGX_PATH_bounce, "bounce: not slower when tried"},
    [REGX_DECISION_WINNER + REGX_WAY_SINGLE] = {REGX_PATH_pipeline, "pipeline: faster when tried"},
    [REGX_DECISION_WINNER +
        REGX_WAY_TOGETHER] = {REGX_PATH_together, "together: faster when tried"}};

/* Where both processes map the pool, bounce, in which two cores copy at once in user space, or the
 * kernel's single copy, by the sender (pipeline) or half each (together), whichever is fastest
 * (contest.h). Elsewhere the wire writes the user's buffer in chunks and spares the copy out; a
 * buffer that is registered already goes as one chunk. Never read: a chunk takes one or two
 * requests more than written, and a round trip before its first byte moves (osu-configs/counts). */
static unsigned decide(regx_rndv_t *rndv, regx_landing_t *landing)
{
    const regx_conn_t *conn = landing->peer->conn;

    if (!conn->shares_pool) {
        return REGX_DECISION_APART;
    }
    if (!conn->single_copy || landing->peer->never_writes || landing->peer->never_read) {
        return REGX_DECISION_REFUSED;
    }
    regx_lock(&rndv->lock);
    landing->entry = regx_contest_enter(rndv->contests, landing->length);
    regx_unlock(&rndv->lock);
    if (landing->entry.trial > 0) {
        return REGX_DECISION_TRIAL + landing->entry.way;
    }
    return landing->entry.known ? REGX_DECISION_WINNER + landing->entry.way : REGX_DECISION_UNKNOWN;
}

static regx_path_t choose_auto(regx_rndv_t *rndv, regx_landing_t *landing)
{
    const unsigned decision = decide(rndv, landing);

    if (rndv->auto_tally[decision] == NULL) {
        rndv->auto_tally[decision] =
            regx_tally_find(rndv->counters->decisions, decisions[decision].reason);
    }
    regx_count(rndv->counters, &rndv->auto_tally[decision]->count, 1);
    return decisions[decision].path;
}

static const regx_strategy_t strategies[] = {
    {.name = "auto",
     .choose = choose_auto,
     .grants_known_whole = true,
     .help = "on a node bounce, pipeline or together, whichever was fastest when they were last "
             "tried, on the job's own messages of that size; else pipeline, but a buffer that is "
             "registered already, of up to btl_regx_chunk_depth chunks, at once",
     .more = "On a node, for each power of two of sizes three messages, or three bursts of them, "
             "go each way, and what they took decides for 64 times as many messages. Then it is "
             "tried again, and while the outcome stays the same less and less often, at last after "
             "1024 times as many. One choice holds for all peers on the node. Where the kernel "
             "does not copy to the other process, bounce is used. Between nodes, or over an RDMA "
             "device, a buffer is registered already because it was received into before. To a "
             "sender whose own buffer is new that makes no difference: it registers and writes in "
             "chunks."},
    {.name = "bounce",
     .choose = choose_bounce,
     .help = "through pre-pinned slots of the pool, see btl_regx_pool_size and btl_regx_slot_size",
     .more = "Nothing is registered for it. Over verbs, what the sender has registered already is "
             "written to the slots at once, other memory through the device's own buffers."},
    {.name = "pipeline",
     .choose = choose_pipeline,
     .help = "the buffer is registered and written in chunks, see btl_regx_chunk_size and "
             "btl_regx_chunk_depth"},
    {.name = "direct",
     .choose = choose_direct,
     .help = "the whole buffer is registered, and written at once"},
    {.name = "read",
     .choose = choose_read,
     .help = "the sender registers the buffer in chunks, and the receiver reads them; not over tcp",
     .more = "Between the processes of a node it needs the kernel to copy between them. It takes a "
             "round trip more than writing, and over verbs three calls of the device per chunk "
             "instead of two."},
    {.name = "together",
     .choose = choose_together,
     .copies = true,
     .help = "on a node: the sender has the kernel copy one half, the receiver the other, both at "
             "once",
     .more = "Where the kernel copies between the processes (process_vm_writev, process_vm_readv). "
             "The sender copies the first half, the receiver the second in chunks "
             "(btl_regx_chunk_size, btl_regx_chunk_depth)."}};

enum { STRATEGIES = sizeof(strategies) / sizeof(strategies[0]) };

bool regx_strategy_word(unsigned index, regx_param_word_t *word)
{
    if (index >= STRATEGIES) {
        return false;
    }
    *word = (regx_param_word_t){.word = strategies[index].name,
                                .help = strategies[index].help,
                                .more = strategies[index].more};
    return true;
}

const regx_strategy_t *regx_strategy_find(const char *name)
{
    for (size_t i = 0; i < STRATEGIES; i++) {
        if (strcmp(strategies[i].name, name) == 0) {
            return &strategies[i];
        }
    }
    return NULL;
}

bool regx_strategy_copies(const regx_strategy_t *strategy)
{
    return strategy->copies;
}

const char *regx_strategy_name(const regx_strategy_t *strategy)
{
    return strategy->name;
}
