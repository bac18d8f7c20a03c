/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is measured and which candidate wins, by a clock of the test's own. What it costs is
 * test_regret's.
 */
#include "../unit.h"

#include <time.h>

#include "rendezvous/autotune.h"

enum { KIB = 1024, MIB = 1024 * KIB, LAG = 4 * MIB, WINDOW = 64 };
enum { BOUNCE, READ, TOGETHER, WAYS }; /* of which bounce is copied by the receiver, too */

static regx_autotune_t autotune[REGX_AUTOTUNE_SIZES];
static int64_t now;
static int64_t costs[WAYS]; /* of a KiB, in nanoseconds */
static unsigned went[WAYS], tried, looks;
static unsigned refused; /* bits of ways that cannot be had, … */
static bool refused_one; /* … by the first message of a stream */

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    (void)clock;
    looks++;
    *time = (struct timespec){.tv_sec = now / 1000000000, .tv_nsec = now % 1000000000};
    return 0;
}

static void begin_of(unsigned candidates, uint8_t winner, uint32_t patience)
{
    regx_autotune_prior_t prior = {.candidates = candidates, .patience = patience};

    memset(prior.winner, winner, sizeof(prior.winner));
    regx_autotune_init(autotune, &prior);
    now = 1000000;
    refused = 0;
    refused_one = false;
}

static void begin_with(uint8_t winner, uint32_t patience)
{
    begin_of(WAYS, winner, patience);
}

static int begin(void **state)
{
    (void)state;
    begin_with(BOUNCE, 0);
    return 0;
}

static void again(void)
{
    memset(went, 0, sizeof(went));
    tried = looks = 0;
}

static void cost(int64_t bounce, int64_t read, int64_t together)
{
    costs[BOUNCE] = bounce;
    costs[READ] = read;
    costs[TOGETHER] = together;
    again();
}

typedef struct message {
    uint64_t length;
    regx_trial_t trial;
    int64_t opened, closed;
} message_t;

static void enter(message_t *message, uint64_t length)
{
    message->length = length;
    message->opened = now;
    message->trial = regx_autotune_enter(autotune, length);
    went[message->trial.candidate]++;
    tried += message->trial.trial;
}

static void leave(const message_t *message, bool whole)
{
    regx_autotune_leave(&message->trial, message->length,
                        whole && (refused & 1u << message->trial.candidate) == 0);
}

static int64_t time_of(const message_t *message)
{
    return costs[message->trial.candidate] * (int64_t)(message->length / KIB);
}

static void alone(unsigned count, uint64_t length)
{
    for (unsigned i = 0; i < count; i++) {
        message_t message;

        enter(&message, length);
        now += time_of(&message);
        leave(&message, true);
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
        sender = message->opened > sender ? message->opened : sender;
        if (message->trial.candidate != BOUNCE) {
            sender += time_of(message);
        } else {
            if (i >= lag && messages[i - lag].closed > sender) {
                sender = messages[i - lag].closed;
            }
            sender += time_of(message) * 8 / 10;
        }
        now = sender > now ? sender : now;
        now += message->trial.candidate != BOUNCE ? 1 : time_of(message);
        message->closed = now;
        leave(message, !(refused_one && i == 0 && message->trial.candidate == TOGETHER));
    }
}

/* Steps in which one message comes from each of several neighbours. Bounces are copied in turns,
 * so that all end at the same time; the others are copied by the senders, all at once. */
static void halo(unsigned steps, unsigned neighbours, uint64_t length)
{
    message_t messages[WINDOW];

    while (steps-- > 0) {
        const int64_t start = now;
        int64_t bounced = start;

        for (unsigned i = 0; i < neighbours; i++) {
            enter(&messages[i], length);
            bounced += messages[i].trial.candidate == BOUNCE ? time_of(&messages[i]) : 0;
        }
        for (unsigned i = 0; i < neighbours; i++) {
            const int64_t end = messages[i].trial.candidate == BOUNCE
                                    ? bounced - (int64_t)(neighbours - i)
                                    : start + time_of(&messages[i]);

            now = end > now ? end : now;
            leave(&messages[i], true);
        }
    }
}

/* What the trials found for messages of that length. */
static unsigned winner(uint64_t length)
{
    unsigned candidate = WAYS;

    assert_true(regx_autotune_outcome(&autotune[regx_autotune_size(length)], &candidate));
    return candidate;
}

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
        cmocka_unit_test_setup(the_winner_may_change, begin),
        cmocka_unit_test_setup(an_outlier_does_not_count, begin),
        cmocka_unit_test_setup(size_classes_are_independent, begin),
        cmocka_unit_test_setup(messages_that_went_elsewhere_tell_nothing, begin),
        cmocka_unit_test_setup(a_prior_that_cannot_be_had_does_not_win, begin),
        cmocka_unit_test_setup(what_ceases_to_be_had_does_not_win, begin),
        cmocka_unit_test_setup(a_winner_that_ceases_to_be_had_outside_a_trial_is_replaced, begin),
        cmocka_unit_test_setup(a_winner_that_is_refused_now_and_then_is_kept, begin),
        cmocka_unit_test_setup(a_winner_that_one_message_of_a_burst_is_refused_is_kept, begin),
        cmocka_unit_test_setup(a_prior_that_cannot_be_had_is_tried_for_a_while, begin),
        cmocka_unit_test_setup(the_next_trial_is_never_out_of_reach, begin),
        cmocka_unit_test_setup(the_first_trial_may_have_to_wait, begin),
        cmocka_unit_test_setup(a_message_without_a_part_is_left_as_it_is, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
