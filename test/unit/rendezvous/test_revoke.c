/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Grants that are revoked, or made anew (optimistic): whatever of the receiver's buffer is
 * replaced, at any moment, all has arrived at the end, nothing is written between REVOKED and the
 * next grant, and nobody waits for ever.
 */
#include "revoke_stage.h"

enum { STEPS = 60, SEEDS = 1296 };

static void choose_range(stage_t *stage)
{
    const size_t first = chance_next(&stage->seed) % LENGTH;

    replaced.start = stage->received.base + first;
    replaced.length = 1 + chance_next(&stage->seed) % (LENGTH - first);
}

/* The receiver has not seen for the last time that nothing changed. */
static bool is_open(const stage_t *stage)
{
    return phase(stage) != REGX_RECV_ARRIVED;
}

static stage_t *any_stage(uint64_t seed)
{
    static const char *const names[] = {"pipeline", "pipeline", "direct"};
    fake_config_t config = revoke_pipeline;

    config.strategy = names[seed % 3];
    config.optimistic = seed / 648 == 1;
    stage_t *stage = revoke_open(&config);
    stage->seed = seed * 7919 + 1;
    stage->late_percent = (unsigned[]){0, 60, 100}[seed / 3 % 3];
    stage->again_percent = seed / 9 % 2 == 0 ? 0 : 30;
    if (seed / 18 % 3 == 0) { /* some of it goes by slots */
        stage->answer.at = seed % 2 == 0 ? stage->receiver : stage->sender;
        stage->answer.call = FAKE_REG;
        stage->answer.number = 2 + (unsigned)(seed / 54 % 6); /* by the first, all would */
        stage->answer.status = REGX_NO_MEMORY;
    }
    return stage;
}

static void what_is_replaced_at_any_moment_is_sent_again(void **state)
{
    unsigned revoked = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        stage_t *stage = any_stage(seed);

        begin(stage);
        for (uint64_t n = 0; n < 1 + seed % 3; n++) {
            watched_steps(stage, (unsigned)(chance_next(&stage->seed) % STEPS));
            if (is_open(stage)) {
                choose_range(stage);
                make_change();
                tell_change();
            }
        }
        revoke_end(stage);
        revoked += stage->receiver->counters.grants_revoked > 0 ||
                   stage->receiver->counters.grants_restarted > 0;
        revoke_close(stage);
    }
    assert_in_range(revoked, SEEDS / 2, SEEDS);
}

/* As by hooks: by then its pages may have been granted anew, or written. */
static void what_is_told_before_it_is_replaced_is_sent_again(void **state)
{
    unsigned differed = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        stage_t *stage = any_stage(seed);

        begin(stage);
        watched_steps(stage, (unsigned)(chance_next(&stage->seed) % STEPS));
        if (is_open(stage)) {
            choose_range(stage);
            tell_change();
            watched_steps(stage, (unsigned)(chance_next(&stage->seed) % STEPS));
            if (is_open(stage)) {
                make_change();
            }
        }
        revoke_end(stage);
        differed += proofs_failed > 0;
        revoke_close(stage);
    }
    assert_in_range(differed, SEEDS / 10, SEEDS); /* else this was not tried */
}

static void what_is_revoked_and_not_yet_begun_is_not_written(void **state)
{
    stage_t *stage = revoke_open(&revoke_pipeline);

    (void)state;
    begin(stage);
    while (deliver(stage, 1)) { /* the first chunk is there, and more are granted */
    }
    fake_changed(stage->received.base, 1);
    regx_rndv_progress(stage->receiver->rndv);
    assert_int_equal(phase(stage), REGX_RECV_REVOKING);
    stage->again_percent = 100;
    for (unsigned i = 0; i < DEPTH; i++) {
        assert_true(deliver(stage, 0));
    }
    assert_non_null(send_of(stage)->held);
    assert_int_equal(send_of(stage)->count, DEPTH - 1);
    stage->again_percent = 0;
    assert_true(deliver(stage, 0)); /* REVOKE */
    assert_int_equal(stage->chunk_bytes, CHUNK);
    assert_int_equal(send_of(stage)->count, 0);
    revoke_end(stage);
    revoke_close(stage);
}

static void a_change_elsewhere_revokes_nothing(void **state)
{
    stage_t *stage = revoke_open(&revoke_pipeline);

    (void)state;
    begin(stage);
    for (unsigned i = 0; i < STEPS; i++) {
        fake_changed(stage->received.base - 4 * PAGE, PAGE);
        watched_step(stage);
    }
    revoke_end(stage);
    assert_int_equal(stage->receiver->counters.grants_revoked, 0);
    revoke_close(stage);
}

/* READY, which a chunked message has anyway, and ARRIVED. */
static void a_transfer_without_changes_takes_one_message_more(void **state)
{
    unsigned to_sender[2], to_receiver[2];

    (void)state;
    for (unsigned revocable = 0; revocable < 2; revocable++) {
        fake_config_t config = revoke_pipeline;

        config.revocable = revocable == 1;
        stage_t *stage = revoke_open(&config);
        begin(stage);
        run(stage);
        assert_read(stage);
        to_sender[revocable] = stage->frames[0];
        to_receiver[revocable] = stage->frames[1];
        close_recv(stage);
        revoke_close(stage);
    }
    assert_int_equal(to_sender[1], to_sender[0] + 1);
    assert_int_equal(to_receiver[1], to_receiver[0]);
}

static void a_peer_that_goes_in_mid_revocation_leaves_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        stage_t *stage = any_stage(seed);

        begin(stage);
        watched_steps(stage, (unsigned)(chance_next(&stage->seed) % STEPS));
        choose_range(stage);
        make_change();
        tell_change();
        watched_steps(stage, (unsigned)(chance_next(&stage->seed) % 12));
        forget_both(stage);
        assert_int_equal(stage->dones, 1);
        close_recv(stage);
        revoke_close(stage);
    }
}

/* What was registered after a change had been told, and before it was made, is of the old pages,
 * even if what is in the new ones is right: the next message must not use it. */
static void what_was_registered_meanwhile_is_not_used_again(void **state)
{
    (void)state;
    for (unsigned changes = 0; changes < 2; changes++) {
        stage_t *stage = revoke_open(&revoke_pipeline);

        begin(stage);
        while (stage->recv->landed == 0) {
            watched_step(stage);
        }
        replaced = (replaced_t){.start = stage->received.base, .length = LENGTH};
        if (changes > 0) {
            tell_change(); /* and made behind our back, with what had been sent */
        }
        revoke_end(stage);
        assert_int_equal(stage->receiver->counters.grants_revoked > 0, changes > 0);
        fake_settle(stage->receiver);
        assert_int_equal(stage->receiver->open_windows > 0, changes == 0);
        revoke_close(stage);
    }
}

/* ---- what a peer may say ---- */

static void say(fake_t *to, uint64_t from, regx_control_t control)
{
    uint8_t bytes[REGX_CONTROL_MAX];

    fake_arrive(to, from, bytes, regx_control_pack(&control, bytes));
}

static void an_answer_to_no_revocation_is_refused(void **state)
{
    stage_t *stage = revoke_open(&revoke_pipeline);
    regx_control_t revoked = {.type = REGX_CONTROL_REVOKED};

    (void)state;
    begin(stage);
    watched_steps(stage, 20);
    revoked.to = stage->recv->handle;
    revoked.from = stage->recv->sender;
    for (uint64_t offset = 0; offset <= LENGTH; offset += CHUNK) {
        revoked.offset = offset;
        say(stage->receiver, 0, revoked);
    }
    assert_int_equal(malformed(stage), LENGTH / CHUNK + 1);
    watched_run(stage);
    assert_read(stage);
    say(stage->receiver, 0, revoked); /* nor is there anything to prove */
    assert_int_equal(malformed(stage), LENGTH / CHUNK + 2);
    close_recv(stage);
    revoke_close(stage);
}

static void a_send_that_may_not_be_revoked_is_not(void **state)
{
    fake_config_t config = revoke_pipeline;

    (void)state;
    config.revocable = false;
    stage_t *stage = revoke_open(&config);
    stage->late_percent = 100;
    begin(stage);
    assert_non_null(send_of(stage));
    say(stage->sender, 1,
        (regx_control_t){.type = REGX_CONTROL_REVOKE, .to = send_of(stage)->handle});
    say(stage->sender, 1,
        (regx_control_t){.type = REGX_CONTROL_ARRIVED, .to = send_of(stage)->handle});
    assert_int_equal(malformed(stage), 2);
    run(stage);
    assert_read(stage);
    close_recv(stage);
    revoke_close(stage);
}

static void a_revocation_to_what_was_never_sent_ends_the_send(void **state)
{
    stage_t *stage = revoke_open(&revoke_pipeline);

    (void)state;
    begin(stage);
    say(stage->sender, 1,
        (regx_control_t){
            .type = REGX_CONTROL_REVOKE, .to = send_of(stage)->handle, .offset = LENGTH});
    assert_int_equal(malformed(stage), 1); /* beyond the end */
    assert_int_equal(stage->dones, 0);
    say(stage->sender, 1,
        (regx_control_t){
            .type = REGX_CONTROL_REVOKE, .to = send_of(stage)->handle, .offset = LENGTH - 1});
    assert_int_equal(malformed(stage), 2);
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_FAILED);
    drop_frames(stage->sender, 1);
    drop_frames(stage->receiver, 0);
    regx_rndv_forget(stage->receiver->rndv, &stage->receiver->peers[0]);
    close_recv(stage);
    revoke_close(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_replaced_at_any_moment_is_sent_again),
        cmocka_unit_test(what_is_told_before_it_is_replaced_is_sent_again),
        cmocka_unit_test(what_is_revoked_and_not_yet_begun_is_not_written),
        cmocka_unit_test(a_change_elsewhere_revokes_nothing),
        cmocka_unit_test(a_transfer_without_changes_takes_one_message_more),
        cmocka_unit_test(a_peer_that_goes_in_mid_revocation_leaves_nothing),
        cmocka_unit_test(what_was_registered_meanwhile_is_not_used_again),
        cmocka_unit_test(an_answer_to_no_revocation_is_refused),
        cmocka_unit_test(a_send_that_may_not_be_revoked_is_not),
        cmocka_unit_test(a_revocation_to_what_was_never_sent_ends_the_send),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
