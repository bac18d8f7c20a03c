/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What becomes of a connection when a device fails, or reports something.
 */
#include "faulty.h"

#include <errno.h>
#include <unistd.h>

static void a_receive_that_fails_ends_the_connection(void **state)
{
    (void)state;
    open_connected();
    faults.received = IBV_WC_LOC_LEN_ERR;
    side_send(&two, 1, 2, 10);
    await_broken("receiving: local length error");
    assert_int_equal(one.delivered, 1);
    close_faulty();
}

/* The peer would try again without end. */
static void a_receive_that_cannot_be_posted_ends_the_connection(void **state)
{
    uint64_t stream = 1;

    (void)state;
    open_connected();
    faults.receive_post = ENOMEM;
    alarm(UNIT_PATIENCE);
    while (one.broken == 0) {
        regx_transport_ops.send(two.conn, 1, NULL, 0, side_pack, &stream, 10);
        sides_progress();
    }
    alarm(0);
    assert_string_equal(one.what, "receive queue: Cannot allocate memory");
    assert_int_equal(one.delivered,
                     verbs_of(&one)->buffers.receives); /* all that there were were used */
    close_faulty();
}

static void a_queue_that_cannot_be_polled_ends_the_connection(void **state)
{
    (void)state;
    open_connected();
    faults.poll = true;
    await_broken("completion queue: it cannot be polled");
    close_faulty();
}

/* Nothing is under way that could fail. */
static void an_idle_queue_pair_that_fails_is_noticed(void **state)
{
    (void)state;
    open_connected();
    faults.event = IBV_EVENT_QP_LAST_WQE_REACHED;
    faults.event_qp = regx_ep_find(verbs_of(&one), TWO)->qp;
    regx_verbs_look(verbs_of(&one));
    await_broken("queue pair: last WQE reached");
    close_faulty();
}

/* More than the other side, which stands still, can take. */
static void send_too_much(const side_t *from)
{
    uint64_t stream = 1;
    unsigned sent = 0;

    while (sent <= RECEIVES) {
        sent += regx_transport_ops.send(from->conn, 1, NULL, 0, side_pack, &stream, 10) == REGX_OK;
        regx_transport_ops.progress(from->transport);
    }
}

/* Waits until the device of `one` has completed so many: receives, or else requests in error. They
 * are polled later. */
static void await_completions(bool receives, unsigned count)
{
    alarm(UNIT_PATIENCE);
    while (count > 0) {
        struct ibv_wc *wc = &faults.held[faults.held_end];

        assert_true(faults.held_end < HELD);
        if (faults.ops.poll_cq(verbs_of(&one)->cq, 1, wc) == 1) {
            faults.held_end++;
            count -= receives ? (wc->wr_id & REGX_RECEIVED) != 0 : wc->status != IBV_WC_SUCCESS;
        }
    }
    alarm(0);
}

/* A completion says what was lost, and how; it is heard first. */
static void a_queue_pair_that_fails_in_mid_send_says_what_was_lost(void **state)
{
    (void)state;
    open_connected();
    send_too_much(&one);
    regx_ep_t *ep = regx_ep_find(verbs_of(&one), TWO);
    side_fail(ep->qp);
    await_completions(false, 1);
    faults.event = IBV_EVENT_QP_LAST_WQE_REACHED;
    faults.event_qp = ep->qp;
    regx_verbs_look(verbs_of(&one));
    await_broken("SEND: Work Request Flushed Error (status 5, ");
    close_faulty();
}

/* What a broken endpoint has received is polled, so that its buffers come back, before its queue
 * pair is destroyed. */
static void a_broken_endpoints_receive_buffers_come_back(void **state)
{
    (void)state;
    open_connected();
    send_too_much(&two);
    await_completions(true, RECEIVES - verbs_of(&one)->buffers.returned_count);
    regx_ep_break(regx_ep_find(verbs_of(&one), TWO), "test", "it shall end");
    alarm(UNIT_PATIENCE);
    while (one.broken == 0) {
        regx_transport_ops.progress(one.transport);
    }
    const unsigned delivered = one.delivered;
    sides_settle();
    alarm(0);
    for (int i = 0; i < 100; i++) {
        regx_transport_ops.progress(one.transport);
    }
    assert_int_equal(faults.lost, 0);
    assert_int_equal(one.delivered, delivered); /* after that was told, nothing is heard */
    close_faulty();
}

/* A device that has failed completes nothing, and who closes waits for what is under way. */
static void closing_does_not_wait_for_a_device_that_has_failed(void **state)
{
    (void)state;
    open_connected();
    send_too_much(&one);
    faults.event = IBV_EVENT_DEVICE_FATAL;
    faults.event_qp = verbs_of(&one)->cm.qp;
    regx_transport_ops.disconnect(one.conn);
    alarm(UNIT_PATIENCE);
    regx_transport_ops.close(one.transport);
    alarm(0);
    regx_transport_ops.disconnect(two.conn);
    regx_transport_ops.close(two.transport);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_receive_that_fails_ends_the_connection),
        cmocka_unit_test(a_receive_that_cannot_be_posted_ends_the_connection),
        cmocka_unit_test(a_queue_that_cannot_be_polled_ends_the_connection),
        cmocka_unit_test(an_idle_queue_pair_that_fails_is_noticed),
        cmocka_unit_test(a_queue_pair_that_fails_in_mid_send_says_what_was_lost),
        cmocka_unit_test(a_broken_endpoints_receive_buffers_come_back),
        cmocka_unit_test(closing_does_not_wait_for_a_device_that_has_failed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
