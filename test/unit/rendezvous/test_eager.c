/* SPDX-License-Identifier: BSD-3-Clause
 *
 * When the eager limit is moved, which messages go by it, and what the search costs. The clock is
 * the test's own: what each way costs a program's messages is given.
 */
#include "../unit.h"

#include <time.h>

#include "rendezvous/tuner.h"

enum { CONFIGURED = 32848, HEADER = 80, LEAST = REGX_EAGER_MIN + HEADER };
enum { SHORT = 8192, MIDDLE = 16000, LONG = 32000 };
enum { EQUAL = 11, TABLES, PROGRAMS = 10 };
enum { TUNED = -1, WAYS = REGX_EAGER_RENDEZVOUS + 1 };

/* ---- a program ---- */

static regx_eager_t eager;
static size_t limit, configured;
static int64_t now;
static unsigned progress, header, sent, went[WAYS], looks;
static regx_eager_way_t last; /* the way of the last message */

UNIT_WRAP(int, clock_gettime, clockid_t clock, struct timespec *time)
{
    looks++;
    *time = (struct timespec){.tv_sec = now / 1000000000, .tv_nsec = now % 1000000000};
    return 0;
}

static void begin_with(size_t bytes, bool tunes)
{
    limit = configured = bytes;
    regx_eager_init(&eager, &limit, tunes);
    now = 1000000;
    header = HEADER;
    progress = sent = looks = 0;
    last = REGX_EAGER_SEND;
    memset(went, 0, sizeof(went));
}

/* For cmocka: tuned, from the limit that is configured. */
static int begin(void **state)
{
    begin_with(CONFIGURED, true);
    return 0;
}

/* ob1 with a message to a process of the node. */
static regx_eager_way_t note(size_t length)
{
    last = length + header <= limit ? REGX_EAGER_SEND : REGX_EAGER_RENDEZVOUS;
    went[last]++;
    sent++;
    regx_eager_note(&eager, length, last, true, progress);
    assert_true(limit <= configured);
    assert_true(limit >= LEAST || limit == configured);
    return last;
}

/* Nanoseconds of a message. */
typedef struct table {
    const char *name;
    size_t length;
    int64_t takes[WAYS];
} table_t;

/* Bursts of so many messages; 1: a ping-pong. */
typedef struct program {
    const char *name;
    unsigned burst;
    bool no_progress;
    unsigned noise;   /* a message takes longer by up to so many percent, */
    bool interrupted; /* and by a millisecond once in 4,000, */
    unsigned hiccups; /* and by 85 us once in so many */
    int64_t computes; /* after each burst */
} program_t;

static const table_t tables[TABLES] = {
    {"rendezvous three times as fast, short", SHORT, {3000, 1000}},
    {"rendezvous three times as fast, long", LONG, {6000, 2000}},
    {"eager three times as fast, short", SHORT, {1000, 3000}},
    {"eager three times as fast, long", LONG, {2000, 6000}},
    {"rendezvous twice as fast", LONG, {4000, 2000}},
    {"eager twice as fast", SHORT, {2000, 4000}},
    {"rendezvous 1.4 times as fast", SHORT, {1400, 1000}},
    {"eager 1.4 times as fast", LONG, {2000, 2800}},
    {"rendezvous 1.05 times as fast", LONG, {2100, 2000}},
    {"eager 1.05 times as fast", LONG, {2000, 2100}},
    {"rendezvous twice as fast, middle", MIDDLE, {3000, 1500}},
    {"equal", SHORT, {2000, 2000}},
};

static const program_t programs[PROGRAMS] = {
    {"ping-pong", 1, .noise = 0},
    {"ping-pong, noise", 1, .noise = 20, .interrupted = true},
    {"ping-pong, hiccups", 1, .noise = 10, .hiccups = 100},
    {"ping-pong, computes", 1, .noise = 10, .computes = 20000},
    {"bursts of 4", 4, .noise = 10, .interrupted = true},
    {"bursts of 16", 16, .noise = 20, .interrupted = true},
    {"bursts of 64", 64, .noise = 0},
    {"bursts of 64, noise", 64, .noise = 20, .interrupted = true},
    {"bursts of 64, computes", 64, .noise = 10, .computes = 50000},
    {"no progress", 64, true, .noise = 10, .interrupted = true},
};

enum {
    AFTER_CHANGE = 6, /* so many messages take longer when the way has changed, */
    FIRST = 12        /* and so many of the first by rendezvous, since the receiver tries paths */
};

static int64_t time_of(const table_t *table, const program_t *program, unsigned number,
                       uint32_t seed, regx_eager_way_t way, bool penalty)
{
    const uint32_t chance = unit_scatter(seed, number);
    int64_t takes = table->takes[way] * (100 + (int64_t)(chance % (program->noise + 1))) / 100;

    takes += penalty ? table->takes[way] / 2 : 0;
    takes += program->interrupted && chance % 4000 == 0 ? 1000000 : 0;
    takes += program->hiccups > 0 && chance % program->hiccups == 0 ? 85000 : 0;
    return takes;
}

/* What so many messages take, tuned or all by one way. The sender of a burst goes on at once: all
 * of it has been sent before any of its time has passed. */
static int64_t run(const table_t *table, const program_t *program, unsigned messages, uint32_t seed,
                   int fixed)
{
    const int64_t began = now;
    unsigned since_change = AFTER_CHANGE, by_rendezvous = FIRST;
    regx_eager_way_t before = last;
    int64_t takes = 0;

    for (unsigned i = 0; i < messages; i++) {
        const regx_eager_way_t way = fixed == TUNED ? note(table->length) : (regx_eager_way_t)fixed;

        if (fixed == TUNED) {
            since_change = way == before ? since_change + 1 : 0;
            by_rendezvous = went[REGX_EAGER_RENDEZVOUS];
            before = way;
        }
        takes += time_of(table, program, i, seed, way,
                         since_change < AFTER_CHANGE ||
                             (way == REGX_EAGER_RENDEZVOUS && by_rendezvous < FIRST));
        if (program->no_progress) {
            now += takes;
            takes = 0;
        } else if ((i + 1) % program->burst == 0) {
            now += takes + program->computes;
            progress += 1 + unit_scatter(seed, i) % 7;
            takes = 0;
        }
    }
    now += takes;
    return now - began;
}

/* ---- trials ---- */

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

#define TEST(name) UNIT_TEST_BETWEEN(name, begin, NULL)

TEST(trials_become_rarer)
{
    assert_in_range(moves(&tables[1], 1000), 1, 5);
    moves(&tables[1], 19000);
    assert_in_range(moves(&tables[1], 80000), 1, 12);
    assert_int_equal(moves(&tables[1], 3000), 0);
}

/* The wait of the second trial, 128 times what it has lost, is for ratio 3 up to 10,000 messages,
 * and up to 40,000 after two more. */
TEST(costs_that_change_are_followed)
{
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
TEST(most_samples_may_be_interrupted)
{
    unsigned found = 0;

    for (uint32_t seed = 0; seed < 20; seed++) {
        begin_with(CONFIGURED, true);
        for (unsigned i = 0; i < 1000; i++) {
            now += tables[1].takes[note(LONG)];
            now += unit_scatter(seed, i) % 8 == 0 && last == REGX_EAGER_RENDEZVOUS ? 100000 : 0;
            progress++;
        }
        found += last == REGX_EAGER_RENDEZVOUS;
    }
    assert_in_range(found, 15, 20);
}

/* As a lap of the ring brings in new pages: so many eager messages of the trial take ten times as long. */
TEST(eager_goes_on_after_messages_that_found_new_pages)
{
    enum { BEFORE = 112, NEW_PAGES = 48, BURST = 4 };

    for (unsigned slow = 1; slow <= NEW_PAGES; slow++) {
        unsigned left = slow;

        begin_with(CONFIGURED, true);
        for (unsigned i = 0; i < 1000; i++) {
            const bool on_new_pages =
                note(SHORT) == REGX_EAGER_SEND && sent > BEFORE && left > 0 && left-- > 0;

            now += last == REGX_EAGER_RENDEZVOUS ? 2000 : on_new_pages ? 10000 : 1000;
            progress += i % BURST == BURST - 1;
        }
        assert_int_equal(last, REGX_EAGER_SEND);
        assert_in_range(went[REGX_EAGER_RENDEZVOUS], 16, 200);
    }
}

/* ---- several sizes ---- */

enum { LENGTHS = REGX_EAGER_SIZES, SEEDED = 4096 };

static const table_t short_by_rendezvous = {"", SHORT, {3000, 1000}};

static const size_t lengths[LENGTHS] = {SHORT, MIDDLE, LONG};

static const table_t long_eagerly = {"", LONG, {2000, 6000}};

TEST(of_two_sizes_each_has_its_way)
{
    const table_t short_eagerly = {"", SHORT, {1000, 2000}};
    const table_t long_by_rendezvous = {"", LONG, {6000, 2000}};

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

TEST(of_three_sizes_the_one_between_may_go_eagerly_alone)
{
    const table_t eagerly = {"", MIDDLE, {1000, 2000}}, not_eagerly = {"", LONG, {6000, 2000}};

    run(&short_by_rendezvous, &programs[0], 500, 0, TUNED);
    memset(went, 0, sizeof(went));
    run(&not_eagerly, &programs[0], 500, 0, TUNED);
    assert_int_equal(went[REGX_EAGER_SEND], 0); /* it is told */
    run(&eagerly, &programs[0], SEEDED + 500, 0, TUNED);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(note(MIDDLE), REGX_EAGER_SEND);
        assert_int_equal(note(SHORT), REGX_EAGER_SEND); /* it is taken along, */
        assert_int_equal(note(LONG), REGX_EAGER_RENDEZVOUS);
    }
    for (unsigned i = 0; i < 32; i++) { /* until none has come while 64 others did */
        assert_int_equal(note(LONG), REGX_EAGER_RENDEZVOUS);
        note(SHORT);
    }
    assert_int_equal(note(SHORT), REGX_EAGER_RENDEZVOUS);
}

/* All sizes in turn, in a program that never calls progress: their trials end all the same. */
TEST(a_mixture_of_all_sizes_is_tried)
{
    for (unsigned i = 0; i < 30000; i++) {
        now += note(lengths[i % 3]) == REGX_EAGER_SEND ? 3000 : 1000;
    }
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(note(lengths[i]), REGX_EAGER_RENDEZVOUS);
    }
}

/* Of the shorter ones 64 go eagerly before they have their way again. */
TEST(longer_messages_that_go_eagerly_take_shorter_ones_along)
{
    run(&short_by_rendezvous, &programs[0], 300, 0, TUNED);
    assert_int_equal(limit, LEAST);
    run(&long_eagerly, &programs[0], SEEDED + 300, 0, TUNED);
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
static void reach_rendezvous_batch(size_t length)
{
    while (limit == configured) {
        now += 1000;
        note(length);
        progress++;
        assert_true(sent < 400);
    }
}

TEST(a_trial_whose_messages_stop_is_given_up)
{
    reach_rendezvous_batch(SHORT);
    for (unsigned i = 0; i < 512; i++) {
        assert_int_equal(note(LONG), REGX_EAGER_RENDEZVOUS);
    }
    assert_int_equal(limit, CONFIGURED);
}

/* Messages of 4.1, whose header is shorter. */
TEST(strays_end_the_trial)
{
    header = 64;
    reach_rendezvous_batch(2 * REGX_EAGER_MIN + 10);
    for (unsigned i = 0; i < 64; i++) {
        assert_true(limit < CONFIGURED);
        assert_int_equal(note(2 * REGX_EAGER_MIN + 10), REGX_EAGER_SEND);
    }
    for (unsigned i = 0; i < 256; i++) { /* nor is there another soon: it cost nothing */
        assert_int_equal(limit, CONFIGURED);
        note(2 * REGX_EAGER_MIN + 10);
    }
}

/* 32 KiB with a header of 80 bytes. */
TEST(what_is_above_the_limit_is_tried_in_vain)
{
    begin_with(CONFIGURED - 1, true);
    for (unsigned i = 0; i < 112 + 1 + 16 + 64; i++) {
        assert_int_equal(note(8 * REGX_EAGER_MIN), REGX_EAGER_RENDEZVOUS);
    }
    assert_int_equal(limit, CONFIGURED - 1);
    reach_rendezvous_batch(SHORT);
}

/* ---- limits ---- */

TEST(a_message_elsewhere_restores_the_limit_for_good)
{
    run(&tables[1], &programs[0], 1000, 0, TUNED);
    assert_true(limit < CONFIGURED);
    regx_eager_note(&eager, 4096, REGX_EAGER_SEND, false, progress); /* too short to matter */
    assert_true(limit < CONFIGURED);
    regx_eager_note(&eager, LONG, REGX_EAGER_SEND, false, progress);
    assert_int_equal(limit, CONFIGURED);
    assert_int_equal(moves(&tables[1], 20000), 0);
}

TEST(other_lengths_change_nothing)
{
    const table_t smallest = {"", REGX_EAGER_MIN, {3000, 1000}};
    const table_t largest = {"", 8 * REGX_EAGER_MIN + 1, {3000, 1000}};

    assert_int_equal(moves(&smallest, 2000), 0);
    assert_int_equal(moves(&largest, 2000), 0);
    assert_int_equal(looks, 0);
    run(&tables[1], &programs[0], 1000, 0, TUNED);
    assert_true(limit < CONFIGURED);
    assert_int_equal(moves(&smallest, 2000), 0);
}

/* note() sees to it that none is exceeded. */
TEST(a_lower_limit_is_not_exceeded)
{
    static const size_t limits[] = {256,           LEAST - 1, LEAST,         LEAST + 1,
                                    8192 + HEADER, 9000,      16384 + HEADER};

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

TEST(without_a_trial_no_clock_is_read)
{
    run(&tables[1], &programs[0], 1000, 0, TUNED);
    looks = 0;
    run(&tables[1], &programs[0], 1000, 0, TUNED);
    assert_int_equal(looks, 0);
    begin_with(CONFIGURED, false); /* not to be tuned */
    assert_int_equal(moves(&tables[0], 2000) + moves(&tables[1], 2000), 0);
    assert_int_equal(looks, 0);
}

/* ---- what is found, and what the search costs ---- */

enum { SEEDS = 5 };

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

TEST(the_faster_way_is_found)
{
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
        unit_expect(went[better(table)] >= 400, "%s, %s: %u of 500 go eagerly", table->name,
                    program->name, went[REGX_EAGER_SEND]);
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

    for (unsigned i = 0; i < (unsigned)TABLES * PROGRAMS; i++) {
        const table_t *table = &tables[i % TABLES];
        const program_t *program = &programs[i / TABLES];

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

TEST(equal_times_keep_messages_eager)
{
    run(&tables[EQUAL], &programs[0], 2000, 0, TUNED);
    assert_int_equal(limit, CONFIGURED);
}

TEST(ten_thousand_messages_lose_five_percent_and_in_long_bursts_seven)
{
    check_regret(10000, 1, 16, false, 47);
    check_regret(10000, 64, 64, false, 65);
    check_regret(10000, 64, 64, true, 85);
}

/* Where one way takes three times as long: by the worse way they would lose 200 %. */
TEST(a_thousand_messages_lose_a_third_and_in_long_bursts_half)
{
    check_regret(1000, 1, 16, false, 330);
    check_regret(1000, 64, 64, false, 500);
}

TEST(a_hundred_messages_go_eagerly)
{
    run(&tables[1], &programs[0], 112, 0, TUNED);
    assert_int_equal(went[REGX_EAGER_SEND], 112);
    assert_int_equal(looks, 0);
}

/* Here three times as slow. */
TEST(what_is_far_worse_for_one_size_is_not_tried_soon_for_shorter_ones)
{
    run(&tables[3], &programs[0], 1000, 0, TUNED);
    memset(went, 0, sizeof(went));
    run(&tables[2], &programs[0], 3000, 0, TUNED);
    assert_int_equal(went[REGX_EAGER_RENDEZVOUS], 0);
    begin(state);
    run(&tables[2], &programs[0], 1000, 0, TUNED);
    memset(went, 0, sizeof(went));
    run(&tables[1], &programs[0], 1000, 0, TUNED); /* for those four times as long it is */
    assert_in_range(went[REGX_EAGER_RENDEZVOUS], 500, 1000);
}
