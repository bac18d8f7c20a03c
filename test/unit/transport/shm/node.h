/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the wire on the node: two processes, connected.
 */
#ifndef REGX_TEST_NODE_H
#define REGX_TEST_NODE_H

#include "../pair.h"

#include <sched.h>

#include "transport/shm/shm_internal.h"
#include "transport/uct/log.h"

enum { POOL = 4 << 20 };

typedef struct side {
    regx_transport_config_t config;
    regx_counters_t counters;
    regx_shm_t *node;
    regx_shm_conn_t *conn;
    uint8_t *pool;
    int socket;
    unsigned delivered, done;
} side_t;

static inline size_t frame_size(unsigned n)
{
    static const size_t sizes[] = {0, 1, 55, 56, 57, 116, 117, 476, 477, 4096, 16383, 16384};

    return sizes[n % (sizeof(sizes) / sizeof(sizes[0]))];
}

static inline void deliver(void *context, uint64_t sender, uint8_t tag, const void *data,
                           size_t length)
{
    side_t *side = context;

    REQUIRE(sender == (in_child ? PARENT : CHILD));
    REQUIRE(tag == (uint8_t)(1 + side->delivered % 200));
    REQUIRE(length == frame_size(side->delivered));
    REQUIRE(unit_is_filled(data, length, sender + side->delivered));
    side->delivered++;
}

static inline void broken(void *context, uint64_t peer, const char *what)
{
    (void)context;
    (void)peer;
    (void)what;
    REQUIRE(!"broken");
}

static inline void meet(side_t *side)
{
    pair_meet(side->socket);
}

static inline void progress(side_t *side)
{
    if (regx_shm_progress(side->node) == 0) {
        sched_yield();
    }
}

static inline void open_side(side_t *side, bool wrong_cookie)
{
    regx_shm_address_t address;

    regx_uct_log_to_stderr();
    side->config = (regx_transport_config_t){
        .self = in_child ? CHILD : PARENT,
        .pool_size = POOL,
        .pool_least = POOL,
        .counters = &side->counters,
        .events = {.context = side, .deliver = deliver, .broken = broken}};
    REQUIRE(regx_shm_open(&side->config, &side->node) == REGX_OK);
    size_t size;
    side->pool = regx_shm_pool(side->node, &size);
    REQUIRE(size == POOL);
    REQUIRE(regx_shm_address(side->node, &address, sizeof(address)) == sizeof(address));
    pair_tell(side->socket, &address, sizeof(address));
    pair_hear(side->socket, &address, sizeof(address));
    address.cookie.words[0] ^= wrong_cookie;
    REQUIRE(regx_shm_connect(side->node, in_child ? PARENT : CHILD, &address, sizeof(address),
                              &side->conn) == REGX_OK);
}

/* Runs one function in this process and one in a child, connected. */
static inline void run_pair(bool wrong_cookie, void (*parent_part)(side_t *),
                            void (*child_part)(side_t *))
{
    side_t side = {.delivered = 0};
    const pid_t child = pair_fork(&side.socket);

    open_side(&side, wrong_cookie);
    (in_child ? child_part : parent_part)(&side);
    regx_shm_disconnect(side.conn);
    regx_shm_close(side.node);
    pair_join(child, side.socket, false);
}

/* Has the other's mailbox, and this one is had. Both call it. */
static inline void attach(side_t *side)
{
    regx_status_t status;

    while ((status = regx_shm_send(side->conn, 1, "", 0, NULL, NULL, 0)) == REGX_AGAIN) {
        progress(side);
    }
    REQUIRE(status == REGX_OK); /* frame 0 of deliver: tag 1, empty */
    while (side->delivered == 0) {
        progress(side);
    }
    meet(side);
}

#endif
