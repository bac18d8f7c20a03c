/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Stages that end, or are none: they are used again, nothing is read after unstage, and nothing is
 * believed of a peer. The parent receives, the child sends.
 */
#include "stages.h"

#include <pthread.h>

#include "transport/counters.h"
#include "transport/shm/key.h"

enum { UNSTAGED = 200 };

static void stay(side_t *side)
{
    attach(side);
    meet(side);
}

static void use_all(side_t *side)
{
    static sent_t sent[REGX_STAGES + 1];

    attach(side);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < REGX_STAGES; i++) {
            REQUIRE(sent_expose(&sent[i], side, 100, i));
        }
        REQUIRE(!sent_expose(&sent[REGX_STAGES], side, 100, 0));
        for (unsigned i = 0; i <= REGX_STAGES; i++) {
            sent_forget(&sent[i], i < REGX_STAGES);
        }
        REQUIRE(atomic_load(&side->shm->copy_count) == 0);
    }
    meet(side);
}

static void stages_are_used_again(void **state)
{
    (void)state;
    run_pair(false, stay, use_all);
}

/* ---- a thread that unstages while another copies ---- */

static atomic_bool stopped;

static void *make_progress(void *argument)
{
    side_t *side = argument;

    while (!atomic_load(&stopped)) {
        progress(side);
    }
    return NULL;
}

static void unstage_early(side_t *side)
{
    pthread_t thread;
    sent_t sent;

    attach(side);
    atomic_store(&regx_shm_main_at(&regx_shm_conn_of(side->conn)->main)->stage.awaited, UINT32_MAX);
    atomic_store(&stopped, false);
    REQUIRE(pthread_create(&thread, NULL, make_progress, side) == 0);
    for (unsigned i = 0; i < UNSTAGED; i++) {
        REQUIRE(sent_expose(&sent, side, MOST, i));
        while (stage_ready(side, i % REGX_STAGES_WARM) == 0) {
            sched_yield();
        }
        regx_shm_unstage(side->transport, &sent.key);
        regx_lock(&side->shm->lock);
        REQUIRE(side->shm->stages.copying == NULL);
        regx_unlock(&side->shm->lock);
        sent_forget(&sent, false);
    }
    atomic_store(&stopped, true);
    pthread_join(thread, NULL);
    REQUIRE(atomic_load(&side->shm->copy_count) == 0);
    meet(side);
}

static void nothing_is_read_after_unstage(void **state)
{
    (void)state;
    side_threads = true;
    run_pair(false, stay, unstage_early);
    side_threads = false;
}

/* ---- what a peer says ---- */

static void take_what_is_not(side_t *side)
{
    regx_key_t key, other;
    taken_t taken;

    attach(side);
    sent_hear(side, &key);
    const regx_handle_t stage = regx_shm_key_unpack(&key).stage;
    const regx_handle_t none[] = {{0, 1},
                                  {UINT32_MAX, 0},
                                  {stage.id + REGX_STAGES, stage.generation},
                                  {stage.id - 1, stage.generation}};

    for (unsigned i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        other = key;
        key_mark(&other, none[i]);
        REQUIRE(taken_begin(&taken, side, MOST, &other, true) == REGX_AGAIN);
        taken_drop(&taken);
    }
    REQUIRE(taken_begin(&taken, side, MOST + 1, &key, true) == REGX_INVALID); /* as any get */
    taken_drop(&taken);
    /* Of another use of the stage nothing is taken. */
    regx_stage_cell_t *cell =
        &regx_shm_main_at(&regx_shm_conn_of(side->conn)->main)->stage.cells[0];
    atomic_store(&cell->ready, (uint64_t)stage.generation << 32 | MOST);
    other = key;
    key_mark(&other, (regx_handle_t){stage.id, stage.generation + 1});
    REQUIRE(taken_begin(&taken, side, MOST, &other, true) == REGX_PENDING);
    taken_await(side, &taken);
    taken_assert_whole(&taken, 9);
    REQUIRE(stage_count(side, REGX_COUNTER_stages_late) == 1);
    /* The sender says that there is more than there can be. */
    atomic_store(&cell->ready, (uint64_t)stage.generation << 32 | UINT32_MAX);
    REQUIRE(taken_begin(&taken, side, 5000, &key, true) == REGX_PENDING);
    taken_await(side, &taken);
    REQUIRE(taken.status == REGX_OK && stage_count(side, REGX_COUNTER_stages_taken) == 1);
    taken_drop(&taken);
    meet(side);
    meet(side);
}

static void say_what_is_not(side_t *side)
{
    sent_t sent;

    attach(side);
    REQUIRE(sent_expose(&sent, side, MOST, 9));
    sent_tell(&sent);
    meet(side);
    sent_forget(&sent, true);
    meet(side);
}

static void what_a_peer_says_is_checked(void **state)
{
    (void)state;
    run_pair(false, take_what_is_not, say_what_is_not);
}

/* Two connections to the same process: the one ends, and its get. */
static void take_and_leave(side_t *side)
{
    side_t second = *side;
    regx_key_t keys[2];
    taken_t left, kept;

    attach(side);
    second.conn = side_connect(side, CHILD, &regx_shm_conn_of(side->conn)->address);
    sent_hear(side, &keys[0]);
    sent_hear(side, &keys[1]);
    REQUIRE(taken_begin(&left, &second, MOST, &keys[0], true) == REGX_PENDING);
    REQUIRE(taken_begin(&kept, side, MOST, &keys[1], true) == REGX_PENDING);
    regx_shm_disconnect(second.conn);
    REQUIRE(left.ended == 1 && left.status == REGX_FAILED);
    REQUIRE(kept.ended == 0 && atomic_load(&side->shm->copy_count) == 1);
    taken_drop(&left);
    taken_await(side, &kept);
    taken_assert_whole(&kept, 1);
    REQUIRE(atomic_load(&side->shm->copy_count) == 0);
    stage_work_in_vain(side);
    meet(side);
    meet(side);
}

static void what_is_pending_fails_at_disconnect(void **state)
{
    (void)state;
    run_pair(false, take_and_leave, stage_compute_with_two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_are_used_again),
        cmocka_unit_test(nothing_is_read_after_unstage),
        cmocka_unit_test(what_a_peer_says_is_checked),
        cmocka_unit_test(what_is_pending_fails_at_disconnect),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
