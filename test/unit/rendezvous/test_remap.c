/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The path remap: chunks are written to landing pages, and what arrives is moved to the user.
 */
#include "transfer_stage.h"

#include <stdio.h>

enum { DEPTH = 2 };

static const fake_config_t standard = {.slots = 4,
                                       .slot_size = SLOT,
                                       .strategy = "remap",
                                       .chunk_size = 2 * PAGE,
                                       .chunk_depth = DEPTH};

static stage_t *stage_open(void)
{
    fake_overtaking = true;
    return transfer_open(&standard, &standard, REGX_PATH_remap, true);
}

static uint64_t fallbacks_of(fake_t *fake, const char *reason)
{
    return regx_tally_find(fake->counters.fallbacks, reason)->count;
}

static regx_landings_t *landings_of(const stage_t *stage)
{
    return &stage->receiver->rndv->landings;
}

static unsigned free_landings(const stage_t *stage)
{
    unsigned count = 0;

    for (const regx_landing_t *at = landings_of(stage)->free; at != NULL; at = at->next) {
        count++;
    }
    return count;
}

/* Nothing stays with anybody. */
static void close_all(stage_t *stage)
{
    assert_int_equal(free_landings(stage), 2 * DEPTH);
    stage_close(stage);
}

static size_t whole_pages(const uint8_t *to, size_t length)
{
    const uintptr_t start = ((uintptr_t)to + PAGE - 1) / PAGE;
    const uintptr_t end = ((uintptr_t)to + length) / PAGE;

    return end > start ? end - start : 0;
}

static void goes_well(stage_t *stage, size_t length)
{
    stage->dones = 0;
    begin_of(stage, length);
    run(stage);
    assert_read_of(stage, length);
    close_recv(stage);
}

static void every_place_and_length_goes(void **state)
{
    static const size_t lengths[] = {1,        PAGE - 1,     PAGE,         PAGE + 1, 2 * PAGE - 1,
                                     2 * PAGE, 2 * PAGE + 1, 3 * PAGE + 5, 5 * PAGE, LENGTH - PAGE};
    stage_t *stage = stage_open();
    const regx_counters_t *counters = &stage->receiver->counters;

    (void)state;
    for (stage->to = 0; stage->to <= PAGE; stage->to += 683) {
        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
            const uint64_t pages = counters->remap_pages;
            const size_t expected = whole_pages(stage->received.base + stage->to, lengths[i]);
            const uint64_t bytes = stage->sender->counters.bytes[REGX_PATH_remap];

            goes_well(stage, lengths[i]);
            assert_int_equal(counters->remap_pages - pages, expected);
            assert_int_equal(stage->sender->counters.bytes[REGX_PATH_remap] - bytes,
                             expected > 0 ? lengths[i] : 0);
        }
    }
    assert_int_equal(malformed(stage), 0);
    close_all(stage);
}

static void a_peer_without_single_copy_gets_bounce(void **state)
{
    stage_t *stage = stage_open();

    (void)state;
    stage->receiver->conns[0].conn.single_copy = false;
    goes_well(stage, LENGTH);
    assert_bytes(stage, 0);
    assert_int_equal(fallbacks_of(stage->receiver, "remap: the kernel does not copy to this peer"),
                     1);
    assert_int_equal(landings_of(stage)->state, REGX_LANDINGS_CLOSED);
    stage_close(stage);
}

/* From the beginning, or only after the first chunk. */
static void what_finds_no_landing_goes_by_slots(void **state)
{
    (void)state;
    for (int first = 0; first <= 1; first++) {
        stage_t *stage = stage_open();
        regx_landing_t *taken[2 * DEPTH];

        goes_well(stage, LENGTH);
        const uint64_t before = stage->sender->counters.bytes[REGX_PATH_remap];
        stage->dones = 0;
        if (first == 1) {
            begin(stage);
        }
        for (unsigned i = 0; i < 2 * DEPTH - (unsigned)first; i++) {
            taken[i] = regx_landing_get(landings_of(stage), NULL, PAGE);
            assert_non_null(taken[i]);
        }
        if (first == 0) {
            begin(stage);
        }
        run(stage);
        assert_read(stage);
        assert_true(fallbacks_of(stage->receiver, "remap: all landing pages are in use") > 0);
        const uint64_t bytes = stage->sender->counters.bytes[REGX_PATH_remap] - before;
        assert_true(first == 0 ? bytes == 0 : bytes > 0 && bytes < LENGTH);
        close_recv(stage);
        for (unsigned i = 0; i < 2 * DEPTH - (unsigned)first; i++) {
            regx_landing_put(landings_of(stage), taken[i]);
        }
        close_all(stage);
    }
}

static void without_a_key_it_goes_by_slots(void **state)
{
    (void)state;
    for (unsigned number = 1; number <= 3; number++) {
        stage_t *stage = stage_open();

        stage->answer.at = stage->receiver;
        stage->answer.call = FAKE_REG;
        stage->answer.number = number;
        stage->answer.status = REGX_NO_MEMORY;
        goes_well(stage, LENGTH);
        assert_int_equal(fallbacks_of(stage->receiver, "remap: no key for landing pages"), 1);
        close_all(stage);
    }
}

static void what_could_not_be_written_goes_by_slots(void **state)
{
    static const regx_status_t statuses[] = {REGX_FAILED, REGX_DENIED};

    (void)state;
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        stage_t *stage = stage_open();

        stage->late_percent = 50;
        stage->late = statuses[i];
        goes_well(stage, LENGTH);
        assert_int_equal(malformed(stage), 0);
        close_all(stage);
    }
}

static void at_any_moment_nothing_stays(void **state)
{
    (void)state;
    for (unsigned steps = 0; steps < 40; steps++) {
        stage_t *stage = stage_open();

        stage->late_percent = 30;
        stage->seed = steps;
        forget_in_mid_transfer(stage, steps);
        close_all(stage);
    }
}

/* Frames that find no room, puts that end late, all in any order. */
static void in_any_order_every_byte_arrives(void **state)
{
    stage_t *stage = stage_open();

    (void)state;
    stage->again_percent = 30;
    stage->late_percent = 40;
    for (unsigned i = 0; i < 100; i++) {
        stage->to = chance_next(&stage->seed) % PAGE;
        goes_well(stage, 1 + chance_next(&stage->seed) % (LENGTH - PAGE));
    }
    assert_int_equal(malformed(stage), 0);
    close_all(stage);
}

static bool pages_can_be_moved(void)
{
    stage_t *stage = stage_open();
    const char *refusal =
        regx_landings_refusal(landings_of(stage), stage->received.base, stage->received.length);

    if (refusal != NULL) {
        print_message("not tried: %s\n", refusal);
    }
    stage_close(stage);
    return refusal == NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_place_and_length_goes),
        cmocka_unit_test(a_peer_without_single_copy_gets_bounce),
        cmocka_unit_test(what_finds_no_landing_goes_by_slots),
        cmocka_unit_test(without_a_key_it_goes_by_slots),
        cmocka_unit_test(what_could_not_be_written_goes_by_slots),
        cmocka_unit_test(at_any_moment_nothing_stays),
        cmocka_unit_test(in_any_order_every_byte_arrives),
    };

    if (!pages_can_be_moved()) {
        printf("1..0 # SKIP UFFDIO_MOVE\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
