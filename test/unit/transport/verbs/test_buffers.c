/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Receive buffers and slots: nobody waits for one because others compute, and none is lost. On
 * devices in memory.
 */
#include "fake_device.h"
#include "sides.h"

#include <errno.h>
#include <unistd.h>

enum { BUSY = 40, PATIENCE = 60 };

static side_t others[BUSY], three;

static int reset(void **state)
{
    (void)state;
    alarm(PATIENCE);
    fake_reset();
    side_settings = NULL;
    side_ports[0] = side_ports[1] = NULL;
    return 0;
}

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
        for (int n = 0; n < 4000; n++) {
            side_try(conns[i], 1024);
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
        const regx_buffers_t *buffers = &verbs_of(&one)->buffers;
        assert_int_equal(fake_srq_length(verbs_of(&one)->srq) + buffers->returned_count,
                         buffers->receives);
        regx_transport_ops.disconnect(two.conn);
        side_close(&one);
        side_close(&two);
    }
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
    const regx_buffers_t *buffers = &verbs_of(&one)->buffers;
    assert_int_equal(fake_srq_length(verbs_of(&one)->srq) + buffers->returned_count,
                     buffers->receives);
    regx_transport_ops.disconnect(conn);
    regx_transport_ops.disconnect(two.conn);
    side_close(&three);
    side_close(&one);
    side_close(&two);
}

/* Registering is slow, and every endpoint without a slot asks again and again. */
static void slots_that_cannot_be_registered_are_not_asked_for_at_once_again(void **state)
{
    static const char says[] = "verbs: no memory for more slots for a while";
    unsigned taken = 0;

    (void)state;
    sides_open(false);
    fake.register_error = ENOMEM;
    for (unsigned i = 0; i < 2 * REGX_VERBS_SLOTS; i++) {
        taken += regx_slot_take(verbs_of(&one), 0) != REGX_SLOT_NONE;
    }
    assert_int_equal(taken, REGX_VERBS_SLOTS);
    assert_true(fake.registers < REGX_VERBS_SLOTS / 2);
    assert_int_equal(regx_tally_find(one.counters.fallbacks, says)->count, 1);
    fake.register_error = 0;
    while (regx_slot_take(verbs_of(&one), 0) == REGX_SLOT_NONE) {
    }
    regx_transport_ops.disconnect(one.conn);
    regx_transport_ops.disconnect(two.conn);
    side_close(&one);
    side_close(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(busy_receivers_do_not_block_an_idle_one, reset),
        cmocka_unit_test_setup(disconnecting_in_a_put_loses_no_receive_buffers, reset),
        cmocka_unit_test_setup(new_queue_pair_gets_nothing_of_one_that_had_its_number, reset),
        cmocka_unit_test_setup(slots_that_cannot_be_registered_are_not_asked_for_at_once_again,
                               reset),
    };

    return cmocka_run_group_tests_name("verbs buffers", tests, NULL, NULL);
}
