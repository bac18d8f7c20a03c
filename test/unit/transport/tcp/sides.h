/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the tcp wire: two processes over the loopback.
 */
#ifndef REGX_TEST_TCP_SIDES_H
#define REGX_TEST_TCP_SIDES_H

#include "../pair.h"

#include <stdatomic.h>

#include "transport/tcp/tcp_internal.h"

enum { POOL = 1 << 20, DATA_MAX = 65536, MIB = 1 << 20 };
enum { TAG_PUT = 50, TAG_AFTER = 51, TAG_END = 52 };

typedef struct side {
    regx_transport_config_t config;
    regx_counters_t counters;
    regx_rkey_table_t rkeys;
    regx_transport_t *tcp;
    regx_conn_t *conn;
    uint8_t *pool;
    pid_t child;
    bool killed; /* it, by the parent */
    int socket;
    /* What a test does with a delivery, and what it notes. */
    void (*deliver)(struct side *side, uint8_t tag, const uint8_t *data, size_t length);
    unsigned delivered;
    unsigned broken;
    unsigned done;
    regx_status_t done_status;
    unsigned answers; /* owed, in the test of calls from inside deliver */
    _Atomic unsigned received[4];
} side_t;

/* Opens the loopback. */
void open_side(side_t *side, uint64_t self, bool threads);
void close_side(side_t *side);
/* Prepares the path from one side to the other of this process. */
void connect_here(side_t *from, side_t *to, uint64_t peer);

void tell(side_t *side, const void *data, size_t length);
void hear(side_t *side, void *data, size_t length);
void meet(side_t *side);
void progress(side_t *side);
void kill_child(side_t *side);

/* For a put whose context is the side. */
void done(regx_put_t *put, regx_status_t status);
/* For `deliver`: the last frame of a test, and the only one. */
void check_end(side_t *side, uint8_t tag, const uint8_t *data, size_t length);

/* Runs one function in this process and one in a child, connected. */
void run_pair(bool threads, void (*parent_part)(side_t *), void (*child_part)(side_t *));

#endif
