/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Both ends of a queue pair that failed make another and agree on it, whenever it fails and
 * whatever is late or lost; a peer that says what cannot be is refused.
 */
#include "restart.h"

#include <errno.h>
#include <stdlib.h>

/* `two` makes progress until its endpoint is in that state, and nothing that it says arrives. */
static void two_speaks_in_vain(regx_ep_state_t state)
{
    const regx_verbs_t *verbs = verbs_of(&two);

    fake.drop_datagrams = true;
    while (regx_ep_find(verbs, ONE)->state != state || verbs->cm.sent != verbs->cm.done) {
        regx_transport_ops.progress(two.transport);
    }
    fake.drop_datagrams = false;
}

/* A request of `one` has come to `two`, which has heard of it, but not answered yet. */
static void one_asks(void)
{
    const unsigned datagrams = fake.datagrams;

    while (fake.datagrams == datagrams) {
        regx_transport_ops.progress(one.transport);
    }
}

/* `two` has another queue pair, and knows that of `one`, which knows neither. */
static void fail_what_was_accepted(void)
{
    one_asks();
    while (regx_ep_find(verbs_of(&two), ONE) == NULL) {
        regx_transport_ops.progress(two.transport);
    }
    two_speaks_in_vain(REGX_EP_CONNECTED);
    side_fail(regx_ep_find(verbs_of(&two), ONE)->qp);
    two_speaks_in_vain(REGX_EP_CONNECTING);
}

static void a_queue_pair_may_fail_before_its_peer_knows_it(void **state)
{
    (void)state;
    sides_open(false);
    assert_int_equal(side_try(one.conn, 100), REGX_AGAIN);
    fail_what_was_accepted();
    restart_exchange();
    assert_int_equal(one.broken + two.broken, 0);
    assert_int_equal(restart_count(&two, REGX_COUNTER_restarts), 1);
    sides_close();
}

static void a_replacement_may_fail_before_its_peer_knows_it(void **state)
{
    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    fake.fault.at[0] = fake.fault.done + 1;
    side_send(&one, 1, 2, 100);
    const regx_ep_t *ep = regx_ep_find(verbs_of(&one), TWO);
    while (ep->state != REGX_EP_CONNECTING) {
        regx_transport_ops.progress(one.transport);
    }
    one_asks(); /* so that `two` replaces its own */
    two_speaks_in_vain(REGX_EP_CONNECTING);
    fail_what_was_accepted();
    side_await(&two.delivered, 2);
    assert_true(unit_is_filled(two.last, 100, 2));
    restart_exchange();
    assert_int_equal(one.broken + two.broken, 0);
    assert_int_equal(restart_count(&one, REGX_COUNTER_restarts), 1);
    assert_int_equal(restart_count(&two, REGX_COUNTER_restarts), 1);
    sides_close();
}

static void memory_for_another_queue_pair_may_lack_for_a_while(void **state)
{
    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    fake.queue_pair_error = ENOMEM;
    fake.fault.at[0] = fake.fault.done + 1;
    side_send(&one, 1, 2, 100);
    const regx_ep_t *ep = regx_ep_find(verbs_of(&one), TWO);
    while (verbs_of(&one)->starved_since == 0) {
        sides_progress();
    }
    for (int i = 0; i < 100; i++) {
        sides_progress();
        assert_int_equal(ep->state, REGX_EP_RESTING);
    }
    fake.queue_pair_error = 0;
    side_await(&two.delivered, 2);
    restart_exchange();
    assert_int_equal(one.broken + two.broken, 0);
    assert_int_equal(restart_count(&one, REGX_COUNTER_restarts), 1);
    sides_close();
}

static void a_device_that_refuses_another_queue_pair_is_told_of(void **state)
{
    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    fake.queue_pair_error = EINVAL;
    fake.fault.at[0] = fake.fault.done + 1;
    side_send(&one, 1, 2, 100);
    side_await(&one.broken, 1);
    assert_non_null(strstr(one.what, "making a queue pair"));
    fake.queue_pair_error = 0;
    restart_close();
}

/* The queue pair of datagrams had failed once, long ago, and nobody has asked since. */
static void datagrams_may_fail_again_long_after(void **state)
{
    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    verbs_of(&one)->cm.failing_since = regx_now_ns() - HOUR_NS;
    fake.link_down = fake.link_errors = true;
    side_send(&one, 1, 2, 100);
    while (fake.datagrams_failed == 0) {
        regx_transport_ops.progress(one.transport);
    }
    fake.link_down = fake.link_errors = false;
    side_await(&two.delivered, 2);
    restart_exchange();
    assert_int_equal(one.broken + two.broken, 0);
    sides_close();
}

/* A peer that says it has heard what was not sent, or has not what was acknowledged. */
static void a_count_that_cannot_be_is_an_error(void **state)
{
    (void)state;
    for (int more = -1; more <= 2; more += 3) {
        sides_open(false);
        sides_exchange(1, 100);
        regx_zcopy_t zcopy = {
            .data = one.transport->pool_memory, .length = 8, .done = side_zcopy_done};
        assert_int_equal(regx_transport_ops.send_zcopy(one.conn, &zcopy), REGX_PENDING);
        side_await(&done_ok, 1);
        regx_ep_find(verbs_of(&two), ONE)->handled += (uint64_t)more;
        fake.fault.at[0] = fake.fault.done + 1;
        side_send(&one, 1, 1, 100);
        side_await(&one.broken, 1);
        assert_non_null(strstr(one.what, "do not agree"));
        assert_int_equal(one.counters.malformed, 1);
        restart_close();
    }
}

/* What comes late, of queue pairs that are no more, connects nothing and breaks nothing. */
static void late_messages_are_not_heeded(void **state)
{
    uint8_t bytes[REGX_CM_MESSAGE_SIZE];

    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    const regx_ep_t *ep = regx_ep_find(verbs_of(&one), TWO);
    const regx_ep_t *other = regx_ep_find(verbs_of(&two), ONE);
    const regx_cm_source_t source = {.qpn = verbs_of(&two)->address.qpn};
    regx_cm_message_t message = {.qpn = other->qpn,
                                 .psn = other->psn,
                                 .from = TWO,
                                 .to = ONE,
                                 .epoch = other->epoch,
                                 .born = other->born,
                                 .with = ep->born,
                                 .address = verbs_of(&two)->address};
    fake.link_down = true;
    side_send(&one, 1, 2, 100);
    while (ep->state != REGX_EP_CONNECTING) {
        regx_transport_ops.progress(one.transport);
    }
    for (int known = 0; known < 2; known++) {
        for (int kind = REGX_CM_REQUEST; kind <= REGX_CM_RENEW; kind++) {
            message.kind = (regx_cm_kind_t)kind;
            message.known = known == 0 ? 0 : ep->born;
            regx_cm_message_pack(&message, bytes);
            regx_cm_receive(verbs_of(&one), bytes, sizeof(bytes), &source);
            assert_int_equal(ep->state, REGX_EP_CONNECTING);
            assert_true(ep->restarts);
        }
    }
    fake.link_down = false;
    side_send(&two, 1, 3, 100);
    side_await(&one.delivered, 2);
    side_await(&two.delivered, 2);
    assert_int_equal(one.broken + two.broken, 0);
    sides_close();
}

/* A peer that now answers fewer READs at once than are to be repeated: the device would hold up
 * what comes behind them. */
static void a_peer_that_answers_fewer_reads_than_before_is_an_error(void **state)
{
    enum { READS = 3, SEGMENT = 4096 };
    uint8_t *exposed = calloc(READS, SEGMENT), *got = calloc(READS, SEGMENT);
    regx_get_t gets[READS];
    regx_mr_t exposed_mr, got_mr;

    (void)state;
    for (uint8_t answered = READS - 1; answered <= READS; answered++) {
        sides_open(false);
        sides_exchange(1, 100);
        side_reg(&one, got, (size_t)READS * SEGMENT, REGX_ACCESS_LOCAL_WRITE, &got_mr);
        side_reg(&two, exposed, (size_t)READS * SEGMENT, REGX_ACCESS_REMOTE_READ, &exposed_mr);
        fake.fault.lost_read = fake.fault.done + 1;
        for (int i = 0; i < READS; i++) {
            gets[i] = (regx_get_t){.local = got + (size_t)i * SEGMENT,
                                   .length = SEGMENT,
                                   .region = &got_mr,
                                   .offset = (size_t)i * SEGMENT,
                                   .key = exposed_mr.key,
                                   .done = side_get_done};
            assert_int_equal(regx_transport_ops.get(one.conn, &gets[i]), REGX_PENDING);
        }
        verbs_of(&two)->reads_answered = answered;
        if (answered < READS) {
            side_await(&one.broken, 1);
            assert_non_null(strstr(one.what, "do not agree"));
            sides_settle();
        } else {
            side_await(&done_ok, READS);
            restart_exchange();
        }
        assert_int_equal(one.counters.malformed, answered < READS);
        assert_int_equal(done_failed, answered < READS ? READS : 0);
        regx_transport_ops.dereg(one.transport, &got_mr);
        regx_transport_ops.dereg(two.transport, &exposed_mr);
        restart_close();
    }
    free(exposed);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_queue_pair_may_fail_before_its_peer_knows_it, restart_setup),
        cmocka_unit_test_setup(a_replacement_may_fail_before_its_peer_knows_it, restart_setup),
        cmocka_unit_test_setup(memory_for_another_queue_pair_may_lack_for_a_while, restart_setup),
        cmocka_unit_test_setup(a_device_that_refuses_another_queue_pair_is_told_of, restart_setup),
        cmocka_unit_test_setup(datagrams_may_fail_again_long_after, restart_setup),
        cmocka_unit_test_setup(a_count_that_cannot_be_is_an_error, restart_setup),
        cmocka_unit_test_setup(late_messages_are_not_heeded, restart_setup),
        cmocka_unit_test_setup(a_peer_that_answers_fewer_reads_than_before_is_an_error,
                               restart_setup),
    };

    return cmocka_run_group_tests_name("verbs restart, agreed", tests, NULL, NULL);
}
