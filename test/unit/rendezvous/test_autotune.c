/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which way wins, by a clock of the test's own.
 */
#include "../unit.h"

#include <time.h>

#include "rendezvous/autotune.h"

enum { KIB = 1024, MIB = 1024 * KIB, LAG = 4 * MIB, WINDOW = 64 };
enum { TRIAL = REGX_AUTOTUNE_PATHS * REGX_AUTOTUNE_ROUNDS }; /* of messages that come alone */
enum { WAIT = REGX_AUTOTUNE_MIN * TRIAL };

static regx_autotune_t autotune[REGX_AUTOTUNE_SIZES];
static int64_t now;
static int64_t costs[REGX_AUTOTUNE_PATHS]; /* of a KiB, in nanoseconds */
static unsigned went[REGX_AUTOTUNE_PATHS], tried;

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
    memset(autotune, 0, sizeof(autotune));
    now = 1000000;
    return 0;
}

static void again(void)
{
    memset(went, 0, sizeof(went));
    tried = 0;
}

static void cost_of_three(int64_t bounce, int64_t single, int64_t together)
{
    costs[REGX_AUTOTUNE_BOUNCE] = bounce;
    costs[REGX_AUTOTUNE_SINGLE_COPY] = single;
    costs[REGX_AUTOTUNE_TOGETHER] = together;
    again();
}

/* Together loses. */
static void cost(int64_t bounce, int64_t single)
{
    cost_of_three(bounce, single, 10 * (bounce + single));
}

typedef struct message {
    uint64_t length;
    regx_trial_t trial;
    int64_t closed;
} message_t;

static void enter(message_t *message, uint64_t length)
{
    message->length = length;
    message->trial = regx_autotune_enter(autotune, length);
    went[message->trial.path]++;
    tried += message->trial.trial > 0;
}

static void leave(const message_t *message, bool whole)
{
    regx_autotune_leave(autotune, message->length, &message->trial, whole);
}

static int64_t time_of(const message_t *message)
{
    return costs[message->trial.path] * (int64_t)(message->length / KIB);
}

/* Messages of which each is alone, with time between them that is nobody's. */
static void alone(unsigned count, uint64_t length)
{
    for (unsigned i = 0; i < count; i++) {
        message_t message;

        enter(&message, length);
        now += time_of(&message);
        leave(&message, true);
        now += 1234567;
    }
}

/* Messages `ahead` of which are open at any time, to be closed in that order. Of a bounce each
 * process has its part, and the sender is ahead by no more than LAG; the others are the sender's
 * alone. The receiver looks at what has come when it has done what came before. */
static void stream(unsigned count, unsigned ahead, uint64_t length)
{
    static message_t messages[100000];
    const unsigned lag = LAG / length > 1 ? (unsigned)(LAG / length) : 2;
    int64_t sender = now;
    unsigned opened = 0;

    assert_true(count <= sizeof(messages) / sizeof(messages[0]));
    for (unsigned i = 0; i < count; i++) {
        message_t *message = &messages[i];

        while (opened < count && opened < i + ahead) {
            enter(&messages[opened++], length);
        }
        if (message->trial.path != REGX_AUTOTUNE_BOUNCE) {
            sender += time_of(message);
        } else {
            if (i >= lag && messages[i - lag].closed > sender) {
                sender = messages[i - lag].closed;
            }
            sender += time_of(message) * 8 / 10;
        }
        now = sender > now ? sender : now;
        now += message->trial.path != REGX_AUTOTUNE_BOUNCE ? 1 : time_of(message);
        message->closed = now;
        leave(message, true);
    }
    now += 1234567;
}

/* Steps in which one message comes from each of several neighbours. Bounces are copied in turns,
 * so that all end at the same time; single copies are made by the senders, all at once. */
static void halo(unsigned steps, unsigned neighbours, uint64_t length)
{
    message_t messages[WINDOW];

    while (steps-- > 0) {
        const int64_t start = now;
        int64_t bounced = start;

        for (unsigned i = 0; i < neighbours; i++) {
            enter(&messages[i], length);
            bounced += messages[i].trial.path == REGX_AUTOTUNE_BOUNCE ? time_of(&messages[i]) : 0;
        }
        for (unsigned i = 0; i < neighbours; i++) {
            const int64_t end = messages[i].trial.path == REGX_AUTOTUNE_BOUNCE
                                    ? bounced - (int64_t)(neighbours - i)
                                    : start + time_of(&messages[i]);

            now = end > now ? end : now;
            leave(&messages[i], true);
        }
        now += 1234567;
    }
}

static void assert_all(unsigned count, regx_autotune_path_t way)
{
    assert_int_equal(went[way], count);
    assert_int_equal(tried, 0);
}

/* What messages that come one at a time do once all paths were tried. */
static void assert_wins_of_three(regx_autotune_path_t way, int64_t bounce, int64_t single,
                                 int64_t together)
{
    begin(NULL);
    cost_of_three(bounce, single, together);
    alone(TRIAL, 64 * KIB);
    for (int tried_way = 0; tried_way < REGX_AUTOTUNE_PATHS; tried_way++) {
        assert_int_equal(went[tried_way], REGX_AUTOTUNE_ROUNDS);
    }
    assert_int_equal(tried, TRIAL);
    again();
    alone(WAIT, 64 * KIB);
    assert_all(WAIT, way);
}

static void assert_wins(regx_autotune_path_t way, int64_t bounce, int64_t single)
{
    assert_wins_of_three(way, bounce, single, 10 * (bounce + single));
}

static void the_fastest_of_three_wins(void **state)
{
    (void)state;
    assert_wins_of_three(REGX_AUTOTUNE_TOGETHER, 30, 20, 15);
    assert_wins_of_three(REGX_AUTOTUNE_TOGETHER, 30, 40, 15);
    assert_wins_of_three(REGX_AUTOTUNE_SINGLE_COPY, 30, 15, 20);
    assert_wins_of_three(REGX_AUTOTUNE_SINGLE_COPY, 30, 15, 40);
    assert_wins_of_three(REGX_AUTOTUNE_BOUNCE, 15, 20, 30);
    assert_wins_of_three(REGX_AUTOTUNE_BOUNCE, 15, 30, 20);
    assert_wins_of_three(REGX_AUTOTUNE_BOUNCE, 800, 900, 720);
    assert_wins_of_three(REGX_AUTOTUNE_TOGETHER, 800, 680, 670);
}

static void the_faster_path_wins(void **state)
{
    (void)state;
    assert_wins(REGX_AUTOTUNE_SINGLE_COPY, 30, 15);
    assert_wins(REGX_AUTOTUNE_BOUNCE, 15, 30);
}

static void single_copy_has_to_save_an_eighth(void **state)
{
    (void)state;
    assert_wins(REGX_AUTOTUNE_BOUNCE, 800, 720);
    assert_wins(REGX_AUTOTUNE_SINGLE_COPY, 800, 680);
}

static void bursts_and_streams_are_measured(void **state)
{
    static const uint64_t lengths[] = {32 * KIB, 128 * KIB, MIB, 2 * MIB};

    (void)state;
    for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (int single = 0; single < 2; single++) {
            begin(state);
            cost(single ? 130 : 100, single ? 100 : 130);
            for (int window = 0; window < TRIAL; window++) {
                stream(WINDOW, WINDOW, lengths[i]);
            }
            assert_int_equal(tried, TRIAL * WINDOW);
            again();
            stream(WINDOW, WINDOW, lengths[i]);
            assert_all(WINDOW, single ? REGX_AUTOTUNE_SINGLE_COPY : REGX_AUTOTUNE_BOUNCE);

            begin(state);
            stream(20000, 40, lengths[i]);
            again();
            stream(WINDOW, 40, lengths[i]);
            assert_all(WINDOW, single ? REGX_AUTOTUNE_SINGLE_COPY : REGX_AUTOTUNE_BOUNCE);
        }
    }
}

static void messages_of_many_neighbours_are_measured(void **state)
{
    (void)state;
    for (unsigned neighbours = 1; neighbours < 40; neighbours += 3) {
        begin(state);
        cost(30, 25);
        halo(TRIAL, neighbours, MIB);
        assert_int_equal(tried, TRIAL * neighbours);
        again();
        halo(10, neighbours, MIB);
        assert_all(10 * neighbours, REGX_AUTOTUNE_SINGLE_COPY);

        begin(state);
        cost(30, 31 * neighbours);
        halo(TRIAL, neighbours, MIB);
        again();
        halo(10, neighbours, MIB);
        assert_all(10 * neighbours, REGX_AUTOTUNE_BOUNCE);
    }
}

/* Single copies need no receiver, who looks only when all have come: rounds are no shorter than
 * what was under way. */
static void messages_opened_all_at_once_are_measured(void **state)
{
    static message_t messages[300];

    (void)state;
    for (unsigned burst = 8; burst <= 300; burst += 4) {
        begin(state);
        cost(10, 30);
        for (int step = 0; step < 100; step++) {
            int64_t end = now;

            for (unsigned i = 0; i < burst; i++) {
                enter(&messages[i], 64 * KIB);
                end += time_of(&messages[i]);
            }
            for (unsigned i = 0; i < burst; i++) {
                now = messages[i].trial.path == REGX_AUTOTUNE_BOUNCE ? now + time_of(&messages[i])
                                                                     : end;
                leave(&messages[i], true);
            }
            now = end;
        }
        assert_int_equal(autotune[2].winner, REGX_AUTOTUNE_BOUNCE);
        assert_true(autotune[2].factor > 0);
    }
}

/* What was opened for another round, or an earlier trial, is not this one's. */
static void stragglers_do_not_stop_a_trial(void **state)
{
    message_t straggler;

    (void)state;
    cost(10, 20);
    enter(&straggler, 8 * MIB * 128ULL * 64); /* all of the last size */
    stream((TRIAL - 1) * REGX_AUTOTUNE_ROUND, 8, 8 * MIB * 1024ULL);
    leave(&straggler, true);
    stream(4 * REGX_AUTOTUNE_ROUND, 8, 8 * MIB * 1024ULL);
    assert_int_equal(autotune[19].winner, REGX_AUTOTUNE_BOUNCE);
    assert_true(autotune[19].factor > 0);

    begin(state);
    cost(10, 20);
    enter(&straggler, 64 * KIB);
    stream(TRIAL * REGX_AUTOTUNE_ROUND, 8, 64 * KIB);
    assert_int_equal(autotune[2].factor, REGX_AUTOTUNE_MIN);
    while (autotune[2].wait > 0) {
        message_t message;

        enter(&message, 64 * KIB);
        leave(&message, true);
    }
    leave(&straggler, false); /* between two trials */
    assert_int_equal(autotune[2].round, 0);
    enter(&straggler, 64 * KIB);
    stream(TRIAL * REGX_AUTOTUNE_ROUND, 8, 64 * KIB);
    assert_int_equal(autotune[2].factor, 2 * REGX_AUTOTUNE_MIN);
    while (autotune[2].wait > 0) {
        message_t message;

        enter(&message, 64 * KIB);
        leave(&message, true);
    }
    alone(1, 64 * KIB);
    leave(&straggler, false); /* within one */
    alone(TRIAL - 1, 64 * KIB);
    assert_int_equal(autotune[2].factor, 4 * REGX_AUTOTUNE_MIN);
}

/* What counts is the time of a byte. */
static void lengths_within_a_class_may_differ(void **state)
{
    (void)state;
    cost(20, 40);
    alone(REGX_AUTOTUNE_ROUNDS, 16 * MIB - 1);
    alone(TRIAL - REGX_AUTOTUNE_ROUNDS, 8 * MIB);
    again();
    alone(WAIT, 8 * MIB);
    assert_all(WAIT, REGX_AUTOTUNE_BOUNCE);
}

static void trials_become_rarer_while_the_winner_stays(void **state)
{
    unsigned factor = REGX_AUTOTUNE_MIN;

    (void)state;
    cost(30, 15);
    alone(TRIAL, 64 * KIB);
    for (int i = 0; i < 8; i++) {
        again();
        alone(factor * TRIAL, 64 * KIB);
        assert_int_equal(tried, 0);
        alone(TRIAL, 64 * KIB);
        assert_int_equal(tried, TRIAL);
        factor = factor < REGX_AUTOTUNE_MAX ? 2 * factor : factor;
    }
    assert_int_equal(factor, REGX_AUTOTUNE_MAX);
}

static void the_winner_may_change(void **state)
{
    (void)state;
    cost(30, 15);
    alone(TRIAL + WAIT + TRIAL, 64 * KIB);
    cost(30, 90);
    alone(2 * WAIT + TRIAL, 64 * KIB);
    assert_int_equal(went[REGX_AUTOTUNE_SINGLE_COPY], 2 * WAIT + REGX_AUTOTUNE_ROUNDS);
    again();
    alone(WAIT, 64 * KIB); /* and is soon tried again */
    assert_all(WAIT, REGX_AUTOTUNE_BOUNCE);
    alone(TRIAL, 64 * KIB);
    assert_int_equal(tried, TRIAL);
}

static void an_outlier_does_not_count(void **state)
{
    (void)state;
    for (unsigned outlier = 0; outlier < TRIAL; outlier++) {
        for (int single = 0; single < 2; single++) {
            begin(state);
            cost(single ? 30 : 15, single ? 15 : 30);
            for (unsigned i = 0; i < TRIAL; i++) {
                message_t message;

                enter(&message, 64 * KIB);
                now += i == outlier ? 100000000 : time_of(&message);
                leave(&message, true);
            }
            again();
            alone(WAIT, 64 * KIB);
            assert_all(WAIT, single ? REGX_AUTOTUNE_SINGLE_COPY : REGX_AUTOTUNE_BOUNCE);
        }
    }
}

static void size_classes_are_independent(void **state)
{
    static const uint64_t sizes[] = {KIB, 16 * KIB, 32 * KIB - 1, 32 * KIB, 8 * MIB, 1024 * MIB};
    static const unsigned which[] = {0, 0, 0, 1, 9, 16};

    (void)state;
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        begin(state);
        cost(3000, 1500);
        alone(TRIAL, sizes[i]);
        for (unsigned size = 0; size < REGX_AUTOTUNE_SIZES; size++) {
            assert_int_equal(autotune[size].winner,
                             size == which[i] ? REGX_AUTOTUNE_SINGLE_COPY : REGX_AUTOTUNE_BOUNCE);
        }
    }
}

/* What was refused, taken back or not written is no measure, and changes nothing. */
static void a_trial_of_which_messages_went_elsewhere_is_invalid(void **state)
{
    (void)state;
    for (unsigned corrupted = 0; corrupted < TRIAL; corrupted++) {
        begin(state);
        cost(30, 15);
        alone(TRIAL + WAIT, 64 * KIB);
        cost(15, 30);
        for (unsigned i = 0; i < TRIAL; i++) {
            message_t message;

            enter(&message, 64 * KIB);
            now += time_of(&message);
            leave(&message, i != corrupted);
        }
        again();
        alone(WAIT, 64 * KIB);
        assert_all(WAIT, REGX_AUTOTUNE_SINGLE_COPY);
        alone(TRIAL, 64 * KIB); /* the next one does */
        again();
        alone(1, 64 * KIB);
        assert_all(1, REGX_AUTOTUNE_BOUNCE);
    }
}

/* One that never ends makes rounds long, and nothing else. */
static void a_message_that_never_closes_does_not_stop_trials(void **state)
{
    message_t stays;

    (void)state;
    cost(30, 15);
    enter(&stays, 64 * KIB);
    alone(TRIAL * REGX_AUTOTUNE_ROUND, 64 * KIB);
    assert_int_equal(tried, 1 + TRIAL * REGX_AUTOTUNE_ROUND);
    again();
    alone(1000, 64 * KIB);
    assert_int_equal(tried, 0);
    assert_int_equal(autotune[2].open, 1);
    leave(&stays, true);
    assert_int_equal(autotune[2].open, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_fastest_of_three_wins, begin),
        cmocka_unit_test_setup(the_faster_path_wins, begin),
        cmocka_unit_test_setup(single_copy_has_to_save_an_eighth, begin),
        cmocka_unit_test_setup(bursts_and_streams_are_measured, begin),
        cmocka_unit_test_setup(messages_of_many_neighbours_are_measured, begin),
        cmocka_unit_test_setup(messages_opened_all_at_once_are_measured, begin),
        cmocka_unit_test_setup(stragglers_do_not_stop_a_trial, begin),
        cmocka_unit_test_setup(lengths_within_a_class_may_differ, begin),
        cmocka_unit_test_setup(trials_become_rarer_while_the_winner_stays, begin),
        cmocka_unit_test_setup(the_winner_may_change, begin),
        cmocka_unit_test_setup(an_outlier_does_not_count, begin),
        cmocka_unit_test_setup(size_classes_are_independent, begin),
        cmocka_unit_test_setup(a_trial_of_which_messages_went_elsewhere_is_invalid, begin),
        cmocka_unit_test_setup(a_message_that_never_closes_does_not_stop_trials, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
