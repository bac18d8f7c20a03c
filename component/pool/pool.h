/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pool/ hands out the slots of the bounce memory, which is pinned in advance over verbs, and on a
 * node locked as it is touched.
 *
 * The memory belongs to the transport (peers write it by offset); the pool divides it into equal
 * slots. The slot given back last is given out first, so that few slots stay active and warm in
 * the cache. Any thread may call; each call holds the pool's own lock for a few instructions.
 * No call waits: a caller that gets no slot goes another way (fragments) or waits for progress
 * (rendezvous).
 */
#ifndef REGX_POOL_POOL_H
#define REGX_POOL_POOL_H

#include "base/counters.h"
#include "base/param.h"
#include "base/thread.h"
#include "base/util.h"

#define REGX_SLOT_NONE UINT32_MAX

typedef struct regx_pool {
    char *memory; /* not owned */
    size_t slot_size;
    uint32_t slots;          /* at least 2 */
    _Atomic uint32_t unused; /* depth of the stack of free slots; written under the lock,
                                so that a plain store will do */
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

/* ---- what users may set: of the memory through which messages bounce, and of MPI_Alloc_mem's ---- */

typedef struct regx_pool_settings {
    size_t slot_size, pool_size, alloc_mem_size;
} regx_pool_settings_t;

extern const regx_param_t regx_pool_params[];

/* ---- where the memory lies: near the process, and locked ---- */

struct hwloc_bitmap_s; /* hwloc.h is long */
struct hwloc_topology;

/* The NUMA nodes nearest to the cores of `cpuset` that have memory, as a nodeset that the caller
 * frees with hwloc_bitmap_free. NULL: there is nothing to choose, because the topology tells
 * nothing, or every node that has memory is as near (one node, or cores on all of them: then the
 * kernel's own choice at first touch is the better one). Works on any topology, also a synthetic
 * one. */
struct hwloc_bitmap_s *regx_place_near(struct hwloc_topology *topology,
                                       const struct hwloc_bitmap_s *cpuset);

/* Prefers memory near this process for `length` bytes at `memory` (page-aligned, shared by other
 * processes), moving what this process has touched. Pages of a file that were set aside before, and
 * not touched, stay: the kernel took them near the core that asked, or as the process's own policy
 * (numactl) says, seen on two nodes. So it is for memory of System V, which a peer may be the first
 * to touch. `topology` may be NULL: then one is loaded for the call, if the machine has several
 * nodes with memory. Best effort: placing is never a reason to fail. */
void regx_place_bind(struct hwloc_topology *topology, void *memory, size_t length);

/* Locks as much of the memory (page-aligned) from its start as RLIMIT_MEMLOCK allows, in whole
 * pages; returns how many bytes count as locked now, until the memory is unmapped. A page that is
 * not there yet is brought in, and stays, when this process first touches it. */
size_t regx_place_lock(void *memory, size_t length);

#endif
