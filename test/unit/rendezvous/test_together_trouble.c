/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The path together where something is refused, fails or finds no room, or somebody goes away.
 */
#include "together_stage.h"

/* What could not go together went by slots, and was counted so. */
static void assert_the_rest_went_by_slots(const stage_t *stage)
{
    assert_read(stage);
    assert_bytes(stage, stage->sender->counters.bytes[REGX_PATH_together]);
    assert_int_equal(stage->sender->counters.messages[REGX_PATH_fallback], 1);
}

/* ---- refused, failed, no room ---- */

/* The first at each end is of the half; the receiver then has to do without any. */
static void refused_registrations_go_by_slots(void **state)
{
    static const regx_status_t answers[] = {REGX_NO_MEMORY, REGX_DENIED, REGX_INVALID};

    (void)state;
    for (unsigned i = 0; i < 12; i++) {
        for (unsigned number = 1; number <= 1 + GETS; number++) {
            stage_t *stage = stage_open();
            fake_t *at = i % 2 == 0 ? stage->sender : stage->receiver;
            const regx_counters_t *sender = &stage->sender->counters;
            const uint64_t before = number == 1 ? 0 : HALF + (number - 2) * PAGE;

            stage->late_percent = i / 6 * 100;
            answer(stage, at, FAKE_REG, number, answers[i / 2 % 3]);
            begin(stage);
            run(stage);
            assert_the_rest_went_by_slots(stage);
            close_recv(stage);
            if (at == stage->receiver) {
                assert_in_range(sender->bytes[REGX_PATH_together], before,
                                number == 1 ? 0 : before + PAGE);
            } else {
                assert_int_equal(sender->bytes[REGX_PATH_together],
                                 number == 1 ? LENGTH - HALF : before);
            }
            assert_int_equal(at->counters.fallbacks[0].count, 1);
            assert_int_equal(at->counters.fallbacks[1].state, 0);
            assert_int_equal(malformed(stage), 0);
            goes_well(stage, LENGTH);
            /* Memory that can never be read is not tried again. */
            assert_int_equal(sender->messages[REGX_PATH_fallback],
                             answers[i / 2 % 3] == REGX_INVALID && number > 1 ? 2 : 1);
            stage_close(stage);
        }
    }
}

/* At once or late; the second half is read all the same. */
static void a_denied_put_goes_by_slots(void **state)
{
    static const regx_status_t answers[] = {REGX_DENIED, REGX_FAILED, REGX_NO_MEMORY, REGX_INVALID};

    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        for (unsigned seed = 0; seed < 40; seed++) {
            stage_t *stage = stage_open();
            const bool late = i >= 4;

            stage->seed = seed;
            stage->late_percent = late ? 100 : 0;
            stage->late = late ? answers[i % 4] : REGX_OK;
            if (!late) {
                answer(stage, stage->sender, FAKE_PUT, 1, answers[i]);
            }
            begin(stage);
            run(stage);
            assert_the_rest_went_by_slots(stage);
            close_recv(stage);
            assert_bytes(stage, LENGTH - HALF);
            assert_int_equal(stage->sender->counters.chunks_sender, 0);
            assert_int_equal(stage->receiver->counters.chunks_receiver, GETS);
            assert_int_equal(malformed(stage), 0);
            stage->late = REGX_OK;
            goes_well(stage, LENGTH);
            assert_int_equal(fallbacks_of(stage->receiver, "chunk: refused by this peer before"),
                             answers[i % 4] == REGX_DENIED);
            stage_close(stage);
        }
    }
}

/* The put fails when it is known already that the rest goes by slots, some of them not granted yet,
 * or when all of them are written. */
static void a_put_that_fails_after_a_nack_goes_by_slots(void **state)
{
    (void)state;
    for (unsigned steps = 0; steps < 120; steps++) {
        for (unsigned number = 2; number <= 1 + GETS; number++) {
            stage_t *stage = stage_open();

            stage->seed = steps;
            stage->late = REGX_FAILED;
            answer(stage, stage->sender, FAKE_PUT, 1, REGX_PENDING);
            begin(stage);
            answer(stage, stage->sender, FAKE_REG, number, REGX_NO_MEMORY);
            for (unsigned i = 0; i < steps; i++) { /* all but the put */
                if (!fake_got(stage->receiver, 0, 0, REGX_OK)) {
                    deliver(stage, chance_next(&stage->seed) % 2);
                }
                regx_rndv_progress(stage->receiver->rndv);
                regx_rndv_progress(stage->sender->rndv);
            }
            assert_true(end_put(stage, 0));
            run(stage);
            assert_the_rest_went_by_slots(stage);
            assert_int_equal(malformed(stage), 0);
            close_recv(stage);
            stage_close(stage);
        }
    }
}

static void refused_gets_go_by_slots(void **state)
{
    static const regx_status_t answers[] = {REGX_DENIED, REGX_INVALID,     REGX_NO_MEMORY,
                                            REGX_FAILED, REGX_UNREACHABLE, REGX_AGAIN};

    (void)state;
    for (unsigned i = 0; i < 12; i++) {
        for (unsigned number = 1; number <= GETS; number++) {
            stage_t *stage = stage_open();
            const regx_status_t status = answers[i / 2];

            stage->late_percent = i % 2 * 100;
            answer(stage, stage->receiver, FAKE_GET, number, status);
            begin(stage);
            run(stage);
            if (status == REGX_AGAIN) {
                assert_read(stage);
                assert_bytes(stage, LENGTH);
            } else {
                assert_the_rest_went_by_slots(stage);
                assert_int_equal(stage->receiver->counters.chunks_receiver,
                                 stage->receiver->counters.gets);
                assert_in_range(stage->receiver->counters.gets, number - 1, GETS - 1);
            }
            assert_int_equal(stage->sender->counters.chunks_sender, 1);
            assert_int_equal(malformed(stage), status == REGX_INVALID);
            close_recv(stage);
            goes_well(stage, LENGTH);
            assert_int_equal(
                fallbacks_of(stage->receiver, "read: impossible with this peer before"),
                status == REGX_DENIED);
            stage_close(stage);
        }
    }
}

/* They fail late, having written a part, and so may the put: what went is what did not. */
static void failed_gets_and_puts_go_by_slots(void **state)
{
    (void)state;
    for (unsigned mask = 0; mask < 16; mask++) {
        for (unsigned seed = 0; seed < 40; seed++) {
            stage_t *stage = stage_open();
            unsigned ended = 0;

            stage->seed = seed;
            stage->late_percent = 100;
            stage->late = (mask & 8) != 0 ? REGX_FAILED : REGX_OK;
            begin(stage);
            for (unsigned idle = 0; idle < 200; idle++) {
                const fake_conn_t *conn = &stage->receiver->conns[0];

                if (conn->get_count > 0 && chance_next(&stage->seed) % 2 == 0) {
                    const bool fails = (mask & 7) >> ended++ % 3 & 1;

                    memset(conn->gets[0]->local, 0x77, fails ? conn->gets[0]->length / 2 : 0);
                    fake_got(stage->receiver, 0, 0, fails ? REGX_FAILED : REGX_OK);
                    idle = 0;
                } else if (step(stage)) {
                    idle = 0;
                }
            }
            run(stage);
            assert_read(stage);
            assert_bytes(stage, stage->sender->counters.bytes[REGX_PATH_together]);
            assert_int_equal(stage->sender->counters.chunks_sender, (mask & 8) == 0);
            assert_int_equal(malformed(stage), 0);
            close_recv(stage);
            stage_close(stage);
        }
    }
}

static void messages_that_find_no_room_are_sent_later(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 12; i++) {
        for (unsigned number = 1; number <= 4 * GETS; number++) {
            stage_t *stage = stage_open();

            stage->seed = number;
            stage->late_percent = i / 2 % 2 * 100;
            stage->late = i >= 8 ? REGX_FAILED : REGX_OK;
            answer(stage, i % 2 == 0 ? stage->sender : stage->receiver, FAKE_SEND, number,
                   REGX_AGAIN);
            begin(stage);
            if (i >= 4) { /* the next but one registration */
                fake_t *at = number % 2 == 0 ? stage->sender : stage->receiver;

                answer(stage, at, FAKE_REG, at->calls[FAKE_REG] + 1, REGX_NO_MEMORY);
                stage->again_percent = 80;
            }
            run(stage);
            assert_read(stage);
            assert_bytes(stage, stage->sender->counters.bytes[REGX_PATH_together]);
            assert_int_equal(malformed(stage), 0);
            close_recv(stage);
            stage_close(stage);
        }
    }
}

static void a_put_that_finds_no_room_is_made_again(void **state)
{
    (void)state;
    for (unsigned late = 0; late < 2; late++) {
        stage_t *stage = stage_open();

        stage->late_percent = late * 100;
        answer(stage, stage->sender, FAKE_PUT, 1, REGX_AGAIN);
        begin(stage);
        assert_int_equal(stage->sender->calls[FAKE_PUT], 1);
        run(stage);
        assert_read(stage);
        assert_bytes(stage, LENGTH);
        assert_int_equal(stage->sender->calls[FAKE_PUT], 2);
        close_recv(stage);
        stage_close(stage);
    }
}

/* ---- who goes away ---- */

static void forgetting_a_peer_at_any_time_leaves_nothing(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 600; seed++) {
        stage_t *stage = stage_open();

        stage->seed = seed;
        stage->again_percent = seed % 5 * 20;
        stage->late_percent = seed % 3 * 50;
        forget_in_mid_transfer(stage, seed % 31);
        stage_close(stage);
    }
}

/* A send that fails while its put is pending ends with that, not before. */
static void the_done_callback_waits_for_a_pending_put(void **state)
{
    (void)state;
    for (unsigned late = 0; late < 2; late++) {
        stage_t *stage = stage_open();

        stage->late_percent = 100;
        begin(stage);
        regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[1]);
        assert_int_equal(stage->dones, 0);
        assert_int_equal(stage->sender->open_windows, 1); /* of the half */
        assert_true(fake_complete(stage->sender, 1, 0, late ? REGX_FAILED : REGX_OK));
        assert_int_equal(stage->dones, 1);
        assert_int_equal(stage->status, REGX_UNREACHABLE);
        assert_int_equal(stage->sender->open_windows, 0);
        forget_both(stage);
        close_recv(stage);
        stage_close(stage);
    }
}

/* Closed too early, by a peer that lies: the half cannot be written any more, nor is a grant kept.
 */
static void a_receive_can_be_closed_at_any_time(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 200; seed++) {
        stage_t *stage = stage_open();

        stage->seed = seed;
        stage->late_percent = 100;
        stage->late = seed % 2 == 0 ? REGX_FAILED : REGX_OK;
        if (seed % 3 == 0) {
            answer(stage, stage->receiver, FAKE_REG, 2 + seed % GETS, REGX_NO_MEMORY);
        }
        begin(stage);
        some_steps(stage, seed % 37);
        close_recv(stage);
        assert_int_equal(stage->receiver->open_windows, stage->receiver->conns[0].get_count);
        assert_int_equal(stage->receiver->pool.unused, stage->receiver->pool.slots);
        while (fake_got(stage->receiver, 0, 0, REGX_OK)) {
        }
        assert_int_equal(stage->receiver->open_windows, 0);
        forget_both(stage);
        assert_int_equal(stage->dones, 1);
        stage_close(stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_registrations_go_by_slots),
        cmocka_unit_test(a_denied_put_goes_by_slots),
        cmocka_unit_test(a_put_that_fails_after_a_nack_goes_by_slots),
        cmocka_unit_test(refused_gets_go_by_slots),
        cmocka_unit_test(failed_gets_and_puts_go_by_slots),
        cmocka_unit_test(messages_that_find_no_room_are_sent_later),
        cmocka_unit_test(a_put_that_finds_no_room_is_made_again),
        cmocka_unit_test(forgetting_a_peer_at_any_time_leaves_nothing),
        cmocka_unit_test(the_done_callback_waits_for_a_pending_put),
        cmocka_unit_test(a_receive_can_be_closed_at_any_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
