/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The counters: nothing is lost, whether one thread counts or several.
 */
#include "../unit.h"

#include "base/counters.h"

enum { THREADS = 4, ROUNDS = 100000 };

static const char *const names[] = {"one", "two", "three"};

typedef struct teller {
    pthread_t thread;
    regx_counters_t *counters;
    uint64_t number;
} teller_t;

static uint64_t sum(const regx_counters_t *counters, regx_counter_kind_t kind, regx_path_t path)
{
    return regx_counter_value(counters, &(regx_counter_t){.kind = kind, .where = path});
}

static void *tell(void *argument)
{
    teller_t *teller = argument;
    regx_counters_t *counters = teller->counters;

    for (uint64_t i = 0; i < ROUNDS; i++) {
        regx_count(counters, &counters->puts, 1);
        regx_count_message(counters->flows[0], REGX_PATH_bounce, REGX_WHY_asked, 3);
        regx_count_high(&counters->slots_high, i * THREADS + teller->number);
        regx_tally(counters->ports, names[i % 3]);
    }
    return NULL;
}

static uint64_t tallied(const regx_tally_t *tallies, const char *reason)
{
    uint64_t count = 0;
    int entries = 0;

    for (int i = 0; i < REGX_REASONS_MAX; i++) {
        if (strcmp(tallies[i].reason, reason) == 0) {
            count += tallies[i].count;
            entries++;
        }
    }
    assert_in_range(entries, 0, 1);
    return count;
}

/* Of all kinds of peers, reasons and sizes; fallbacks of all paths. */
UNIT_TEST(messages_are_sums)
{
    static regx_flow_t near, far;
    const regx_counters_t counters = {.flows = {&near, &far}};

    regx_count_message(&near, REGX_PATH_read, REGX_WHY_asked, 1);
    regx_count_message(&far, REGX_PATH_read, REGX_WHY_asked, UINT64_MAX / 2);
    regx_count_part(&near, REGX_PATH_direct, REGX_WHY_sender, 9000, 1, 3000);
    regx_count_part(&near, REGX_PATH_bounce, REGX_WHY_sender, 9000, 0, 6000);
    assert_int_equal(regx_flow_size(REGX_PATH_bounce, 8191), 0);
    assert_int_equal(regx_flow_size(REGX_PATH_bounce, 8192), 1);
    assert_int_equal(sum(&counters, REGX_BYTES, REGX_PATH_read), UINT64_MAX / 2 + 1);
    assert_int_equal(sum(&counters, REGX_MESSAGES, REGX_PATH_fallback), 1);
    assert_int_equal(sum(&counters, REGX_BYTES, REGX_PATH_fallback), 9000);
}

UNIT_TEST(threads_lose_nothing)
{
    static regx_flow_t flow = {.threads = true};
    regx_counters_t counters = {.threads = true, .flows = {&flow}};
    teller_t tellers[THREADS];

    for (uint64_t i = 0; i < THREADS; i++) {
        tellers[i].counters = &counters;
        tellers[i].number = i;
        tellers[i].thread = unit_thread(tell, &tellers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(tellers[i].thread, NULL);
    }
    assert_int_equal(counters.puts, THREADS * ROUNDS);
    assert_int_equal(sum(&counters, REGX_MESSAGES, REGX_PATH_bounce), THREADS * ROUNDS);
    assert_int_equal(sum(&counters, REGX_BYTES, REGX_PATH_bounce), 3 * THREADS * ROUNDS);
    assert_int_equal(counters.slots_high, THREADS * ROUNDS - 1);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(tallied(counters.ports, names[i]), THREADS * ((ROUNDS + 2 - i) / 3));
    }
}

UNIT_TEST(reasons_have_a_place_each_and_the_last_is_for_the_rest)
{
    regx_counters_t counters = {0};

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < REGX_REASONS_MAX + 4; i++) {
            char reason[32];

            snprintf(reason, sizeof(reason), "reason %d", i);
            regx_tally(counters.fallbacks, reason);
        }
    }
    for (int i = 0; i < REGX_REASONS_MAX + 4; i++) {
        char reason[32];

        snprintf(reason, sizeof(reason), "reason %d", i);
        assert_int_equal(tallied(counters.fallbacks, reason), i < REGX_REASONS_MAX - 1 ? 3 : 0);
    }
    assert_int_equal(tallied(counters.fallbacks, "other"), 3 * 5);
}

UNIT_TEST(long_reasons_are_cut_and_still_found)
{
    regx_counters_t counters = {0};
    char reason[2 * REGX_REASON_LENGTH];

    memset(reason, 'x', sizeof(reason));
    reason[sizeof(reason) - 1] = '\0';
    regx_tally(counters.ports, reason);
    regx_tally(counters.ports, reason);
    assert_int_equal(strlen(counters.ports[0].reason), REGX_REASON_LENGTH - 1);
    assert_int_equal(counters.ports[0].count, 2);
    assert_int_equal(counters.ports[1].count, 0);
    /* A reason that only begins like another is another. */
    reason[10] = '\0';
    regx_tally(counters.ports, reason);
    assert_int_equal(counters.ports[1].count, 1);
}
