/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Grants that are not taken back (optimistic): a transfer of which a write fails, or whose memory
 * is replaced, goes on from where both agree. test_revoke.c replaces at any moment, in this way
 * too.
 */
#include "revoke_stage.h"

enum { PUTS = (LENGTH + CHUNK - 1) / CHUNK, WINDOW = DEPTH * CHUNK };

static fake_config_t optimistic(void)
{
    fake_config_t config = revoke_pipeline;

    config.optimistic = true;
    return config;
}

static stage_t *open_optimistic(void)
{
    const fake_config_t config = optimistic();

    return revoke_open(&config);
}

/* What comes, ends or can go on, in that order. failing: the number of the write that ends so. */
static void drive(stage_t *stage, unsigned order, unsigned failing)
{
    unsigned ended = 0;

    for (unsigned i = 0, idle = 0; idle < 10; i++, idle++) {
        regx_rndv_progress(stage->sender->rndv);
        regx_rndv_progress(stage->receiver->rndv);
        stage->late = ended + 1 == failing ? REGX_FAILED : REGX_OK;
        const bool put = (i + order) % 3 == 0 && (end_put(stage, order % 2) || end_put(stage, 0));
        ended += put;
        if (put || ((i + order) % 3 != 0 && deliver(stage, (i + order) % 3 - 1))) {
            idle = 0;
        }
    }
}

static void assert_restarted_once(const stage_t *stage)
{
    const regx_counters_t *counters = &stage->receiver->counters;

    assert_read(stage);
    assert_bytes(stage, LENGTH);
    assert_int_equal(counters->grants_restarted, 1);
    assert_in_range(counters->bytes_regranted, 1, WINDOW);
    assert_int_equal(counters->grants_revoked, 0);
    assert_int_equal(malformed(stage), 0);
}

static void a_write_that_cannot_begin_is_granted_again(void **state)
{
    (void)state;
    for (unsigned which = 0; which < 12 * PUTS; which++) {
        stage_t *stage = open_optimistic();

        stage->late_percent = which / PUTS % 2 * 100;
        stage->answer.at = stage->sender;
        stage->answer.call = FAKE_PUT;
        stage->answer.number = 1 + which % PUTS;
        stage->answer.status = REGX_FAILED;
        begin(stage);
        drive(stage, which / PUTS / 2, 0);
        assert_restarted_once(stage);
        close_recv(stage);
        revoke_close(stage);
    }
}

static void a_write_that_ends_in_an_error_is_granted_again(void **state)
{
    (void)state;
    for (unsigned which = 0; which < 6 * PUTS; which++) {
        stage_t *stage = open_optimistic();

        stage->late_percent = 100;
        begin(stage);
        drive(stage, which / PUTS, 1 + which % PUTS);
        assert_restarted_once(stage);
        close_recv(stage);
        revoke_close(stage);
    }
}

static void what_keeps_failing_goes_by_slots(void **state)
{
    stage_t *stage = open_optimistic();

    (void)state;
    stage->late_percent = 100;
    stage->late = REGX_FAILED;
    begin(stage);
    for (unsigned i = 0; i < 1000 && stage->dones == 0; i++) {
        some_steps(stage, 1);
    }
    run(stage);
    assert_read(stage);
    assert_int_equal(stage->receiver->counters.grants_restarted, 4);
    assert_int_equal(stage->sender->counters.messages[REGX_PATH_fallback], 1);
    assert_int_equal(malformed(stage), 0);
    close_recv(stage);
    revoke_close(stage);
}

/* The lowest byte that is under way, and that behind the highest. */
static void find_window(const stage_t *stage, uint64_t *first, uint64_t *end)
{
    *first = *end = stage->recv->granted;
    for (unsigned i = 0; i < DEPTH; i++) {
        const regx_chunk_t *chunk = &stage->recv->chunks[i];

        if (chunk->state == REGX_CHUNK_GRANTED && chunk->offset < *first) {
            *first = chunk->offset;
        }
    }
}

static void no_more_is_sent_again_than_was_under_way(void **state)
{
    unsigned restarted = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++) {
        uint64_t first, end;
        stage_t *stage = open_optimistic();

        stage->seed = seed * 7919 + 1;
        stage->late_percent = (unsigned[]){0, 60, 100}[seed % 3];
        begin(stage);
        watched_steps(stage, (unsigned)(seed % 60));
        find_window(stage, &first, &end);
        if (first < end && phase(stage) != REGX_RECV_ARRIVED) {
            const uint64_t at = first + chance_next(&stage->seed) % (end - first);

            replaced.start = stage->received.base + at;
            replaced.length = 1 + chance_next(&stage->seed) % (end - at);
            make_change();
            tell_change();
            for (uint64_t n = seed % 4; n > 0; n--) { /* before progress looks */
                end_put(stage, 0);
                deliver(stage, 1);
                deliver(stage, 0);
            }
        }
        revoke_end(stage);
        const regx_counters_t *counters = &stage->receiver->counters;
        assert_in_range(counters->bytes_regranted, 0, counters->grants_restarted * WINDOW);
        assert_in_range(counters->grants_restarted, first < end, 2);
        restarted += counters->grants_restarted > 0;
        revoke_close(stage);
    }
    assert_in_range(restarted, 100, 500);
}

static void the_sender_goes_on_until_all_that_was_granted_is_written(void **state)
{
    stage_t *stage = open_optimistic();

    (void)state;
    begin(stage);
    while (deliver(stage, 1)) { /* the first chunk is there, and more are granted */
    }
    fake_changed(stage->received.base, 1);
    regx_rndv_progress(stage->receiver->rndv);
    assert_int_equal(phase(stage), REGX_RECV_REVOKING);
    while (deliver(stage, 0)) {
    }
    assert_int_equal(stage->chunk_bytes, CHUNK + DEPTH * CHUNK);
    revoke_end(stage);
    assert_int_equal(stage->receiver->counters.grants_restarted, 1);
    assert_int_equal(stage->chunk_bytes, CHUNK + DEPTH * CHUNK + LENGTH);
    revoke_close(stage);
}

/* Each time that nobody has the bytes but the sender. */
static void a_send_does_not_end_before_the_receiver_has_all(void **state)
{
    stage_t *stage = open_optimistic();

    (void)state;
    begin(stage);
    while (stage->recv->landed < LENGTH) {
        regx_rndv_progress(stage->sender->rndv);
        deliver(stage, 1);
        deliver(stage, 0);
    }
    assert_int_equal(stage->dones, 0);
    fake_changed(stage->received.base, LENGTH);
    memset(stage->received.base, 0x77, LENGTH);
    revoke_end(stage);
    assert_int_equal(stage->receiver->counters.grants_restarted, 1);
    revoke_close(stage);
}

/* ARRIVED alone, also where one chunk is all. */
static void a_transfer_without_changes_takes_one_message_more(void **state)
{
    (void)state;
    for (unsigned direct = 0; direct < 2; direct++) {
        unsigned to_sender[2], to_receiver[2];

        for (unsigned grant = 0; grant < 2; grant++) {
            fake_config_t config = optimistic();

            config.revocable = grant == 1;
            config.strategy = direct ? "direct" : "pipeline";
            stage_t *stage = revoke_open(&config);
            begin(stage);
            run(stage);
            assert_read(stage);
            assert_int_equal(stage->receiver->counters.grants_restarted, 0);
            assert_int_equal(stage->receiver->counters.bytes_regranted, 0);
            to_sender[grant] = stage->frames[0];
            to_receiver[grant] = stage->frames[1];
            close_recv(stage);
            revoke_close(stage);
        }
        assert_int_equal(to_sender[1], to_sender[0] + 1);
        assert_int_equal(to_receiver[1], to_receiver[0]);
    }
}

/* What is sent again by chunks counts as such, and no longer as sent through slots, even where that
 * is known late. */
static void slots_that_were_rewound_do_not_count(void **state)
{
    (void)state;
    for (unsigned late = 0; late < 2; late++) {
        stage_t *stage = open_optimistic();

        stage->answer.at = stage->receiver;
        stage->answer.call = FAKE_REG;
        stage->answer.number = 2;
        stage->answer.status = REGX_NO_MEMORY;
        stage->late_percent = late * 100;
        begin(stage);
        while (stage->recv->landed < LENGTH) {
            regx_rndv_progress(stage->sender->rndv);
            end_put(stage, 0);
            deliver(stage, 1);
            deliver(stage, 0);
        }
        assert_in_range(stage->receiver->counters.copied_out_bytes, LENGTH - 2 * CHUNK, LENGTH);
        fake_changed(stage->received.base, LENGTH);
        memset(stage->received.base, 0x77, LENGTH);
        watched_run(stage);
        assert_read(stage);
        const regx_counters_t *counters = &stage->sender->counters;
        assert_int_equal(counters->bytes[REGX_PATH_bounce], 0);
        assert_int_equal(counters->bytes[REGX_PATH_pipeline], LENGTH);
        close_recv(stage);
        revoke_close(stage);
    }
}

/* ---- what a peer may say ---- */

static void say(const stage_t *stage, regx_control_t control)
{
    uint8_t bytes[REGX_CONTROL_MAX];

    control.to = send_of(stage)->handle;
    fake_arrive(stage->sender, 1, bytes, regx_control_pack(&control, bytes));
}

static void a_send_is_resumed_only_where_it_has_been(void **state)
{
    stage_t *stage = open_optimistic();
    regx_control_t resume = {.type = REGX_CONTROL_RESUME};

    (void)state;
    begin(stage); /* one chunk is granted, and written */
    for (unsigned i = 0; i < 3; i++) {
        resume.offset = (uint64_t[]){CHUNK + 1, LENGTH, UINT64_MAX}[i];
        say(stage, resume);
    }
    assert_int_equal(malformed(stage), 3);
    revoke_end_but_malformed(stage, 3);
    revoke_close(stage);
}

static void a_send_is_not_resumed_while_it_has_grants(void **state)
{
    stage_t *stage = open_optimistic();

    (void)state;
    begin(stage);
    while (deliver(stage, 1)) {
    }
    stage->again_percent = 100;
    while (deliver(stage, 0)) {
    }
    assert_non_null(send_of(stage)->held);
    say(stage, (regx_control_t){.type = REGX_CONTROL_RESUME});
    assert_int_equal(malformed(stage), 1);
    stage->again_percent = 0;
    revoke_end_but_malformed(stage, 1);
    revoke_close(stage);
}

/* A receiver that takes a put for acknowledged which then fails: nobody is sent what does not add
 * up, and this process goes on. */
static void a_put_that_fails_behind_resume_fails_the_send(void **state)
{
    stage_t *stage = open_optimistic();

    (void)state;
    stage->late_percent = 100;
    stage->late = REGX_FAILED;
    begin(stage);
    say(stage, (regx_control_t){.type = REGX_CONTROL_RESUME});
    assert_true(end_put(stage, 0));
    if (send_of(stage) != NULL) {
        say(stage, (regx_control_t){.type = REGX_CONTROL_CTS_SLOTS,
                                    .slot_count = 1,
                                    .slots = {{.slot = 0, .length = SLOT}}});
    }
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_FAILED);
    drop_frames(stage->sender, 1);
    drop_frames(stage->receiver, 0);
    close_recv(stage);
    revoke_close(stage);
}

static void a_send_by_other_grants_is_not_resumed(void **state)
{
    (void)state;
    for (unsigned revocable = 0; revocable < 2; revocable++) {
        fake_config_t config = revoke_pipeline;

        config.revocable = revocable == 1;
        stage_t *stage = revoke_open(&config);
        stage->late_percent = 100;
        begin(stage);
        say(stage, (regx_control_t){.type = REGX_CONTROL_RESUME});
        assert_int_equal(malformed(stage), 1);
        run(stage);
        assert_read(stage);
        close_recv(stage);
        revoke_close(stage);
    }
}

static void an_answer_to_a_revocation_is_refused(void **state)
{
    stage_t *stage = open_optimistic();
    uint8_t bytes[REGX_CONTROL_MAX];

    (void)state;
    begin(stage);
    while (deliver(stage, 1)) {
    }
    fake_changed(stage->received.base, 1);
    regx_rndv_progress(stage->receiver->rndv);
    assert_int_equal(phase(stage), REGX_RECV_REVOKING);
    const regx_control_t revoked = {.type = REGX_CONTROL_REVOKED,
                                    .to = stage->recv->handle,
                                    .from = stage->recv->sender,
                                    .offset = stage->recv->revoke.resume};
    fake_arrive(stage->receiver, 0, bytes, regx_control_pack(&revoked, bytes));
    assert_int_equal(malformed(stage), 1);
    revoke_end_but_malformed(stage, 1);
    revoke_close(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_that_cannot_begin_is_granted_again),
        cmocka_unit_test(a_write_that_ends_in_an_error_is_granted_again),
        cmocka_unit_test(what_keeps_failing_goes_by_slots),
        cmocka_unit_test(no_more_is_sent_again_than_was_under_way),
        cmocka_unit_test(the_sender_goes_on_until_all_that_was_granted_is_written),
        cmocka_unit_test(a_send_does_not_end_before_the_receiver_has_all),
        cmocka_unit_test(a_transfer_without_changes_takes_one_message_more),
        cmocka_unit_test(slots_that_were_rewound_do_not_count),
        cmocka_unit_test(a_send_is_resumed_only_where_it_has_been),
        cmocka_unit_test(a_send_is_not_resumed_while_it_has_grants),
        cmocka_unit_test(a_put_that_fails_behind_resume_fails_the_send),
        cmocka_unit_test(a_send_by_other_grants_is_not_resumed),
        cmocka_unit_test(an_answer_to_a_revocation_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
