/* SPDX-License-Identifier: BSD-3-Clause */
#include "pool/place.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

static bool has_memory(hwloc_obj_t node)
{
    return node->attr->numanode.local_memory > 0;
}

hwloc_bitmap_t regx_place_near(hwloc_topology_t topology, hwloc_const_cpuset_t cpuset)
{
    hwloc_obj_t around = hwloc_get_obj_covering_cpuset(topology, cpuset);
    hwloc_bitmap_t all = hwloc_bitmap_alloc();
    hwloc_bitmap_t near = hwloc_bitmap_alloc();

    for (hwloc_obj_t node = NULL;
         (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL;) {
        if (has_memory(node)) {
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

void regx_place_bind(hwloc_topology_t topology, void *memory, size_t length)
{
    hwloc_topology_t own;

    if (topology != NULL) {
        bind_near(topology, memory, length);
    } else if (hwloc_topology_init(&own) == 0) {
        hwloc_topology_set_all_types_filter(own, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
        if (hwloc_topology_load(own) == 0) {
            bind_near(own, memory, length);
        }
        hwloc_topology_destroy(own);
    }
}

size_t regx_place_lock(void *memory, size_t length)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t locked = 0;
    size_t refused = length / page + 1;

    if (mlock(memory, length) == 0) {
        return length;
    }
    /* What the limit leaves is asked for rather than computed: other libraries lock memory too.
     * A prefix that is locked already is not counted twice by the kernel. */
    while (refused - locked > 1) {
        const size_t pages = locked + (refused - locked) / 2;

        if (mlock(memory, pages * page) == 0) {
            locked = pages;
        } else {
            refused = pages;
        }
    }
    /* An mlock that failed for lack of memory, not by the limit, leaves its range marked. */
    munlock((char *)memory + locked * page, length - locked * page);
    return locked * page;
}
