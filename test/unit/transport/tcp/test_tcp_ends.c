/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a connection of the tcp wire ends: by a peer that is killed, that leaves, that was never
 * there, or by ourselves.
 */
#include "sides.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

static void wait_to_be_killed(side_t *side)
{
    regx_key_t key;
    void *handle;

    REQUIRE(regx_rkey_table_add(&side->rkeys, side->pool, SIZE_MAX / 2, REGX_ACCESS_REMOTE_WRITE,
                                &key, &handle) == REGX_OK);
    tell(side, &key, sizeof(key));
    side->deliver = check_end;
    while (side->delivered == 0) {
        progress(side); /* until the connection stands */
    }
    meet(side);
    hear(side, &key, 1);
}

/* A put that the peer will never read to its end, under way. */
static void start_endless(side_t *side, regx_put_t *put)
{
    const size_t length = 64 * (size_t)MIB;

    *put = (regx_put_t){.local = calloc(1, length),
                        .length = length,
                        .target = REGX_TARGET_REGION,
                        .tag = TAG_PUT,
                        .done = done,
                        .context = side};
    REQUIRE(put->local != NULL);
    hear(side, &put->key, sizeof(put->key));
    while (regx_tcp_send(side->conn, TAG_END, NULL, 0, NULL, NULL, 0) != REGX_OK) {
        progress(side);
    }
    meet(side);
    REQUIRE(regx_tcp_put(side->conn, put) == REGX_PENDING);
    for (int i = 0; i < 100; i++) {
        progress(side);
    }
    REQUIRE(side->done == 0);
}

static void see_it_die(side_t *side)
{
    regx_put_t put, second = {.target = REGX_TARGET_POOL, .done = done, .context = side};

    start_endless(side, &put);
    REQUIRE(regx_tcp_put(side->conn, &second) == REGX_PENDING); /* behind it */
    kill_child(side);
    while (side->broken == 0) {
        progress(side);
    }
    REQUIRE(side->broken == 1);
    REQUIRE(side->done == 2 && side->done_status == REGX_UNREACHABLE);
    REQUIRE(regx_tcp_put(side->conn, &put) == REGX_UNREACHABLE);
    REQUIRE(regx_tcp_send(side->conn, 1, NULL, 0, NULL, NULL, 0) == REGX_UNREACHABLE);
    for (int i = 0; i < 100; i++) {
        progress(side);
    }
    REQUIRE(side->broken == 1 && side->done == 2);
    free((void *)(uintptr_t)put.local);
}

static void a_killed_peer_ends_its_puts(void **state)
{
    (void)state;
    run_pair(false, see_it_die, wait_to_be_killed);
}

static void leave_in_mid_put(side_t *side)
{
    regx_put_t put;

    start_endless(side, &put);
    regx_tcp_disconnect(side->conn);
    side->conn = NULL;
    REQUIRE(side->done == 1 && side->done_status == REGX_FAILED);
    free((void *)(uintptr_t)put.local);
    for (int i = 0; i < 100; i++) {
        progress(side);
    }
    REQUIRE(side->done == 1 && side->broken == 0);
    kill_child(side);
}

static void disconnecting_ends_pending_puts(void **state)
{
    (void)state;
    run_pair(false, leave_in_mid_put, wait_to_be_killed);
}

static void check_only_size(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    (void)side, (void)data;
    REQUIRE(tag == 1 && length == DATA_MAX);
}

/* The other leaves in good order: that is no loss, until something more is wanted of it. */
static void see_it_leave(side_t *side)
{
    regx_status_t status;
    char byte;

    side->deliver = check_only_size;
    while (regx_tcp_send(side->conn, 1, side->pool, DATA_MAX, NULL, NULL, 0) != REGX_OK) {
        progress(side);
    }
    /* Until it closed its end of the other socket, which it does last. */
    while (recv(side->socket, &byte, 1, MSG_DONTWAIT) != 0) {
        progress(side);
    }
    for (int i = 0; i < 1000; i++) {
        progress(side);
    }
    REQUIRE(side->broken == 0);
    while ((status = regx_tcp_send(side->conn, 1, NULL, 0, NULL, NULL, 0)) != REGX_UNREACHABLE) {
        REQUIRE(side->broken == 0);
        progress(side);
    }
    while (side->broken == 0) {
        progress(side);
    }
    REQUIRE(side->broken == 1);
    REQUIRE(side->counters.malformed == 0);
}

static void listen_and_leave(side_t *side)
{
    side->deliver = check_only_size;
    while (side->delivered == 0) {
        progress(side);
    }
}

static void talk_and_leave(side_t *side)
{
    listen_and_leave(side);
    while (regx_tcp_send(side->conn, 1, side->pool, DATA_MAX, NULL, NULL, 0) != REGX_OK) {
        progress(side);
    }
}

static void a_peer_that_leaves_is_not_lost(void **state)
{
    (void)state;
    run_pair(false, see_it_leave, talk_and_leave);
    run_pair(false, see_it_leave, listen_and_leave);
}

/* One that spoke and is killed is told of, though nothing is wanted of it. */
static void see_it_die_idle(side_t *side)
{
    side->deliver = check_only_size;
    while (regx_tcp_send(side->conn, 1, side->pool, DATA_MAX, NULL, NULL, 0) != REGX_OK) {
        progress(side);
    }
    while (side->delivered == 0) {
        progress(side);
    }
    kill_child(side);
    while (side->broken == 0) {
        progress(side);
    }
    REQUIRE(side->broken == 1);
}

static void talk_and_stay(side_t *side)
{
    char byte;

    talk_and_leave(side);
    hear(side, &byte, 1);
}

static void a_peer_that_dies_is_lost(void **state)
{
    (void)state;
    run_pair(false, see_it_die_idle, talk_and_stay);
}

/* Frames fill the kernel's buffers and the link's; then the sender disconnects at once. */
static void send_and_leave(side_t *side)
{
    unsigned sent = 0, refused = 0;

    while (refused < 1000) {
        if (regx_tcp_send(side->conn, 1, side->pool, DATA_MAX, NULL, NULL, 0) == REGX_OK) {
            sent++;
            refused = 0;
        } else {
            progress(side);
            refused += sent > 0;
        }
    }
    regx_tcp_disconnect(side->conn);
    side->conn = NULL;
    tell(side, &sent, sizeof(sent));
    for (;;) {
        char byte;

        if (recv(side->socket, &byte, 1, MSG_DONTWAIT) == 1) {
            return;
        }
        progress(side);
    }
}

static void receive_all(side_t *side)
{
    unsigned sent;
    char byte = 0;

    side->deliver = check_only_size;
    while (side->delivered == 0) {
        progress(side);
    }
    hear(side, &sent, sizeof(sent)); /* nothing is read until all was sent */
    while (side->delivered < sent) {
        progress(side);
    }
    tell(side, &byte, 1);
}

static void frames_accepted_before_disconnect_arrive(void **state)
{
    (void)state;
    run_pair(false, send_and_leave, receive_all);
}

static void a_connection_breaks_where_nobody_listens(void **state)
{
    regx_put_t put = {.target = REGX_TARGET_POOL, .done = done};
    side_t here, gone;

    (void)state;
    open_side(&here, PARENT, false);
    open_side(&gone, CHILD, false);
    connect_here(&here, &gone, CHILD);
    close_side(&gone);
    put.context = &here;
    assert_int_equal(regx_tcp_put(here.conn, &put), REGX_PENDING);
    while (here.broken == 0) {
        progress(&here);
    }
    assert_int_equal(here.done, 1);
    assert_int_equal(here.done_status, REGX_UNREACHABLE);
    assert_int_equal(regx_tcp_put(here.conn, &put), REGX_UNREACHABLE);
    regx_tcp_disconnect(here.conn);
    close_side(&here);
}

/* This process's socket in that state of tcp; -1: none. */
static int socket_in(int wanted)
{
    for (int fd = 3; fd < 1024; fd++) {
        struct tcp_info info;
        socklen_t length = sizeof(info);

        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
            info.tcpi_state == wanted) {
            return fd;
        }
    }
    return -1;
}

/* A listener whose queue is full leaves who connects without an answer: a connect that waited
 * would do so for minutes, and come back with an error. */
static void nobody_answers(void **state)
{
    regx_put_t put = {.target = REGX_TARGET_POOL, .done = done};
    struct sockaddr_in at;
    socklen_t at_length = sizeof(at);
    const int first = socket(AF_INET, SOCK_STREAM, 0);
    side_t here, silent;

    (void)state;
    open_side(&silent, CHILD, false);
    const int listener = socket_in(TCP_LISTEN);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &at_length), 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(listen(listener, 0), 0);
    assert_int_equal(connect(first, (struct sockaddr *)&at, at_length), 0);
    open_side(&here, PARENT, false);
    connect_here(&here, &silent, CHILD);
    put.context = &here;
    assert_int_equal(regx_tcp_put(here.conn, &put), REGX_PENDING);
    for (int i = 0; i < 100; i++) {
        progress(&here);
    }
    assert_true(socket_in(TCP_SYN_SENT) >= 0);
    assert_int_equal(here.broken, 0);
    assert_int_equal(here.done, 0);
    regx_tcp_disconnect(here.conn);
    assert_int_equal(here.done, 1);
    assert_int_equal(here.done_status, REGX_FAILED);
    close(first);
    close_side(&here);
    close_side(&silent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_peer_ends_its_puts),
        cmocka_unit_test(disconnecting_ends_pending_puts),
        cmocka_unit_test(a_peer_that_leaves_is_not_lost),
        cmocka_unit_test(a_peer_that_dies_is_lost),
        cmocka_unit_test(frames_accepted_before_disconnect_arrive),
        cmocka_unit_test(a_connection_breaks_where_nobody_listens),
        cmocka_unit_test(nobody_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
