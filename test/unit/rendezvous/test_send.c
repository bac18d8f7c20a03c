/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The send: what it needs for each path, and what it does when.
 */
#include "send_stage.h"

static void a_cts_that_grants_all_slots_needs_no_ready(void **state)
{
    stage_t *stage = stage_open();
    const regx_counters_t *counters = &stage->sender->counters;

    (void)state;
    stage->sent.length = 5 * SLOT + 1; /* its end is not guarded now; the rule checks it */
    const regx_cts_t cts = cts_of(stage, REGX_PATH_bounce, 6, 0);
    open_send(stage, &cts);
    assert_int_equal(stage->dones, 1); /* the transport took all at once */
    assert_int_equal(stage->calls[FAKE_SEND], 0);
    assert_sent(stage);
    assert_int_equal(counters->puts, 6);
    assert_int_equal(counters->registrations, 0);
    assert_int_equal(counters->messages[REGX_PATH_bounce], 1);
    assert_int_equal(counters->bytes[REGX_PATH_bounce], 5 * SLOT + 1);
    assert_int_equal(counters->messages[REGX_PATH_fallback], 0);
    stage->sent.length = LENGTH;
    stage_close(stage);
}

static void a_cts_that_grants_the_whole_chunk_needs_no_ready(void **state)
{
    stage_t *stage = stage_open();
    const regx_cts_t cts = cts_of(stage, REGX_PATH_direct, 0, LENGTH);
    const regx_counters_t *counters = &stage->sender->counters;

    (void)state;
    open_send(stage, &cts);
    assert_int_equal(stage->calls[FAKE_SEND], 0);
    assert_sent(stage);
    assert_int_equal(counters->puts, 1);
    assert_int_equal(counters->registrations, 1);
    assert_int_equal(counters->largest_registration, LENGTH);
    assert_int_equal(counters->messages[REGX_PATH_direct], 1);
    assert_int_equal(counters->bytes[REGX_PATH_direct], LENGTH);
    assert_int_equal(counters->bytes[REGX_PATH_bounce], 0);
    stage_close(stage);
}

static void an_empty_cts_is_answered_by_ready(void **state)
{
    static const regx_path_t paths[] = {REGX_PATH_bounce, REGX_PATH_pipeline, REGX_PATH_direct};

    (void)state;
    for (size_t p = 0; p < 3; p++) {
        stage_t *stage = stage_open();
        const regx_cts_t cts = cts_of(stage, paths[p], 0, 0);

        open_send(stage, &cts);
        run(stage);
        assert_true(stage->started);
        assert_int_equal(stage->calls[FAKE_PUT], 0);
        play_on(stage, p > 0, 0);
        assert_sent(stage);
        assert_int_equal(malformed(stage), 0);
        stage_close(stage);
    }
}

static void pipeline_puts_each_chunk_once(void **state)
{
    stage_t *stage = stage_open();
    const regx_cts_t cts = cts_of(stage, REGX_PATH_pipeline, 0, PAGE);
    const regx_counters_t *counters = &stage->sender->counters;

    (void)state;
    open_send(stage, &cts);
    run(stage);
    assert_true(stage->started);
    play_on(stage, true, PAGE);
    assert_sent(stage);
    assert_int_equal(counters->puts, 7);
    assert_int_equal(counters->registrations, 7);
    assert_int_equal(counters->largest_registration, PAGE);
    assert_int_equal(counters->messages[REGX_PATH_pipeline], 1);
    assert_int_equal(counters->bytes[REGX_PATH_pipeline], LENGTH);
    stage_close(stage);
}

static void grants_in_any_order_are_used(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 200; seed++) {
        enum { PIECES = LENGTH / SLOT + 1 };
        stage_t *stage = stage_open();
        const regx_cts_t cts = cts_of(stage, REGX_PATH_pipeline, 0, 0);
        unsigned order[PIECES];

        stage->seed = seed;
        stage->again_percent = seed % 4 * 20;
        stage->late_percent = seed % 3 * 40;
        open_send(stage, &cts);
        run(stage);
        for (unsigned i = 0; i < PIECES; i++) {
            const unsigned other = (unsigned)(chance_next(&stage->seed) % (i + 1));

            order[i] = order[other];
            order[other] = i;
        }
        for (unsigned i = 0; i < PIECES; i++) {
            const uint64_t offset = order[i] * SLOT;
            const uint64_t length = regx_min(LENGTH - offset, SLOT);

            if (chance_next(&stage->seed) % 2 == 0) {
                grant_slots(stage, offset, length);
            } else {
                grant_chunk(stage, offset, length);
            }
            if (chance_next(&stage->seed) % 3 == 0) {
                run(stage);
            }
            assert_true(stage->dones == 0 || i == PIECES - 1);
        }
        assert_sent(stage);
        assert_int_equal(malformed(stage), 0);
        stage_close(stage);
    }
}

/* ---- the end may begin the next ---- */

typedef struct chain {
    stage_t *stage;
    regx_cts_t cts;
    unsigned left;
} chain_t;

static void chain_done(void *context, regx_status_t status)
{
    chain_t *chain = context;
    uint8_t bytes[REGX_CTS_SIZE];

    assert_int_equal(status, REGX_OK);
    if (chain->left-- > 0) {
        regx_cts_pack(&chain->cts, bytes);
        regx_rndv_send_open(chain->stage->sender->rndv, &chain->stage->sender->peers[1],
                            chain->stage->sent.base, chain->cts.length, bytes, chain_done, chain);
    } else {
        chain->stage->dones++;
    }
}

static void the_done_callback_may_open_the_next_send(void **state)
{
    for (unsigned late = 0; late <= 100; late += 50) {
        stage_t *stage = stage_open();
        chain_t chain = {.stage = stage, .left = 50};

        (void)state;
        stage->late_percent = late;
        stage->any_target = true;
        stage->sent.length = 4 * SLOT;
        chain.cts = cts_of(stage, REGX_PATH_bounce, 4, 0);
        chain_done(&chain, REGX_OK);
        for (unsigned i = 0; i < 1000; i++) {
            fake_complete(stage->sender, 1, 0, REGX_OK);
            stage->started = false;
            fake_receive(stage->receiver, stage->sender);
        }
        assert_int_equal(stage->dones, 1);
        assert_int_equal(stage->sender->counters.messages[REGX_PATH_bounce], 50);
        while (fake_receive(stage->receiver, stage->sender)) {
            stage->started = false;
        }
        stage->sent.length = LENGTH;
        stage_close(stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cts_that_grants_all_slots_needs_no_ready),
        cmocka_unit_test(a_cts_that_grants_the_whole_chunk_needs_no_ready),
        cmocka_unit_test(an_empty_cts_is_answered_by_ready),
        cmocka_unit_test(pipeline_puts_each_chunk_once),
        cmocka_unit_test(grants_in_any_order_are_used),
        cmocka_unit_test(the_done_callback_may_open_the_next_send),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
