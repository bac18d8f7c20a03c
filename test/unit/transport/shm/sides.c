/* SPDX-License-Identifier: BSD-3-Clause */
#include "sides.h"

bool side_threads;

size_t frame_size(unsigned n)
{
    static const size_t sizes[] = {0, 1, 55, 56, 57, 112, 113, 448, 449, 4096, 16383, 16384};

    return sizes[n % (sizeof(sizes) / sizeof(sizes[0]))];
}

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    side_t *side = context;

    REQUIRE(sender == (in_child ? PARENT : CHILD));
    REQUIRE(tag == (uint8_t)(1 + side->delivered % 200));
    REQUIRE(length == frame_size(side->delivered));
    REQUIRE(unit_is_filled(data, length, sender + side->delivered));
    side->delivered++;
}

static void broken(void *context, uint64_t peer, const char *what)
{
    (void)context;
    (void)peer;
    (void)what;
    REQUIRE(!"broken");
}

void meet(side_t *side)
{
    pair_meet(side->socket);
}

void progress(side_t *side)
{
    if (regx_shm_progress(side->transport) == 0) {
        sched_yield();
    }
}

size_t side_address(side_t *side, regx_shm_address_t *address)
{
    uint8_t bytes[REGX_ADDRESS_MAX];
    const size_t length = regx_shm_ops.address(side->transport, bytes);

    REQUIRE(length == sizeof(*address));
    memcpy(address, bytes, length);
    return length;
}

regx_conn_t *side_connect(side_t *side, uint64_t peer, const regx_shm_address_t *address)
{
    regx_conn_t *conn;

    REQUIRE(regx_shm_connect(side->transport, peer, address, sizeof(*address), &conn) == REGX_OK);
    return conn;
}

static void open_side(side_t *side, bool wrong_cookie)
{
    regx_shm_address_t address;
    char error[256];

    side->config = (regx_transport_config_t){
        .self = in_child ? CHILD : PARENT,
        .pool_size = POOL,
        .pool_min = POOL,
        .owned_size = 4 * POOL,
        .threads = side_threads,
        .counters = &side->counters,
        .events = {.context = side, .deliver = deliver, .broken = broken}};
    REQUIRE(regx_shm_ops.open(&side->config, error, sizeof(error), &side->transport) == REGX_OK);
    side->shm = regx_shm_of(side->transport);
    side->pool = side->transport->pool_memory;
    REQUIRE(side->transport->pool_size == POOL);
    side_address(side, &address);
    pair_tell(side->socket, &address, sizeof(address));
    pair_hear(side->socket, &address, sizeof(address));
    address.cookie.words[0] ^= wrong_cookie;
    side->conn = side_connect(side, in_child ? PARENT : CHILD, &address);
}

static void run(bool wrong_cookie, void (*parent_part)(side_t *), void (*child_part)(side_t *),
                bool killed)
{
    side_t side = {.delivered = 0};
    const pid_t child = pair_fork(&side.socket);

    open_side(&side, wrong_cookie);
    side.counters.threads = side_threads;
    (in_child ? child_part : parent_part)(&side);
    regx_shm_disconnect(side.conn);
    regx_shm_ops.close(side.transport); /* a child that was killed is not yet reaped */
    pair_join(child, side.socket, killed);
}

void run_pair(bool wrong_cookie, void (*parent_part)(side_t *), void (*child_part)(side_t *))
{
    run(wrong_cookie, parent_part, child_part, false);
}

void run_killed(void (*parent_part)(side_t *), void (*child_part)(side_t *))
{
    run(false, parent_part, child_part, true);
}

void attach(side_t *side)
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
