/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The landing where something is refused or finds no room, or is closed early.
 */
#include "landing.h"

/* ---- closing early ---- */

static void grants_of_a_closed_landing_come_back(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 3; c++) {
        for (unsigned served = 0; served < 6; served++) {
            stage_t *stage = stage_open(*configs[c]);
            play_t *play = play_open(stage, 0, 0, 30 * PAGE);
            const regx_handle_t old = play->to;
            grant_t grants[GRANTS];

            for (unsigned i = 0; i < served && play->count > 0; i++) {
                serve(stage, play, 0);
                listen(stage);
            }
            const unsigned count = play->count;
            memcpy(grants, play->grants, sizeof(grants));
            play_close(stage, play);
            fake_assert_idle(stage->receiver);
            /* What arrives for it later has no effect, also not on who has its number now. */
            play = play_open(stage, 0, 0, 30 * PAGE);
            for (unsigned i = 0; i < count; i++) {
                regx_control_t late = notice_of(
                    play, &grants[i], grants[i].chunk ? REGX_CONTROL_DONE : REGX_CONTROL_WRITTEN);

                late.to = old;
                tell(stage, play, &late);
            }
            assert_int_equal(malformed(stage), count);
            play_out(stage, play);
            assert_int_equal(malformed(stage), count);
            stage_close(stage);
        }
    }
}

/* A landing that waits for the slots of others gets them when those are given back. */
static void a_closed_landings_slots_serve_who_waits(void **state)
{
    (void)state;
    for (unsigned slots = 2; slots <= 512; slots *= 2) {
        for (size_t slot_size = 64; slot_size <= 65536; slot_size *= 32) {
            fake_config_t config = bounce;

            config.slots = slots;
            config.slot_size = slot_size;
            stage_t *stage = stage_open(config);
            play_t *waiting;
            unsigned held = 0;

            /* Held by transfers that have not begun and never will. */
            for (; held < 100; held++) {
                play_t *play = play_open(stage, held, 0, 1 << 20);

                if (play->count == 0) {
                    break;
                }
            }
            waiting = play_open(stage, 110, 0, 1000);
            start(stage, waiting);
            listen(stage);
            for (unsigned i = 0; i <= held && i < 100; i++) {
                play_close(stage, stage->plays[i]);
            }
            if (!finish(stage, waiting)) {
                fail_msg("stuck with %u slots of %zu bytes, %u held, now all free", slots,
                         slot_size, held);
            }
            assert_arrived(waiting);
            play_close(stage, waiting);
            stage_close(stage);
        }
    }
}

/* ---- refusals, and no room ---- */

static void each_registration_may_be_refused(void **state)
{
    static const fake_config_t *const configs[] = {&pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 2; c++) {
        for (unsigned k = 1; k <= (c == 0 ? 11 : 1); k++) {
            stage_t *stage = stage_open(*configs[c]);

            stage->refused = k;
            play_t *play = play_open(stage, 0, 0, 10 * PAGE + 100);
            assert_true(finish(stage, play));
            assert_int_equal(play->chunk_grants, k - 1);
            assert_true(play->slot_grants > 0);
            assert_int_equal(stage->receiver->counters.copied_out_bytes,
                             10 * PAGE + 100 - (k - 1) * PAGE);
            play_out(stage, play);
            assert_int_equal(malformed(stage), 0);
            /* The next transfer tries again. */
            play = play_open(stage, 0, 0, PAGE);
            assert_int_equal(play->chunk_grants, 1);
            play_out(stage, play);
            stage_close(stage);
        }
    }
}

static void each_chunk_may_be_refused_by_the_source(void **state)
{
    static const fake_config_t *const configs[] = {&pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 2; c++) {
        for (unsigned mask = 1; mask < (c == 0 ? 128 : 2); mask++) {
            for (int for_ever = 0; for_ever < 2; for_ever++) {
                stage_t *stage = stage_open(*configs[c]);
                play_t *play = play_open(stage, 0, 0, 6 * PAGE + 100);
                unsigned answered = 0;

                start(stage, play);
                listen(stage);
                while (play->count > 0 && play->grants[0].chunk) {
                    if ((mask >> answered++ & 1) != 0) {
                        refuse(stage, play, 0, for_ever);
                    } else {
                        serve(stage, play, 0);
                    }
                    listen(stage);
                }
                play_out(stage, play);
                assert_int_equal(malformed(stage), 0);
                play = play_open(stage, 0, 0, 3 * PAGE);
                assert_int_equal(play->chunk_grants, !for_ever);
                play_out(stage, play);
                /* The other process has refused nothing. */
                play = play_open(stage, 1, 1, 3 * PAGE);
                assert_int_equal(play->chunk_grants, 1);
                play_out(stage, play);
                stage_close(stage);
            }
        }
    }
}

static void each_send_may_find_no_room(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline};

    (void)state;
    for (size_t c = 0; c < 2; c++) {
        for (unsigned refused = 0; refused < 4; refused++) {
            for (unsigned nth = 1; nth < 30; nth++) {
                stage_t *stage = stage_open(*configs[c]);

                stage->again = nth;
                stage->refused = refused;
                play_open(stage, 0, 0, 9 * PAGE + 1);
                play_open(stage, 1, 1, 9 * PAGE + 1);
                start(stage, stage->plays[1]);
                play_out(stage, stage->plays[0]);
                play_out(stage, stage->plays[1]);
                assert_int_equal(malformed(stage), 0);
                stage_close(stage);
            }
        }
        for (unsigned seed = 0; seed < 20; seed++) {
            stage_t *stage = stage_open(*configs[c]);

            stage->again_percent = 70;
            stage->seed = seed;
            stage->refused = seed % 9;
            play_open(stage, 0, 0, 9 * PAGE + 1);
            play_open(stage, 1, 1, 9 * PAGE + 1);
            start(stage, stage->plays[1]);
            play_out(stage, stage->plays[0]);
            play_out(stage, stage->plays[1]);
            stage_close(stage);
        }
    }
}

static void a_landing_may_be_closed_while_its_grant_is_unsent(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline};

    (void)state;
    for (size_t c = 0; c < 2; c++) {
        stage_t *stage = stage_open(*configs[c]);
        play_t *play = play_open(stage, 0, 0, 30 * PAGE);

        stage->again_percent = 100;
        start(stage, play);
        regx_rndv_progress(stage->receiver->rndv);
        play_close(stage, play);
        fake_assert_idle(stage->receiver);
        stage->again_percent = 0;
        play_out(stage, play_open(stage, 0, 0, 30 * PAGE));
        assert_int_equal(malformed(stage), 0);
        stage_close(stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grants_of_a_closed_landing_come_back),
        cmocka_unit_test(a_closed_landings_slots_serve_who_waits),
        cmocka_unit_test(each_registration_may_be_refused),
        cmocka_unit_test(each_chunk_may_be_refused_by_the_source),
        cmocka_unit_test(each_send_may_find_no_room),
        cmocka_unit_test(a_landing_may_be_closed_while_its_grant_is_unsent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
