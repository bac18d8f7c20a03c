/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How tcp's processes come to one socket for both directions, and whom they let in. Both are in this
 * process and this thread, so it is the test that says who does what first.
 */
#include "../../unit.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>

#include "transport/tcp/tcp_internal.h"

enum { LOW = 1, HIGH = 2, TAG = 5, POOL = 1 << 16 };

enum { PACKED = 1000 };

typedef struct end {
    regx_counters_t counters;
    regx_rkey_table_t rkeys;
    regx_transport_t *transport;
    regx_tcp_t *tcp;
    regx_conn_t *conn;
    uint64_t peer;
    unsigned received, sent, broken;
    unsigned packed; /* frames; their data is what a convertor gives, once */
    bool packs;      /* the peer's frames are these */
} end_t;

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    end_t *end = context;

    assert_int_equal(sender, end->peer);
    assert_int_equal(tag, TAG);
    if (end->packs) {
        assert_int_equal(length, PACKED);
        assert_true(unit_is_filled(data, length, end->received));
    } else {
        assert_int_equal(length, sizeof(end->received));
        assert_memory_equal(data, &end->received, length);
    }
    end->received++;
}

static void broken(void *context, uint64_t peer, const char *what)
{
    end_t *end = context;

    (void)what;
    assert_int_equal(peer, end->peer);
    end->broken++;
}

static void open_end(end_t *end, uint64_t self)
{
    char error[256] = "";

    *end = (end_t){.peer = LOW + HIGH - self};
    regx_rkey_table_init(&end->rkeys, false);
    const regx_transport_config_t config = {
        .self = self,
        .pool_size = POOL,
        .if_include = "lo",
        .rkeys = &end->rkeys,
        .counters = &end->counters,
        .events = {.context = end, .deliver = deliver, .broken = broken}};
    assert_int_equal(regx_tcp_ops.open(&config, error, sizeof(error), &end->transport), REGX_OK);
    end->tcp = regx_tcp_of(end->transport);
}

static void close_end(end_t *end)
{
    regx_tcp_ops.close(end->transport);
    regx_rkey_table_fini(&end->rkeys);
}

static void connect_to(end_t *from, const end_t *to)
{
    uint8_t address[REGX_ADDRESS_MAX];
    const size_t length = regx_tcp_address(to->transport, address);

    assert_int_equal(
        regx_tcp_connect(from->transport, from->peer, false, address, length, &from->conn),
        REGX_OK);
}

static void open_both(end_t *low, end_t *high)
{
    open_end(low, LOW);
    open_end(high, HIGH);
    connect_to(low, high);
    connect_to(high, low);
}

static void disconnect(end_t *end)
{
    regx_tcp_disconnect(end->conn);
    end->conn = NULL;
}

/* Tries to send the next frame. */
static bool send_one(end_t *end)
{
    const regx_status_t status =
        regx_tcp_send(end->conn, TAG, &end->sent, sizeof(end->sent), NULL, NULL, 0);

    assert_true(status == REGX_OK || status == REGX_AGAIN);
    end->sent += status == REGX_OK;
    return status == REGX_OK;
}

static void progress(end_t *low, end_t *high)
{
    regx_tcp_progress(low->transport);
    regx_tcp_progress(high->transport);
}

/* Until each has `count` frames of the other. */
static void exchange(end_t *low, end_t *high, unsigned count)
{
    while (low->received < count || high->received < count) {
        if (low->sent < count) {
            send_one(low);
        }
        if (high->sent < count) {
            send_one(high);
        }
        progress(low, high);
    }
}

/* What is still on its way to be noticed is noticed. */
static void settle(end_t *low, end_t *high)
{
    for (int i = 0; i < 100; i++) {
        progress(low, high);
    }
}

static void check_links(const end_t *low, const end_t *high, unsigned count)
{
    assert_int_equal(low->tcp->link_count, count);
    assert_int_equal(high->tcp->link_count, count);
    assert_int_equal(low->broken + high->broken, 0);
    assert_int_equal(low->counters.malformed + high->counters.malformed, 0);
}

static void close_both(end_t *low, end_t *high)
{
    disconnect(low);
    disconnect(high);
    settle(low, high);
    check_links(low, high, 0);
    close_end(low);
    close_end(high);
}

static void who_answers_does_so_by_the_same_socket(void **state)
{
    end_t low, high;

    (void)state;
    for (int first = LOW; first <= HIGH; first++) {
        open_both(&low, &high);
        while (!send_one(first == LOW ? &low : &high)) {
            progress(&low, &high);
        }
        exchange(&low, &high, 100);
        check_links(&low, &high, 1);
        close_both(&low, &high);
    }
}

static void of_two_opened_at_once_one_is_kept(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    assert_false(send_one(&low));
    assert_false(send_one(&high));
    exchange(&low, &high, 100);
    settle(&low, &high);
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

/* The one that goes first gives up before it is in; the other, which was held, gets in. */
static void one_that_is_held_gets_in_if_the_other_comes_to_nothing(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    assert_false(send_one(&low));
    assert_false(send_one(&high));
    while (low.tcp->links == NULL || low.tcp->link_count < 2 ||
           low.tcp->links->state != REGX_TCP_LINK_HELD) {
        regx_tcp_progress(low.transport); /* high accepts nothing yet */
        if (high.tcp->link_count == 1 && !((regx_tcp_conn_t *)high.conn)->link->asked) {
            regx_tcp_link_ask(((regx_tcp_conn_t *)high.conn)->link);
        }
    }
    disconnect(&low);
    while (high.sent == 0 || low.received == 0) {
        if (high.sent == 0) {
            send_one(&high);
        }
        progress(&low, &high);
    }
    disconnect(&high);
    settle(&low, &high);
    check_links(&low, &high, 0);
    close_end(&low);
    close_end(&high);
}

static void who_left_can_come_back(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    exchange(&low, &high, 10);
    for (unsigned round = 2; round < 5; round++) {
        disconnect(&low);
        disconnect(&high);
        connect_to(&low, &high);
        connect_to(&high, &low);
        exchange(&low, &high, 10 * round);
    }
    settle(&low, &high);
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

/* One leaves; the other, which does not, goes on sending to it. */
static void who_left_still_hears(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    exchange(&low, &high, 10);
    disconnect(&low);
    settle(&low, &high);
    while (low.received < 50) {
        send_one(&high);
        progress(&low, &high);
    }
    disconnect(&high);
    settle(&low, &high);
    check_links(&low, &high, 0);
    close_end(&low);
    close_end(&high);
}

static void pack_next(void *context, void *to, size_t length)
{
    end_t *end = context;

    unit_fill(to, length, end->packed++, 0);
}

static regx_status_t send_packed(end_t *end)
{
    return regx_tcp_send(end->conn, TAG, NULL, 0, pack_next, end, PACKED);
}

/* A socket that takes not a byte more. */
static int make_full_socket(int *other)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    while (send(ends[0], "", 1, MSG_DONTWAIT) == 1) {
    }
    *other = ends[1];
    return ends[0];
}

/* What was packed is gone from the convertor: who has to send again must not have packed. */
static void a_frame_is_packed_only_if_it_is_accepted(void **state)
{
    end_t low, high;
    int other;

    (void)state;
    open_both(&low, &high);
    high.packs = true;
    while (send_packed(&low) == REGX_AGAIN) {
        progress(&low, &high);
    }
    const int fd = low.tcp->links->fd, real = dup(fd), full = make_full_socket(&other);
    unsigned accepted = low.packed;

    assert_int_equal(dup2(full, fd), fd);
    for (int i = 0; i < 3; i++) {
        accepted += send_packed(&low) == REGX_OK;
        assert_int_equal(low.packed, accepted);
    }
    assert_int_equal(dup2(real, fd), fd);
    while (send_packed(&low) == REGX_AGAIN || low.packed < 10) {
        progress(&low, &high);
    }
    while (high.received < low.packed) {
        progress(&low, &high);
    }
    close(real);
    close(full);
    close(other);
    disconnect(&low);
    disconnect(&high);
    settle(&low, &high);
    check_links(&low, &high, 0);
    close_end(&low);
    close_end(&high);
}

/* Its id is neither lower nor higher than the peer's: both ends of the link are its own. */
static void a_process_can_send_to_itself(void **state)
{
    end_t here;

    (void)state;
    open_end(&here, LOW);
    here.peer = LOW;
    connect_to(&here, &here);
    while (here.received < 100) {
        if (here.sent < 100) {
            send_one(&here);
        }
        regx_tcp_progress(here.transport);
    }
    assert_int_equal(here.broken, 0);
    assert_int_equal(here.counters.malformed, 0);
    disconnect(&here);
    close_end(&here);
}

static void strangers_are_not_let_in(void **state)
{
    end_t here;

    (void)state;
    open_end(&here, LOW);
    for (int wrong = 0; wrong < 3; wrong++) {
        const uint64_t token = here.tcp->token ^ (wrong == 0);
        const regx_tcp_frame_t frame = {.kind = wrong == 1 ? REGX_TCP_FRAME : REGX_TCP_CONNECT,
                                        .sender = HIGH,
                                        .length = wrong == 2 ? 7 : sizeof(token)};
        uint8_t message[REGX_TCP_HEAD_MAX + sizeof(token)], byte;
        const size_t head = regx_tcp_encode(&frame, message);
        const int fd = socket(AF_INET, SOCK_STREAM, 0);

        memcpy(message + head, &token, sizeof(token));
        assert_int_equal(connect(fd, (struct sockaddr *)&here.tcp->at, here.tcp->at_length), 0);
        assert_int_equal(write(fd, message, head + frame.length), head + frame.length);
        while (recv(fd, &byte, 1, MSG_DONTWAIT) < 0) {
            regx_tcp_progress(here.transport);
        }
        close(fd);
        assert_int_equal(here.counters.malformed, wrong + 1);
    }
    assert_int_equal(here.received, 0);
    assert_int_equal(here.tcp->link_count, 0);
    close_end(&here);
}

/* Until there is one. */
static void a_peer_that_finds_no_descriptor_waits(void **state)
{
    struct rlimit limit;
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    assert_false(send_one(&low)); /* its socket is there */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    while (high.counters.fallbacks[0].count == 0) {
        progress(&low, &high);
    }
    settle(&low, &high);
    assert_int_equal(high.counters.fallbacks[0].count, 1);
    assert_string_equal(high.counters.fallbacks[0].reason,
                        "tcp: no descriptor is left for a peer that connects");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    exchange(&low, &high, 100);
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

static void a_loopback_reaches_its_own_host_alone(void **state)
{
    uint8_t address[REGX_ADDRESS_MAX];
    regx_conn_t *conn;
    end_t here;

    (void)state;
    open_end(&here, LOW);
    const size_t length = regx_tcp_address(here.transport, address);
    address[16] ^= 2; /* of the host */
    assert_int_equal(regx_tcp_connect(here.transport, HIGH, false, address, length, &conn),
                     REGX_UNREACHABLE);
    close_end(&here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_answers_does_so_by_the_same_socket),
        cmocka_unit_test(of_two_opened_at_once_one_is_kept),
        cmocka_unit_test(one_that_is_held_gets_in_if_the_other_comes_to_nothing),
        cmocka_unit_test(who_left_can_come_back),
        cmocka_unit_test(who_left_still_hears),
        cmocka_unit_test(a_frame_is_packed_only_if_it_is_accepted),
        cmocka_unit_test(a_process_can_send_to_itself),
        cmocka_unit_test(strangers_are_not_let_in),
        cmocka_unit_test(a_peer_that_finds_no_descriptor_waits),
        cmocka_unit_test(a_loopback_reaches_its_own_host_alone),
    };

    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
