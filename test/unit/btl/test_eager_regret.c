/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which way is found, and what the search for it costs programs of every kind.
 */
#include "eager_program.h"

static const table_t close_tables[] = {
    {"equal", SHORT, {2000, 2000}},
    {"rendezvous 1.05 times as fast", LONG, {2100, 2000}},
    {"eager 1.05 times as fast", LONG, {2000, 2100}},
};

enum { CLOSE_TABLES = sizeof(close_tables) / sizeof(close_tables[0]), SEEDS = 5 };

static regx_eager_way_t better(const table_t *table)
{
    return table->takes[REGX_EAGER_RENDEZVOUS] < table->takes[REGX_EAGER_SEND]
               ? REGX_EAGER_RENDEZVOUS
               : REGX_EAGER_SEND;
}

/* Whether the program gains at least an eighth by it. */
static bool matters(const table_t *table, const program_t *program)
{
    const int64_t computes = program->computes / program->burst;
    const int64_t cheap = table->takes[better(table)] + computes;
    const int64_t dear = table->takes[!better(table)] + computes;

    return dear - cheap > cheap / 8;
}

static void the_faster_way_is_found(void **state)
{
    (void)state;
    for (unsigned i = 0; i < (unsigned)TABLES * PROGRAMS; i++) {
        const table_t *table = &tables[i % TABLES];
        const program_t *program = &programs[i / TABLES];

        if (!matters(table, program)) {
            continue;
        }
        begin_with(CONFIGURED, true);
        run(table, program, 3000, 1, TUNED);
        memset(went, 0, sizeof(went));
        run(table, program, 500, 2, TUNED);
        if (went[better(table)] < 400) {
            fail_msg("%s, %s: %u of 500 go eagerly", table->name, program->name,
                     went[REGX_EAGER_SEND]);
        }
    }
}

/* Thousandths that such messages lose, the mean over the seeds; prints what is above `bound`. */
static bool loses_more(const table_t *table, const program_t *program, unsigned messages,
                       int64_t bound)
{
    int64_t lost = 0;

    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        begin_with(CONFIGURED, true);
        const int64_t tuned = run(table, program, messages, seed, TUNED);
        const int64_t best = run(table, program, messages, seed, (int)better(table));

        lost += (tuned - best) * 1000 / best;
    }
    if (lost > bound * SEEDS) {
        print_error("%u messages, %s, %s: %d.%d %% slower\n", messages, table->name, program->name,
                    (int)(lost / SEEDS / 10), (int)(lost / SEEDS % 10));
    }
    return lost > bound * SEEDS;
}

/* smallest, largest: bursts. */
static void check_regret(unsigned messages, unsigned smallest, unsigned largest, bool no_progress,
                         int64_t bound)
{
    unsigned failed = 0, tried = 0;

    for (unsigned i = 0; i < (unsigned)(TABLES + CLOSE_TABLES) * PROGRAMS; i++) {
        const unsigned t = i % (TABLES + CLOSE_TABLES);
        const table_t *table = t < TABLES ? &tables[t] : &close_tables[t - TABLES];
        const program_t *program = &programs[i / (TABLES + CLOSE_TABLES)];

        if (program->burst < smallest || program->burst > largest ||
            program->no_progress != no_progress) {
            continue;
        }
        tried++;
        failed += loses_more(table, program, messages, bound);
    }
    assert_true(tried > 0);
    assert_int_equal(failed, 0);
}

static void ten_thousand_messages_lose_three_percent_and_in_long_bursts_six(void **state)
{
    (void)state;
    check_regret(10000, 1, 16, false, 30);
    check_regret(10000, 64, 64, false, 60);
    check_regret(10000, 64, 64, true, 80);
}

/* Where one way takes three times as long: by the worse way they would lose 200 %. */
static void two_hundred_messages_lose_up_to_seventy_percent(void **state)
{
    (void)state;
    check_regret(200, 1, 16, false, 700);
    check_regret(200, 64, 64, false, 1350);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_faster_way_is_found, begin),
        cmocka_unit_test_setup(ten_thousand_messages_lose_three_percent_and_in_long_bursts_six,
                               begin),
        cmocka_unit_test_setup(two_hundred_messages_lose_up_to_seventy_percent, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
