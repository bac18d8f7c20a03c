/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which way wins, by a clock of the test's own.
 */
#include "unit.h"

#include <time.h>

#include "rendezvous/contest.h"

enum {
    KIB = 1024,
    MIB = 1024 * KIB,
    LAG = 4 * MIB,
    WINDOW = 64,
    TRIAL = 6,
    WAIT = REGX_CONTEST_LEAST * TRIAL
};

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
    contests = (regx_contests_t){.lag = LAG};
    now = 1000000;
    return 0;
}

static void cost(int64_t bounce, int64_t single)
{
    costs[REGX_WAY_BOUNCE] = bounce;
    costs[REGX_WAY_SINGLE] = single;
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

/* Windows of messages of which all are opened before the first comes. Of a bounce each process has
 * its cost, and the sender is ahead by no more than LAG; single copy is the sender's alone. The
 * receiver looks at what has come when it has done what came before. */
static void stream(unsigned windows, uint64_t length)
{
    regx_entry_t entries[WINDOW];
    regx_way_t ways[WINDOW];
    int64_t closed[WINDOW];
    const unsigned ahead = (unsigned)(LAG / length);

    while (windows-- > 0) {
        int64_t sender = now, receiver = now;

        for (unsigned i = 0; i < WINDOW; i++) {
            ways[i] = enter(length, &entries[i]);
        }
        for (unsigned i = 0; i < WINDOW; i++) {
            if (ways[i] == REGX_WAY_BOUNCE && i >= ahead && closed[i - ahead] > sender) {
                sender = closed[i - ahead];
            }
            sender += ways[i] == REGX_WAY_BOUNCE ? costs[ways[i]] * 9 / 10 : costs[ways[i]];
            receiver = sender > receiver ? sender : receiver;
            receiver += ways[i] == REGX_WAY_BOUNCE ? costs[ways[i]] : 1;
            now = closed[i] = receiver;
            regx_contest_leave(&contests, length, &entries[i], true);
        }
    }
}

static void the_faster_way_wins(void **state)
{
    (void)state;
    cost(1000, 500);
    alone(TRIAL, 64 * KIB);
    assert_int_equal(went[REGX_WAY_BOUNCE], TRIAL / 2);
    assert_int_equal(tried, TRIAL);
    cost(1000, 500);
    alone(WAIT, 64 * KIB);
    assert_int_equal(went[REGX_WAY_SINGLE], WAIT);
    assert_int_equal(tried, 0);

    begin(state);
    cost(500, 1000);
    alone(TRIAL, 64 * KIB);
    cost(500, 1000);
    alone(WAIT, 64 * KIB);
    assert_int_equal(went[REGX_WAY_BOUNCE], WAIT);
}

/* The first of a window is alone, and not for long, which tells nothing: it does as the others. */
static void in_a_stream_too(void **state)
{
    static const uint64_t lengths[] = {32 * KIB, 128 * KIB, MIB, 2 * MIB};

    (void)state;
    for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (int single = 0; single < 2; single++) {
            begin(state);
            cost(single ? 1200 : 1000, 1000 + !single * 200);
            stream(60, lengths[i]);
            assert_in_range(tried, 2 * TRIAL - 2, 2 * 1100);
            cost(costs[REGX_WAY_BOUNCE], costs[REGX_WAY_SINGLE]);
            stream(4, lengths[i]);
            assert_int_equal(went[single ? REGX_WAY_SINGLE : REGX_WAY_BOUNCE], 4 * WINDOW);
        }
    }
}

static void it_is_tried_again_ever_more_seldom(void **state)
{
    unsigned factor = REGX_CONTEST_LEAST;

    (void)state;
    cost(1000, 500);
    alone(TRIAL, 64 * KIB);
    for (int i = 0; i < 10; i++) {
        cost(1000, 500);
        alone(factor * TRIAL, 64 * KIB);
        assert_int_equal(tried, 0);
        alone(TRIAL, 64 * KIB);
        assert_int_equal(tried, TRIAL);
        factor = factor < REGX_CONTEST_MOST ? 2 * factor : factor;
    }
    assert_int_equal(factor, REGX_CONTEST_MOST);
}

static void the_winner_may_change(void **state)
{
    (void)state;
    cost(1000, 500);
    alone(TRIAL + WAIT + TRIAL, 64 * KIB);
    cost(1000, 3000);
    alone(2 * WAIT + TRIAL, 64 * KIB);
    assert_int_equal(went[REGX_WAY_SINGLE], 2 * WAIT + TRIAL / 2);
    cost(1000, 3000);
    alone(WAIT, 64 * KIB); /* and is soon tried again */
    assert_int_equal(went[REGX_WAY_BOUNCE], WAIT);
    alone(TRIAL, 64 * KIB);
    assert_int_equal(tried, TRIAL);
}

static void a_close_one_is_repeated(void **state)
{
    static const struct {
        int64_t single;
        regx_way_t wins;
    } cases[] = {{950, REGX_WAY_BOUNCE}, {820, REGX_WAY_SINGLE}, {1200, REGX_WAY_BOUNCE}};

    (void)state;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(state);
        cost(1000, cases[i].single);
        alone(2 * TRIAL, 64 * KIB);
        assert_int_equal(tried, 2 * TRIAL);
        cost(1000, cases[i].single);
        alone(WAIT, 64 * KIB);
        assert_int_equal(went[cases[i].wins], WAIT);
    }
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
    cost(1000, 500);
    alone(1, 64 * KIB);
    assert_int_equal(went[REGX_WAY_SINGLE], 1);
}

static void sizes_are_on_their_own(void **state)
{
    static const uint64_t sizes[] = {1, 16 * KIB, 32 * KIB - 1, 32 * KIB, 8 * MIB, UINT64_MAX};
    static const unsigned which[] = {0, 0, 0, 1, 9, 9};

    (void)state;
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        begin(state);
        cost(1000, 500);
        alone(TRIAL, sizes[i]);
        for (unsigned size = 0; size < REGX_CONTEST_SIZES; size++) {
            assert_int_equal(contests.alone[size].winner,
                             size == which[i] ? REGX_WAY_SINGLE : REGX_WAY_BOUNCE);
            assert_int_equal(contests.among[size].winner, REGX_WAY_BOUNCE);
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
    cost(1000, 10);
    alone(WAIT, 64 * KIB);
    assert_int_equal(went[REGX_WAY_BOUNCE], WAIT);
    alone(TRIAL, 64 * KIB); /* the next one does */
    cost(1000, 10);
    alone(1, 64 * KIB);
    assert_int_equal(went[REGX_WAY_SINGLE], 1);
}

/* One that never ends holds up its own trial, and nothing else. */
static void one_that_stays(void **state)
{
    regx_entry_t stays;

    (void)state;
    cost(1000, 500);
    enter(64 * KIB, &stays);
    stream(60, MIB);
    assert_int_equal(contests.among[6].winner, REGX_WAY_SINGLE);
    assert_int_equal(contests.open, 1);
    regx_contest_leave(&contests, 64 * KIB, &stays, true);
    assert_int_equal(contests.open, 0);
    assert_int_equal(contests.on_trial, 0);
    cost(1000, 500);
    alone(WAIT + TRIAL, 64 * KIB); /* as if it had not been */
    assert_int_equal(tried, TRIAL);
    assert_int_equal(went[REGX_WAY_SINGLE], TRIAL / 2);
}

/* A message that has no part is none that is open. */
static void what_has_no_part(void **state)
{
    regx_entry_t entry = {.number = 0};

    (void)state;
    regx_contest_leave(&contests, 64 * KIB, &entry, true);
    cost(1000, 500);
    alone(TRIAL + 1, 64 * KIB);
    assert_int_equal(tried, TRIAL);
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
        cmocka_unit_test_setup(what_has_no_part, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
