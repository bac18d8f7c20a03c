/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Candidates that cannot be had, always or now and then: they do not win, and are not tried in vain
 * for long.
 */
#include "autotune_program.h"

/* What was refused, taken back or not written is no measure. */
static void messages_that_went_elsewhere_tell_nothing(void **state)
{
    (void)state;
    cost(30, 15, 100);
    refused = 1u << READ;
    alone(2000, 64 * KIB);
    assert_true(went[READ] < 200);
    assert_true(tried < 1000);
    again();
    refused = 0;
    alone(5000, 64 * KIB); /* the reason has gone */
    assert_int_equal(winner(64 * KIB), READ);
}

/* Messages alone, or bursts of 64. */
static void run(unsigned count, bool bursts)
{
    for (unsigned done = 0; done < count; done += bursts ? WINDOW : 1) {
        if (bursts) {
            stream(WINDOW, WINDOW, 64 * KIB);
        } else {
            alone(1, 64 * KIB);
        }
    }
}

static void a_prior_that_cannot_be_had_does_not_win(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2 * 2 * WAYS; i++) {
        const unsigned candidates = i % 2 == 0 ? 2 : WAYS;
        const uint8_t prior = (uint8_t)(i / 4);
        const bool bursts = i / 2 % 2 != 0;

        if (prior >= candidates) {
            continue;
        }
        begin_of(candidates, prior, 0);
        refused = 1u << prior;
        cost(20, 20, 20);
        costs[prior] = 1;
        run(6400, bursts);
        assert_int_not_equal(winner(64 * KIB), prior);
        assert_true(went[prior] < 400);
        refused = 0; /* the reason has gone */
        run(64000, bursts);
        assert_int_equal(winner(64 * KIB), prior);
    }
}

/* In the middle of a trial: the others are not measured by what it once cost. */
static void what_ceases_to_be_had_does_not_win(void **state)
{
    unsigned trials = 0;

    (void)state;
    for (unsigned i = 0; i < 2 * 2 * 400; i++) {
        const bool bursts = i % 2 != 0;
        const unsigned seen = bursts ? WINDOW * 3 / 2 : 2; /* by the trial */

        begin_with(i / 2 % 2 == 0 ? TOGETHER : BOUNCE, 0);
        cost(130, 140, 100);
        run((bursts ? WINDOW : 1) * (i / 4), bursts);
        again();
        run(1, bursts);
        if (tried == 0) {
            continue; /* no trial just now */
        }
        refused = 1u << TOGETHER;
        for (went[TOGETHER] = 0; tried > 0;) {
            tried = 0;
            run(1, bursts);
        }
        if (went[TOGETHER] >= seen) {
            assert_int_not_equal(autotune[2].tune[bursts].winner, TOGETHER);
            trials++;
        }
    }
    assert_true(trials > 50);
}

/* A winner that is not to be had any more is not tried in vain until the next trial would come. */
static void a_winner_that_ceases_to_be_had_outside_a_trial_is_replaced(void **state)
{
    (void)state;
    for (unsigned window = 1; window <= WINDOW; window *= WINDOW) {
        begin(NULL);
        cost(1000, 2000, 500);
        for (unsigned i = 0; i < 4000 / window; i++) {
            stream(window, window, 64 * KIB);
        }
        refused = 1u << TOGETHER;
        again();
        for (unsigned i = 0; i < 4000 / window; i++) {
            stream(window, window, 64 * KIB);
        }
        assert_in_range(went[TOGETHER], 1, 900);
        assert_true(went[BOUNCE] > 2500);
    }
}

/* And one that is refused in every other message costs no more trials than that. */
static void a_winner_that_is_refused_now_and_then_is_kept(void **state)
{
    (void)state;
    cost(1000, 2000, 500);
    alone(4000, 64 * KIB);
    again();
    for (unsigned i = 0; i < 2000; i++) {
        refused = 1u << TOGETHER;
        alone(1, 64 * KIB);
        refused = 0;
        alone(1, 64 * KIB);
    }
    assert_true(went[TOGETHER] > 3800);
}

/* Of a burst, too: one that finds no room is no reason for a trial. */
static void a_winner_that_one_message_of_a_burst_is_refused_is_kept(void **state)
{
    (void)state;
    cost(1000, 2000, 500);
    for (unsigned i = 0; i < 200; i++) {
        stream(WINDOW, WINDOW, 64 * KIB);
    }
    again();
    refused_one = true;
    for (unsigned i = 0; i < 20; i++) {
        stream(WINDOW, WINDOW, 64 * KIB);
    }
    assert_int_equal(tried, 0);
    assert_int_equal(went[TOGETHER], 20 * WINDOW);
}

static void a_prior_that_cannot_be_had_is_tried_for_a_while(void **state)
{
    (void)state;
    begin_with(TOGETHER, 1000);
    refused = 1u << TOGETHER;
    cost(30, 15, 100);
    alone(60, 64 * KIB);
    assert_int_equal(tried, 0);
    alone(100, 64 * KIB);
    assert_int_equal(winner(64 * KIB), READ);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(messages_that_went_elsewhere_tell_nothing, begin),
        cmocka_unit_test_setup(a_prior_that_cannot_be_had_does_not_win, begin),
        cmocka_unit_test_setup(what_ceases_to_be_had_does_not_win, begin),
        cmocka_unit_test_setup(a_winner_that_ceases_to_be_had_outside_a_trial_is_replaced, begin),
        cmocka_unit_test_setup(a_winner_that_is_refused_now_and_then_is_kept, begin),
        cmocka_unit_test_setup(a_winner_that_one_message_of_a_burst_is_refused_is_kept, begin),
        cmocka_unit_test_setup(a_prior_that_cannot_be_had_is_tried_for_a_while, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
