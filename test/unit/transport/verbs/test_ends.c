/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How connections over a real device begin and end: handshakes, peers that fail or say nothing, and
 * those that come again.
 */
#include "sides.h"

/* Both ask at once, and one asks while the other does not answer for long. */
static void both_may_ask_for_a_connection_at_once(void **state)
{
    uint64_t stream = 3;

    (void)state;
    sides_open(false);
    assert_int_equal(regx_transport_ops.send(one.conn, 1, NULL, 0, side_pack, &stream, 10),
                     REGX_AGAIN);
    assert_int_equal(regx_transport_ops.send(two.conn, 1, NULL, 0, side_pack, &stream, 10),
                     REGX_AGAIN);
    side_send(&one, 1, 3, 10);
    side_send(&two, 1, 3, 10);
    side_await(&one.delivered, 1);
    side_await(&two.delivered, 1);
    sides_close();

    sides_open(false);
    assert_int_equal(regx_transport_ops.send(one.conn, 1, NULL, 0, side_pack, &stream, 10),
                     REGX_AGAIN);
    while (side_asking(&one)->cm.asked < 5) {
        regx_transport_ops.progress(one.transport); /* asks again and again */
    }
    side_send(&one, 1, 3, 10);
    side_await(&two.delivered, 1);
    assert_null(side_asking(&one));
    sides_close();
}

static void exchange(unsigned round)
{
    side_send(&one, 1, round, 3000);
    side_send(&two, 1, round, 3000);
    side_await(&one.delivered, round);
    side_await(&two.delivered, round);
}

static void await_unbroken(const unsigned *count, unsigned value)
{
    while (*count < value && one.broken + two.broken == 0) {
        sides_progress();
    }
    assert_int_equal(*count, value);
    assert_int_equal(one.broken + two.broken, 0);
}

/* Both have left, and the one that comes back first has not heard so of the other, whose queue pair
 * is gone. */
static void a_peer_that_returns_before_its_disconnect_is_heard_is_connected(void **state)
{
    (void)state;
    sides_open(false);
    exchange(1);
    regx_transport_ops.disconnect(one.conn);
    regx_transport_ops.disconnect(two.conn);
    while (verbs_of(&two)->table.count > 0) {
        regx_transport_ops.progress(two.transport);
    }
    assert_int_equal(verbs_of(&one)->table.count, 1);
    side_connect(&one, &two);
    side_connect(&two, &one);
    side_send(&one, 1, 2, 3000);
    await_unbroken(&two.delivered, 2);
    side_send(&two, 1, 2, 3000);
    await_unbroken(&one.delivered, 2);
    sides_close();
}

/* The other stayed, and heard goodbye before or did not; then both have another queue pair. */
static void a_peer_that_returns_to_one_that_stayed_is_connected(void **state)
{
    (void)state;
    sides_open(false);
    side_send(&one, 1, 1, 3000);
    side_await(&two.delivered, 1);
    for (unsigned round = 2; round < 30; round++) {
        const uint64_t epoch = regx_ep_find(verbs_of(&two), ONE)->epoch;

        regx_transport_ops.disconnect(one.conn);
        while (round % 2 == 0 && verbs_of(&one)->table.count + verbs_of(&two)->table.count > 0) {
            sides_progress();
        }
        side_connect(&one, &two);
        side_send(&one, 1, round, 3000);
        await_unbroken(&two.delivered, round);
        assert_true(regx_ep_find(verbs_of(&two), ONE)->epoch > epoch);
    }
    side_send(&two, 1, 1, 3000);
    await_unbroken(&one.delivered, 1);
    sides_close();
}

/* What the one who stayed had accepted still arrives by the old queue pair, before what it sends by
 * the new one. */
static void what_was_accepted_before_the_other_came_back_arrives_first(void **state)
{
    const unsigned count = 20;
    regx_put_t put = {.length = 3000,
                      .target = REGX_TARGET_POOL,
                      .notice_length = 8,
                      .tag = count % 251,
                      .done = side_put_done};

    (void)state;
    sides_open(false);
    exchange(1);
    one.on_deliver = side_in_order;
    side_expected = 0;
    regx_transport_ops.disconnect(one.conn);
    side_connect(&one, &two);
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(regx_transport_ops.send(two.conn, (uint8_t)i, NULL, 0, side_pack, &i, 700),
                         REGX_OK);
    }
    put.local = two.transport->pool_memory;
    unit_fill(put.notice, 8, count, 0);
    done_ok = done_failed = 0;
    assert_int_equal(regx_transport_ops.put(two.conn, &put), REGX_PENDING);
    side_send(&one, 1, 2, 3000);
    await_unbroken(&one.delivered, 1 + count + 1);
    side_send(&two, (count + 1) % 251, count + 1, 3000);
    await_unbroken(&one.delivered, 1 + count + 2);
    assert_int_equal(done_ok, 1);
    sides_close();
}

static unsigned leave_or_return(side_t *side, const side_t *other)
{
    if (side->conn == NULL) {
        side_connect(side, other);
        return 1;
    }
    /* As under MPI, where what was to be sent has been sent before anybody leaves. */
    const regx_ep_t *ep = ((regx_verbs_conn_t *)side->conn)->ep;
    if (ep == NULL || ep->state == REGX_EP_READY) {
        regx_transport_ops.disconnect(side->conn);
        side->conn = NULL;
    }
    return 0;
}

/* Whatever both do, in whatever order: what was accepted arrives. */
static void what_was_accepted_arrives_in_any_order_of_disconnects(void **state)
{
    uint64_t random = 1, stream = 5;
    unsigned sent[2] = {0, 0}, returns = 0;
    side_t *const sides[2] = {&one, &two};

    (void)state;
    sides_open(false);
    while (returns < 100) {
        const uint64_t drawn = chance_next(&random);
        const int which = (int)(drawn & 1);
        side_t *side = sides[which];

        if ((drawn >> 1 & 15) > 3) {
            regx_transport_ops.progress(side->transport);
        } else if (side->conn == NULL || (drawn >> 5 & 127) == 0) {
            returns += leave_or_return(side, sides[1 - which]);
        } else if (regx_transport_ops.send(side->conn, 1, NULL, 0, side_pack, &stream, 700) ==
                   REGX_OK) {
            sent[which]++;
        }
        assert_int_equal(one.broken + two.broken, 0);
    }
    assert_true(sent[0] > 0 && sent[1] > 0);
    await_unbroken(&two.delivered, sent[0]);
    await_unbroken(&one.delivered, sent[1]);
    for (int which = 0; which < 2; which++) {
        if (sides[which]->conn == NULL) {
            side_connect(sides[which], sides[1 - which]);
        }
        side_send(sides[which], 1, stream, 700);
    }
    await_unbroken(&two.delivered, sent[0] + 1);
    await_unbroken(&one.delivered, sent[1] + 1);
    sides_close();
}

/* A datagram that comes after its queue pair has ended leads no peer to it for long. */
static void a_request_that_comes_late_does_no_harm(void **state)
{
    uint8_t bytes[REGX_CM_MESSAGE_SIZE];

    (void)state;
    sides_open(false);
    exchange(1);

    const regx_ep_t *ep = regx_ep_find(verbs_of(&one), TWO);
    const regx_cm_message_t message = {.version = REGX_VERBS_VERSION,
                                       .kind = REGX_CM_REQUEST,
                                       .qpn = ep->qp->qp_num,
                                       .psn = ep->psn,
                                       .epoch = ep->epoch,
                                       .from = ONE,
                                       .to = TWO,
                                       .address = verbs_of(&one)->address};
    const regx_cm_source_t source = {.qpn = message.address.qpn};
    memcpy(bytes, &message, sizeof(bytes));
    regx_transport_ops.disconnect(one.conn);
    regx_transport_ops.disconnect(two.conn);
    while (verbs_of(&one)->table.count + verbs_of(&two)->table.count > 0) {
        sides_progress();
    }
    side_connect(&one, &two);
    side_connect(&two, &one);
    regx_cm_receive(verbs_of(&two), bytes, sizeof(bytes), &source);
    regx_put_t put = {.local = two.transport->pool_memory,
                      .length = 3000,
                      .target = REGX_TARGET_POOL,
                      .notice_length = 8,
                      .done = side_put_done};
    done_ok = done_failed = 0;
    while (regx_transport_ops.put(two.conn, &put) == REGX_AGAIN) { /* it waits for the connection */
        sides_progress();
    }
    side_send(&one, 1, 2, 3000);
    side_await(&two.delivered, 2);
    side_await(&done_ok, 1);
    side_await(&one.delivered, 2);
    regx_cm_receive(verbs_of(&two), bytes, sizeof(bytes), &source);
    side_send(&two, 1, 2, 3000);
    side_await(&one.delivered, 3);
    assert_int_equal(one.broken + two.broken, 0);
    sides_close();
}

/* Each of these bytes has values that mean nothing; and a port of another kind is no peer. */
static void hostile_addresses_are_refused(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
    } wrong[] = {{0, 0},  {0, REGX_VERBS_VERSION + 1},
                 {1, 0},  {1, 3},
                 {3, 0},  {3, 6},
                 {32, 4}, {33, 129},
                 {34, 1}, {35, 1}};
    uint8_t address[REGX_ADDRESS_MAX];
    regx_conn_t *conn;

    (void)state;
    sides_open(false);
    const size_t length = regx_transport_ops.address(two.transport, address);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const uint8_t right = address[wrong[i].at];

        address[wrong[i].at] = wrong[i].value;
        assert_int_equal(regx_transport_ops.connect(one.transport, 77, address, length, &conn),
                         REGX_INVALID);
        assert_false(regx_transport_ops.reaches(one.transport, address, length));
        address[wrong[i].at] = right;
    }
    address[1] = address[1] == REGX_VERBS_ETHERNET ? REGX_VERBS_INFINIBAND : REGX_VERBS_ETHERNET;
    assert_int_equal(regx_transport_ops.connect(one.transport, 77, address, length, &conn),
                     REGX_UNREACHABLE);
    sides_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_may_ask_for_a_connection_at_once),
        cmocka_unit_test(a_peer_that_returns_before_its_disconnect_is_heard_is_connected),
        cmocka_unit_test(a_peer_that_returns_to_one_that_stayed_is_connected),
        cmocka_unit_test(what_was_accepted_before_the_other_came_back_arrives_first),
        cmocka_unit_test(what_was_accepted_arrives_in_any_order_of_disconnects),
        cmocka_unit_test(a_request_that_comes_late_does_no_harm),
        cmocka_unit_test(hostile_addresses_are_refused),
    };

    alarm(UNIT_PATIENCE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
