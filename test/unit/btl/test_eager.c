/* SPDX-License-Identifier: BSD-3-Clause
 *
 * When the eager limit is moved, and which messages go by it.
 */
#include "eager_program.h"

/* ---- trials ---------------------------------------------------------------------------------- */

/* Each trial moves the limit. */
static unsigned moves(const table_t *table, unsigned messages)
{
    unsigned count = 0;
    size_t before = limit;

    for (unsigned i = 0; i < messages; i++) {
        run(table, &programs[0], 1, 0, TUNED);
        count += limit != before;
        before = limit;
    }
    return count;
}

static void trials_become_rarer(void **state)
{
    (void)state;
    assert_in_range(moves(&tables[1], 1000), 1, 5);
    moves(&tables[1], 19000);
    assert_in_range(moves(&tables[1], 80000), 1, 12);
    assert_int_equal(moves(&tables[1], 3000), 0);
}

/* The wait of the second trial, 128 times what it has lost, is for ratio 3 up to 10,000 messages,
 * and up to 40,000 after two more. */
static void costs_that_change_are_followed(void **state)
{
    (void)state;
    run(&tables[1], &programs[0], 2000, 0, TUNED);
    assert_int_equal(last, REGX_EAGER_RENDEZVOUS);
    run(&tables[3], &programs[0], 5000, 0, TUNED);
    assert_int_equal(last, REGX_EAGER_SEND);
    memset(went, 0, sizeof(went));
    run(&tables[3], &programs[0], 1000, 0, TUNED);
    assert_int_equal(went[REGX_EAGER_SEND], 1000);

    run(&tables[1], &programs[0], 60000, 0, TUNED);
    assert_int_equal(last, REGX_EAGER_RENDEZVOUS);
}

/* Of the faster way every eighth message, so two samples of three. Of 20 programs most see it. */
static void most_samples_may_be_interrupted(void **state)
{
    unsigned found = 0;

    (void)state;
    for (uint32_t seed = 0; seed < 20; seed++) {
        begin_with(CONFIGURED, true);
        for (unsigned i = 0; i < 1000; i++) {
            now += tables[1].takes[note(LONG)];
            now += scatter(seed, i) % 8 == 0 && last == REGX_EAGER_RENDEZVOUS ? 100000 : 0;
            progress++;
        }
        found += last == REGX_EAGER_RENDEZVOUS;
    }
    assert_in_range(found, 15, 20);
}

/* ---- both sizes ------------------------------------------------------------------------------ */

static const table_t short_by_rendezvous = {"", SHORT, {3000, 1000}};
static const table_t long_eagerly = {"", LONG, {2000, 6000}};

static void of_two_sizes_each_has_its_way(void **state)
{
    const table_t short_eagerly = {"", SHORT, {1000, 3000}};
    const table_t long_by_rendezvous = {"", LONG, {6000, 2000}};

    (void)state;
    run(&short_eagerly, &programs[0], 500, 0, TUNED);
    run(&long_by_rendezvous, &programs[0], 500, 0, TUNED);
    memset(went, 0, sizeof(went));
    for (unsigned i = 0; i < 100; i++) {
        now += short_eagerly.takes[note(SHORT)];
        assert_int_equal(last, REGX_EAGER_SEND);
        now += long_by_rendezvous.takes[note(LONG)];
        assert_int_equal(last, REGX_EAGER_RENDEZVOUS);
        progress++;
    }
}

/* Of the shorter ones 64 go eagerly before they have their way again. */
static void longer_messages_that_go_eagerly_take_shorter_ones_along(void **state)
{
    (void)state;
    run(&short_by_rendezvous, &programs[0], 300, 0, TUNED);
    assert_int_equal(limit, LEAST);
    run(&long_eagerly, &programs[0], 300, 0, TUNED);
    assert_int_equal(limit, CONFIGURED);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(note(SHORT), REGX_EAGER_SEND);
        assert_int_equal(note(LONG), REGX_EAGER_SEND);
    }
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(note(SHORT), REGX_EAGER_SEND);
    }
    assert_int_equal(note(SHORT), REGX_EAGER_RENDEZVOUS);
    note(LONG);
    assert_int_equal(note(LONG), REGX_EAGER_SEND);
}

/* Begins one, and goes on until its messages go by rendezvous. */
static void reach_rendezvous_turn(size_t length)
{
    while (limit == CONFIGURED) {
        now += 1000;
        note(length);
        progress++;
        assert_true(sent < 200);
    }
}

static void a_trial_whose_messages_stop_is_given_up(void **state)
{
    (void)state;
    reach_rendezvous_turn(SHORT);
    for (unsigned i = 0; i < 256; i++) {
        assert_int_equal(note(LONG), REGX_EAGER_RENDEZVOUS);
    }
    assert_int_equal(limit, CONFIGURED);
}

/* Messages of 4.1, whose header is shorter. */
static void strays_end_the_trial(void **state)
{
    (void)state;
    header = 64;
    reach_rendezvous_turn(2 * REGX_EAGER_MIN + 10);
    for (unsigned i = 0; i < 64; i++) {
        assert_true(limit < CONFIGURED);
        assert_int_equal(note(2 * REGX_EAGER_MIN + 10), REGX_EAGER_SEND);
    }
    assert_int_equal(limit, CONFIGURED);
}

/* 16 KiB with a header of 80 bytes. */
static void what_is_above_the_limit_is_tried_in_vain(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 17 + 64; i++) {
        assert_int_equal(note(4 * REGX_EAGER_MIN), REGX_EAGER_RENDEZVOUS);
        assert_int_equal(limit, CONFIGURED);
    }
    reach_rendezvous_turn(SHORT);
}

/* What costs a trial nothing is no reason for one soon. */
static void a_trial_given_up_is_followed_by_none_for_long(void **state)
{
    (void)state;
    header = 64;
    reach_rendezvous_turn(2 * REGX_EAGER_MIN + 10);
    while (limit < CONFIGURED) {
        note(2 * REGX_EAGER_MIN + 10);
    }
    for (unsigned i = 0; i < 256; i++) {
        note(2 * REGX_EAGER_MIN + 10);
        assert_int_equal(limit, CONFIGURED);
    }
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void a_message_elsewhere_restores_the_limit_for_good(void **state)
{
    (void)state;
    run(&tables[1], &programs[0], 1000, 0, TUNED);
    assert_true(limit < CONFIGURED);
    regx_eager_note(&eager, 4096, REGX_EAGER_SEND, false, progress); /* too short to matter */
    assert_true(limit < CONFIGURED);
    regx_eager_note(&eager, LONG, REGX_EAGER_SEND, false, progress);
    assert_int_equal(limit, CONFIGURED);
    assert_int_equal(moves(&tables[1], 20000), 0);
}

static void what_is_not_to_be_tuned_is_not(void **state)
{
    (void)state;
    begin_with(CONFIGURED, false);
    assert_int_equal(moves(&tables[0], 2000), 0);
    assert_int_equal(moves(&tables[1], 2000), 0);
    assert_int_equal(looks, 0);
}

static void other_lengths_change_nothing(void **state)
{
    const table_t smallest = {"", REGX_EAGER_MIN, {3000, 1000}};
    const table_t largest = {"", 4 * REGX_EAGER_MIN + 1, {3000, 1000}};

    (void)state;
    assert_int_equal(moves(&smallest, 2000), 0);
    assert_int_equal(moves(&largest, 2000), 0);
    assert_int_equal(looks, 0);
    run(&tables[1], &programs[0], 1000, 0, TUNED);
    assert_true(limit < CONFIGURED);
    assert_int_equal(moves(&smallest, 2000), 0);
}

/* note() sees to it that none is exceeded. */
static void a_lower_limit_is_not_exceeded(void **state)
{
    static const size_t limits[] = {256, LEAST - 1, LEAST, LEAST + 1, 8192 + HEADER, 9000};

    (void)state;
    for (unsigned i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        begin_with(limits[i], true);
        run(&tables[i % 2], &programs[0], 1000, 0, TUNED);
        run(&tables[2 + i % 2], &programs[0], 1000, 0, TUNED);
    }
    for (unsigned i = 0; i < REGX_EAGER_SIZES; i++) { /* with a shorter header they go eagerly */
        const table_t table = {"", (REGX_EAGER_MIN << i) + 1, {3000, 1000}};

        begin_with(table.length + 64, true);
        header = 64;
        run(&table, &programs[0], 1000, 0, TUNED);
        assert_true(went[REGX_EAGER_SEND] > 16);
    }
}

static void without_a_trial_no_clock_is_read(void **state)
{
    (void)state;
    run(&tables[1], &programs[0], 1000, 0, TUNED);
    looks = 0;
    run(&tables[1], &programs[0], 1000, 0, TUNED);
    assert_int_equal(looks, 0);
}

/* The clock stands still. */
static void equal_times_keep_messages_eager(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2000; i++) {
        note(LONG);
        progress++;
    }
    assert_int_equal(limit, CONFIGURED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(trials_become_rarer, begin),
        cmocka_unit_test_setup(costs_that_change_are_followed, begin),
        cmocka_unit_test_setup(most_samples_may_be_interrupted, begin),
        cmocka_unit_test_setup(of_two_sizes_each_has_its_way, begin),
        cmocka_unit_test_setup(longer_messages_that_go_eagerly_take_shorter_ones_along, begin),
        cmocka_unit_test_setup(a_trial_whose_messages_stop_is_given_up, begin),
        cmocka_unit_test_setup(strays_end_the_trial, begin),
        cmocka_unit_test_setup(what_is_above_the_limit_is_tried_in_vain, begin),
        cmocka_unit_test_setup(a_trial_given_up_is_followed_by_none_for_long, begin),
        cmocka_unit_test_setup(a_message_elsewhere_restores_the_limit_for_good, begin),
        cmocka_unit_test_setup(what_is_not_to_be_tuned_is_not, begin),
        cmocka_unit_test_setup(other_lengths_change_nothing, begin),
        cmocka_unit_test_setup(a_lower_limit_is_not_exceeded, begin),
        cmocka_unit_test_setup(without_a_trial_no_clock_is_read, begin),
        cmocka_unit_test_setup(equal_times_keep_messages_eager, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
