/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/distance.h"

#include <hwloc/linux.h>
#include <limits.h>
#include <stdio.h>

/* The smallest entry of the table between a node of the one and a node of the other. */
static hwloc_uint64_t min_between(const struct hwloc_distances_s *table, hwloc_const_cpuset_t cores,
                                  hwloc_const_cpuset_t around)
{
    hwloc_uint64_t min = UINT_MAX;

    for (unsigned from = 0; from < table->nbobjs; from++) {
        for (unsigned to = 0; to < table->nbobjs; to++) {
            const hwloc_uint64_t value = table->values[from * table->nbobjs + to];

            if (hwloc_bitmap_intersects(table->objs[from]->cpuset, cores) &&
                hwloc_bitmap_intersects(table->objs[to]->cpuset, around) && value < min) {
                min = value;
            }
        }
    }
    return min;
}

static unsigned by_table(hwloc_topology_t topology, hwloc_const_cpuset_t cores,
                         hwloc_const_cpuset_t around)
{
    struct hwloc_distances_s *table;
    unsigned count = 1, distance = UINT_MAX;

    if (hwloc_distances_get_by_type(topology, HWLOC_OBJ_NUMANODE, &count, &table,
                                    HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) == 0 &&
        count > 0) {
        distance = (unsigned)min_between(table, cores, around);
        hwloc_distances_release(topology, table);
    }
    return distance;
}

static unsigned by_tree(hwloc_topology_t topology, hwloc_const_cpuset_t cores,
                        hwloc_const_cpuset_t around)
{
    hwloc_obj_t part = hwloc_get_obj_covering_cpuset(topology, around);

    while (part != NULL && !hwloc_bitmap_intersects(part->cpuset, cores)) {
        part = part->parent;
    }
    return part == NULL ? 0 : (unsigned)hwloc_bitmap_weight(part->cpuset);
}

unsigned regx_distance(hwloc_topology_t topology, hwloc_const_cpuset_t cores,
                       hwloc_const_cpuset_t around)
{
    if (hwloc_bitmap_iszero(cores) || hwloc_bitmap_iszero(around) ||
        hwloc_bitmap_intersects(cores, around)) {
        return 0;
    }
    const unsigned distance = by_table(topology, cores, around);
    return distance != UINT_MAX ? distance : by_tree(topology, cores, around);
}

unsigned regx_distance_of_device(hwloc_topology_t topology, const char *device)
{
    hwloc_bitmap_t cores = hwloc_bitmap_alloc(), around = hwloc_bitmap_alloc();
    unsigned distance = 0;
    char path[128];

    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/local_cpus", device);
    if (hwloc_linux_read_path_as_cpumask(path, around) == 0 &&
        hwloc_get_cpubind(topology, cores, HWLOC_CPUBIND_PROCESS) == 0) {
        distance = regx_distance(topology, cores, around);
    }
    hwloc_bitmap_free(around);
    hwloc_bitmap_free(cores);
    return distance;
}
