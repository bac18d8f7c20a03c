/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Where a process is, as far as shared memory goes: two processes reach each other if they are on
 * one node and in the same name spaces of processes and of System V IPC, by whose numbers memory is
 * named. Both ends come to the same answer.
 */
#ifndef REGX_TRANSPORT_SHM_NODE_H
#define REGX_TRANSPORT_SHM_NODE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct regx_shm_node { /* sent as it is */
    uint64_t machine;          /* the host's name, and when its kernel was started */
    uint64_t processes;        /* the name space of processes; 0: not known */
    uint64_t ipc;              /* that of System V IPC; 0: not known */
} regx_shm_node_t;

/* This process's. */
regx_shm_node_t regx_shm_node(void);

bool regx_shm_node_same(const regx_shm_node_t *a, const regx_shm_node_t *b);

#endif
