/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The path read where something is refused, fails or finds no room, or somebody goes away.
 */
#include "read_stage.h"

/* ---- refused, failed, no room ---- */

static void refused_registrations_go_by_slots(void **state)
{
    static const regx_status_t answers[] = {REGX_NO_MEMORY, REGX_DENIED};

    (void)state;
    for (unsigned a = 0; a < 4; a++) {
        for (unsigned number = 1; number <= CHUNKS; number++) {
            stage_t *stage = stage_open();
            fake_t *at = a / 2 == 0 ? stage->sender : stage->receiver;
            const uint64_t before = (number - 1) * PAGE;

            stage->answer.at = at;
            stage->answer.call = FAKE_REG;
            stage->answer.number = number;
            stage->answer.status = answers[a % 2];
            begin(stage);
            run(stage);
            assert_read(stage);
            if (at == stage->sender) { /* it stops at once */
                assert_bytes(stage, before);
                assert_int_equal(stage->receiver->counters.registrations, number - 1);
            } else { /* what was advertised before it heard of that is still got */
                assert_in_range(stage->sender->counters.bytes[REGX_PATH_read], before,
                                before + (DEPTH - 1) * PAGE);
                assert_bytes(stage, stage->sender->counters.bytes[REGX_PATH_read]);
            }
            assert_int_equal(at->counters.fallbacks[0].count, 1);
            assert_int_equal(at->counters.fallbacks[1].state, 0);
            assert_int_equal(malformed(stage), 0);
            close_recv(stage);
            /* The next message is read again. */
            stage->dones = 0;
            begin_of(stage, PAGE);
            run(stage);
            assert_read_of(stage, PAGE);
            close_recv(stage);
            assert_int_equal(stage->sender->counters.messages[REGX_PATH_fallback], 1);
            stage_close(stage);
        }
    }
}

static void refused_gets_go_by_slots(void **state)
{
    static const regx_status_t answers[] = {REGX_DENIED, REGX_INVALID, REGX_NO_MEMORY, REGX_FAILED,
                                            REGX_AGAIN};

    (void)state;
    for (size_t a = 0; a < sizeof(answers) / sizeof(answers[0]); a++) {
        for (unsigned number = 1; number <= CHUNKS; number++) {
            stage_t *stage = stage_open();

            stage->answer.at = stage->receiver;
            stage->answer.call = FAKE_GET;
            stage->answer.number = number;
            stage->answer.status = answers[a];
            begin(stage);
            run(stage);
            assert_read(stage);
            if (answers[a] == REGX_AGAIN) {
                assert_bytes(stage, LENGTH);
            } else {
                assert_bytes(stage, stage->sender->counters.bytes[REGX_PATH_read]);
                assert_int_equal(stage->sender->counters.messages[REGX_PATH_fallback], 1);
            }
            assert_int_equal(malformed(stage), answers[a] == REGX_INVALID);
            close_recv(stage);
            stage_close(stage);
        }
    }
}

/* A peer that cannot advertise, or cannot be read, or we cannot read: the second message finds it
 * known, and tries nothing. */
static void a_peer_that_cannot_be_read_is_tried_once(void **state)
{
    static const struct {
        bool at_sender;
        fake_call_t call;
        regx_status_t status;
    } cases[] = {{true, FAKE_REG, REGX_INVALID},
                 {false, FAKE_REG, REGX_INVALID},
                 {false, FAKE_GET, REGX_DENIED}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        stage_t *stage = stage_open();

        stage->answer.at = cases[i].at_sender ? stage->sender : stage->receiver;
        stage->answer.call = cases[i].call;
        stage->answer.number = 1;
        stage->answer.status = cases[i].status;
        begin(stage);
        run(stage);
        assert_read(stage);
        close_recv(stage);

        const unsigned tried[] = {stage->sender->calls[FAKE_REG], stage->receiver->calls[FAKE_REG],
                                  stage->receiver->calls[FAKE_GET]};
        stage->dones = 0;
        begin_of(stage, 3 * PAGE);
        run(stage);
        assert_read_of(stage, 3 * PAGE);
        close_recv(stage);
        assert_int_equal(stage->sender->calls[FAKE_REG], tried[0]);
        assert_int_equal(stage->receiver->calls[FAKE_REG], tried[1]);
        assert_int_equal(stage->receiver->calls[FAKE_GET], tried[2]);
        assert_int_equal(stage->sender->counters.messages[REGX_PATH_fallback], 2);
        assert_int_equal(regx_tally_find(stage->receiver->counters.fallbacks,
                                         "read: impossible with this peer before")
                             ->count,
                         1);
        assert_int_equal(malformed(stage), 0);
        stage_close(stage);
    }
}

/* So it is where the wire finds out late. */
static void a_get_denied_late_goes_by_slots(void **state)
{
    stage_t *stage = stage_open();

    (void)state;
    begin(stage);
    assert_true(deliver(stage, 1));
    assert_true(fake_got(stage->receiver, 0, 0, REGX_DENIED));
    run(stage);
    assert_read(stage);
    close_recv(stage);
    const unsigned tried = stage->receiver->calls[FAKE_GET];
    stage->dones = 0;
    begin_of(stage, PAGE);
    run(stage);
    assert_read_of(stage, PAGE);
    close_recv(stage);
    assert_int_equal(stage->receiver->calls[FAKE_GET], tried);
    assert_int_equal(stage->sender->counters.messages[REGX_PATH_fallback], 2);
    assert_int_equal(regx_tally_find(stage->receiver->counters.fallbacks,
                                     "receiver: reading from this peer refused")
                         ->count,
                     1);
    stage_close(stage);
}

/* They fail late: all bytes arrive all the same, also those that a get has written in part. */
static void failed_gets_go_by_slots(void **state)
{
    (void)state;
    for (unsigned mask = 1; mask < 128; mask++) {
        stage_t *stage = stage_open();
        unsigned ended = 0;

        begin(stage);
        for (unsigned idle = 0; idle < 100; idle++) {
            const unsigned first = stage->receiver->conns[0].get_count;

            if (first > 0) {
                const bool fails = (mask >> ended++ & 1) != 0;

                if (fails) {
                    memset(stage->receiver->conns[0].gets[0]->local, 0x77, 5);
                }
                fake_got(stage->receiver, 0, 0, fails ? REGX_FAILED : REGX_OK);
                idle = 0;
            }
            if (deliver(stage, 0) || deliver(stage, 1)) {
                idle = 0;
            }
            regx_rndv_progress(stage->receiver->rndv);
            regx_rndv_progress(stage->sender->rndv);
        }
        run(stage);
        assert_read(stage);
        assert_bytes(stage, stage->sender->counters.bytes[REGX_PATH_read]);
        assert_int_equal(stage->receiver->counters.bytes[REGX_PATH_read], 0);
        assert_int_equal(malformed(stage), 0);
        close_recv(stage);
        stage_close(stage);
    }
}

static void messages_that_find_no_room_are_sent_later(void **state)
{
    (void)state;
    for (unsigned refused = 0; refused < 3; refused++) { /* none, at the sender, at the receiver */
        for (unsigned number = 1; number <= 2 * CHUNKS + 3; number++) {
            for (int at_sender = 0; at_sender < 2; at_sender++) {
                stage_t *stage = stage_open();

                stage->answer.at = at_sender ? stage->sender : stage->receiver;
                stage->answer.call = FAKE_SEND;
                stage->answer.number = number;
                stage->answer.status = REGX_AGAIN;
                begin(stage);
                if (refused > 0) { /* the third */
                    stage->answer.at = refused == 1 ? stage->sender : stage->receiver;
                    stage->answer.call = FAKE_REG;
                    stage->answer.number = DEPTH + number % 3;
                    stage->answer.status = REGX_NO_MEMORY;
                    stage->again_percent = 50;
                }
                run(stage);
                assert_read(stage);
                assert_int_equal(malformed(stage), 0);
                close_recv(stage);
                stage_close(stage);
            }
        }
    }
    for (unsigned seed = 0; seed < 100; seed++) {
        stage_t *stage = stage_open();

        stage->seed = seed;
        stage->again_percent = 80;
        begin(stage);
        run(stage);
        assert_read(stage);
        assert_bytes(stage, LENGTH);
        close_recv(stage);
        stage_close(stage);
    }
}

/* ---- who goes away ---- */

static void forgetting_a_peer_at_any_time_leaves_nothing(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 400; seed++) {
        stage_t *stage = stage_open();

        stage->seed = seed;
        stage->again_percent = seed % 5 * 20;
        forget_in_mid_transfer(stage, seed % 23);
        stage_close(stage);
    }
}

/* A connection that breaks under a message ends the send, whose memory nobody reads any more. */
static void an_unreachable_peer_ends_the_send(void **state)
{
    (void)state;
    for (unsigned number = 1; number <= CHUNKS; number++) {
        stage_t *stage = stage_open();

        stage->answer.at = stage->sender;
        stage->answer.call = FAKE_SEND;
        stage->answer.number = number;
        stage->answer.status = REGX_UNREACHABLE;
        begin(stage);
        for (unsigned i = 0; i < 100 && stage->dones == 0; i++) {
            some_steps(stage, 1);
        }
        assert_int_equal(stage->dones, 1);
        assert_int_equal(stage->status, REGX_UNREACHABLE);
        assert_int_equal(stage->sender->open_windows, 0);
        regx_rndv_forget(stage->receiver->rndv, &stage->receiver->peers[0]);
        while (fake_got(stage->receiver, 0, 0, REGX_FAILED)) {
        }
        drop_frames(stage->sender, 1);
        drop_frames(stage->receiver, 0);
        close_recv(stage);
        stage_close(stage);
    }
}

/* Closed too early, by a peer that lies: the memory stays registered for the gets that are under
 * way, and no longer; the next receive is another. */
static void gets_may_end_after_their_receive_is_closed(void **state)
{
    (void)state;
    for (unsigned ended = 0; ended < DEPTH; ended++) {
        stage_t *stage = stage_open();
        unsigned dones = 0;

        begin(stage);
        while (deliver(stage, 1)) {
        }
        for (unsigned i = 0; i < ended; i++) {
            fake_got(stage->receiver, 0, 0, REGX_OK);
        }
        close_recv(stage);
        assert_int_equal(stage->receiver->open_windows, DEPTH - ended);
        regx_rndv_recv_t *next = regx_rndv_recv_open(
            stage->receiver->rndv, &stage->receiver->peers[0], stage->received.base, LENGTH);
        while (stage->receiver->conns[0].get_count > 0) {
            fake_got(stage->receiver, 0, 0, dones++ % 2 == 0 ? REGX_OK : REGX_FAILED);
        }
        assert_int_equal(stage->receiver->open_windows, 0);
        regx_rndv_recv_close(stage->receiver->rndv, next);
        while (deliver(stage, 0)) {
        }
        regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[1]);
        while (deliver(stage, 1)) {
        }
        stage_close(stage);
    }
}

/* Likewise after any steps, also with slots granted: none of them is kept. */
static void a_receive_can_be_closed_at_any_time(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 400; seed++) {
        stage_t *stage = stage_open();

        stage->seed = seed;
        stage->again_percent = seed % 5 * 20;
        stage->late_percent = seed % 2 * 100;
        if (seed % 3 != 0) {
            stage->answer.at = seed % 3 == 1 ? stage->receiver : stage->sender;
            stage->answer.call = FAKE_REG;
            stage->answer.number = 1 + seed % CHUNKS;
            stage->answer.status = REGX_NO_MEMORY;
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

/* A slot that fails ends the send, but not while the receive may read what is advertised. */
static void a_failed_send_waits_for_what_is_advertised(void **state)
{
    (void)state;
    stage_t *stage = stage_open();

    /* The second chunk is left, which goes by slots while the third is still being got. */
    stage->answer.at = stage->receiver;
    stage->answer.call = FAKE_REG;
    stage->answer.number = 2;
    stage->answer.status = REGX_NO_MEMORY;
    begin(stage);
    while (deliver(stage, 1)) {
    }
    stage->answer.at = stage->sender;
    stage->answer.call = FAKE_PUT;
    stage->answer.number = 1;
    stage->answer.status = REGX_FAILED;
    while (deliver(stage, 0)) {
    }
    assert_int_equal(stage->sender->calls[FAKE_PUT], 1);
    assert_int_equal(stage->sender->open_windows, 2);
    assert_int_equal(stage->dones, 0);
    fake_got(stage->receiver, 0, 0, REGX_OK);
    deliver(stage, 0);
    assert_int_equal(stage->dones, 0);
    fake_got(stage->receiver, 0, 0, REGX_OK);
    deliver(stage, 0);
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_FAILED);
    close_recv(stage);
    drop_frames(stage->sender, 1);
    while (deliver(stage, 0)) { /* slots that it does not need any more */
    }
    stage_close(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_registrations_go_by_slots),
        cmocka_unit_test(refused_gets_go_by_slots),
        cmocka_unit_test(a_peer_that_cannot_be_read_is_tried_once),
        cmocka_unit_test(a_get_denied_late_goes_by_slots),
        cmocka_unit_test(failed_gets_go_by_slots),
        cmocka_unit_test(messages_that_find_no_room_are_sent_later),
        cmocka_unit_test(forgetting_a_peer_at_any_time_leaves_nothing),
        cmocka_unit_test(an_unreachable_peer_ends_the_send),
        cmocka_unit_test(gets_may_end_after_their_receive_is_closed),
        cmocka_unit_test(a_receive_can_be_closed_at_any_time),
        cmocka_unit_test(a_failed_send_waits_for_what_is_advertised),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
