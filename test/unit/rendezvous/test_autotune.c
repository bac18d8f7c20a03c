/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is measured and which candidate wins, by a clock of the test's own. What it costs is
 * test_regret's.
 */
#include "autotune_program.h"

static void the_fastest_of_three_wins(void **state)
{
    static const int64_t orders[][WAYS] = {{30, 20, 15}, {30, 40, 15}, {30, 15, 20}, {30, 15, 40},
                                           {15, 20, 30}, {15, 30, 20}, {15, 15, 13}};

    (void)state;
    for (unsigned i = 0; i < sizeof(orders) / sizeof(orders[0]) * WAYS; i++) {
        const int64_t *order = orders[i / WAYS];
        const unsigned best = order[READ] < order[BOUNCE] ? READ : BOUNCE;

        begin_with((uint8_t)(i % WAYS), 0);
        cost(order[BOUNCE], order[READ], order[TOGETHER]);
        alone(100, 64 * KIB);
        assert_int_equal(winner(64 * KIB), order[TOGETHER] < order[best] ? TOGETHER : best);
        for (unsigned way = 0; way < WAYS; way++) {
            assert_true(went[way] > 0);
        }
    }
}

/* The time from message to message is what counts. */
static void what_a_program_loses_later_is_seen(void **state)
{
    (void)state;
    cost(20, 15, 10);
    for (int i = 0; i < 100; i++) {
        message_t message;

        enter(&message, 64 * KIB);
        now += time_of(&message);
        leave(&message, true);
        now += message.trial.candidate == BOUNCE ? 100 : 64 * 15; /* it reads what has come */
    }
    assert_int_equal(winner(64 * KIB), BOUNCE);
}

static void bursts_and_streams_are_measured(void **state)
{
    static const uint64_t lengths[] = {32 * KIB, 128 * KIB, MIB, 2 * MIB};

    (void)state;
    for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]) * 2; i++) {
        const uint64_t length = lengths[i / 2];
        const unsigned best = i % 2 == 0 ? READ : BOUNCE;

        for (uint8_t prior = 0; prior < 2; prior++) {
            begin_with(prior, 0);
            cost(best == READ ? 150 : 100, best == READ ? 100 : 150, 1000);
            for (int window = 0; window < 40; window++) {
                stream(WINDOW, WINDOW, length);
            }
            assert_int_equal(winner(length), best);

            begin_with(prior, 0);
            stream(20000, 40, length);
            assert_int_equal(winner(length), best);
        }
    }
}

static void messages_of_many_neighbours_are_measured(void **state)
{
    (void)state;
    for (unsigned neighbours = 1; neighbours < 40; neighbours += 3) {
        begin(state);
        cost(30, 25, 300);
        halo(200, neighbours, MIB);
        assert_int_equal(winner(MIB), READ);

        begin(state);
        cost(30, 34 * neighbours, 300 * neighbours);
        halo(200, neighbours, MIB);
        assert_int_equal(winner(MIB), BOUNCE);
    }
}

/* A receiver that looks only when all have come. */
static void messages_opened_all_at_once_are_measured(void **state)
{
    static message_t messages[300];

    (void)state;
    for (unsigned burst = 8; burst <= 300; burst += 4) {
        begin_with(READ, 0);
        cost(10, 30, 40);
        for (int step = 0; step < 100; step++) {
            int64_t end = now;

            for (unsigned i = 0; i < burst; i++) {
                enter(&messages[i], 64 * KIB);
                end += time_of(&messages[i]);
            }
            for (unsigned i = 0; i < burst; i++) {
                now = messages[i].trial.candidate == BOUNCE ? now + time_of(&messages[i]) : end;
                leave(&messages[i], true);
            }
            now = end;
        }
        assert_int_equal(winner(64 * KIB), BOUNCE);
    }
}

/* Messages that come alone have their own outcome, and so have bursts. */
static void alone_and_in_bursts_are_told_apart(void **state)
{
    (void)state;
    for (int turn = 0; turn < 50; turn++) {
        cost(30, 15, 100);
        alone(20, 64 * KIB);
        cost(15, 30, 100);
        stream(WINDOW, WINDOW, 64 * KIB);
    }
    again();
    alone(2, 64 * KIB); /* the first is not known to be alone */
    cost(30, 15, 100);
    alone(100, 64 * KIB);
    assert_true(went[READ] > 90);
    cost(15, 30, 100);
    for (int burst = 0; burst < 20; burst++) {
        stream(WINDOW, WINDOW, 64 * KIB);
    }
    assert_true(went[BOUNCE] > 15 * WINDOW);
}

/* What is open for very long is no hindrance. */
static void a_message_that_never_closes_does_not_stop_trials(void **state)
{
    message_t stays;

    (void)state;
    cost(30, 15, 100);
    enter(&stays, 64 * KIB);
    alone(5000, 64 * KIB);
    assert_int_equal(winner(64 * KIB), READ);
    assert_int_equal(autotune[2].open, 1);
    leave(&stays, false);
    assert_int_equal(autotune[2].open, 0);
    alone(5000, 64 * KIB);
    assert_int_equal(winner(64 * KIB), READ);
}

/* What counts is the time of a byte. */
static void lengths_within_a_class_may_differ(void **state)
{
    (void)state;
    cost(20, 24, 100);
    for (int i = 0; i < 100; i++) {
        alone(1, i % 2 == 0 ? 16 * MIB - KIB : 8 * MIB);
    }
    assert_int_equal(winner(8 * MIB), BOUNCE);
}

static void trials_become_rarer_while_the_winner_stays(void **state)
{
    unsigned before = UINT32_MAX;

    (void)state;
    cost(30, 15, 40);
    for (unsigned count = 1000; count <= 1000000; count *= 10) {
        again();
        alone(count, 64 * KIB);
        assert_true(tried > 0);
        assert_true(tried < before || tried * 10 <= count / 10);
        before = tried * 10;
        assert_true(looks <= 2 * tried); /* and no other message has looked at the clock */
    }
}

/* What is always open is measured outside of a trial as in one: nothing has become slower. */
static void a_stream_without_a_pause_waits_for_the_next_trial(void **state)
{
    (void)state;
    cost(15, 30, 100);
    stream(6000, WINDOW, 64 * KIB);
    again();
    stream(20000, WINDOW, 64 * KIB);
    assert_true(tried < 2000);
}

static void the_winner_may_change(void **state)
{
    (void)state;
    cost(30, 15, 100);
    alone(1000, 64 * KIB);
    assert_int_equal(winner(64 * KIB), READ);
    cost(30, 90, 100);
    alone(10000, 64 * KIB);
    assert_int_equal(winner(64 * KIB), BOUNCE);
}

static void bursts_of(unsigned count, uint64_t length)
{
    for (unsigned i = 0; i < count; i++) {
        stream(WINDOW, WINDOW, length);
    }
}

/* What is hopeless at one size is not in the first trial of the next two, but in their second; with
 * nothing nearby all are tried, and what is only worse is. */
static void what_is_hopeless_nearby_is_tried_later(void **state)
{
    (void)state;
    for (int direction = -1; direction <= 1; direction += 2) {
        uint64_t length = 256 * KIB;

        begin_with(TOGETHER, 0);
        cost(300, 40, 30);
        bursts_of(20, length);
        assert_true(went[BOUNCE] > 0);
        for (int apart = 1; apart <= 3; apart++) {
            length = direction < 0 ? length / 2 : length * 2;
            again();
            bursts_of(20, length);
            assert_true(apart == 3 ? went[BOUNCE] > 0 : went[BOUNCE] == 0);
            assert_true(went[READ] > 0);
            assert_int_equal(winner(length), TOGETHER);
        }
        again();
        bursts_of(100, direction < 0 ? 128 * KIB : 512 * KIB);
        assert_true(went[BOUNCE] > 0);
    }
    begin_with(TOGETHER, 0);
    cost(110, 40, 30);
    bursts_of(20, 256 * KIB);
    again();
    bursts_of(20, 512 * KIB);
    assert_true(went[BOUNCE] > 0);
}

/* It is the best there, and found out by the second trial. The prior always takes part. */
static void what_is_hopeless_nearby_may_win(void **state)
{
    (void)state;
    begin_with(TOGETHER, 0);
    cost(300, 40, 30);
    bursts_of(20, 256 * KIB);
    cost(20, 40, 30);
    bursts_of(100, 512 * KIB);
    assert_int_equal(winner(512 * KIB), BOUNCE);

    begin_with(BOUNCE, 0);
    cost(300, 40, 30);
    bursts_of(20, 256 * KIB);
    cost(20, 40, 30);
    again();
    bursts_of(20, 512 * KIB);
    assert_true(went[BOUNCE] > 10 * WINDOW);
    assert_int_equal(winner(512 * KIB), BOUNCE);
}

static void an_outlier_does_not_count(void **state)
{
    (void)state;
    for (unsigned outlier = 0; outlier < 40; outlier++) {
        for (unsigned best = BOUNCE; best <= READ; best++) {
            begin(state);
            cost(best == READ ? 30 : 15, best == READ ? 15 : 30, 100);
            for (unsigned i = 0; i < 2000; i++) {
                message_t message;

                enter(&message, 64 * KIB);
                now += i == outlier ? 100000000 : time_of(&message);
                leave(&message, true);
            }
            assert_int_equal(winner(64 * KIB), best);
        }
    }
}

static void size_classes_are_independent(void **state)
{
    static const uint64_t sizes[] = {KIB, 16 * KIB, 32 * KIB - 1, 32 * KIB, 8 * MIB, 1024 * MIB};
    static const unsigned which[] = {0, 0, 0, 1, 9, 16};
    unsigned candidate;

    (void)state;
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        begin(state);
        cost(3000, 1500, 4000);
        alone(100, sizes[i]);
        for (unsigned size = 0; size < REGX_AUTOTUNE_SIZES; size++) {
            assert_int_equal(regx_autotune_outcome(&autotune[size], &candidate), size == which[i]);
        }
        assert_int_equal(regx_autotune_size(sizes[i]), which[i]);
        assert_int_equal(winner(sizes[i]), READ);
    }
    assert_int_equal(regx_autotune_size(UINT64_MAX), REGX_AUTOTUNE_SIZES - 1);
}

/* Computations that last a thousand times as long as a message fall on one candidate's turns. */
static void the_next_trial_is_never_out_of_reach(void **state)
{
    (void)state;
    cost(30, 15, 100);
    for (int i = 0; i < 100; i++) {
        message_t message;

        enter(&message, 64 * KIB);
        now += time_of(&message) + (message.trial.candidate == BOUNCE ? 1000000000 : 0);
        leave(&message, true);
    }
    assert_int_equal(winner(64 * KIB), READ);
    cost(10, 15, 100);
    alone((1u << 20) + 1000, 64 * KIB);
    assert_int_equal(winner(64 * KIB), BOUNCE);
}

static void the_first_trial_may_have_to_wait(void **state)
{
    (void)state;
    begin_with(TOGETHER, 100);
    cost(30, 15, 100);
    alone(100, 64 * KIB);
    assert_int_equal(went[TOGETHER], 100);
    assert_int_equal(tried + looks, 0);
    alone(100, 64 * KIB);
    assert_int_equal(winner(64 * KIB), READ);
}

static unsigned mapping; /* so many bursts that bounce map slots, which takes nine times as long */

/* A burst in which messages that bounce take ten times as long among others as they do alone. Of a
 * KiB the receiver copies for `copying` nanoseconds. */
static void mixed_burst(uint64_t length, int64_t copying)
{
    message_t messages[WINDOW];
    unsigned bounced = 0;

    for (unsigned i = 0; i < WINDOW; i++) {
        enter(&messages[i], length);
        bounced += messages[i].trial.candidate == BOUNCE;
    }
    const int64_t slow = bounced < WINDOW ? 10 : mapping > 0 ? 9 : 1;
    mapping -= bounced == WINDOW && mapping > 0;
    for (unsigned i = 0; i < WINDOW; i++) {
        const bool bounces = messages[i].trial.candidate == BOUNCE;

        now += time_of(&messages[i]) * (bounces ? slow : 1);
        messages[i].trial.copied_ns = bounces ? (int64_t)(length / KIB) * copying : 0;
        leave(&messages[i], true);
    }
}

static void what_both_copy_quickly_has_bursts_of_its_own(void **state)
{
    (void)state;
    for (int turn = 0; turn < 3; turn++) {
        const int64_t copying = turn == 0 ? 0 : turn == 1 ? 40 : 80; /* not known; quick; slow */

        begin_with(READ, 0);
        cost(100, 150, 1000);
        for (int burst = 0; burst < 30; burst++) {
            mixed_burst(MIB, copying);
        }
        assert_int_equal(winner(MIB), turn == 1 ? BOUNCE : READ);
        if (turn != 1) {
            assert_true(went[BOUNCE] <= 2 * REGX_AUTOTUNE_PROBE);
        }
    }
}

static void the_burst_that_maps_slots_does_not_count(void **state)
{
    (void)state;
    for (unsigned turn = 1; turn <= 2; turn++) {
        begin_with(READ, 0);
        cost(100, 150, 1000);
        mapping = turn;
        for (int burst = 0; burst < 30; burst++) {
            mixed_burst(MIB, 40);
        }
        assert_int_equal(mapping, 0);
        assert_int_equal(winner(MIB), turn == 1 ? BOUNCE : READ); /* one, and no more */
    }
}

/* In a short program they would cost more than they gain. */
static void of_short_messages_it_has_them_later(void **state)
{
    (void)state;
    begin_with(READ, 0);
    cost(100, 150, 1000);
    for (int burst = 0; burst < 20; burst++) {
        mixed_burst(64 * KIB, 40);
    }
    assert_int_equal(winner(64 * KIB), READ);
    assert_true(went[BOUNCE] <= REGX_AUTOTUNE_PROBE);
    for (int burst = 0; burst < 1000; burst++) {
        mixed_burst(64 * KIB, 40);
    }
    assert_int_equal(winner(64 * KIB), BOUNCE);
}

/* Its copies are not all that it takes. */
static void what_both_copy_quickly_may_lose_all_the_same(void **state)
{
    (void)state;
    begin_with(READ, 0);
    cost(200, 150, 1000);
    for (int burst = 0; burst < 30; burst++) {
        mixed_burst(MIB, 40);
    }
    assert_int_equal(winner(MIB), READ);
    assert_true(went[BOUNCE] > WINDOW && went[BOUNCE] <= 4 * WINDOW);
}

static void a_message_without_a_part_is_left_as_it_is(void **state)
{
    const regx_trial_t none = {0};

    (void)state;
    regx_autotune_leave(&none, 64 * KIB, true);
    assert_int_equal(autotune[2].open, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_fastest_of_three_wins, begin),
        cmocka_unit_test_setup(what_a_program_loses_later_is_seen, begin),
        cmocka_unit_test_setup(bursts_and_streams_are_measured, begin),
        cmocka_unit_test_setup(messages_of_many_neighbours_are_measured, begin),
        cmocka_unit_test_setup(messages_opened_all_at_once_are_measured, begin),
        cmocka_unit_test_setup(alone_and_in_bursts_are_told_apart, begin),
        cmocka_unit_test_setup(a_message_that_never_closes_does_not_stop_trials, begin),
        cmocka_unit_test_setup(lengths_within_a_class_may_differ, begin),
        cmocka_unit_test_setup(trials_become_rarer_while_the_winner_stays, begin),
        cmocka_unit_test_setup(a_stream_without_a_pause_waits_for_the_next_trial, begin),
        cmocka_unit_test_setup(the_winner_may_change, begin),
        cmocka_unit_test_setup(what_is_hopeless_nearby_is_tried_later, begin),
        cmocka_unit_test_setup(what_is_hopeless_nearby_may_win, begin),
        cmocka_unit_test_setup(an_outlier_does_not_count, begin),
        cmocka_unit_test_setup(size_classes_are_independent, begin),
        cmocka_unit_test_setup(the_next_trial_is_never_out_of_reach, begin),
        cmocka_unit_test_setup(the_first_trial_may_have_to_wait, begin),
        cmocka_unit_test_setup(what_both_copy_quickly_has_bursts_of_its_own, begin),
        cmocka_unit_test_setup(the_burst_that_maps_slots_does_not_count, begin),
        cmocka_unit_test_setup(of_short_messages_it_has_them_later, begin),
        cmocka_unit_test_setup(what_both_copy_quickly_may_lose_all_the_same, begin),
        cmocka_unit_test_setup(a_message_without_a_part_is_left_as_it_is, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
