/* SPDX-License-Identifier: BSD-3-Clause */
#include "sides.h"

#include <sched.h>
#include <signal.h>

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    side_t *side = context;

    REQUIRE(sender == (in_child ? PARENT : CHILD));
    side->deliver(side, tag, data, length);
    side->delivered++;
}

static void broken(void *context, uint64_t peer, const char *what)
{
    side_t *side = context;

    REQUIRE(peer == (in_child ? PARENT : CHILD));
    REQUIRE(what[0] != '\0');
    side->broken++;
}

void done(regx_put_t *put, regx_status_t status)
{
    side_t *side = put->context;

    side->done++;
    side->done_status = status;
}

void open_side(side_t *side, uint64_t self, bool threads)
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
    regx_rkey_table_init(&side->rkeys, threads);
    side->config.rkeys = &side->rkeys;
    if (regx_tcp_ops.open(&side->config, error, sizeof(error), &side->tcp) != REGX_OK) {
        fprintf(stderr, "%s\n", error);
        REQUIRE(!"opened");
    }
    REQUIRE(side->tcp->max_frame == DATA_MAX);
    REQUIRE(regx_tcp_of(side->tcp)->host != 0); /* the loopback */
    REQUIRE(side->tcp->pool_size == POOL);
    side->pool = side->tcp->pool_memory;
}

void close_side(side_t *side)
{
    regx_tcp_ops.close(side->tcp);
    regx_rkey_table_fini(&side->rkeys);
}

void tell(side_t *side, const void *data, size_t length)
{
    pair_tell(side->socket, data, length);
}

void hear(side_t *side, void *data, size_t length)
{
    pair_hear(side->socket, data, length);
}

void meet(side_t *side)
{
    pair_meet(side->socket);
}

void progress(side_t *side)
{
    if (regx_tcp_progress(side->tcp) == 0) {
        sched_yield();
    }
}

void connect_here(side_t *from, side_t *to, uint64_t peer)
{
    uint8_t address[REGX_ADDRESS_MAX];
    const size_t length = regx_tcp_address(to->tcp, address);

    REQUIRE(regx_tcp_connect(from->tcp, peer, false, address, length, &from->conn) == REGX_OK);
}

static void connect_side(side_t *side)
{
    uint8_t address[REGX_ADDRESS_MAX];
    uint32_t length = (uint32_t)regx_tcp_address(side->tcp, address);

    REQUIRE(length > 0);
    tell(side, &length, sizeof(length));
    tell(side, address, length);
    hear(side, &length, sizeof(length));
    REQUIRE(length <= sizeof(address));
    hear(side, address, length);
    REQUIRE(regx_tcp_connect(side->tcp, in_child ? PARENT : CHILD, false, address, length,
                             &side->conn) == REGX_OK);
}

void kill_child(side_t *side)
{
    kill(side->child, SIGKILL);
    side->killed = true;
}

void run_pair(bool threads, void (*parent_part)(side_t *), void (*child_part)(side_t *))
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

void check_end(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    (void)data, (void)length;
    REQUIRE(side->delivered == 0 && tag == TAG_END);
}
