/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Where the pool's memory lies: near the process, and locked.
 */
#ifndef REGX_POOL_PLACE_H
#define REGX_POOL_PLACE_H

#include <hwloc.h>
#include <stddef.h>

/* The NUMA nodes nearest to the cores of `cpuset` that have memory, as a nodeset that the caller
 * frees with hwloc_bitmap_free. NULL: there is nothing to choose, because the topology tells
 * nothing, or every node that has memory is as near (one node, or cores on all of them: then the
 * kernel's own choice at first touch is the better one). Works on any topology, also a synthetic
 * one. */
hwloc_bitmap_t regx_place_near(hwloc_topology_t topology, hwloc_const_cpuset_t cpuset);

/* Prefers memory near this process for `length` bytes at `memory` (page-aligned, shared by other
 * processes), moving what this process has touched. Pages of a file that were set aside before, and
 * not touched, stay: the kernel took them near the core that asked, or as the process's own policy
 * (numactl) says, seen on two nodes. So it is for memory of System V, which a peer may be the first
 * to touch. `topology` may be NULL: then one is loaded for the call, if the machine has several
 * nodes with memory. Best effort: placing is never a reason to fail. */
void regx_place_bind(hwloc_topology_t topology, void *memory, size_t length);

/* Locks as much of the memory (page-aligned) from its start as RLIMIT_MEMLOCK allows, in whole
 * pages; returns how many bytes count as locked now, until the memory is unmapped. A page that is
 * not there yet is brought in, and stays, when this process first touches it. */
size_t regx_place_lock(void *memory, size_t length);

#endif
