/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of shared memory: two processes, connected.
 */
#ifndef REGX_TEST_SHM_SIDES_H
#define REGX_TEST_SHM_SIDES_H

#include "../pair.h"

#include <sched.h>

#include "transport/shm/shm_internal.h"

enum { POOL = 4 << 20 };

typedef struct side {
    regx_transport_config_t config;
    regx_counters_t counters;
    regx_transport_t *transport;
    regx_shm_t *shm; /* the same */
    regx_conn_t *conn;
    uint8_t *pool;
    int socket;
    unsigned delivered, done;
} side_t;

extern bool side_threads; /* several threads use a side: set before it is opened */

/* The length of frame n. */
size_t frame_size(unsigned n);

void meet(side_t *side);
void progress(side_t *side);

/* This process's address, and a connection to whoever published one. */
size_t side_address(side_t *side, regx_shm_address_t *address);
regx_conn_t *side_connect(side_t *side, uint64_t peer, const regx_shm_address_t *address);

/* Runs one function in this process and one in a child, connected. wrong_cookie: each takes the
 * other for another process than it is. */
void run_pair(bool wrong_cookie, void (*parent_part)(side_t *), void (*child_part)(side_t *));
/* Likewise; the child kills itself in its part. */
void run_killed(void (*parent_part)(side_t *), void (*child_part)(side_t *));

/* Has the other's mailbox, and is had. Both call it. */
void attach(side_t *side);

#endif
