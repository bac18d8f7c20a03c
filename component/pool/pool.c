/* SPDX-License-Identifier: BSD-3-Clause */
#include "pool/pool.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- where the memory lies ---- */

hwloc_bitmap_t regx_place_near(hwloc_topology_t topology, hwloc_const_cpuset_t cpuset)
{
    hwloc_obj_t around = hwloc_get_obj_covering_cpuset(topology, cpuset);
    hwloc_bitmap_t all = hwloc_bitmap_alloc();
    hwloc_bitmap_t near = hwloc_bitmap_alloc();

    for (hwloc_obj_t node = NULL;
         (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL;) {
        if (node->attr->numanode.local_memory > 0) {
            hwloc_bitmap_set(all, node->os_index);
            if (hwloc_bitmap_intersects(node->cpuset, cpuset)) {
                hwloc_bitmap_set(near, node->os_index);
            }
        }
    }
    /* Cores whose own nodes have no memory: the nodes of the smallest part of the machine around
     * them that has some. */
    while (around != NULL && hwloc_bitmap_iszero(near)) {
        hwloc_bitmap_and(near, all, around->nodeset);
        around = around->parent;
    }
    if (hwloc_bitmap_iszero(near) || hwloc_bitmap_isequal(near, all)) {
        hwloc_bitmap_free(near);
        near = NULL;
    }
    hwloc_bitmap_free(all);
    return near;
}

static void bind_near(hwloc_topology_t topology, void *memory, size_t length)
{
    hwloc_cpuset_t cores = hwloc_bitmap_alloc();
    hwloc_bitmap_t near = NULL;

    if (hwloc_get_cpubind(topology, cores, HWLOC_CPUBIND_PROCESS) == 0) {
        near = regx_place_near(topology, cores);
    }
    if (near != NULL) {
        hwloc_set_area_membind(topology, memory, length, near, HWLOC_MEMBIND_BIND,
                               HWLOC_MEMBIND_BYNODESET | HWLOC_MEMBIND_MIGRATE);
    }
    hwloc_bitmap_free(near);
    hwloc_bitmap_free(cores);
}

/* Whether the kernel knows of one node only that has memory. false also where that is not known. */
static bool has_one_node(void)
{
    char list[16] = ""; /* as "0", "0-1" or "0,2" */

    return regx_read_line("/sys/devices/system/node/has_memory", list, sizeof(list)) &&
           isdigit((unsigned char)list[0]) && strpbrk(list, "-,") == NULL;
}

/* To load a topology takes some 10 ms and 1 MB, since hwloc opens its plugins with all that they
 * need. Where nothing can be chosen it is not worth that. */
void regx_place_bind(hwloc_topology_t topology, void *memory, size_t length)
{
    hwloc_topology_t own;

    if (topology != NULL) {
        bind_near(topology, memory, length);
    } else if (!has_one_node() && hwloc_topology_init(&own) == 0) {
        hwloc_topology_set_all_types_filter(own, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
        if (hwloc_topology_load(own) == 0) {
            bind_near(own, memory, length);
        }
        hwloc_topology_destroy(own);
    }
}

/* Not brought in now: of 8 MiB most jobs use little, and to clear it takes milliseconds. But where
 * only the older call is there (before Linux 4.4, a container's filter) all is. glibc says EINVAL
 * where the kernel says ENOSYS. */
static bool lock(void *memory, size_t length)
{
    return mlock2(memory, length, MLOCK_ONFAULT) == 0 ||
           ((errno == ENOSYS || errno == EINVAL || errno == EPERM) && mlock(memory, length) == 0);
}

size_t regx_place_lock(void *memory, size_t length)
{
    const size_t page = regx_page_size();
    size_t locked = 0;
    size_t refused = length / page + 1;

    if (lock(memory, length)) {
        return length;
    }
    /* What the limit leaves is asked for rather than computed: other libraries lock memory too.
     * A prefix that is locked already is not counted twice by the kernel. */
    while (refused - locked > 1) {
        const size_t pages = locked + (refused - locked) / 2;

        if (lock(memory, pages * page)) {
            locked = pages;
        } else {
            refused = pages;
        }
    }
    return locked * page;
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
