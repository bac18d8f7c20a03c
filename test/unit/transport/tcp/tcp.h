/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the tcp wire: two processes over the loopback.
 */
#ifndef REGX_TEST_TCP_H
#define REGX_TEST_TCP_H

#include "../pair.h"

#include <sched.h>
#include <stdatomic.h>

#include "transport/uct/log.h"
#include "transport/tcp/tcp.h"

enum { POOL = 1 << 20, DATA_MAX = 65536, MIB = 1 << 20 };
enum { TAG_PUT = 50, TAG_AFTER = 51, TAG_END = 52 };

typedef struct side {
    regx_transport_config_t config;
    regx_counters_t counters;
    regx_rkey_table_t rkeys;
    regx_tcp_t *tcp;
    regx_tcp_conn_t *conn;
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

static inline void deliver(void *context, uint64_t sender, uint8_t tag, const void *data,
                           size_t length)
{
    side_t *side = context;

    REQUIRE(sender == (in_child ? PARENT : CHILD));
    side->deliver(side, tag, data, length);
    side->delivered++;
}

static inline void broken(void *context, uint64_t peer, const char *what)
{
    side_t *side = context;

    REQUIRE(peer == (in_child ? PARENT : CHILD));
    REQUIRE(what[0] != '\0');
    side->broken++;
}

static inline void done(regx_put_t *put, regx_status_t status)
{
    side_t *side = put->context;

    side->done++;
    side->done_status = status;
}

static inline void open_side(side_t *side, uint64_t self, bool threads)
{
    char error[256];

    memset(side, 0, sizeof(*side));
    side->config = (regx_transport_config_t){
        .self = self,
        .pool_size = POOL,
        .if_include = "lo",
        .threads = threads,
        .counters = &side->counters,
        .events = {.context = side, .deliver = deliver, .broken = broken}};
    side->counters.threads = threads;
    side->pool = calloc(1, POOL);
    REQUIRE(side->pool != NULL);
    regx_rkey_table_init(&side->rkeys, threads);
    regx_uct_log_to_stderr();
    if (regx_tcp_open(&side->config, &side->rkeys, error, sizeof(error), &side->tcp) != REGX_OK) {
        fprintf(stderr, "%s\n", error);
        REQUIRE(!"opened");
    }
    REQUIRE(regx_tcp_max_frame(side->tcp) == DATA_MAX);
    REQUIRE(strcmp(regx_tcp_device(side->tcp), "lo") == 0);
    regx_tcp_set_pool(side->tcp, side->pool, POOL);
}

static inline void close_side(side_t *side)
{
    regx_tcp_close(side->tcp);
    regx_rkey_table_fini(&side->rkeys);
    free(side->pool);
}

static inline void tell(side_t *side, const void *data, size_t length)
{
    pair_tell(side->socket, data, length);
}

static inline void hear(side_t *side, void *data, size_t length)
{
    pair_hear(side->socket, data, length);
}

static inline void meet(side_t *side)
{
    pair_meet(side->socket);
}

static inline void progress(side_t *side)
{
    if (regx_tcp_progress(side->tcp) == 0) {
        sched_yield();
    }
}

static inline void connect_side(side_t *side)
{
    uint8_t address[REGX_ADDRESS_MAX];
    uint32_t length = (uint32_t)regx_tcp_address(side->tcp, address, sizeof(address));

    REQUIRE(length > 0);
    tell(side, &length, sizeof(length));
    tell(side, address, length);
    hear(side, &length, sizeof(length));
    REQUIRE(length <= sizeof(address));
    hear(side, address, length);
    REQUIRE(regx_tcp_connect(side->tcp, in_child ? PARENT : CHILD, address, length, &side->conn) ==
            REGX_OK);
}

static inline void kill_child(side_t *side)
{
    kill(side->child, SIGKILL);
    side->killed = true;
}

/* Runs one function in this process and one in a child, connected. */
static inline void run_pair(bool threads, void (*parent_part)(side_t *),
                            void (*child_part)(side_t *))
{
    static side_t side;
    int end;
    const pid_t child = pair_fork(&end);

    open_side(&side, in_child ? CHILD : PARENT, threads);
    side.child = child;
    side.socket = end;
    connect_side(&side);
    (in_child ? child_part : parent_part)(&side);
    if (side.conn != NULL) {
        regx_tcp_disconnect(side.conn);
    }
    close_side(&side);
    pair_join(child, end, side.killed);
}

/* For `deliver`: the last frame of a test, and the only one. */
static inline void check_end(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    (void)data, (void)length;
    REQUIRE(side->delivered == 0 && tag == TAG_END);
}

#endif
