/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The wire on the node: two processes, every byte checked. They also have a socket of their own,
 * by which each lets the other go on. Waiting has no limit here; the watchdog is outside.
 */
#include "unit.h"

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/uct/node_internal.h"
#include "transport/uct/quiet.h"

enum { POOL = 1 << 20, PARENT = 1000001, CHILD = 2000002, FRAMES = 2000 };

static bool in_child;

/* cmocka's assertions end a test by a jump, which must not happen in the child. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so in the %s: %s\n", __FILE__, __LINE__,                   \
                    in_child ? "child" : "parent", #condition);                                    \
            if (in_child) {                                                                        \
                _exit(1);                                                                          \
            }                                                                                      \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

typedef struct side {
    regx_transport_config_t config;
    regx_counters_t counters;
    regx_node_t *node;
    regx_node_conn_t *conn;
    uint8_t *pool;
    int socket;
    unsigned delivered, done;
} side_t;

static size_t frame_size(unsigned n)
{
    static const size_t sizes[] = {0, 1, 55, 56, 57, 116, 117, 476, 477, 4096, 16383, 16384};

    return sizes[n % (sizeof(sizes) / sizeof(sizes[0]))];
}

static void stamp(uint8_t *to, size_t length, uint64_t stream)
{
    for (size_t i = 0; i < length; i++) {
        to[i] = unit_stamp(stream, i);
    }
}

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    side_t *side = context;
    const uint8_t *bytes = data;

    REQUIRE(sender == (in_child ? PARENT : CHILD));
    REQUIRE(tag == (uint8_t)(1 + side->delivered % 200));
    REQUIRE(length == frame_size(side->delivered));
    for (size_t i = 0; i < length; i++) {
        REQUIRE(bytes[i] == unit_stamp(sender + side->delivered, i));
    }
    side->delivered++;
}

static void broken(void *context, uint64_t peer, const char *what)
{
    (void)context;
    (void)peer;
    (void)what;
    REQUIRE(!"broken");
}

static void lend_done(regx_lend_t *lend, regx_status_t status)
{
    side_t *side = lend->context;

    REQUIRE(status == REGX_OK);
    lend->context = NULL; /* free again */
    side->done++;
}

static void meet(side_t *side)
{
    char byte = 0;

    REQUIRE(write(side->socket, &byte, 1) == 1);
    REQUIRE(read(side->socket, &byte, 1) == 1);
}

static void progress(side_t *side)
{
    if (regx_node_progress(side->node) == 0) {
        sched_yield();
    }
}

static void open_side(side_t *side, bool wrong_cookie)
{
    regx_node_address_t address;

    regx_uct_quiet();
    side->config = (regx_transport_config_t){
        .self = in_child ? CHILD : PARENT,
        .pool_size = POOL,
        .pool_least = POOL,
        .counters = &side->counters,
        .events = {.context = side, .deliver = deliver, .broken = broken}};
    REQUIRE(regx_node_open(&side->config, &side->node) == REGX_OK);
    size_t size;
    side->pool = regx_node_pool(side->node, &size);
    REQUIRE(size == POOL);
    REQUIRE(regx_node_address(side->node, &address, sizeof(address)) == sizeof(address));
    REQUIRE(write(side->socket, &address, sizeof(address)) == sizeof(address));
    REQUIRE(recv(side->socket, &address, sizeof(address), MSG_WAITALL) == sizeof(address));
    address.cookie.words[0] ^= wrong_cookie;
    REQUIRE(regx_node_connect(side->node, in_child ? PARENT : CHILD, &address, sizeof(address),
                              &side->conn) == REGX_OK);
}

/* Runs one function in this process and one in a child, connected. */
static void run_pair(bool wrong_cookie, void (*parent_part)(side_t *), void (*child_part)(side_t *))
{
    side_t side = {.delivered = 0};
    int sockets[2], status;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    in_child = child == 0;
    if (in_child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    side.socket = sockets[in_child];
    close(sockets[!in_child]);
    open_side(&side, wrong_cookie);
    (in_child ? child_part : parent_part)(&side);
    regx_node_disconnect(side.conn);
    regx_node_close(side.node);
    if (in_child) {
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(side.socket);
}

static void pack(void *context, void *to, size_t length)
{
    memcpy(to, context, length);
}

/* Frame n: copied, or lent from one of eight places in the pool. Whether it was accepted. */
static bool send_frame(side_t *side, unsigned n)
{
    static regx_lend_t lends[8];
    static uint8_t buffer[REGX_NODE_MAX_FRAME];
    const size_t size = frame_size(n), header = size < 56 ? size : 56;
    const uint8_t tag = (uint8_t)(1 + n % 200);
    regx_lend_t *lend = &lends[n % 8];
    regx_status_t status;

    if (n % 3 == 0) {
        if (lend->context != NULL) {
            return false;
        }
        uint8_t *place = side->pool + (n % 8) * REGX_NODE_MAX_FRAME;
        stamp(place, size, side->config.self + n);
        *lend = (regx_lend_t){
            .data = place, .length = size, .tag = tag, .done = lend_done, .context = side};
        status = regx_node_lend(side->conn, lend);
        REQUIRE(status == REGX_PENDING || status == REGX_AGAIN);
        lend->context = status == REGX_PENDING ? side : NULL;
        return status == REGX_PENDING;
    }
    stamp(buffer, size, side->config.self + n);
    status = regx_node_send(side->conn, tag, buffer, header, pack, buffer + header, size - header);
    REQUIRE(status == REGX_OK || status == REGX_AGAIN);
    return status == REGX_OK;
}

static void stream(side_t *side)
{
    unsigned sent = 0;

    while (sent < FRAMES || side->delivered < FRAMES || side->done < (FRAMES + 2) / 3) {
        while (sent < FRAMES && send_frame(side, sent)) {
            sent++;
        }
        progress(side);
    }
    REQUIRE(side->counters.malformed == 0);
    meet(side);
}

static void frames_of_every_kind_arrive_in_order(void **state)
{
    (void)state;
    run_pair(false, stream, stream);
}

enum { LEFT_BEHIND = 12 };

static void send_and_go(side_t *side)
{
    for (unsigned n = 0; n < LEFT_BEHIND; n++) {
        if (n % 3 != 0) {
            while (!send_frame(side, n)) {
            }
        } else { /* a lend would be failed by the end: copied instead */
            uint8_t bytes[REGX_NODE_MAX_FRAME];
            const size_t size = frame_size(n), header = size < 56 ? size : 56;

            stamp(bytes, size, side->config.self + n);
            REQUIRE(regx_node_send(side->conn, (uint8_t)(1 + n), bytes, header, pack,
                                   bytes + header, size - header) == REGX_OK);
        }
    }
    meet(side); /* and on to the end; nothing has been read yet */
}

static void read_late(side_t *side)
{
    meet(side);
    while (side->delivered < LEFT_BEHIND) {
        progress(side);
    }
    while (side->node->inbound_count > 0) { /* until the goodbye */
        progress(side);
    }
}

static void the_end_waits_until_all_is_read(void **state)
{
    (void)state;
    run_pair(false, read_late, send_and_go);
}

static void cannot_reach(side_t *side)
{
    for (int i = 0; i < 2; i++) {
        REQUIRE(regx_node_send(side->conn, 1, "x", 1, NULL, NULL, 0) == REGX_UNREACHABLE);
    }
    REQUIRE(strcmp(side->counters.fallbacks[0].reason, "shm: another process name space") == 0);
    REQUIRE(side->counters.fallbacks[0].count == 1);
    meet(side);
    REQUIRE(regx_node_progress(side->node) == 0); /* nobody has knocked */
}

static void another_process_is_not_taken_for_the_peer(void **state)
{
    (void)state;
    run_pair(true, cannot_reach, cannot_reach);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_of_every_kind_arrive_in_order),
        cmocka_unit_test(the_end_waits_until_all_is_read),
        cmocka_unit_test(another_process_is_not_taken_for_the_peer),
    };

    return cmocka_run_group_tests_name("node", tests, NULL, NULL);
}
