/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Stages: what the sender copies to shared memory, and when, and what the receiver takes. `one`
 * receives, `two` sends.
 */
#include "shm_parties.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum { MOST = REGX_STAGE_SIZE, HALF = MOST / 2, UNSTAGED = 200 };

/* A message of `two`'s that is staged, and a get of it. */
typedef struct message {
    uint8_t *data, *to;
    regx_mr_t exposed;
    op_t op;
} message_t;

static message_t messages[2];

static message_t *expose(unsigned i, uint64_t stream)
{
    message_t *message = &messages[i];

    message->data = malloc(MOST);
    message->to = guarded_new(MOST);
    unit_fill(message->data, MOST, stream, 0);
    memset(message->to, 0xee, MOST);
    regx_shm_expose(two.transport, message->data, MOST, &message->exposed.key);
    assert_true(regx_shm_stage(two.conn, message->data, MOST, &message->exposed.key));
    return message;
}

static regx_status_t take_as(message_t *message, const regx_key_t *key, size_t length, bool staged)
{
    op_get(&message->op, message->to, length, NULL, &message->exposed, 0);
    message->op.get.key = *key;
    message->op.get.staged = staged;
    return regx_shm_get(one.conn, &message->op.get);
}

static void take(message_t *message)
{
    assert_int_equal(take_as(message, &message->exposed.key, MOST, true), REGX_PENDING);
}

/* Nothing reads the sender's memory any more. */
static void leave(message_t *message)
{
    regx_shm_unstage(two.transport, &message->exposed.key);
    free(message->data);
    guarded_free(message->to, MOST);
}

/* It has come. */
static void end(message_t *message)
{
    assert_true(message->op.ended == 1 && message->op.status == REGX_OK);
    assert_memory_equal(message->to, message->data, MOST);
    leave(message);
}

static unsigned stage_of(const message_t *message)
{
    return regx_shm_key_unpack(&message->exposed.key).stage.id - (UINT32_MAX - REGX_CICO_STAGES);
}

static regx_cico_cell_t *cell(const message_t *message)
{
    return &regx_shm_main(shm_of(&two))->cico.cells[stage_of(message)];
}

static uint32_t ready(const message_t *message)
{
    return (uint32_t)atomic_load(&cell(message)->ready);
}

/* The test plays the sender: so many bytes are there. */
static void make_ready(const message_t *message, uint32_t bytes)
{
    const regx_handle_t use = regx_shm_key_unpack(&message->exposed.key).stage;

    atomic_store(&cell(message)->ready, (uint64_t)use.generation << 32 | bytes);
}

static uint8_t *stage_memory(const message_t *message)
{
    return (uint8_t *)shm_of(&two)->main.base + regx_shm_stage_offset() +
           (size_t)stage_of(message) * REGX_STAGE_SIZE;
}

static void receive_alone(const message_t *message)
{
    while (message->op.ended == 0) {
        step(&one);
    }
}

/* A message is sent and taken. at_once: bytes that are copied before it is asked for. */
static void pass(uint64_t stream, uint32_t at_once)
{
    static unsigned before = REGX_CICO_STAGES;
    message_t *message = expose(0, stream);

    assert_int_not_equal(stage_of(message), before); /* they are used in turn */
    before = stage_of(message);
    step(&two);
    assert_int_equal(ready(message), at_once);
    take(message);
    while (ready(message) < MOST) {
        assert_true(step(&two) > 0);
    }
    assert_int_equal(step(&two), 0);
    receive_alone(message);
    end(message);
}

/* The sender copies when it is asked, and after so many in a row before; but not if the last one went
 * another way. */
static void nothing_is_copied_in_vain(void **state)
{
    message_t *message;

    for (unsigned i = 0; i <= REGX_CICO_ROW; i++) {
        pass(i, i < REGX_CICO_ROW ? 0 : REGX_CICO_STEP);
    }
    assert_int_equal(one.counters.stages_taken, REGX_CICO_ROW + 1);
    message = expose(0, 50);
    assert_true(step(&two) > 0);
    leave(message);
    pass(51, 0);
    pass(52, REGX_CICO_STEP);
    message = expose(0, 77);
    assert_int_equal(take_as(message, &message->exposed.key, MOST, false), REGX_PENDING);
    receive_alone(message); /* by the kernel */
    end(message);
    message = expose(0, 78);
    assert_int_equal(step(&two), 0); /* it is not taken so any more */
    leave(message);
}

/* The one half from the stage, the other by the kernel; twice, since the order of the kernel's
 * copies changes. */
static void the_kernel_copies_what_the_sender_has_not(void **state)
{
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t before = one.counters.bytes_shm;
        message_t *message = expose(0, 5);

        unit_fill(stage_memory(message), HALF, 6, 0);
        make_ready(message, HALF);
        take(message);
        step(&one);
        make_ready(message, 0);
        receive_alone(message);
        assert_true(unit_is_filled(message->to, HALF, 6));
        assert_memory_equal(message->to + HALF, message->data + HALF, HALF);
        memcpy(message->to, message->data, HALF);
        assert_int_equal(one.counters.stages_taken, 0);
        assert_int_equal(one.counters.bytes_shm - before, MOST);
        end(message);
        assert_int_equal(atomic_load(&shm_of(&one)->copy_count), 0);
    }
}

/* Of the second there is always something more; of the first nothing comes. */
static void a_sender_that_computes_is_not_waited_for_while_another_sends(void **state)
{
    uint32_t bytes = 0;

    for (unsigned i = 0; i < 2; i++) {
        take(expose(i, i));
    }
    unit_fill(stage_memory(&messages[1]), MOST, 1, 0);
    while (messages[0].op.ended == 0) {
        assert_true(bytes < 2 * REGX_CICO_LOOKS);
        make_ready(&messages[1], ++bytes);
        assert_true(step(&one) > 0);
    }
    assert_int_equal(messages[1].op.ended, 0);
    make_ready(&messages[1], MOST);
    receive_alone(&messages[1]);
    assert_int_equal(one.counters.stages_taken, 1);
    end(&messages[0]);
    end(&messages[1]);
}

/* While another thread copies. */
static void nothing_is_read_after_unstage(void **state)
{
    shm_parties_open(true);
    two_works_begin();
    for (unsigned i = 0; i < UNSTAGED; i++) {
        message_t *message = expose(0, i);

        atomic_store(&cell(message)->asked,
                     regx_shm_key_unpack(&message->exposed.key).stage.generation);
        while (ready(message) == 0) {
            sched_yield();
        }
        regx_shm_unstage(two.transport, &message->exposed.key);
        memset(message->data, 0xdd, MOST); /* a race, if it were still read */
        free(message->data);
        guarded_free(message->to, MOST);
    }
    two_works_end();
    assert_int_equal(atomic_load(&shm_of(&two)->copy_count), 0);
    parties_close();
}

static regx_key_t key_of_stage(const message_t *message, uint32_t id, uint32_t generation)
{
    regx_shm_key_t key = regx_shm_key_unpack(&message->exposed.key);
    regx_key_t packed;

    key.stage = (regx_handle_t){key.stage.id + id, key.stage.generation + generation};
    regx_shm_key_pack(key, &packed);
    return packed;
}

static void what_a_peer_says_is_checked(void **state)
{
    message_t *message = expose(0, 9);
    const uint32_t wrong[] = {REGX_CICO_STAGES, UINT32_MAX /* one before the first */};

    for (unsigned i = 0; i < REGX_CICO_ROW; i++) {
        const regx_key_t key = key_of_stage(message, wrong[i % 2], 0);

        assert_int_equal(take_as(message, &key, MOST, true), REGX_AGAIN);
    }
    /* None was taken so. */
    assert_int_equal(atomic_load(&regx_shm_main(shm_of(&one))->cico.awaited), 0);
    assert_int_equal(take_as(message, &message->exposed.key, MOST + 1, true), REGX_INVALID);
    /* Of another use of the stage nothing is taken. */
    const regx_key_t other = key_of_stage(message, 0, 1);
    make_ready(message, MOST);
    assert_int_equal(take_as(message, &other, MOST, true), REGX_PENDING);
    receive_alone(message);
    assert_memory_equal(message->to, message->data, MOST);
    memset(message->to, 0xee, MOST);
    /* The sender says that there is more than there can be. */
    make_ready(message, UINT32_MAX);
    assert_int_equal(take_as(message, &message->exposed.key, 5000, true), REGX_PENDING);
    receive_alone(message);
    assert_int_equal(one.counters.stages_taken, 1);
    assert_int_equal(message->to[5000], 0xee);
    take(message); /* now the sender's word is good again */
    make_ready(message, 0);
    parties_await(&message->op.ended, 1);
    end(message);
}

/* Two connections to the same process: the one ends, and its get. */
static void what_is_pending_fails_at_disconnect(void **state)
{
    regx_conn_t *const kept = one.conn;
    party_connect(&one, &two);
    take(expose(0, 0));
    regx_conn_t *const left = one.conn;
    one.conn = kept;
    take(expose(1, 1));
    regx_shm_disconnect(left);
    assert_true(messages[0].op.ended == 1 && messages[0].op.status == REGX_FAILED);
    assert_int_equal(messages[1].op.ended, 0);
    parties_await(&messages[1].op.ended, 1);
    end(&messages[1]);
    leave(&messages[0]);
    assert_int_equal(atomic_load(&shm_of(&one)->copy_count), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHM_TEST(nothing_is_copied_in_vain),
        SHM_TEST(the_kernel_copies_what_the_sender_has_not),
        SHM_TEST(a_sender_that_computes_is_not_waited_for_while_another_sends),
        cmocka_unit_test(nothing_is_read_after_unstage),
        SHM_TEST(what_a_peer_says_is_checked),
        SHM_TEST(what_is_pending_fails_at_disconnect),
    };

    return cmocka_run_group_tests_name("cico", tests, NULL, NULL);
}
