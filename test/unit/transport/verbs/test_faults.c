/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What becomes of a connection when a device fails, refuses or reports something, or has no queue
 * pair to give: now, for long, or ever. On devices in memory, of which that of `one` is told what to
 * do. (test/hazard/test_verbs_faults.py has a real one.)
 */
#include "fake_parties.h"

#include <limits.h>

static fake_port_t *const faulty = &fake.ports[0];

/* The device does what it should again. */
static void close_faulty(void)
{
    memset(&faulty->faults, 0, sizeof(faulty->faults));
    verbs_close();
}

#define FAULTY_OPEN_TEST(test)                                                                     \
    UNIT_TEST_WITHIN(test, verbs_reset, fake_open_two(false), close_faulty())
#define FAULTY_TEST(test)                                                                          \
    UNIT_TEST_WITHIN(test, verbs_reset, fake_open_connected(false), close_faulty())

static void tell(enum ibv_event_type type, struct ibv_qp *qp)
{
    const struct ibv_async_event event = {.element.qp = qp, .event_type = type};

    fake_tell(qp->context, &event);
}

FAULTY_TEST(a_receive_that_fails_ends_the_connection)
{
    faulty->faults.received = IBV_WC_LOC_LEN_ERR;
    party_send(&two, 1, 2, 10);
    await_broken("receiving: local length error");
    assert_int_equal(one.delivered, 1);
}

/* The peer would try again without end. */
FAULTY_TEST(a_receive_that_cannot_be_posted_ends_the_connection)
{
    faulty->faults.receive_post = ENOMEM;
    while (one.broken == 0) {
        conn_try(two.conn, 10);
        parties_progress();
    }
    await_broken("receive queue: Cannot allocate memory");
    assert_int_equal(one.delivered,
                     verbs_of(&one)->buffers.receives); /* all that there were were used */
}

FAULTY_TEST(a_queue_that_cannot_be_polled_ends_the_connection)
{
    faulty->faults.poll = true;
    await_broken("completion queue: it cannot be polled");
}

/* Nothing is under way that could fail. */
FAULTY_TEST(an_idle_queue_pair_that_fails_is_noticed)
{
    tell(IBV_EVENT_QP_LAST_WQE_REACHED, ep_of(&one, TWO)->qp);
    regx_verbs_look(verbs_of(&one));
    await_broken("queue pair: last WQE reached");
}

/* Its queue pair fails, which a probe finds out. */
static void lose_two(void)
{
    qp_fail(ep_of(&two, ONE)->qp);
    while (one.broken == 0) {
        verbs_of(&one)->look.probe_next = 0;
        regx_transport_ops.progress(one.transport);
    }
    await_broken("RDMA WRITE: transport retry counter exceeded");
}

/* Something is awaited from the peer, and nothing is under way to it. */
FAULTY_TEST(a_peer_that_fails_while_it_is_only_awaited_is_noticed)
{
    lose_two();
}

/* More than the other, which stands still, can take. */
static void send_too_much(void)
{
    unsigned sent = 0;

    while (sent <= verbs_of(&two)->buffers.receives) {
        sent += conn_try(one.conn, 10) == REGX_OK;
        regx_transport_ops.progress(one.transport);
    }
}

/* A completion says what was lost, and how; it is heard first. */
FAULTY_TEST(a_queue_pair_that_fails_in_mid_send_says_what_was_lost)
{
    send_too_much();
    qp_fail(ep_of(&one, TWO)->qp); /* it reports that it takes no more receives */
    regx_verbs_look(verbs_of(&one));
    await_broken("SEND: Work Request Flushed Error (status 5, ");
}

/* A device that has failed completes nothing, and who closes waits for what is under way. */
VERBS_TEST(closing_does_not_wait_for_a_device_that_has_failed)
{
    fake_open_connected(false);
    send_too_much();
    tell(IBV_EVENT_DEVICE_FATAL, verbs_of(&one)->cm.qp);
    party_end(&one);
    party_end(&two);
}

/* Soft-RoCE of Linux 6.12 and 7.3 says no more of memory that cannot be read. */
FAULTY_TEST(a_failure_that_is_told_as_flushed_is_one_of_its_own)
{
    static uint8_t bytes[5000];
    regx_mr_t mr;
    op_t put;

    party_reg(&one, bytes, sizeof(bytes), REGX_ACCESS_LOCAL, &mr);
    op_put(&put, bytes, sizeof(bytes), REGX_TARGET_POOL, 0);
    put.put.region = &mr;
    struct ibv_mr gone = *(struct ibv_mr *)mr.handle;
    ibv_dereg_mr(mr.handle);
    mr.handle = &gone;
    faulty->faults.flushes = true;
    op_start_put(&one, &put);
    await_broken(
        "RDMA WRITE: Work Request Flushed Error (status 5, vendor's 0) and no error before "
        "it: its memory cannot be reached, or the queue pair failed");
    parties_await(&put.ended, 1);
    assert_int_equal(put.status, REGX_FAILED);
}

static unsigned pauses;

UNIT_WRAP(int, nanosleep, const struct timespec *pause, struct timespec *left)
{
    pauses++;
    return 0;
}

/* Its device tries for seconds to reach a peer that is gone, and others may need the core. */
VERBS_TEST(closing_sleeps_between_looks_at_what_is_under_way)
{
    enum { POLLS = 1000000 };

    fake_open_connected(false);
    faulty->faults.stalled = POLLS;
    pauses = 0;
    party_end(&one);
    assert_int_equal(faulty->faults.stalled, 0);
    assert_true(pauses > POLLS / 2);
    party_end(&two);
}

/* It is told at once, with the status, not that the peer is silent ten minutes later. */
VERBS_TEST(a_datagram_that_fails_is_told_at_once_with_its_status)
{
    static const char *const says[] = {"connecting: local QP operation error (status 2, ",
                                       "connecting: local protection error (status 4, ",
                                       "connecting: Input/output error"};

    for (unsigned i = 0; i < 3; i++) {
        fake_open_two(false);
        faulty->faults.datagram_sent = i == 0 ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_SUCCESS;
        faulty->faults.datagram_received = i == 1 ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS;
        faulty->faults.datagram_post = i == 2 ? EIO : 0;
        one_asks();
        await_broken(says[i]);
        close_faulty();
    }
}

/* No peer could be heard soon. */
FAULTY_OPEN_TEST(a_refused_datagram_buffer_ends_the_connecting)
{
    faulty->faults.datagram_receive_post = ENOMEM;
    assert_int_equal(conn_try(two.conn, 10), REGX_AGAIN);
    await_broken("connecting: Cannot allocate memory");
}

/* Whom the queue pair of datagrams has connected needs it no more. */
VERBS_TEST(connections_outlive_the_queue_pair_of_datagrams)
{
    fake_open_connected(false);
    qp_fail(verbs_of(&one)->cm.qp);
    for (int i = 0; i < 100; i++) {
        parties_progress();
    }
    parties_exchange();
    close_faulty();

    fake_open_two(false);
    qp_fail(verbs_of(&one)->cm.qp);
    one_asks();
    await_broken("connecting: Work Request Flushed Error (status 5, ");
    close_faulty();

    fake_open_two(false);
    one_asks();
    tell(IBV_EVENT_QP_FATAL, verbs_of(&one)->cm.qp);
    regx_verbs_look(verbs_of(&one));
    await_broken("connecting: local work queue catastrophic error");
    close_faulty();
}

static void ask_until(unsigned count)
{
    regx_ep_t *asking = ep_of(&one, TWO);

    while (asking->cm.asked < count) {
        verbs_of(&one)->cm.next = asking->cm.next = 0;
        regx_transport_ops.progress(one.transport);
    }
}

/* It may be computing, for as long as it likes. */
VERBS_OPEN_TEST(a_peer_that_answers_late_is_waited_for)
{
    one_asks();
    ask_until(499);
    assert_int_equal(one.silent, 0);
    ask_until(1500);
    assert_int_equal(one.silent, 1);
    assert_false(regx_transport_ops.reachable(one.conn));
    parties_exchange(); /* now the other is there */
    assert_int_equal(one.silent, 1);
}

/* What registered buffers have pinned may leave nothing for a queue pair, for a while; at either
 * end. */
VERBS_TEST(a_queue_pair_waits_for_the_devices_memory)
{
    for (int end = 0; end < 2; end++) {
        fake_open_two(false);
        faulty->faults.making = ENOMEM;
        for (unsigned before = faulty->refused; faulty->refused < before + 3;) {
            assert_int_equal(conn_try(end == 0 ? one.conn : two.conn, 10), REGX_AGAIN);
            parties_progress();
        }
        assert_int_equal(one.broken + two.broken, 0);
        assert_int_equal(verbs_of(&one)->can.inline_max, REGX_VERBS_INLINE);
        faulty->faults.making = 0;
        parties_exchange();
        close_faulty();
    }
}

FAULTY_OPEN_TEST(a_device_that_never_has_memory_is_given_up)
{
    faulty->faults.making = ENOMEM;
    one_asks();
    verbs_of(&one)->table.refusals = REGX_VERBS_REFUSALS - 1;
    while (one.broken == 0) {
        conn_try(one.conn, 10);
        parties_progress();
    }
    await_broken("making a queue pair: Cannot allocate memory");
}

/* A frame by each of the two connections between `one` and that party. */
static void exchange_with(party_t *other, regx_conn_t *conn, bool one_begins)
{
    regx_conn_t *const conns[2] = {one_begins ? conn : other->conn,
                                   one_begins ? other->conn : conn};
    const unsigned *const counts[2] = {one_begins ? &other->delivered : &one.delivered,
                                       one_begins ? &one.delivered : &other->delivered};

    for (int i = 0; i < 2; i++) {
        const unsigned before = *counts[i];

        until(conn_try(conns[i], 3000) != REGX_AGAIN, parties_progress());
        parties_await(counts[i], before + 1);
    }
}

/* It has one queue pair, and two peers: it sends to them, or they to it. */
VERBS_TEST(a_used_up_device_gives_the_queue_pairs_of_idle_peers_to_others)
{
    for (int asked = 0; asked < 2; asked++) {
        fake_open_two(false);
        faulty->reliable_max = 1;
        verbs_conformance.devices[2] = "fake1:1";
        party_open(&three, THREE, false);
        party_connect(&three, &one);
        regx_conn_t *const to_three = one_connect(&three);
        for (int round = 0; round < 5; round++) {
            exchange_with(&two, one.conn, asked == 0);
            exchange_with(&three, to_three, asked == 0);
        }
        assert_int_equal(one.broken + two.broken + three.broken, 0);
        assert_int_equal(one.delivered, 10);
        assert_int_equal(two.delivered, 5);
        assert_int_equal(three.delivered, 5);
        assert_int_equal(party_fell_back(&one, "verbs: a peer's queue pair is given to another"),
                         9);
        regx_transport_ops.disconnect(three.conn);
        regx_transport_ops.disconnect(to_three);
        parties_settle();
        party_close(&three);
        close_faulty();
    }
}

/* An evicted peer that computes is waited for, and its loss is told. */
FAULTY_TEST(an_evicted_peer_that_is_lost_is_told)
{
    regx_ep_t *const ep = ep_of(&one, TWO);
    regx_cm_evict(verbs_of(&one));
    until(ep->state == REGX_EP_LEFT && ep->sq.done == ep->sq.posted,
          regx_transport_ops.progress(one.transport));
    assert_int_equal(conn_try(one.conn, 10), REGX_AGAIN);
    lose_two();
}

/* `one` has left, and its goodbye has arrived; of the other nothing is heard. */
static regx_ep_t *leave_alone(void)
{
    fake_open_connected(false);
    regx_ep_t *const ep = ep_of(&one, TWO);
    party_leave(&one);
    until(ep->state == REGX_EP_LEFT && ep->sq.done == ep->sq.posted,
          regx_transport_ops.progress(one.transport));
    return ep;
}

/* A step of `one` in which it is time for everything. */
static void one_looks(void)
{
    regx_verbs_t *verbs = verbs_of(&one);

    verbs->look.calls = UINT_MAX;
    verbs->look.next = verbs->look.probe_next = 0;
    regx_transport_ops.progress(one.transport);
}

static void await_probe(regx_ep_t *ep)
{
    for (int i = 0; i < 10 && ep->sq.done == ep->sq.posted; i++) {
        one_looks();
    }
    assert_true(ep->sq.done != ep->sq.posted);
}

/* It will never say goodbye. */
VERBS_TEST(a_peer_that_dies_after_we_have_left_leaves_nothing_behind)
{
    leave_alone();
    qp_fail(ep_of(&two, ONE)->qp);
    for (int i = 0; i < 1000 && verbs_of(&one)->table.count > 0; i++) {
        one_looks();
    }
    assert_int_equal(verbs_of(&one)->table.count, 0);
    assert_int_equal(one.broken, 0); /* nobody waits for it */
    close_faulty();
}

/* Its device answers no more, and would be asked for seconds. */
VERBS_TEST(a_probe_under_way_holds_nobody_who_leaves)
{
    enum { POLLS = 1000000 };

    regx_ep_t *ep = leave_alone();
    faulty->faults.stalled = POLLS;
    await_probe(ep);
    party_leave(&two);
    for (int i = 0; i < 1000 && verbs_of(&one)->table.count > 0; i++) {
        parties_progress();
    }
    assert_int_equal(verbs_of(&one)->table.count, 0);
    assert_int_equal(one.broken + two.broken, 0);
    close_faulty();

    ep = leave_alone();
    faulty->faults.stalled = POLLS;
    await_probe(ep);
    party_end(&one);
    assert_true(faulty->faults.stalled > POLLS / 2);
    party_end(&two);
}

static void hear_request(uint64_t epoch)
{
    const regx_cm_message_t message = request_of_two(epoch);

    party_hear(&one, &message, sizeof(message));
}

/* The peer has another queue pair than the one that ours is connected to, and there is none for it
 * here, now or at all. */
VERBS_TEST(a_peer_that_asks_anew_waits_for_a_queue_pair_or_is_lost)
{
    fake_open_two(false);
    hear_request(1);
    one_asks();
    faulty->faults.making = ENOMEM;
    hear_request(2);
    assert_int_equal(faulty->refused, 1);
    for (int i = 0; i < 10; i++) {
        verbs_of(&one)->cm.next = 0;
        parties_progress();
    }
    assert_int_equal(one.broken, 0);
    faulty->faults.making = 0;
    parties_exchange();
    close_faulty();

    fake_open_two(false);
    hear_request(1);
    one_asks();
    faulty->faults.making = EPERM;
    hear_request(2);
    await_broken("making a queue pair: Operation not permitted");
    assert_int_equal(conn_try(one.conn, 10), REGX_UNREACHABLE);
    close_faulty();
}
