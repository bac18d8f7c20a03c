/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A queue pair that fails is replaced within btl_regx_verbs_restart_limit: what fails for longer is
 * given up and told of once, and each failure has all that time.
 */
#include "restart.h"

/* One clear end, within the limit, of a peer that stays away. */
static void a_peer_that_is_gone_is_told_of_once(void **state)
{
    (void)state;
    restart_settings.restart_limit = 1;
    sides_open(false);
    sides_exchange(1, 100);
    fake.link_down = true;
    side_send(&one, 1, 1, 100);
    side_await(&one.broken, 1);
    assert_non_null(strstr(one.what, "retry counter exceeded"));
    assert_non_null(strstr(one.what, "not connected again within 1 s"));
    assert_int_equal(side_try(one.conn, 8), REGX_UNREACHABLE);
    assert_int_equal(restart_count(&one, REGX_COUNTER_restarts), 0);
    sides_close();
    assert_int_equal(one.broken, 1);
}

static void without_a_limit_the_connection_is_lost_at_once(void **state)
{
    (void)state;
    restart_settings.restart_limit = 0;
    sides_open(false);
    sides_exchange(1, 100);
    fake.fault.at[0] = fake.fault.done + 1;
    side_send(&one, 1, 1, 100);
    side_await(&one.broken, 1);
    assert_null(strstr(one.what, "again"));
    sides_close();
}

/* Time goes by for an endpoint. */
static void make_older(regx_ep_t *ep, int64_t by)
{
    ep->restart_until -= by;
    ep->ready_at -= by;
}

/* Makes the next request of `one` fail, and all that are done then, until its queue pair has been
 * replaced so often, or it was told that the connection broke. */
static void fail_until_replaced(uint64_t times)
{
    while (restart_count(&one, REGX_COUNTER_restarts) < times && one.broken == 0) {
        fake.fault.at[0] = fake.fault.done + 1;
        sides_progress();
    }
}

/* A request that fails however often it is repeated is given up, within the limit. */
static void a_request_that_always_fails_is_given_up(void **state)
{
    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    side_send(&one, 1, 1, 100);
    fail_until_replaced(3);
    assert_int_equal(one.broken, 0);
    make_older(regx_ep_find(verbs_of(&one), TWO), HOUR_NS);
    regx_ep_find(verbs_of(&one), TWO)->ready_at = regx_now_ns();
    fail_until_replaced(UINT64_MAX);
    assert_non_null(strstr(one.what, "not connected again within 600 s"));
    fake.fault.at[0] = 0;
    sides_close();
}

/* Also if each time it takes longer than the limit. */
static void a_request_that_fails_slowly_is_given_up(void **state)
{
    uint64_t restarts = 0;

    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    side_send(&one, 1, 1, 100);
    while (one.broken == 0) {
        assert_true(restarts < 100);
        fail_until_replaced(++restarts);
        if (one.broken == 0) {
            make_older(regx_ep_find(verbs_of(&one), TWO), HOUR_NS);
        }
    }
    assert_true(restarts > 10);
    fake.fault.at[0] = 0;
    sides_close();
}

/* What was sent again was not acknowledged yet, as the peer has no buffer and computes. */
static void a_failure_long_after_another_has_all_the_time_again(void **state)
{
    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    side_send(&one, 1, 2, 100);
    for (uint64_t outage = 1; outage <= 3; outage++) {
        fail_until_replaced(outage);
        assert_int_equal(one.broken, 0);
        assert_int_equal(restart_count(&one, REGX_COUNTER_restarts), outage);
        make_older(regx_ep_find(verbs_of(&one), TWO), HOUR_NS);
    }
    fake.fault.at[0] = 0;
    side_await(&two.delivered, 2);
    restart_exchange();
    assert_int_equal(one.broken + two.broken, 0);
    sides_close();
}

/* The one tells what it has to be set to, the other when its own limit is over. */
static void a_peer_without_restarts_says_so(void **state)
{
    (void)state;
    done_ok = done_failed = 0;
    side_open(&one, ONE, TWO, false);
    restart_settings.restart_limit = 0;
    side_open(&two, TWO, ONE, false);
    side_connect(&one, &two);
    side_connect(&two, &one);
    sides_exchange(1, 100);
    fake.fault.at[0] = fake.fault.done + 1;
    side_send(&one, 1, 2, 100);
    side_await(&two.broken, 1);
    assert_non_null(strstr(two.what, "verbs_restart_limit is 0 here"));
    assert_int_equal(one.broken, 0);
    regx_ep_find(verbs_of(&one), TWO)->restart_until = 0;
    side_await(&one.broken, 1);
    assert_non_null(strstr(one.what, "not connected again within 600 s"));
    sides_close();
}

/* However seldom the caller makes progress. */
static void a_few_calls_of_progress_are_enough(void **state)
{
    (void)state;
    sides_open(false);
    sides_exchange(1, 100);
    regx_verbs_t *verbs = verbs_of(&one);
    fake.link_down = fake.link_errors = true;
    side_send(&one, 1, 2, 100);
    while (!verbs->cm.rests) {
        regx_transport_ops.progress(one.transport);
    }
    verbs->cm.rests_since -= HOUR_NS; /* the program was away meanwhile */
    fake.link_down = fake.link_errors = false;
    for (int i = 0; i < 3; i++) {
        verbs->calls = 1; /* so that else the clock is not read for long */
        verbs->events_next = 0;
        regx_transport_ops.progress(one.transport);
    }
    assert_false(verbs->cm.rests);
    assert_int_equal(one.broken, 0);
    fake.drop_datagrams = true;
    regx_ep_find(verbs, TWO)->restart_until = verbs->events_next = 0;
    verbs->calls = 1;
    regx_transport_ops.progress(one.transport);
    regx_transport_ops.progress(one.transport);
    assert_int_equal(one.broken, 1);
    fake.drop_datagrams = false;
    restart_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_peer_that_is_gone_is_told_of_once, restart_setup),
        cmocka_unit_test_setup(without_a_limit_the_connection_is_lost_at_once, restart_setup),
        cmocka_unit_test_setup(a_request_that_always_fails_is_given_up, restart_setup),
        cmocka_unit_test_setup(a_request_that_fails_slowly_is_given_up, restart_setup),
        cmocka_unit_test_setup(a_failure_long_after_another_has_all_the_time_again, restart_setup),
        cmocka_unit_test_setup(a_peer_without_restarts_says_so, restart_setup),
        cmocka_unit_test_setup(a_few_calls_of_progress_are_enough, restart_setup),
    };

    return cmocka_run_group_tests_name("verbs restart, its limit", tests, NULL, NULL);
}
