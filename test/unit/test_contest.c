/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which way wins, by a clock of the test's own.
 */
#include "unit.h"

#include <time.h>

#include "rendezvous/contest.h"

enum { TRIAL = 6, KIB = 1024 };

static regx_contests_t contests;
static int64_t now;
static int64_t costs[REGX_WAYS]; /* of a message, in nanoseconds */
static unsigned went[REGX_WAYS], tried;

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    (void)clock;
    *time = (struct timespec){.tv_sec = now / 1000000000, .tv_nsec = now % 1000000000};
    return 0;
}

static int begin(void **state)
{
    (void)state;
    contests = (regx_contests_t){0};
    now = 1000000;
    return 0;
}

static void forget(void)
{
    went[REGX_WAY_BOUNCE] = went[REGX_WAY_SINGLE] = tried = 0;
}

static regx_way_t enter(uint64_t length, regx_entry_t *entry)
{
    const regx_way_t way = regx_contest_enter(&contests, length, entry);

    went[way]++;
    tried += entry->number > 0;
    return way;
}

/* Messages of which each is alone, with time between them that is nobody's. */
static void alone(unsigned count, uint64_t length)
{
    for (unsigned i = 0; i < count; i++) {
        regx_entry_t entry;
        const regx_way_t way = enter(length, &entry);

        now += costs[way];
        regx_contest_leave(&contests, length, &entry, true);
        now += 12345;
    }
}

/* Windows of messages of which all are opened before the first comes, one behind the other. */
static void stream(unsigned windows, uint64_t length)
{
    enum { WINDOW = 64 };
    regx_entry_t entries[WINDOW];
    regx_way_t ways[WINDOW];

    while (windows-- > 0) {
        for (unsigned i = 0; i < WINDOW; i++) {
            ways[i] = enter(length, &entries[i]);
        }
        for (unsigned i = 0; i < WINDOW; i++) {
            now += costs[ways[i]];
            regx_contest_leave(&contests, length, &entries[i], true);
        }
    }
}

static void cost(int64_t bounce, int64_t single)
{
    costs[REGX_WAY_BOUNCE] = bounce;
    costs[REGX_WAY_SINGLE] = single;
    forget();
}

static void the_faster_way_wins(void **state)
{
    (void)state;
    cost(1000, 500);
    alone(TRIAL, 64 * KIB);
    assert_int_equal(went[REGX_WAY_BOUNCE], TRIAL / 2);
    assert_int_equal(tried, TRIAL);
    forget();
    alone(REGX_CONTEST_LEAST, 64 * KIB);
    assert_int_equal(went[REGX_WAY_SINGLE], REGX_CONTEST_LEAST);
    assert_int_equal(tried, 0);

    begin(state);
    cost(500, 1000);
    alone(TRIAL, 64 * KIB);
    forget();
    alone(REGX_CONTEST_LEAST, 64 * KIB);
    assert_int_equal(went[REGX_WAY_BOUNCE], REGX_CONTEST_LEAST);
}

static void in_a_stream_too(void **state)
{
    (void)state;
    cost(1000, 500);
    stream(1, 64 * KIB);
    assert_int_equal(went[REGX_WAY_SINGLE], TRIAL / 2); /* those behind cannot know yet */
    forget();
    stream(4, 64 * KIB);
    assert_int_equal(went[REGX_WAY_SINGLE], 4 * 64);

    begin(state);
    cost(500, 1000);
    stream(1, 64 * KIB);
    forget();
    stream(4, 64 * KIB);
    assert_int_equal(went[REGX_WAY_BOUNCE], 4 * 64);
}

static void it_is_tried_again_ever_more_seldom(void **state)
{
    unsigned expected = REGX_CONTEST_LEAST;

    (void)state;
    cost(1000, 500);
    alone(TRIAL, 64 * KIB);
    for (int i = 0; i < 10; i++) {
        forget();
        alone(expected, 64 * KIB);
        assert_int_equal(tried, 0);
        alone(TRIAL, 64 * KIB);
        assert_int_equal(tried, TRIAL);
        expected = expected < REGX_CONTEST_MOST ? 2 * expected : expected;
    }
    assert_int_equal(expected, REGX_CONTEST_MOST);
}

static void the_winner_may_change(void **state)
{
    (void)state;
    cost(1000, 500);
    alone(2 * TRIAL + REGX_CONTEST_LEAST, 64 * KIB);
    cost(1000, 3000);
    alone(2 * REGX_CONTEST_LEAST + TRIAL, 64 * KIB);
    assert_int_equal(went[REGX_WAY_SINGLE], 2 * REGX_CONTEST_LEAST + TRIAL / 2);
    forget();
    alone(REGX_CONTEST_LEAST, 64 * KIB); /* and is soon tried again */
    assert_int_equal(went[REGX_WAY_BOUNCE], REGX_CONTEST_LEAST);
    alone(TRIAL, 64 * KIB);
    assert_int_equal(tried, TRIAL);
}

static void a_close_one_is_repeated(void **state)
{
    (void)state;
    cost(1000, 950);
    alone(2 * TRIAL, 64 * KIB);
    assert_int_equal(tried, 2 * TRIAL);
    forget();
    alone(REGX_CONTEST_LEAST, 64 * KIB);
    assert_int_equal(went[REGX_WAY_BOUNCE], REGX_CONTEST_LEAST); /* not for so little */

    begin(state);
    cost(1000, 820);
    alone(2 * TRIAL, 64 * KIB);
    assert_int_equal(tried, 2 * TRIAL);
    forget();
    alone(REGX_CONTEST_LEAST, 64 * KIB);
    assert_int_equal(went[REGX_WAY_SINGLE], REGX_CONTEST_LEAST);
}

/* As the first finds other caches than the next. */
static void the_first_of_each_does_not_count(void **state)
{
    (void)state;
    cost(1000, 500);
    for (unsigned i = 0; i < TRIAL; i++) {
        regx_entry_t entry;
        const regx_way_t way = enter(64 * KIB, &entry);

        now += i == TRIAL / 2 ? 1000000 : costs[way];
        regx_contest_leave(&contests, 64 * KIB, &entry, true);
    }
    forget();
    alone(1, 64 * KIB);
    assert_int_equal(went[REGX_WAY_SINGLE], 1);
}

static void sizes_are_on_their_own(void **state)
{
    static const uint64_t sizes[] = {1, 16 * KIB, 32 * KIB - 1, 32 * KIB, 8192 * KIB, UINT64_MAX};
    static const unsigned which[] = {0, 0, 0, 1, 9, 9};

    (void)state;
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        begin(state);
        cost(1000, 500);
        alone(TRIAL, sizes[i]);
        for (unsigned size = 0; size < REGX_CONTESTS; size++) {
            assert_int_equal(contests.of_size[size].winner,
                             size == which[i] ? REGX_WAY_SINGLE : REGX_WAY_BOUNCE);
        }
    }
}

/* What was refused, taken back or not written is no measure. */
static void a_trial_that_does_not_go_as_it_was_to(void **state)
{
    (void)state;
    cost(1000, 10);
    for (unsigned i = 0; i < TRIAL; i++) {
        regx_entry_t entry;

        enter(64 * KIB, &entry);
        regx_contest_leave(&contests, 64 * KIB, &entry, i != 4);
    }
    forget();
    alone(REGX_CONTEST_LEAST, 64 * KIB);
    assert_int_equal(went[REGX_WAY_BOUNCE], REGX_CONTEST_LEAST);
    alone(TRIAL, 64 * KIB); /* the next one does */
    forget();
    alone(1, 64 * KIB);
    assert_int_equal(went[REGX_WAY_SINGLE], 1);
}

/* One that never ends holds up the verdict, and nothing else. */
static void one_that_stays(void **state)
{
    regx_entry_t stays;

    (void)state;
    cost(1000, 500);
    enter(64 * KIB, &stays);
    alone(1000, 64 * KIB);
    assert_int_equal(tried, TRIAL);
    assert_int_equal(went[REGX_WAY_BOUNCE], 1001 - TRIAL / 2);
    regx_contest_leave(&contests, 64 * KIB, &stays, true);
    assert_int_equal(contests.under_way, 0);
    forget();
    alone(1, 64 * KIB);
    assert_int_equal(went[REGX_WAY_SINGLE], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_faster_way_wins, begin),
        cmocka_unit_test_setup(in_a_stream_too, begin),
        cmocka_unit_test_setup(it_is_tried_again_ever_more_seldom, begin),
        cmocka_unit_test_setup(the_winner_may_change, begin),
        cmocka_unit_test_setup(a_close_one_is_repeated, begin),
        cmocka_unit_test_setup(the_first_of_each_does_not_count, begin),
        cmocka_unit_test_setup(sizes_are_on_their_own, begin),
        cmocka_unit_test_setup(a_trial_that_does_not_go_as_it_was_to, begin),
        cmocka_unit_test_setup(one_that_stays, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
