/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Receive buffers and slots: no peer waits for one because others compute, and none is lost. On
 * devices in memory.
 */
#include "fake_sides.h"

#include <unistd.h>

enum { BUSY = 40 };

static side_t others[BUSY], three;

/* Receivers that compute hold what was sent to them, and leave something for one that is idle. */
static void busy_receivers_do_not_block_an_idle_one(void **state)
{
    regx_conn_t *conns[BUSY];

    (void)state;
    sides_open_many(others, conns, BUSY);
    for (unsigned i = 0; i < BUSY; i++) {
        while (side_try(conns[i], 10) != REGX_OK) {
            regx_transport_ops.progress(one.transport);
            regx_transport_ops.progress(others[i].transport);
        }
    }
    side_send(&one, 1, 1, 10);
    side_await(&two.delivered, 1);
    for (unsigned i = 0; i < BUSY; i++) {
        for (int refused = 0; refused < 100;) { /* until it takes no more */
            refused = side_try(conns[i], 1024) == REGX_OK ? 0 : refused + 1;
            regx_transport_ops.progress(one.transport);
        }
    }
    for (unsigned round = 2; round < 20; round++) {
        for (int n = 0; n < 100 && side_try(one.conn, 1024) != REGX_OK; n++) {
            sides_progress();
        }
        for (int n = 0; n < 100 && two.delivered < round; n++) {
            sides_progress();
        }
        assert_int_equal(two.delivered, round);
    }
    sides_close_many(others, conns, BUSY);
}

static void assert_no_receive_buffer_is_lost(void)
{
    const regx_verbs_buffers_t *buffers = &verbs_of(&one)->buffers;

    assert_int_equal(fake_srq_length(verbs_of(&one)->srq) + buffers->returned_count,
                     buffers->receives);
}

static void put_may_fail(regx_put_t *put, regx_status_t status)
{
    (void)put;
    (void)status;
    done_failed++;
}

/* A device may forget completions of a queue pair that is destroyed, and with them the receive
 * buffers. */
static void disconnecting_in_a_put_loses_no_receive_buffers(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        fake_reset();
        fake.ports[0].drops_receives = true;
        sides_open(false);
        sides_exchange(1, 100);
        for (int i = 0; i < 30; i++) {
            side_try(two.conn, 100);
        }
        regx_transport_ops.progress(two.transport); /* they have arrived at `one` */
        regx_put_t put = {.local = one.transport->pool_memory,
                          .length = 5000,
                          .target = REGX_TARGET_POOL,
                          .notice_length = 8,
                          .done = put_may_fail};
        done_failed = 0;
        assert_int_equal(regx_transport_ops.put(one.conn, &put), REGX_PENDING);
        regx_transport_ops.disconnect(one.conn);
        assert_int_equal(done_failed, 1);
        for (int i = 0; i < 100; i++) {
            sides_progress();
        }
        assert_no_receive_buffer_is_lost();
        regx_transport_ops.disconnect(two.conn);
        side_close(&one);
        side_close(&two);
    }
}

/* `two` has sent much that `one` has not read when the queue pair fails. It is destroyed some time
 * after, however much is unread then: the program may have been away. Returns its number. */
static uint32_t fail_with_much_unread(void)
{
    enum { FRAMES = 300 }; /* more than two calls of progress handle */

    sides_exchange(1, 100);
    for (int i = 0; i < FRAMES; i++) {
        while (side_try(two.conn, 100) != REGX_OK) {
            regx_transport_ops.progress(two.transport);
        }
    }
    regx_transport_ops.progress(two.transport); /* they have arrived at `one` */
    regx_ep_t *ep = regx_ep_find(verbs_of(&one), TWO);
    const uint32_t number = ep->qpn;
    regx_ep_break(ep, "receiving", "as if it had failed");
    regx_transport_ops.progress(one.transport);
    assert_non_null(ep->qp);
    ep->rest.since = 1;
    while (ep->qp != NULL) {
        regx_transport_ops.progress(one.transport);
    }
    return number;
}

static void a_queue_pair_that_failed_long_ago_loses_no_receive_buffers(void **state)
{
    (void)state;
    fake.ports[0].drops_receives = true;
    sides_open(false);
    fail_with_much_unread();
    for (int i = 0; i < 100; i++) {
        sides_progress();
    }
    assert_no_receive_buffer_is_lost();
    regx_transport_ops.disconnect(one.conn);
    regx_transport_ops.disconnect(two.conn);
    side_close(&one);
    side_close(&two);
}

static void a_queue_pair_that_failed_long_ago_leaves_nothing_to_the_next(void **state)
{
    (void)state;
    sides_open(false);
    side_open(&three, THREE, ONE, false);
    const uint32_t number = fail_with_much_unread();
    const unsigned delivered = one.delivered;
    regx_conn_t *conn = side_connect_one_to(&three);
    assert_int_equal(side_try(conn, 10), REGX_AGAIN);
    assert_int_equal(regx_ep_find(verbs_of(&one), THREE)->qpn, number);
    for (int i = 0; i < 100; i++) {
        regx_transport_ops.progress(one.transport);
    }
    assert_int_equal(one.delivered, delivered);
    assert_no_receive_buffer_is_lost();
    regx_transport_ops.disconnect(conn);
    regx_transport_ops.disconnect(one.conn);
    regx_transport_ops.disconnect(two.conn);
    side_close(&three);
    side_close(&one);
    side_close(&two);
}

/* A device may give the number of a queue pair to the next one. What completed for the first while
 * it was ended is not taken for the second's. */
static void new_queue_pair_gets_nothing_of_one_that_had_its_number(void **state)
{
    regx_put_t put = {
        .length = 5000, .target = REGX_TARGET_POOL, .notice_length = 8, .done = put_may_fail};

    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    side_open(&three, THREE, ONE, false);
    regx_conn_t *conn = side_connect_one_to(&three);
    for (int i = 0; i < 30; i++) {
        side_try(two.conn, 100);
    }
    regx_transport_ops.progress(two.transport); /* they have arrived at `one` */
    const uint32_t number = regx_ep_find(verbs_of(&one), TWO)->qp->qp_num;
    put.local = one.transport->pool_memory;
    done_failed = 0;
    assert_int_equal(regx_transport_ops.put(one.conn, &put), REGX_PENDING);
    regx_transport_ops.disconnect(one.conn);
    assert_int_equal(done_failed, 1);
    assert_int_equal(side_try(conn, 10), REGX_AGAIN);
    assert_int_equal(regx_ep_find(verbs_of(&one), THREE)->qp->qp_num, number);
    for (int i = 0; i < 10; i++) {
        regx_transport_ops.progress(one.transport);
    }
    assert_int_equal(one.delivered, 1);
    assert_no_receive_buffer_is_lost();
    regx_transport_ops.disconnect(conn);
    regx_transport_ops.disconnect(two.conn);
    side_close(&three);
    side_close(&one);
    side_close(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(busy_receivers_do_not_block_an_idle_one, fake_sides_reset),
        cmocka_unit_test_setup(disconnecting_in_a_put_loses_no_receive_buffers, fake_sides_reset),
        cmocka_unit_test_setup(a_queue_pair_that_failed_long_ago_loses_no_receive_buffers,
                               fake_sides_reset),
        cmocka_unit_test_setup(a_queue_pair_that_failed_long_ago_leaves_nothing_to_the_next,
                               fake_sides_reset),
        cmocka_unit_test_setup(new_queue_pair_gets_nothing_of_one_that_had_its_number,
                               fake_sides_reset),
    };

    return cmocka_run_group_tests_name("verbs buffers", tests, NULL, NULL);
}
