/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What becomes of a connection when a device fails, refuses or reports something, or has no queue
 * pair to give: now, for long, or ever.
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

/* Something is awaited from the peer, and nothing is under way to it. */
static void a_peer_that_fails_while_it_is_only_awaited_is_noticed(void **state)
{
    (void)state;
    open_connected();
    side_fail(regx_ep_find(verbs_of(&two), ONE)->qp);
    alarm(UNIT_PATIENCE);
    while (one.broken == 0) {
        verbs_of(&one)->look.probe_next = 0;
        regx_transport_ops.progress(one.transport);
    }
    alarm(0);
    assert_non_null(strstr(one.what, "RDMA WRITE: "));
    assert_non_null(strstr(one.what, "retry counter exceeded"));
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

/* It is told at once, with the status, not that the peer is silent ten minutes later. */
static void a_datagram_that_fails_is_told_at_once_with_its_status(void **state)
{
    (void)state;
    open_faulty();
    faults.datagram_sent = IBV_WC_LOC_QP_OP_ERR;
    ask(&one);
    await_broken("connecting: local QP operation error (status 2, ");
    close_faulty();

    open_faulty();
    faults.datagram_received = IBV_WC_LOC_PROT_ERR;
    ask(&one);
    await_broken("connecting: local protection error (status 4, ");
    close_faulty();

    open_faulty();
    faults.datagram_post = EIO;
    ask(&one);
    await_broken("connecting: Input/output error");
    close_faulty();
}

/* No peer could be heard soon. */
static void a_refused_datagram_buffer_ends_the_connecting(void **state)
{
    (void)state;
    open_faulty();
    faults.datagram_receive_post = ENOMEM;
    ask(&two);
    await_broken("connecting: Cannot allocate memory");
    close_faulty();
}

/* Whom the queue pair of datagrams has connected needs it no more. */
static void connections_outlive_the_queue_pair_of_datagrams(void **state)
{
    (void)state;
    open_connected();
    side_fail(verbs_of(&one)->cm.qp);
    for (int i = 0; i < 100; i++) {
        sides_progress();
    }
    side_send(&one, 1, 2, 10);
    side_send(&two, 1, 2, 10);
    side_await(&one.delivered, 2);
    side_await(&two.delivered, 2);
    assert_int_equal(one.broken, 0);
    close_faulty();

    open_faulty();
    side_fail(verbs_of(&one)->cm.qp);
    ask(&one);
    await_broken("connecting: Work Request Flushed Error (status 5, ");
    close_faulty();

    open_faulty();
    ask(&one);
    faults.event = IBV_EVENT_QP_FATAL;
    faults.event_qp = verbs_of(&one)->cm.qp;
    regx_verbs_look(verbs_of(&one));
    await_broken("connecting: local work queue catastrophic error");
    close_faulty();
}

static void ask_until(unsigned count)
{
    regx_ep_t *asking = side_asking(&one);

    while (asking->cm.asked < count) {
        verbs_of(&one)->cm.ask_next = asking->cm.ask_next = 0;
        regx_transport_ops.progress(one.transport);
    }
}

/* It may be computing, for as long as it likes. */
static void a_peer_that_answers_late_is_waited_for(void **state)
{
    (void)state;
    sides_open(false);
    ask(&one);
    alarm(UNIT_PATIENCE);
    ask_until(499);
    assert_int_equal(one.silent, 0);
    ask_until(1500);
    assert_int_equal(one.silent, 1);
    assert_int_equal(one.broken, 0);
    side_send(&one, 1, 2, 10); /* now the other is there */
    side_await(&two.delivered, 1);
    alarm(0);
    assert_int_equal(one.silent, 1);
    sides_close();
}

/* What registered buffers have pinned may leave nothing for a queue pair, for a while; at either
 * end. */
static void a_queue_pair_waits_for_the_devices_memory(void **state)
{
    const side_t *const sides[] = {&one, &two};

    (void)state;
    for (int end = 0; end < 2; end++) {
        open_faulty();
        faults.making = ENOMEM;
        faults.makes = verbs_of(sides[end])->pd;
        ask(&one);
        alarm(UNIT_PATIENCE);
        for (uint64_t before = faults.refused; faults.refused < before + 3;) {
            sides_progress();
            if (end == 0) {
                ask(&one);
            }
        }
        assert_int_equal(one.broken + two.broken, 0);
        assert_int_equal(verbs_of(sides[end])->can.inline_max, REGX_VERBS_INLINE);
        faults.making = 0;
        side_send(&one, 1, 2, 10);
        side_await(&two.delivered, 1);
        alarm(0);
        close_faulty();
    }
}

static void a_device_that_never_has_memory_is_given_up(void **state)
{
    (void)state;
    open_faulty();
    faults.making = ENOMEM;
    faults.makes = verbs_of(&one)->pd;
    ask(&one);
    verbs_of(&one)->table.starved_since -= 60 * INT64_C(1000000000);
    while (regx_now_ns() < verbs_of(&one)->table.starved_until) {
    }
    ask(&one);
    await_broken("making a queue pair: Cannot allocate memory");
    close_faulty();
}

/* Once in a while is not for ever. */
static void memory_that_lacks_now_and_then_is_waited_for(void **state)
{
    (void)state;
    open_faulty();
    faults.making = ENOMEM;
    faults.makes = verbs_of(&one)->pd;
    ask(&one);
    verbs_of(&one)->table.starved_since -= 70 * INT64_C(1000000000);
    verbs_of(&one)->table.starved_until -= 70 * INT64_C(1000000000);
    ask(&one);
    faults.making = 0;
    side_send(&one, 1, 2, 10);
    side_await(&two.delivered, 1);
    close_faulty();
}

/* `two` asks by a queue pair of that epoch, which is no more than a number. */
static void hear_request(uint64_t epoch)
{
    const regx_cm_message_t message = {.version = REGX_VERBS_VERSION,
                                       .kind = REGX_CM_REQUEST,
                                       .qpn = 0x1234,
                                       .epoch = epoch,
                                       .from = TWO,
                                       .to = ONE,
                                       .address = verbs_of(&two)->address};
    const regx_cm_source_t source = {.qpn = message.address.qpn};
    uint8_t bytes[REGX_CM_MESSAGE_SIZE];

    memcpy(bytes, &message, sizeof(bytes));
    regx_cm_receive(verbs_of(&one), bytes, sizeof(bytes), &source);
}

/* The peer has another queue pair than the one that ours is connected to, and there is none for it
 * here, now or at all. */
static void a_peer_that_asks_anew_waits_for_a_queue_pair_or_is_lost(void **state)
{
    (void)state;
    open_faulty();
    hear_request(1);
    ask(&one);
    faults.making = ENOMEM;
    faults.makes = verbs_of(&one)->pd;
    hear_request(2);
    assert_int_equal(faults.refused, 1);
    for (int i = 0; i < 10; i++) {
        verbs_of(&one)->cm.ask_next = 0;
        sides_progress();
    }
    assert_int_equal(one.broken, 0);
    faults.making = 0;
    side_send(&one, 1, 2, 10);
    side_await(&two.delivered, 1);
    close_faulty();

    open_faulty();
    hear_request(1);
    ask(&one);
    side_asking(&one)->cm.ask_next = 0;
    verbs_of(&one)->cm.ask_next = 0;
    faults.making = EPERM;
    faults.makes = verbs_of(&one)->pd;
    hear_request(2);
    regx_cm_ask_due(verbs_of(&one)); /* would ask by a queue pair that is no more */
    await_broken("making a queue pair: Operation not permitted");
    close_faulty();
}

/* Another error does not pass. */
static void another_error_of_making_a_queue_pair_is_final(void **state)
{
    (void)state;
    open_faulty();
    faults.making = EPERM;
    faults.makes = verbs_of(&one)->pd;
    ask(&one);
    await_broken("making a queue pair: Operation not permitted");
    assert_int_equal(try_to_send(&one), REGX_UNREACHABLE);
    close_faulty();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_receive_that_fails_ends_the_connection),
        cmocka_unit_test(a_receive_that_cannot_be_posted_ends_the_connection),
        cmocka_unit_test(a_queue_that_cannot_be_polled_ends_the_connection),
        cmocka_unit_test(an_idle_queue_pair_that_fails_is_noticed),
        cmocka_unit_test(a_peer_that_fails_while_it_is_only_awaited_is_noticed),
        cmocka_unit_test(a_queue_pair_that_fails_in_mid_send_says_what_was_lost),
        cmocka_unit_test(a_broken_endpoints_receive_buffers_come_back),
        cmocka_unit_test(closing_does_not_wait_for_a_device_that_has_failed),
        cmocka_unit_test(a_datagram_that_fails_is_told_at_once_with_its_status),
        cmocka_unit_test(a_refused_datagram_buffer_ends_the_connecting),
        cmocka_unit_test(connections_outlive_the_queue_pair_of_datagrams),
        cmocka_unit_test(a_peer_that_answers_late_is_waited_for),
        cmocka_unit_test(a_queue_pair_waits_for_the_devices_memory),
        cmocka_unit_test(a_device_that_never_has_memory_is_given_up),
        cmocka_unit_test(memory_that_lacks_now_and_then_is_waited_for),
        cmocka_unit_test(a_peer_that_asks_anew_waits_for_a_queue_pair_or_is_lost),
        cmocka_unit_test(another_error_of_making_a_queue_pair_is_final),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
