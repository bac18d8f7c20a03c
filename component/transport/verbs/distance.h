/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How far a device is from the cores of a process.
 */
#ifndef REGX_VERBS_DISTANCE_H
#define REGX_VERBS_DISTANCE_H

#include <hwloc.h>

/* Between a process on `cores` and a device that is local to `around`: 0 where they have a core in
 * common, or either is not known (empty, as for a device in software: near to everybody). Else by
 * the machine's table of distances between NUMA nodes, the least between two of theirs; without
 * such a table, the number of threads in the smallest part of the machine that has both. Larger is
 * farther; only distances on the same topology can be compared. */
unsigned regx_distance(hwloc_topology_t topology, hwloc_const_cpuset_t cores,
                       hwloc_const_cpuset_t around);

/* The same, of an RDMA device from this process. */
unsigned regx_distance_of_device(hwloc_topology_t topology, const char *device);

#endif
