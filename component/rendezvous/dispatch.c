/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The tables of strategies and of stages, the engine's life, and who gets what arrives. Nothing here
 * moves bytes.
 */

#include <string.h>

#include "rendezvous/send.h"

/* ---- strategies and parameters ---- */

const regx_param_word_t regx_strategy_words[] = {{.word = "auto", .row = &regx_strategy_auto},
#define STRATEGY(name, help) {.word = #name, .row = &regx_strategy_##name},
                                                 REGX_RENDEZVOUS_PATHS(STRATEGY)
#undef STRATEGY
                                                     {.word = NULL}};

/* By path: the strategy that always takes it; NULL: none does. */
static const regx_strategy_t *const strategy_of_path[REGX_PATH_COUNT] = {
#define STRATEGY(name, help) [REGX_PATH_##name] = &regx_strategy_##name,
    REGX_RENDEZVOUS_PATHS(STRATEGY)
#undef STRATEGY
};

#define ROW(type, field, ...) REGX_PARAM_ROW(regx_rndv_settings_t, "", type, field, __VA_ARGS__)

const regx_param_t regx_rndv_params[] = {
    ROW(NAME, rendezvous, 2, .words = regx_strategy_words),
    ROW(SIZE, chunk_size, 4, .pages = true, .min = 4096, .max = REGX_CHUNK_MAX),
    ROW(NUMBER, chunk_depth, 4, .min = 1, .max = REGX_CHUNK_DEPTH_MAX),
    ROW(WORD, grant, 5,
        .words = REGX_WORDS({.word = "final", .value = REGX_GRANT_FINAL},
                            {.word = "revocable", .value = REGX_GRANT_REVOCABLE})),
    ROW(WORD, verify, 5,
        .words = REGX_WORDS({.word = "0", .value = false}, {.word = "1", .value = true})),
    {.name = NULL}};

/* By stage. NONE and END have no function. */
static regx_stage_do_t *const stages[REGX_STAGE_COUNT] = {
    [REGX_STAGE_WRITE] = regx_stage_write,
    [REGX_STAGE_WRITTEN] = regx_stage_written,
    [REGX_STAGE_COMPARE] = regx_stage_compare,
    [REGX_STAGE_GRANT] = regx_stage_grant,
    [REGX_STAGE_ACKNOWLEDGE] = regx_stage_acknowledge,
    [REGX_STAGE_COPY_OUT] = regx_stage_copy_out,
    [REGX_STAGE_LOOK] = regx_stage_look,
    [REGX_STAGE_FLUSH] = regx_stage_flush,
};

/* ---- its life ---- */

regx_rndv_t *regx_rndv_create(const regx_rndv_config_t *config, regx_pool_t *pool,
                              regx_registry_t *registry, regx_counters_t *counters)
{
    regx_rndv_t *rndv = calloc(1, sizeof(*rndv));

    assert(pool->slots <= UINT32_MAX / pool->slot_size); /* 32 bits name a slot in messages */
    if (rndv == NULL) {
        return NULL;
    }
    rndv->slots = calloc(pool->slots, sizeof(*rndv->slots));
    if (rndv->slots == NULL) {
        free(rndv);
        return NULL;
    }
    rndv->config = *config;
    rndv->pool = pool;
    /* Half of the pool: over a device a smaller window left gaps on the wire (measured). On a node
     * bounce.c limits it further. */
    rndv->window = pool->slots / 2 * pool->slot_size;
    rndv->registry = registry;
    rndv->send_access = REGX_ACCESS_LOCAL;
    if (config->may_expose && config->strategy->exposes && registry->cache != NULL &&
        !registry->on_demand && registry->transport->ops->get != NULL) {
        /* The peer may also read a send buffer, the next time (exposed.c), if it is still registered then. */
        rndv->send_access |= REGX_ACCESS_REMOTE_READ;
    }
    rndv->counters = counters;
    rndv->nobody.id = UINT64_MAX;
    rndv->paths = strategy_of_path;
    rndv->stages = stages;
    for (unsigned wire = 0; wire < REGX_AUTO_WIRES; wire++) {
        regx_tune_init(rndv->tuner.sizes[wire], REGX_AUTO_SIZES, (regx_auto_wire_t)wire);
    }
    rndv->tuner.reuse.credit = 8; /* that many new buffers are registered at first */
    regx_landings_init(&rndv->landings, &rndv->config, counters);
    rndv->paging.file.fd = -1;
    if (registry->transport->ops->node.expose != NULL) {
        regx_paging_open(&rndv->paging);
    }
    regx_lock_init(&rndv->lock, config->threads);
    regx_handle_table_init(&rndv->recvs);
    regx_handle_table_init(&rndv->sends);
    regx_list_init(&rndv->recv_lists.pending);
    regx_list_init(&rndv->recv_lists.round);
    regx_list_init(&rndv->send_lists.stalled);
    regx_list_init(&rndv->send_lists.round);
    return rndv;
}

static void free_spares(regx_spares_t *spares)
{
    void *record;

    while ((record = regx_spares_take(spares)) != NULL) {
        free(record);
    }
}

void regx_rndv_destroy(regx_rndv_t *rndv)
{
    regx_rndv_unexpect(rndv, NULL);
    free_spares(&rndv->spares.recvs);
    free_spares(&rndv->spares.sends);
    free_spares(&rndv->spares.writes);
    regx_landings_fini(&rndv->landings);
    regx_paging_close(&rndv->paging);
    regx_handle_table_fini(&rndv->recvs);
    regx_handle_table_fini(&rndv->sends);
    regx_lock_fini(&rndv->lock);
    free(rndv->slots);
    free(rndv);
}

/* ---- what arrives, and progress ---- */

void regx_rndv_control(regx_rndv_t *rndv, uint64_t sender, const void *message, size_t length)
{
    regx_control_t control;

    if (!regx_control_unpack(message, length, &control)) {
        regx_count_malformed(rndv->counters);
    } else if (regx_control_from_sender(control.type)) {
        regx_recv_control(rndv, sender, &control);
    } else {
        regx_send_control(rndv, sender, &control);
    }
}

/* Immediate data stands for an ATP without the sender's handle. */
void regx_rndv_immediate(regx_rndv_t *rndv, uint64_t sender, uint32_t immediate)
{
    const uint32_t what = regx_immediate_low(immediate, REGX_IMMEDIATE_WHAT_BITS);
    const uint32_t generation =
        regx_immediate_low(immediate >> REGX_IMMEDIATE_WHAT_BITS, REGX_IMMEDIATE_GENERATION_BITS);
    const regx_rndv_recv_t *recv = NULL;
    regx_control_t control = {.bits = REGX_CONTROL_ANONYMOUS};

    regx_lock(&rndv->lock);
    if ((immediate & REGX_IMMEDIATE_CHUNK) != 0) {
        const regx_rndv_recv_t *named =
            regx_handle_table_at(&rndv->recvs, regx_immediate_low(what, REGX_IMMEDIATE_RECV_BITS));
        const uint64_t offset =
            (uint64_t)(what >> REGX_IMMEDIATE_RECV_BITS) * rndv->config.chunk_size;

        for (unsigned i = 0; named != NULL && recv == NULL && i < rndv->config.chunk_depth; i++) {
            const regx_chunk_t *chunk = &named->chunks[i];

            if (chunk->state == REGX_CHUNK_GRANTED && chunk->offset == offset) {
                control.type = REGX_CONTROL_ATP_CHUNK;
                control.offset = chunk->offset;
                control.length = chunk->length;
                recv = named;
            }
        }
    } else {
        const uint64_t offset = (uint64_t)what * REGX_IMMEDIATE_SLOT_UNIT;
        const uint64_t index = offset / rndv->pool->slot_size;

        if (offset % rndv->pool->slot_size == 0 && index < rndv->pool->slots) {
            const regx_slot_use_t *use = &rndv->slots[index];

            control.type = REGX_CONTROL_ATP_SLOT;
            control.slot = (uint32_t)offset;
            control.offset = use->offset;
            control.length = use->length;
            recv = use->recv;
        }
    }
    const bool known =
        (immediate & REGX_IMMEDIATE_ATP) != 0 && recv != NULL &&
        regx_immediate_low(recv->cts.recv.generation, REGX_IMMEDIATE_GENERATION_BITS) == generation;
    if (known) {
        control.to = recv->cts.recv;
    }
    regx_unlock(&rndv->lock);
    if (known) {
        regx_recv_control(rndv, sender, &control);
    } else {
        regx_count_malformed(rndv->counters);
    }
}

_Static_assert(offsetof(regx_rndv_t, work) == 0, "regx_rndv_is_idle looks there");

int regx_rndv_progress(regx_rndv_t *rndv)
{
    int advanced = 0;

    if (atomic_load_explicit(&rndv->work.retry_recvs, memory_order_relaxed) ||
        (atomic_load_explicit(&rndv->work.pool_exhausted, memory_order_relaxed) &&
         regx_pool_unused(rndv->pool) > 0)) {
        advanced += regx_recvs_advance(rndv);
    }
    if (atomic_load_explicit(&rndv->work.watches, memory_order_relaxed)) {
        regx_revokes_advance(rndv);
    }
    if (atomic_load_explicit(&rndv->work.retry_sends, memory_order_relaxed)) {
        regx_sends_advance(rndv);
        advanced++;
    }
    return advanced;
}

void regx_rndv_forget(regx_rndv_t *rndv, const regx_peer_t *peer)
{
    regx_recvs_forget(rndv, peer);
    regx_sends_forget(rndv, peer);
}
