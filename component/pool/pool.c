/* SPDX-License-Identifier: BSD-3-Clause */
#include "pool/pool.h"

#include <assert.h>
#include <stdlib.h>

regx_status_t regx_pool_init(regx_pool_t *pool, void *memory, size_t size, size_t slot_size,
                             bool threads, regx_counters_t *counters)
{
    const size_t slots = slot_size > 0 ? size / slot_size : 0;

    if (slots < 2 || slots >= REGX_SLOT_NONE) {
        return REGX_INVALID;
    }
    pool->stack = malloc(slots * sizeof(pool->stack[0]));
    if (pool->stack == NULL) {
        return REGX_NO_MEMORY;
    }
    pool->memory = memory;
    pool->slot_size = slot_size;
    pool->slots = (uint32_t)slots;
    atomic_init(&pool->unused, pool->slots);
    for (uint32_t i = 0; i < pool->slots; i++) {
        pool->stack[i] = pool->slots - 1 - i; /* number 0 on top */
    }
    pool->counters = counters;
    regx_lock_init(&pool->lock, threads);
    regx_count(counters, &counters->pool_bytes, size);
    return REGX_OK;
}

void regx_pool_fini(regx_pool_t *pool)
{
    regx_lock_fini(&pool->lock);
    free(pool->stack);
    pool->stack = NULL;
}

uint32_t regx_pool_get(regx_pool_t *pool)
{
    uint32_t slot = REGX_SLOT_NONE;

    regx_lock(&pool->lock);
    const uint32_t unused = atomic_load_explicit(&pool->unused, memory_order_relaxed);
    if (unused > 0) {
        slot = pool->stack[unused - 1];
        atomic_store_explicit(&pool->unused, unused - 1, memory_order_relaxed);
        regx_count_high(&pool->counters->slots_high, pool->slots - unused + 1);
    }
    regx_unlock(&pool->lock);
    return slot;
}

void regx_pool_put(regx_pool_t *pool, uint32_t slot)
{
    regx_lock(&pool->lock);
    const uint32_t unused = atomic_load_explicit(&pool->unused, memory_order_relaxed);
    assert(slot < pool->slots && unused < pool->slots);
    pool->stack[unused] = slot;
    atomic_store_explicit(&pool->unused, unused + 1, memory_order_relaxed);
    regx_unlock(&pool->lock);
}

/* ---- parameters ---- */

static uint64_t two_slots(const void *settings)
{
    return 2 * ((const regx_pool_settings_t *)settings)->slot_size;
}

#define ROW(type, field, ...) REGX_PARAM_ROW(regx_pool_settings_t, "", type, field, __VA_ARGS__)

const regx_param_t regx_pool_params[] = {
    ROW(SIZE, slot_size, 4, .pages = true, .min = 4096, .max = 1u << 20),
    ROW(SIZE, pool_size, 4, .pages = true, .max = 1u << 30, .at_least = two_slots,
        .words = REGX_WORDS({.word = "auto", .value = 0})),
    ROW(SIZE, alloc_mem_size, 4, .min = 2u << 20, .max = UINT64_C(1) << 40,
        .words = REGX_WORDS({.word = "none", .value = 0})),
    {.name = NULL}};
