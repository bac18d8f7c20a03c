/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pool/ hands out the slots of the bounce memory, which is pinned in advance over verbs, and on a
 * node locked as it is touched.
 *
 * The memory belongs to the transport (peers write it by offset); the pool divides it into equal
 * slots. The slot given back last is given out first, so that few slots stay active and warm in
 * the cache. Any thread may call; each call holds the pool's own lock for a few instructions.
 * No call waits: a caller that gets no slot queues itself and is served from
 * regx_pool_put's caller (the rendezvous' or the fragments' queue).
 */
#ifndef REGX_POOL_POOL_H
#define REGX_POOL_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/counters.h"
#include "base/lock.h"
#include "base/status.h"

#define REGX_SLOT_NONE UINT32_MAX

typedef struct regx_pool {
    char *memory; /* not owned */
    size_t slot_size;
    uint32_t slots;          /* at least 2 */
    _Atomic uint32_t unused; /* depth of the stack of free slots; written under the lock */
    uint32_t *stack;         /* newest on top */
    regx_counters_t *counters;
    regx_lock_t lock;
} regx_pool_t;

/* Divides `size` bytes at `memory` into slots. REGX_INVALID: fewer than two slots fit;
 * REGX_NO_MEMORY. Counts pool_bytes. */
regx_status_t regx_pool_init(regx_pool_t *pool, void *memory, size_t size, size_t slot_size,
                             bool threads, regx_counters_t *counters);
void regx_pool_fini(regx_pool_t *pool);

/* How many slots are free: a hint, where other threads take and give. */
static inline uint32_t regx_pool_unused(const regx_pool_t *pool)
{
    return atomic_load_explicit(&pool->unused, memory_order_relaxed);
}

/* The number of a free slot, or REGX_SLOT_NONE. */
uint32_t regx_pool_get(regx_pool_t *pool);
void regx_pool_put(regx_pool_t *pool, uint32_t slot);

static inline char *regx_pool_slot(const regx_pool_t *pool, uint32_t slot)
{
    return pool->memory + (size_t)slot * pool->slot_size;
}

#endif
