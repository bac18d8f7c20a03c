/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Connecting, on a device whose datagrams fail, and to a peer that does not answer.
 */
#include "faulty.h"

#include <errno.h>
#include <unistd.h>

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

/* Nobody could be heard soon. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_datagram_that_fails_is_told_at_once_with_its_status),
        cmocka_unit_test(a_refused_datagram_buffer_ends_the_connecting),
        cmocka_unit_test(connections_outlive_the_queue_pair_of_datagrams),
        cmocka_unit_test(a_peer_that_answers_late_is_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
