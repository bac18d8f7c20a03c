/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A queue pair that fails is replaced: whatever request fails, before or after it had its effect,
 * frames and puts come once and in order, puts and gets end once, and nothing is written late.
 */
#include "traffic.h"

static int setup(void **state)
{
    traffic_down_from = traffic_down_until = 0;
    return restart_setup(state);
}

static void each_request_fails(bool late, unsigned slow, bool drops)
{
    const unsigned requests = traffic_requests();

    fake.fault.late = late;
    fake.ports[0].drops_receives = drops;
    for (unsigned i = 1; i <= requests; i++) {
        fake.fault.at[0] = i;
        assert_int_equal(traffic_run(slow), 1);
    }
}

static void nothing_is_lost_or_doubled_whatever_request_fails(void **state)
{
    (void)state;
    each_request_fails(false, 1, false);
}

static void nothing_is_lost_or_doubled_whatever_answer_is_lost(void **state)
{
    (void)state;
    each_request_fails(true, 1, true);
}

/* What has arrived has not been read when the queue pair fails. */
static void nothing_is_lost_or_doubled_with_a_slow_reader(void **state)
{
    (void)state;
    each_request_fails(true, 7, false);
}

static void nothing_is_lost_or_doubled_whatever_request_is_refused(void **state)
{
    (void)state;
    traffic_requests();
    const unsigned posted = fake.fault.posted;
    for (unsigned i = 1; i <= posted; i++) {
        fake.fault.refused = i;
        assert_int_equal(traffic_run(1), 1);
    }
}

static void a_queue_pair_may_fail_while_what_was_lost_is_repeated(void **state)
{
    const unsigned requests = traffic_requests();

    (void)state;
    for (unsigned i = 1; i <= requests; i += 5) {
        for (unsigned second = i + 1; second <= i + 8; second++) {
            fake.fault.late = second % 2 == 0;
            fake.fault.at[0] = i;
            fake.fault.at[1] = second;
            const unsigned restarts = traffic_run(1 + i % 3);
            assert_in_range(restarts, 1, 2);
        }
    }
}

static void a_request_may_be_refused_while_what_was_lost_is_repeated(void **state)
{
    const unsigned requests = traffic_requests();

    (void)state;
    for (unsigned i = 1; i <= requests; i += 5) {
        for (unsigned refused = i + 1; refused <= i + 20; refused += 3) {
            fake.fault.late = refused % 2 == 0;
            fake.fault.at[0] = i;
            fake.fault.refused = refused;
            const unsigned restarts = traffic_run(1 + i % 3);
            assert_in_range(restarts, 1, 2);
        }
    }
}

static void datagrams_may_be_lost_or_come_twice(void **state)
{
    static const uint32_t patterns[] = {0x55555555, 0xaaaaaaaa, 0x24924924, 0x3c3c3c3c};
    const unsigned requests = traffic_requests();

    (void)state;
    for (unsigned i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        fake.fault.at[0] = 1 + i * (requests - 1) / 4;
        fake.lose = patterns[i];
        fake.twice = ~patterns[i];
        assert_int_equal(traffic_run(1), 1);
        fake.fault.at[0] = 1 + i * (requests - 1) / 4;
        fake.lose = 0;
        fake.twice = patterns[i];
        assert_int_equal(traffic_run(1), 1);
    }
}

static void a_device_that_does_not_report_the_end_is_waited_for(void **state)
{
    (void)state;
    const unsigned requests = traffic_requests();

    fake.mute = true;
    fake.fault.late = true;
    fake.fault.at[0] = requests / 2;
    assert_int_equal(traffic_run(1), 1);
}

static void a_link_may_be_down_for_a_while(void **state)
{
    (void)state;
    unsigned restarts = 0;

    for (traffic_down_from = 0; traffic_down_from < 8; traffic_down_from++) {
        traffic_down_until = traffic_down_from + 50;
        fake.link_errors = false;
        restarts += traffic_run(1 + traffic_down_from % 2);
        fake.link_errors = true;
        restarts += traffic_run(1 + traffic_down_from % 2);
    }
    assert_true(restarts > 1);
    assert_true(fake.datagrams_failed > 1);
}

/* A READ whose answer was lost is made again, though the peer has heard what came behind it. */
static void a_read_is_repeated_unless_it_has_completed(void **state)
{
    const unsigned requests = traffic_requests();
    unsigned restarts = 0;

    (void)state;
    for (unsigned i = 1; i <= requests; i++) {
        fake.fault.lost_read = i; /* if that is one */
        restarts += traffic_run(1);
    }
    assert_true(restarts > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nothing_is_lost_or_doubled_whatever_request_fails, setup),
        cmocka_unit_test_setup(nothing_is_lost_or_doubled_whatever_answer_is_lost, setup),
        cmocka_unit_test_setup(nothing_is_lost_or_doubled_with_a_slow_reader, setup),
        cmocka_unit_test_setup(nothing_is_lost_or_doubled_whatever_request_is_refused, setup),
        cmocka_unit_test_setup(a_queue_pair_may_fail_while_what_was_lost_is_repeated, setup),
        cmocka_unit_test_setup(a_request_may_be_refused_while_what_was_lost_is_repeated, setup),
        cmocka_unit_test_setup(datagrams_may_be_lost_or_come_twice, setup),
        cmocka_unit_test_setup(a_device_that_does_not_report_the_end_is_waited_for, setup),
        cmocka_unit_test_setup(a_link_may_be_down_for_a_while, setup),
        cmocka_unit_test_setup(a_read_is_repeated_unless_it_has_completed, setup),
    };

    return cmocka_run_group_tests_name("verbs restart", tests, NULL, NULL);
}
