/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The send where there is no room, or something is late, refused or fails.
 */
#include "send_stage.h"

static void every_notice_has_its_checksum(void **state)
{
    (void)state;
    for (int chunks = 0; chunks < 2; chunks++) {
        for (unsigned late = 0; late < 100; late += 40) {
            stage_t *stage = stage_open();

            stage->verify = true;
            stage->late_percent = late;
            stage->again_percent = late;
            whole_transfer(stage, chunks);
            assert_sent(stage);
            stage_close(stage);
        }
    }
}

static void calls_that_find_no_room_are_made_again(void **state)
{
    (void)state;
    for (int call = FAKE_SEND; call <= FAKE_PUT; call++) {
        for (unsigned nth = 1; nth < 30; nth++) {
            for (int chunks = 0; chunks < 2; chunks++) {
                stage_t *stage = stage_open();

                stage->answer[call].at = nth;
                stage->answer[call].status = REGX_AGAIN;
                whole_transfer(stage, chunks);
                assert_sent(stage);
                assert_int_equal(malformed(stage), 0);
                stage_close(stage);
            }
        }
    }
}

static void the_done_callback_waits_for_the_last_put(void **state)
{
    (void)state;
    for (unsigned nth = 1; nth <= 7; nth++) {
        for (int chunks = 0; chunks < 2; chunks++) {
            stage_t *stage = stage_open();
            const regx_cts_t cts = chunks ? cts_of(stage, REGX_PATH_direct, 0, LENGTH)
                                          : cts_of(stage, REGX_PATH_bounce, 7, 0);

            stage->sent.length = chunks ? LENGTH : 7 * SLOT;
            stage->answer[FAKE_PUT].at = chunks ? 1 : nth;
            stage->answer[FAKE_PUT].status = REGX_PENDING;
            regx_cts_t whole = cts;
            whole.length = stage->sent.length;
            open_send(stage, &whole);
            while (fake_receive(stage->receiver, stage->sender)) {
            }
            assert_int_equal(stage->dones, 0);
            assert_true(fake_complete(stage->sender, 1, 0, REGX_OK));
            assert_int_equal(stage->dones, 1);
            assert_sent(stage);
            stage->sent.length = LENGTH;
            stage_close(stage);
        }
    }
}

/* The registrations that serve a chunk may be of more, at either end. */
static void chunks_lie_within_larger_regions(void **state)
{
    (void)state;
    for (size_t outer = 1; outer <= PAGE; outer += outer < 3 ? 1 : 500) {
        for (int direct = 0; direct < 2; direct++) {
            stage_t *stage = stage_open_outer(outer);

            stage->late_percent = outer % 2 == 0 ? 50 : 0;
            stage->again_percent = outer % 3 == 0 ? 30 : 0;
            if (direct) {
                const regx_cts_t cts = cts_of(stage, REGX_PATH_direct, 0, LENGTH);

                assert_int_equal(cts.chunk_start, outer);
                open_send(stage, &cts);
            } else {
                whole_transfer(stage, true);
            }
            assert_sent(stage);
            assert_int_equal(malformed(stage), 0);
            assert_int_equal(stage->refused, 0);
            stage_close(stage);
        }
    }
}

/* A grant that begins where its region does not reach is refused, and that range goes by slots. */
static void a_chunk_outside_its_region_is_nacked(void **state)
{
    static const uint64_t starts[] = {1, PAGE, LENGTH, UINT64_MAX - PAGE, UINT64_MAX};

    (void)state;
    for (size_t s = 0; s < sizeof(starts) / sizeof(starts[0]); s++) {
        stage_t *stage = stage_open();
        const regx_cts_t cts = cts_of(stage, REGX_PATH_pipeline, 0, PAGE);
        regx_control_t control = {
            .type = REGX_CONTROL_CTS_CHUNK, .offset = PAGE, .length = LENGTH - PAGE};

        open_send(stage, &cts);
        run(stage);
        control.to = stage->send;
        control.key = add_chunk(stage, PAGE, LENGTH - PAGE, &control.start);
        control.start = starts[s];
        tell(stage, &control);
        run(stage);
        assert_int_equal(stage->refused, 1);
        assert_int_equal(stage->refused_permanent, 0);
        grant_slots(stage, PAGE, LENGTH - PAGE);
        assert_sent(stage);
        stage_close(stage);
    }
}

/* A chunk that cannot be put is refused, and what it was for goes by slots. */
static void chunks_that_cannot_be_written_are_nacked(void **state)
{
    static const regx_status_t answers[] = {REGX_DENIED, REGX_INVALID, REGX_FAILED, REGX_NO_MEMORY};

    (void)state;
    for (size_t a = 0; a < 5; a++) { /* the last: the registration */
        for (unsigned nth = 1; nth <= 7; nth++) {
            stage_t *stage = stage_open();
            const fake_call_t call = a < 4 ? FAKE_PUT : FAKE_REG;
            const regx_status_t answer = a < 4 ? answers[a] : REGX_NO_MEMORY;
            const uint64_t offset = (nth - 1) * PAGE;
            const uint64_t length = regx_min(LENGTH - offset, PAGE);

            stage->answer[call].at = nth;
            stage->answer[call].status = answer;
            whole_transfer(stage, true);
            assert_int_equal(stage->dones, 0);
            assert_int_equal(stage->refused, 1);
            assert_int_equal(stage->refused_permanent, answer == REGX_DENIED);
            assert_int_equal(stage->refused_failed, answer == REGX_FAILED);
            grant_slots(stage, offset, length);
            assert_sent(stage);
            assert_int_equal(malformed(stage), 0);
            assert_int_equal(stage->sender->counters.bytes[REGX_PATH_bounce], length);
            assert_int_equal(stage->sender->counters.bytes[REGX_PATH_pipeline], LENGTH - length);
            assert_int_equal(stage->sender->counters.messages[REGX_PATH_fallback], 1);
            stage_close(stage);
        }
    }
}

/* As above, but the refusal comes late, and all chunks are refused. */
static void chunks_that_fail_late_are_nacked(void **state)
{
    stage_t *stage = stage_open();
    const regx_cts_t cts = cts_of(stage, REGX_PATH_pipeline, 0, PAGE);

    (void)state;
    stage->late_percent = 100;
    open_send(stage, &cts);
    run(stage);
    stage->refused = 0;
    const uint64_t first = stage->written;
    for (uint64_t offset = PAGE; offset < LENGTH; offset += PAGE) {
        grant_chunk(stage, offset, regx_min(LENGTH - offset, PAGE));
    }
    while (fake_complete(stage->sender, 1, 1, REGX_FAILED) ||
           fake_complete(stage->sender, 1, 0, REGX_FAILED)) {
    }
    assert_int_equal(stage->dones, 0);
    run(stage);
    assert_int_equal(stage->refused, 6);
    assert_int_equal(stage->written, first);
    grant_slots(stage, first, LENGTH - first);
    assert_sent(stage);
    stage_close(stage);
}

/* A slot that cannot be written is the end: told once, when nothing is in flight any more. */
static void a_slot_that_fails_ends_the_send(void **state)
{
    static const regx_status_t answers[] = {REGX_DENIED, REGX_INVALID, REGX_FAILED,
                                            REGX_UNREACHABLE, REGX_NO_MEMORY};

    (void)state;
    for (size_t a = 0; a < 5; a++) {
        for (unsigned nth = 1; nth <= 25; nth++) {
            for (unsigned late = 0; late <= 100; late += 50) {
                stage_t *stage = stage_open();

                stage->answer[FAKE_PUT].at = nth;
                stage->answer[FAKE_PUT].status = answers[a];
                stage->late_percent = late;
                whole_transfer(stage, false); /* the rule asserts that no put follows the end */
                assert_int_equal(stage->dones, 1);
                assert_int_equal(stage->status,
                                 answers[a] == REGX_UNREACHABLE ? REGX_UNREACHABLE : REGX_FAILED);
                assert_false(fake_complete(stage->sender, 1, 0, REGX_OK));
                assert_int_equal(stage->sender->counters.messages[REGX_PATH_bounce], 0);
                stage_close(stage);
            }
        }
    }
}

static void a_failed_send_waits_for_what_is_in_flight(void **state)
{
    stage_t *stage = stage_open();
    const regx_cts_t cts = cts_of(stage, REGX_PATH_bounce, 5, 0);

    (void)state;
    stage->puts = REGX_PENDING;
    stage->answer[FAKE_PUT].at = 4;
    stage->answer[FAKE_PUT].status = REGX_FAILED;
    open_send(stage, &cts);
    assert_int_equal(stage->calls[FAKE_PUT], 4);
    for (unsigned left = 3; left > 0; left--) {
        assert_int_equal(stage->dones, 0);
        assert_true(fake_complete(stage->sender, 1, left - 1, REGX_OK));
    }
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_FAILED);
    run(stage);
    stage_close(stage);
}

static void an_unreachable_peer_ends_the_send(void **state)
{
    (void)state;
    for (int chunks = 0; chunks < 2; chunks++) {
        stage_t *stage = stage_open();
        const regx_cts_t cts =
            cts_of(stage, chunks ? REGX_PATH_pipeline : REGX_PATH_bounce, 0, chunks ? PAGE : 0);

        stage->answer[FAKE_SEND].at = 1; /* READY */
        stage->answer[FAKE_SEND].status = REGX_UNREACHABLE;
        open_send(stage, &cts);
        run(stage);
        assert_int_equal(stage->dones, 1);
        assert_int_equal(stage->status, REGX_UNREACHABLE);
        stage_close(stage);
    }
}

static void forgetting_a_peer_at_any_time_leaves_nothing(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 300; seed++) {
        stage_t *stage = stage_open();
        const bool chunks = seed % 2;
        const regx_cts_t cts = chunks ? cts_of(stage, REGX_PATH_pipeline, 0, PAGE)
                                      : cts_of(stage, REGX_PATH_bounce, 3, 0);

        stage->seed = seed;
        stage->again_percent = seed % 5 * 24;
        stage->late_percent = seed % 3 * 50;
        open_send(stage, &cts);
        if (seed % 7 != 0) {
            run(stage);
        }
        if (seed % 11 > 3 && stage->started) {
            chunks ? grant_chunk(stage, PAGE, PAGE) : grant_slots(stage, 3 * SLOT, 9 * SLOT);
        }
        if (seed % 11 > 7) {
            run(stage);
        }
        assert_int_equal(stage->dones, 0);
        regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[2]); /* another */
        assert_int_equal(stage->dones, 0);
        regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[1]);
        /* Puts that are in flight end with the connection, and end the send. */
        while (fake_complete(stage->sender, 1, 0, REGX_FAILED)) {
        }
        assert_int_equal(stage->dones, 1);
        assert_int_equal(stage->status, REGX_UNREACHABLE);
        stage->any_target = true;
        run(stage);
        stage_close(stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_notice_has_its_checksum),
        cmocka_unit_test(calls_that_find_no_room_are_made_again),
        cmocka_unit_test(the_done_callback_waits_for_the_last_put),
        cmocka_unit_test(chunks_lie_within_larger_regions),
        cmocka_unit_test(a_chunk_outside_its_region_is_nacked),
        cmocka_unit_test(chunks_that_cannot_be_written_are_nacked),
        cmocka_unit_test(chunks_that_fail_late_are_nacked),
        cmocka_unit_test(a_slot_that_fails_ends_the_send),
        cmocka_unit_test(a_failed_send_waits_for_what_is_in_flight),
        cmocka_unit_test(an_unreachable_peer_ends_the_send),
        cmocka_unit_test(forgetting_a_peer_at_any_time_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
