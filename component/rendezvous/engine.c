/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/engine.h"

#include <stdlib.h>

regx_rndv_t *regx_rndv_create(const regx_rndv_config_t *config, regx_pool_t *pool,
                              regx_registry_t *registry, regx_counters_t *counters)
{
    regx_rndv_t *rndv;

    if (pool->slots > UINT32_MAX / pool->slot_size) {
        return NULL; /* 32 bits name a slot in messages */
    }
    rndv = calloc(1, sizeof(*rndv));
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
    /* Half of the pool keeps both cores copying: less made gaps (measured). */
    rndv->window = pool->slots / 2 * pool->slot_size;
    rndv->registry = registry;
    rndv->counters = counters;
    rndv->nobody.id = UINT64_MAX;
    regx_lock_init(&rndv->lock, config->threads);
    regx_handle_table_init(&rndv->landings);
    regx_handle_table_init(&rndv->sources);
    regx_list_init(&rndv->hungry);
    regx_list_init(&rndv->round);
    regx_list_init(&rndv->stalled);
    regx_list_init(&rndv->unused);
    regx_list_init(&rndv->unused_sources);
    return rndv;
}

void regx_rndv_destroy(regx_rndv_t *rndv)
{
    regx_landings_free(rndv);
    regx_sources_free(rndv);
    regx_handle_table_fini(&rndv->landings);
    regx_handle_table_fini(&rndv->sources);
    regx_lock_fini(&rndv->lock);
    free(rndv->slots);
    free(rndv);
}

bool regx_rndv_knows(const regx_rndv_t *rndv, const void *base, uint64_t length, unsigned access)
{
    return regx_region_seems_kept(rndv->registry, base, length, access) ||
           (!atomic_load(&rndv->whole_refused) &&
            regx_region_seems_kept(rndv->registry, base, rndv->config.chunk_size, access));
}

regx_status_t regx_control_send(regx_peer_t *peer, const regx_control_t *control)
{
    uint8_t bytes[REGX_CONTROL_MAX];
    const size_t length = regx_control_pack(control, bytes);

    return peer->conn->transport->ops->send(peer->conn, REGX_TAG_CONTROL, bytes, length, NULL, NULL,
                                            0);
}

void regx_rndv_control(regx_rndv_t *rndv, uint64_t sender, const void *message, size_t length)
{
    regx_control_t control = {0};

    if (!regx_control_unpack(message, length, &control)) {
        regx_malformed(rndv);
    } else if (control.type >= REGX_CONTROL_SLOTS) {
        regx_source_control(rndv, sender, &control);
    } else {
        regx_landing_control(rndv, sender, &control);
    }
}

static __attribute__((noinline)) int advance(regx_rndv_t *rndv)
{
    int advanced = 0;

    if (atomic_load_explicit(&rndv->retry_landings, memory_order_relaxed) ||
        (atomic_load_explicit(&rndv->dry, memory_order_relaxed) &&
         regx_pool_unused(rndv->pool) > 0)) {
        advanced += regx_landings_advance(rndv);
    }
    if (atomic_load_explicit(&rndv->retry_sources, memory_order_relaxed)) {
        advanced += regx_sources_advance(rndv);
    }
    return advanced;
}

int regx_rndv_progress(regx_rndv_t *rndv)
{
    /* One look at all three while there is nothing to do, as nearly always. */
    return atomic_load_explicit(&rndv->retry_landings, memory_order_relaxed) |
                   atomic_load_explicit(&rndv->dry, memory_order_relaxed) |
                   atomic_load_explicit(&rndv->retry_sources, memory_order_relaxed)
               ? advance(rndv)
               : 0;
}

void regx_rndv_forget(regx_rndv_t *rndv, const regx_peer_t *peer)
{
    regx_landings_forget(rndv, peer);
    regx_sources_forget(rndv, peer);
}
