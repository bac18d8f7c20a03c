/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The receive where something is refused or finds no room, or is closed early.
 */
#include "recv_stage.h"

/* ---- closing early ---- */

static void grants_of_a_closed_receive_are_taken_back(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 3; c++) {
        for (unsigned served = 0; served < 6; served++) {
            stage_t *stage = stage_open(*configs[c]);
            transfer_t *transfer = transfer_open(stage, 0, 0, 30 * PAGE);
            const regx_handle_t old = transfer->to;
            grant_t grants[GRANTS];

            for (unsigned i = 0; i < served && transfer->count > 0; i++) {
                serve(stage, transfer, 0);
                hear_all(stage);
            }
            const unsigned count = transfer->count;
            memcpy(grants, transfer->grants, sizeof(grants));
            transfer_close(stage, transfer);
            fake_assert_idle(stage->receiver);
            /* What arrives for it later has no effect, also not on who has its number now. */
            transfer = transfer_open(stage, 0, 0, 30 * PAGE);
            for (unsigned i = 0; i < count; i++) {
                regx_control_t late =
                    notice_of(transfer, &grants[i],
                              grants[i].chunk ? REGX_CONTROL_ATP_CHUNK : REGX_CONTROL_ATP_SLOT);

                late.to = old;
                tell(stage, transfer, &late);
            }
            assert_int_equal(malformed(stage), count);
            transfer_finish(stage, transfer);
            assert_int_equal(malformed(stage), count);
            stage_close(stage);
        }
    }
}

/* A receive that waits for the slots of others gets them when those are given back. */
static void slots_of_a_closed_receive_go_to_a_waiting_one(void **state)
{
    (void)state;
    for (unsigned slots = 2; slots <= 512; slots *= 2) {
        for (size_t slot_size = 64; slot_size <= 65536; slot_size *= 32) {
            fake_config_t config = bounce;

            config.slots = slots;
            config.slot_size = slot_size;
            stage_t *stage = stage_open(config);
            transfer_t *waiting;
            unsigned held = 0;

            /* Held by transfers that have not begun and never will. */
            for (; held < 100; held++) {
                transfer_t *transfer = transfer_open(stage, held, 0, 1 << 20);

                if (transfer->count == 0) {
                    break;
                }
            }
            waiting = transfer_open(stage, 110, 0, 1000);
            start(stage, waiting);
            hear_all(stage);
            for (unsigned i = 0; i <= held && i < 100; i++) {
                transfer_close(stage, stage->transfers[i]);
            }
            if (!finish(stage, waiting)) {
                fail_msg("stuck with %u slots of %zu bytes, %u held, now all free", slots,
                         slot_size, held);
            }
            assert_arrived(waiting);
            transfer_close(stage, waiting);
            stage_close(stage);
        }
    }
}

/* ---- refusals, and no room ---- */

static void refused_registrations_go_by_slots(void **state)
{
    static const fake_config_t *const configs[] = {&pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 2; c++) {
        for (unsigned k = 1; k <= (c == 0 ? 11 : 1); k++) {
            stage_t *stage = stage_open(*configs[c]);

            stage->refused = k;
            transfer_t *transfer = transfer_open(stage, 0, 0, 10 * PAGE + 100);
            assert_true(finish(stage, transfer));
            assert_int_equal(transfer->chunk_grants, k - 1);
            assert_true(transfer->slot_grants > 0);
            assert_int_equal(stage->receiver->counters.copied_out_bytes,
                             10 * PAGE + 100 - (k - 1) * PAGE);
            transfer_finish(stage, transfer);
            assert_int_equal(malformed(stage), 0);
            /* The next transfer tries again. */
            transfer = transfer_open(stage, 0, 0, PAGE);
            assert_int_equal(transfer->chunk_grants, 1);
            transfer_finish(stage, transfer);
            stage_close(stage);
        }
    }
}

static void nacked_chunks_go_by_slots(void **state)
{
    static const fake_config_t *const configs[] = {&pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 2; c++) {
        for (unsigned mask = 1; mask < (c == 0 ? 128 : 2); mask++) {
            for (int permanent = 0; permanent < 2; permanent++) {
                stage_t *stage = stage_open(*configs[c]);
                transfer_t *transfer = transfer_open(stage, 0, 0, 6 * PAGE + 100);
                unsigned answered = 0;

                start(stage, transfer);
                hear_all(stage);
                while (transfer->count > 0 && transfer->grants[0].chunk) {
                    if ((mask >> answered++ & 1) != 0) {
                        refuse(stage, transfer, 0, permanent);
                    } else {
                        serve(stage, transfer, 0);
                    }
                    hear_all(stage);
                }
                transfer_finish(stage, transfer);
                assert_int_equal(malformed(stage), 0);
                transfer = transfer_open(stage, 0, 0, 3 * PAGE);
                assert_int_equal(transfer->chunk_grants, !permanent);
                transfer_finish(stage, transfer);
                /* The other process has refused nothing. */
                transfer = transfer_open(stage, 1, 1, 3 * PAGE);
                assert_int_equal(transfer->chunk_grants, 1);
                transfer_finish(stage, transfer);
                stage_close(stage);
            }
        }
    }
}

static void grants_that_find_no_room_are_sent_later(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline};

    (void)state;
    for (size_t c = 0; c < 2; c++) {
        for (unsigned refused = 0; refused < 4; refused++) {
            for (unsigned nth = 1; nth < 30; nth++) {
                stage_t *stage = stage_open(*configs[c]);

                stage->again = nth;
                stage->refused = refused;
                transfer_open(stage, 0, 0, 9 * PAGE + 1);
                transfer_open(stage, 1, 1, 9 * PAGE + 1);
                start(stage, stage->transfers[1]);
                transfer_finish(stage, stage->transfers[0]);
                transfer_finish(stage, stage->transfers[1]);
                assert_int_equal(malformed(stage), 0);
                stage_close(stage);
            }
        }
        for (unsigned seed = 0; seed < 20; seed++) {
            stage_t *stage = stage_open(*configs[c]);

            stage->again_percent = 70;
            stage->seed = seed;
            stage->refused = seed % 9;
            transfer_open(stage, 0, 0, 9 * PAGE + 1);
            transfer_open(stage, 1, 1, 9 * PAGE + 1);
            start(stage, stage->transfers[1]);
            transfer_finish(stage, stage->transfers[0]);
            transfer_finish(stage, stage->transfers[1]);
            stage_close(stage);
        }
    }
}

static void a_receive_with_an_unsent_grant_can_be_closed(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline};

    (void)state;
    for (size_t c = 0; c < 2; c++) {
        stage_t *stage = stage_open(*configs[c]);
        transfer_t *transfer = transfer_open(stage, 0, 0, 30 * PAGE);

        stage->again_percent = 100;
        start(stage, transfer);
        regx_rndv_progress(stage->receiver->rndv);
        transfer_close(stage, transfer);
        fake_assert_idle(stage->receiver);
        stage->again_percent = 0;
        transfer_finish(stage, transfer_open(stage, 0, 0, 30 * PAGE));
        assert_int_equal(malformed(stage), 0);
        stage_close(stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grants_of_a_closed_receive_are_taken_back),
        cmocka_unit_test(slots_of_a_closed_receive_go_to_a_waiting_one),
        cmocka_unit_test(refused_registrations_go_by_slots),
        cmocka_unit_test(nacked_chunks_go_by_slots),
        cmocka_unit_test(grants_that_find_no_room_are_sent_later),
        cmocka_unit_test(a_receive_with_an_unsent_grant_can_be_closed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
