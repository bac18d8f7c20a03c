/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Receive buffers and slots: no peer waits for one because others compute, and none is lost. On
 * devices in memory.
 */
#include "fake_device.h"
#include "verbs_parties.h"

enum { BUSY = 40 };

/* Neither waits for the other. */
static void drop_both(void)
{
    regx_transport_ops.disconnect(two.conn);
    regx_transport_ops.disconnect(one.conn);
    party_drop(&one);
    party_drop(&two);
}

static party_t others[BUSY];

/* Receivers that compute hold what was sent to them, by slots and in requests, and leave something of
 * both for one that is idle. */
VERBS_TEST(busy_receivers_do_not_block_an_idle_one)
{
    static const size_t lengths[] = {1024, 10};
    regx_conn_t *conns[BUSY];

    parties_open(false);
    verbs_of(&one)->requests.max = BUSY / 2 * REGX_VERBS_DEPTH;
    for (unsigned i = 0; i < BUSY; i++) {
        party_open(&others[i], THREE + i, false);
        conns[i] = one_connect(&others[i]);
        while (conn_try(conns[i], 10) != REGX_OK) {
            regx_transport_ops.progress(one.transport);
            regx_transport_ops.progress(others[i].transport);
        }
    }
    party_send(&one, 1, 1, 10);
    parties_await(&two.delivered, 1);
    for (unsigned i = 0; i < BUSY; i++) {
        for (int refused = 0; refused < 100;) { /* until it takes no more */
            refused = conn_try(conns[i], lengths[i % 2]) == REGX_OK ? 0 : refused + 1;
            regx_transport_ops.progress(one.transport);
        }
    }
    for (unsigned round = 2; round < 20; round++) {
        for (int n = 0; n < 100 && conn_try(one.conn, lengths[round % 2]) != REGX_OK; n++) {
            parties_progress();
        }
        for (int n = 0; n < 100 && two.delivered < round; n++) {
            parties_progress();
        }
        assert_int_equal(two.delivered, round);
    }
    for (unsigned i = 0; i < BUSY; i++) {
        regx_transport_ops.disconnect(conns[i]);
        party_drop(&others[i]);
    }
    drop_both();
}

static void assert_no_receive_buffer_is_lost(void)
{
    const regx_verbs_buffers_t *buffers = &verbs_of(&one)->buffers;

    assert_int_equal(fake_srq_length(verbs_of(&one)->srq) + buffers->returned_count,
                     buffers->receives);
}

/* What `two` has sent has arrived at `one`, which disconnects before it has read it and while it puts
 * something itself. Returns the number of its queue pair. */
static uint32_t disconnect_in_a_put(void)
{
    op_t put;

    parties_exchange();
    for (int i = 0; i < 30; i++) {
        conn_try(two.conn, 100);
    }
    regx_transport_ops.progress(two.transport);
    op_put(&put, one.transport->pool_memory, 5000, REGX_TARGET_POOL, 0);
    assert_int_equal(regx_transport_ops.put(one.conn, &put.put), REGX_PENDING);
    const uint32_t number = ep_of(&one, TWO)->qpn;
    const unsigned delivered = one.delivered;
    regx_transport_ops.disconnect(one.conn);
    assert_int_equal(put.ended, 1);
    assert_int_equal(one.delivered, delivered);
    return number;
}

/* `two` has sent much that `one` has not read when the queue pair fails. It is destroyed some time
 * after, however much is unread then: the program may have been away. Returns its number. */
static uint32_t fail_with_much_unread(void)
{
    /* More than two calls of progress handle, if there are so many buffers. */
    const unsigned frames = (unsigned)regx_min(300, verbs_of(&one)->buffers.receives);

    parties_exchange();
    for (int i = 0; i < (int)frames; i++) {
        until(conn_try(two.conn, 100) == REGX_OK, regx_transport_ops.progress(two.transport));
    }
    regx_transport_ops.progress(two.transport); /* they have arrived at `one` */
    regx_ep_t *ep = ep_of(&one, TWO);
    const uint32_t number = ep->qpn;
    regx_ep_break(ep, "receiving", "as if it had failed");
    regx_transport_ops.progress(one.transport);
    assert_non_null(ep->qp);
    const unsigned delivered = one.delivered;
    ep->rest.since = 1;
    until(ep->qp == NULL, regx_transport_ops.progress(one.transport));
    assert_int_equal(one.delivered, delivered); /* after it was told, nothing is heard */
    return number;
}

/* A device may forget completions of a queue pair that is destroyed, and with them the receive
 * buffers: where `one` disconnects in a put, or the queue pair has failed long ago. */
VERBS_TEST(the_end_of_a_queue_pair_loses_no_receive_buffers)
{
    for (int failed = 0; failed < 2; failed++) {
        fake_reset();
        fake.ports[0].drops_receives = true;
        parties_open(false);
        if (failed) {
            fail_with_much_unread();
        } else {
            disconnect_in_a_put();
        }
        for (int i = 0; i < 100; i++) {
            parties_progress();
        }
        assert_no_receive_buffer_is_lost();
        if (!failed) {
            one.conn = one_connect(&two);
        }
        drop_both();
    }
}

/* A device may give the number of a queue pair to the next one. What completed for the first is not
 * taken for the second's. */
static void the_next_queue_pair_of_that_number_gets_nothing(uint32_t number, regx_conn_t *conn)
{
    const unsigned delivered = one.delivered;

    assert_int_equal(conn_try(conn, 10), REGX_AGAIN);
    assert_int_equal(ep_of(&one, THREE)->qpn, number);
    for (int i = 0; i < 100; i++) {
        regx_transport_ops.progress(one.transport);
    }
    assert_int_equal(one.delivered, delivered);
    assert_no_receive_buffer_is_lost();
    regx_transport_ops.disconnect(conn);
    party_drop(&three);
    drop_both();
}

static regx_conn_t *open_three(void)
{
    parties_open(false);
    party_open(&three, THREE, false);
    return one_connect(&three);
}

VERBS_TEST(new_queue_pair_gets_nothing_of_one_that_had_its_number)
{
    regx_conn_t *conn = open_three();
    the_next_queue_pair_of_that_number_gets_nothing(fail_with_much_unread(), conn);

    conn = open_three();
    const uint32_t number = disconnect_in_a_put();
    one.conn = one_connect(&two);
    the_next_queue_pair_of_that_number_gets_nothing(number, conn);
}
