/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a trial in bursts costs where a candidate takes many times as long, always or at first; and
 * that it finds the fastest also if a burst is interrupted, or messages close in another order. By
 * a clock of the test's own.
 */
#include "autotune_program.h"

enum { BURST = 64, SHORT = 22 * BURST, LONG = 157 * BURST, OPEN_MAX = 300, NEVER = -1 };

/* What a message costs by each way, in nanoseconds. */
typedef struct table {
    const char *name;
    int64_t costs[WAYS];
    int64_t first; /* and a bounce more if it is the first to go through its memory */
} table_t;

/* Counted with osu_bibw and osu_bw of the bounces in bursts that else go another way: some paid for
 * the first use of memory. */
static const table_t recorded[] = {{"both ways 32 KiB", {38000, 2450, 2400}, 0},
                                   {"both ways 64 KiB", {27000, 3500, 3600}, 0},
                                   {"one way 512 KiB", {39800, 19600, 11000}, 0},
                                   {"both ways 64 KiB, whole bursts", {9100, 5100, 6700}, 0},
                                   {"the first bounces", {4900, 2450, 2400}, 33000}};
enum { RECORDED = sizeof(recorded) / sizeof(recorded[0]) };

/* A program that sends bursts of `count` messages. */
typedef struct program {
    unsigned messages, count;
    int interrupted; /* the number of the burst that is interrupted for long; NEVER: none */
} program_t;

/* What it takes, by one way, or by WAYS: by those that autotune says. */
static int64_t takes(const table_t *table, const program_t *program, unsigned fixed)
{
    const int64_t began = now;
    unsigned mapped = 0; /* bounces at once, at most so far */

    for (int number = 0; number < (int)(program->messages / program->count); number++) {
        message_t messages[OPEN_MAX];
        unsigned bounces = 0;

        for (unsigned i = 0; i < program->count && fixed == WAYS; i++) {
            enter(&messages[i], 64 * KIB);
        }
        for (unsigned i = 0; i < program->count; i++) {
            const unsigned way = fixed == WAYS ? messages[i].trial.candidate : fixed;

            now += table->costs[way];
            if (way == BOUNCE && ++bounces > mapped) {
                mapped = bounces;
                now += table->first;
            }
            if (i + 1 == program->count && number == program->interrupted) {
                now += 10 * BURST * table->costs[TOGETHER];
            }
            if (fixed == WAYS) {
                leave(&messages[i], true);
            }
        }
    }
    return now - began;
}

static unsigned best_of(const table_t *table, const program_t *program)
{
    unsigned best = 0;

    for (unsigned way = 1; way < WAYS; way++) {
        best = takes(table, program, way) < takes(table, program, best) ? way : best;
    }
    return best;
}

/* How many messages more could have been sent by the best way. */
static int64_t lost(const table_t *table, const program_t *program, unsigned prior)
{
    const unsigned best = best_of(table, program);

    begin_with((uint8_t)prior, 4);
    return (takes(table, program, WAYS) - takes(table, program, best)) / table->costs[best];
}

static bool is_good(const table_t *table, unsigned way)
{
    for (unsigned other = 0; other < WAYS; other++) {
        if (table->costs[way] * 10 > table->costs[other] * 11) {
            return false;
        }
    }
    return true;
}

static void assert_lost(const table_t *table, const program_t *program, unsigned prior,
                        int64_t limit)
{
    const int64_t messages = lost(table, program, prior);

    if (messages > limit) {
        fail_msg("%s, prior %u, %u messages in bursts of %u: %d lost", table->name, prior,
                 program->messages, program->count, (int)messages);
    }
}

static void what_takes_many_times_as_long_costs_little(void **state)
{
    static const program_t programs[] = {{SHORT, BURST, NEVER}, {LONG, BURST, NEVER}};

    (void)state;
    for (unsigned i = 0; i < RECORDED * WAYS; i++) {
        const table_t *table = &recorded[i / WAYS];

        if (is_good(table, i % WAYS)) {
            assert_lost(table, &programs[0], i % WAYS, SHORT * 6 / 100);
            assert_lost(table, &programs[1], i % WAYS, LONG * 3 / 100);
        }
    }
}

/* Of any burst, whatever the two others cost. */
static void no_ratio_is_the_wrong_one(void **state)
{
    static const int64_t percent[] = {100, 110, 125, 150, 200, 250, 300, 400, 600, 800, 1600, 3200};
    static const unsigned counts[] = {4, 5, 8, 12, 16, 24, 32, 48, 64, 65, 100, 128, 256, 300};
    enum { RATIOS = sizeof(percent) / sizeof(percent[0]) };

    (void)state;
    for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]) * RATIOS * RATIOS; i++) {
        const unsigned count = counts[i / RATIOS / RATIOS];
        const table_t table = {
            "any", {30 * percent[i % RATIOS], 30 * percent[i / RATIOS % RATIOS], 3000}, 0};
        const program_t brief = {SHORT, count, NEVER}, longer = {LONG, count, NEVER};

        assert_lost(&table, &brief, TOGETHER, 124 + count);
        assert_lost(&table, &longer, TOGETHER, LONG * 3 / 100 + count);
    }
}

/* One burst that is interrupted, whichever it is: neither hides it what is best, nor what is bad. */
static void an_interruption_hides_nothing(void **state)
{
    static const table_t better = {"the prior is not the best", {6000, 4000, 3000}, 0},
                         worse = {"one is bad", {48000, 3300, 3000}, 0};

    (void)state;
    for (int number = NEVER; number < 60; number++) {
        const program_t program = {60 * BURST, BURST, number};

        for (unsigned prior = 0; prior < WAYS; prior++) {
            begin_with((uint8_t)prior, 0);
            takes(&better, &program, WAYS);
            if (winner(64 * KIB) != TOGETHER) {
                fail_msg("prior %u, burst %d: %u wins", prior, number, winner(64 * KIB));
            }
        }
        assert_lost(&worse, &program, TOGETHER, 60 * BURST * 3 / 100);
    }
}

/* `ahead` are open at any time. Any of them is closed next, or, if `held` is not 0, the oldest that is
 * no bounce, and each bounce after so many others. */
static void stream_in_any_order(unsigned count, unsigned ahead, unsigned held, uint64_t *seed)
{
    static message_t open[OPEN_MAX];
    unsigned opened = 0, passed = 0;

    for (unsigned closed = 0; closed < count; closed++) {
        while (opened < count && opened < closed + ahead) {
            enter(&open[opened++ - closed], 64 * KIB);
        }
        const unsigned left = opened - closed;
        unsigned which = held == 0 ? (unsigned)(chance_next(seed) % left) : 0;

        if (held > 0 && open[0].trial.candidate == BOUNCE && passed++ < held) {
            while (which + 1 < left && open[which].trial.candidate == BOUNCE) {
                which++;
            }
        }
        passed = open[which].trial.candidate == BOUNCE ? 0 : passed;
        now += time_of(&open[which]);
        leave(&open[which], true);
        memmove(open + which, open + which + 1, (left - which - 1) * sizeof(open[0]));
    }
}

static void messages_may_close_in_another_order(void **state)
{
    uint64_t seed = 1;

    (void)state;
    for (unsigned i = 0; i < 10 * WAYS * WAYS; i++) {
        const unsigned best = i % WAYS, prior = i / WAYS % WAYS;

        begin_with((uint8_t)prior, 0);
        cost(40, 40, 40);
        costs[best] = 30;
        stream_in_any_order(10000, 48, 0, &seed);
        assert_int_equal(winner(64 * KIB), best);
        assert_true(went[best] > 6000);
    }
}

/* Those of a way that is slow close while others are measured already, and are not held against
 * them. */
static void messages_that_close_late_are_not_the_next_ones(void **state)
{
    (void)state;
    for (unsigned held = 8; held <= 256; held += 8) {
        for (unsigned prior = READ; prior < WAYS; prior++) {
            begin_with((uint8_t)prior, 0);
            cost(480, 40, 30);
            stream_in_any_order(10000, 64, held, NULL);
            if (winner(64 * KIB) != TOGETHER)
                fail_msg("held %u prior %u: %u", held, prior, winner(64 * KIB));
        }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_takes_many_times_as_long_costs_little, begin),
        cmocka_unit_test_setup(no_ratio_is_the_wrong_one, begin),
        cmocka_unit_test_setup(an_interruption_hides_nothing, begin),
        cmocka_unit_test_setup(messages_may_close_in_another_order, begin),
        cmocka_unit_test_setup(messages_that_close_late_are_not_the_next_ones, begin),
        cmocka_unit_test_setup(a_stream_without_a_pause_waits_for_the_next_trial, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
