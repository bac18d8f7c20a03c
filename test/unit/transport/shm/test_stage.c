/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Stages: what the sender copies to shared memory, and when, and what the receiver takes.
 * The parent receives, the child sends.
 */
#include "stages.h"

#include <sys/socket.h>

#include "transport/counters.h"
#include "transport/shm/key.h"

enum { HALF = MOST / 2 };

/* Until the other comes to meet this process. */
static void work_until_met(side_t *side)
{
    char byte;

    while (recv(side->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0) {
        progress(side);
    }
    meet(side);
}

/* ---- every length ---- */

static const size_t lengths[] = {1,
                                 63,
                                 64,
                                 4095,
                                 8191,
                                 8192,
                                 8193,
                                 16384,
                                 40001,
                                 REGX_STAGE_STEP - 1,
                                 REGX_STAGE_STEP,
                                 REGX_STAGE_STEP + 1,
                                 MOST - 1,
                                 MOST};
enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]), ROUNDS = 3 };

static void take_each_length(side_t *side)
{
    unsigned number = 0;

    attach(side);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < LENGTHS; i++) {
            const uint64_t late = stage_count(side, REGX_COUNTER_stages_late);
            regx_key_t key;
            taken_t taken;

            sent_hear(side, &key);
            REQUIRE(taken_begin(&taken, side, lengths[i], &key, true) == REGX_PENDING);
            taken_await(side, &taken);
            taken_assert_whole(&taken, number);
            number++;
            REQUIRE(stage_count(side, REGX_COUNTER_stages_taken) +
                        stage_count(side, REGX_COUNTER_stages_late) ==
                    number);
            REQUIRE(stage_count(side, REGX_COUNTER_stages_late) <= late + 1);
            meet(side);
        }
    }
    REQUIRE(atomic_load(&side->shm->copy_count) == 0);
    meet(side);
}

static void send_each_length(side_t *side)
{
    sent_t sent;

    attach(side);
    for (unsigned number = 0; number < ROUNDS * LENGTHS; number++) {
        REQUIRE(sent_expose(&sent, side, lengths[number % LENGTHS], number));
        sent_tell(&sent);
        work_until_met(side);
        sent_forget(&sent, true);
    }
    REQUIRE(atomic_load(&side->shm->copy_count) == 0);
    REQUIRE(!sent_expose(&sent, side, MOST + 1, 0));
    sent_forget(&sent, false);
    meet(side);
}

static void each_length_is_taken(void **state)
{
    (void)state;
    run_pair(false, take_each_length, send_each_length);
}

/* ---- who copies, and when ---- */

/* The sender copies before the receiver has begun its work, so what is taken is the stage's. */
static void ask_and_take(side_t *side)
{
    regx_key_t key;
    taken_t taken;

    attach(side);
    for (unsigned i = 0; i <= REGX_STAGE_ROW; i++) {
        sent_hear(side, &key);
        meet(side); /* it has not been asked */
        REQUIRE(taken_begin(&taken, side, MOST, &key, true) == REGX_PENDING);
        meet(side); /* it has */
        meet(side);
        taken_await(side, &taken);
        taken_assert_whole(&taken, i);
        meet(side);
    }
    REQUIRE(stage_count(side, REGX_COUNTER_stages_taken) == REGX_STAGE_ROW + 1);
    sent_hear(side, &key);
    REQUIRE(taken_begin(&taken, side, MOST, &key, false) == REGX_PENDING); /* the kernel reads it */
    taken_await(side, &taken);
    taken_assert_whole(&taken, 77);
    meet(side);
    meet(side);
    REQUIRE(stage_count(side, REGX_COUNTER_stages_taken) == REGX_STAGE_ROW + 1);
    REQUIRE(stage_count(side, REGX_COUNTER_stages_late) == 0);
}

static void copy_when_asked(side_t *side)
{
    sent_t sent;

    attach(side);
    for (unsigned i = 0; i <= REGX_STAGE_ROW; i++) {
        REQUIRE(sent_expose(&sent, side, MOST, i));
        if (i < REGX_STAGE_ROW) {
            stage_work_in_vain(side);
            REQUIRE(stage_ready(side, i % REGX_STAGES_WARM) == 0);
        } else { /* after so many in a row it is known */
            REQUIRE(regx_shm_progress(side->transport) == 1);
            REQUIRE(stage_ready(side, i % REGX_STAGES_WARM) == REGX_STAGE_STEP);
        }
        sent_tell(&sent);
        meet(side);
        meet(side);
        while (stage_ready(side, i % REGX_STAGES_WARM) < MOST) {
            regx_shm_progress(side->transport);
        }
        stage_work_in_vain(side);
        meet(side);
        meet(side);
        sent_forget(&sent, true);
    }
    REQUIRE(sent_expose(&sent, side, MOST, 77));
    sent_tell(&sent);
    meet(side);
    sent_forget(&sent, true);
    REQUIRE(sent_expose(&sent, side, MOST, 78)); /* it is not taken so any more */
    stage_work_in_vain(side);
    sent_forget(&sent, true);
    meet(side);
}

static void nothing_is_copied_in_vain(void **state)
{
    (void)state;
    run_pair(false, ask_and_take, copy_when_asked);
}

static void take_alone(side_t *side)
{
    regx_key_t key;
    taken_t taken;

    attach(side);
    sent_hear(side, &key);
    REQUIRE(taken_begin(&taken, side, MOST, &key, true) == REGX_PENDING);
    taken_await(side, &taken);
    taken_assert_whole(&taken, 5);
    REQUIRE(stage_count(side, REGX_COUNTER_stages_late) == 1);
    REQUIRE(stage_count(side, REGX_COUNTER_stages_taken) == 0);
    meet(side);
    meet(side);
}

static void compute(side_t *side)
{
    sent_t sent;

    attach(side);
    REQUIRE(sent_expose(&sent, side, MOST, 5));
    sent_tell(&sent);
    meet(side);
    REQUIRE(stage_ready(side, 0) == 0);
    sent_forget(&sent, true);
    REQUIRE(atomic_load(&side->shm->copy_count) == 0);
    meet(side);
}

static void a_sender_that_computes_is_not_waited_for(void **state)
{
    (void)state;
    run_pair(false, take_alone, compute);
}

/* The receiver plays the sender: what is ready in its stage. */
static void make_ready(const side_t *side, const regx_key_t *key, uint32_t bytes)
{
    regx_stage_shared_t *shared = &regx_shm_main_at(&regx_shm_conn_of(side->conn)->main)->stage;
    const regx_handle_t stage = regx_shm_key_unpack(key).stage;

    atomic_store(&shared->cells[stage.id - (UINT32_MAX - REGX_STAGES)].ready,
                 (uint64_t)stage.generation << 32 | bytes);
}

static uint8_t *stage_memory(const side_t *side, unsigned stage)
{
    char *base = regx_shm_conn_of(side->conn)->main.base;

    return (uint8_t *)base + regx_shm_stage_offset() + (size_t)stage * REGX_STAGE_SIZE;
}

static void take_half(side_t *side)
{
    regx_key_t key;
    taken_t taken;

    attach(side);
    const uint64_t before = stage_count(side, REGX_COUNTER_bytes_shm);
    sent_hear(side, &key);
    unit_fill(stage_memory(side, 0), HALF, 6, 0);
    make_ready(side, &key, HALF);
    REQUIRE(taken_begin(&taken, side, MOST, &key, true) == REGX_PENDING);
    REQUIRE(regx_shm_progress(side->transport) > 0);
    make_ready(side, &key, 0);
    taken_await(side, &taken);
    REQUIRE(taken.ended == 1 && taken.status == REGX_OK);
    for (size_t i = 0; i < MOST; i++) { /* the one half from the stage, the other by the kernel */
        REQUIRE(taken.bytes[GUARD + i] == unit_stamp(i < HALF ? 6 : 5, i));
    }
    REQUIRE(stage_count(side, REGX_COUNTER_stages_late) == 1);
    REQUIRE(stage_count(side, REGX_COUNTER_stages_taken) == 0);
    REQUIRE(stage_count(side, REGX_COUNTER_bytes_shm) - before == MOST);
    REQUIRE(atomic_load(&side->shm->copy_count) == 0);
    taken_drop(&taken);
    meet(side);
    meet(side);
}

static void compute_with_half_done(side_t *side)
{
    sent_t sent;

    attach(side);
    REQUIRE(sent_expose(&sent, side, MOST, 5));
    sent_tell(&sent);
    meet(side);
    sent_forget(&sent, true);
    meet(side);
}

static void the_kernel_copies_what_the_sender_has_not(void **state)
{
    (void)state;
    run_pair(false, take_half, compute_with_half_done);
}

/* Of the second there is always something more; of the first nothing comes. */
static void take_one_of_two(side_t *side)
{
    regx_key_t keys[2];
    taken_t taken[2];
    uint32_t ready = 0;

    attach(side);
    for (unsigned i = 0; i < 2; i++) {
        sent_hear(side, &keys[i]);
        REQUIRE(taken_begin(&taken[i], side, MOST, &keys[i], true) == REGX_PENDING);
    }
    unit_fill(stage_memory(side, 1), MOST, 1, 0);
    while (taken[0].ended == 0) {
        REQUIRE(ready < 2 * REGX_STAGE_LOOKS);
        make_ready(side, &keys[1], ++ready);
        REQUIRE(regx_shm_progress(side->transport) > 0);
    }
    REQUIRE(stage_count(side, REGX_COUNTER_stages_late) == 1);
    REQUIRE(taken[1].ended == 0);
    make_ready(side, &keys[1], MOST);
    taken_await(side, &taken[1]);
    REQUIRE(stage_count(side, REGX_COUNTER_stages_taken) == 1);
    for (unsigned i = 0; i < 2; i++) {
        taken_assert_whole(&taken[i], i);
    }
    meet(side);
    meet(side);
}

static void nor_is_it_waited_for_while_another_sends(void **state)
{
    (void)state;
    run_pair(false, take_one_of_two, stage_compute_with_two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_length_is_taken),
        cmocka_unit_test(nothing_is_copied_in_vain),
        cmocka_unit_test(a_sender_that_computes_is_not_waited_for),
        cmocka_unit_test(nor_is_it_waited_for_while_another_sends),
        cmocka_unit_test(the_kernel_copies_what_the_sender_has_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
