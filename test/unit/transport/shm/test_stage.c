/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Stages: what the sender copies to shared memory, and when, and what the receiver takes.
 * The parent receives, the child sends.
 */
#include "sides.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "transport/catalog.h"
#include "transport/rkey_table.h"

enum { MOST = REGX_STAGE_SIZE, HALF = MOST / 2, GUARD = 64, UNSTAGED = 200 };

/* A message at the sender. */
typedef struct sent {
    side_t *side;
    uint8_t *data;
    size_t length;
    regx_key_t key;
} sent_t;

/* Exposes a message, and stages it if that is possible, which it returns. */
static bool expose(sent_t *sent, side_t *side, size_t length, uint64_t stream)
{
    *sent = (sent_t){.side = side, .data = malloc(length), .length = length};
    REQUIRE(sent->data != NULL);
    unit_fill(sent->data, length, stream, 0);
    regx_key_expose(sent->data, length, &sent->key);
    return regx_shm_stage(side->conn, sent->data, length, &sent->key);
}

static void tell(const sent_t *sent)
{
    pair_tell(sent->side->socket, &sent->key, sizeof(sent->key));
}

static void forget(sent_t *sent, bool staged)
{
    if (staged) {
        regx_shm_unstage(sent->side->transport, &sent->key);
    }
    memset(sent->data, 0xdd, sent->length); /* nobody reads it any more */
    free(sent->data);
}

/* A message at the receiver. */
typedef struct taken {
    regx_get_t get;
    uint8_t *bytes; /* guard, bytes, guard */
    unsigned ended;
    regx_status_t status;
} taken_t;

static void got(regx_get_t *get, regx_status_t status)
{
    taken_t *taken = get->context;

    taken->ended++;
    taken->status = status;
}

static regx_status_t take(taken_t *taken, const side_t *side, size_t length, const regx_key_t *key,
                          bool staged)
{
    *taken = (taken_t){.bytes = malloc(length + 2 * GUARD)};
    REQUIRE(taken->bytes != NULL);
    memset(taken->bytes, 0xee, length + 2 * GUARD);
    taken->get = (regx_get_t){.local = taken->bytes + GUARD,
                              .length = length,
                              .key = *key,
                              .staged = staged,
                              .done = got,
                              .context = taken};
    memset(taken->get.scratch, 0xee, sizeof(taken->get.scratch)); /* as of one used before */
    return regx_shm_get(side->conn, &taken->get);
}

static void await(side_t *side, const taken_t *taken)
{
    while (taken->ended == 0) {
        progress(side);
    }
}

static void drop(taken_t *taken)
{
    for (size_t i = 0; i < GUARD; i++) {
        REQUIRE(taken->bytes[i] == 0xee);
        REQUIRE(taken->bytes[GUARD + taken->get.length + i] == 0xee);
    }
    free(taken->bytes);
}

static void assert_whole(taken_t *taken, uint64_t stream)
{
    REQUIRE(taken->ended == 1 && taken->status == REGX_OK);
    REQUIRE(unit_is_filled(taken->bytes + GUARD, taken->get.length, stream));
    drop(taken);
}

static uint64_t count_of(const side_t *side, unsigned counter)
{
    return side->counters.transport[counter];
}

/* Until the other comes to meet this process. */
static void work_until_met(side_t *side)
{
    char byte;

    while (recv(side->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0) {
        progress(side);
    }
    meet(side);
}

static void hear(const side_t *side, regx_key_t *key)
{
    pair_hear(side->socket, key, sizeof(*key));
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
            const uint64_t late = count_of(side, REGX_COUNTER_stages_late);
            regx_key_t key;
            taken_t taken;

            hear(side, &key);
            REQUIRE(take(&taken, side, lengths[i], &key, true) == REGX_PENDING);
            await(side, &taken);
            assert_whole(&taken, number);
            number++;
            REQUIRE(count_of(side, REGX_COUNTER_stages_taken) +
                        count_of(side, REGX_COUNTER_stages_late) ==
                    number);
            REQUIRE(count_of(side, REGX_COUNTER_stages_late) <= late + 1);
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
        REQUIRE(expose(&sent, side, lengths[number % LENGTHS], number));
        tell(&sent);
        work_until_met(side);
        forget(&sent, true);
    }
    REQUIRE(atomic_load(&side->shm->copy_count) == 0);
    REQUIRE(!expose(&sent, side, MOST + 1, 0));
    forget(&sent, false);
    meet(side);
}

static void each_length_is_taken(void **state)
{
    (void)state;
    run_pair(false, take_each_length, send_each_length);
}

/* ---- who copies, and when ---- */

static uint64_t bytes_ready(const side_t *side, unsigned stage)
{
    return (uint32_t)atomic_load(&regx_shm_main(side->shm)->stage.cells[stage].ready);
}

static void work_in_vain(side_t *side)
{
    for (unsigned i = 0; i < 100; i++) {
        REQUIRE(regx_shm_progress(side->transport) == 0);
    }
}

/* The sender copies before the receiver has begun its work, so what is taken is the stage's. */
static void ask_and_take(side_t *side)
{
    regx_key_t key;
    taken_t taken;

    attach(side);
    for (unsigned i = 0; i <= REGX_STAGE_ROW; i++) {
        hear(side, &key);
        meet(side); /* it has not been asked */
        REQUIRE(take(&taken, side, MOST, &key, true) == REGX_PENDING);
        meet(side); /* it has */
        meet(side);
        await(side, &taken);
        assert_whole(&taken, i);
        meet(side);
    }
    REQUIRE(count_of(side, REGX_COUNTER_stages_taken) == REGX_STAGE_ROW + 1);
    hear(side, &key);
    REQUIRE(take(&taken, side, MOST, &key, false) == REGX_PENDING); /* the kernel reads it */
    await(side, &taken);
    assert_whole(&taken, 77);
    meet(side);
    meet(side);
    REQUIRE(count_of(side, REGX_COUNTER_stages_taken) == REGX_STAGE_ROW + 1);
    REQUIRE(count_of(side, REGX_COUNTER_stages_late) == 0);
}

static void copy_when_asked(side_t *side)
{
    sent_t sent;

    attach(side);
    for (unsigned i = 0; i <= REGX_STAGE_ROW; i++) {
        REQUIRE(expose(&sent, side, MOST, i));
        if (i < REGX_STAGE_ROW) {
            work_in_vain(side);
            REQUIRE(bytes_ready(side, i % REGX_STAGES_WARM) == 0);
        } else { /* after so many in a row it is known */
            REQUIRE(regx_shm_progress(side->transport) == 1);
            REQUIRE(bytes_ready(side, i % REGX_STAGES_WARM) == REGX_STAGE_STEP);
        }
        tell(&sent);
        meet(side);
        meet(side);
        while (bytes_ready(side, i % REGX_STAGES_WARM) < MOST) {
            regx_shm_progress(side->transport);
        }
        work_in_vain(side);
        meet(side);
        meet(side);
        forget(&sent, true);
    }
    REQUIRE(expose(&sent, side, MOST, 77));
    tell(&sent);
    meet(side);
    forget(&sent, true);
    REQUIRE(expose(&sent, side, MOST, 78)); /* it is not taken so any more */
    work_in_vain(side);
    forget(&sent, true);
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
    hear(side, &key);
    REQUIRE(take(&taken, side, MOST, &key, true) == REGX_PENDING);
    await(side, &taken);
    assert_whole(&taken, 5);
    REQUIRE(count_of(side, REGX_COUNTER_stages_late) == 1);
    REQUIRE(count_of(side, REGX_COUNTER_stages_taken) == 0);
    meet(side);
    meet(side);
}

static void compute(side_t *side)
{
    sent_t sent;

    attach(side);
    REQUIRE(expose(&sent, side, MOST, 5));
    tell(&sent);
    meet(side);
    REQUIRE(bytes_ready(side, 0) == 0);
    forget(&sent, true);
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
    const regx_handle_t stage = regx_key_handle(key);

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
    const uint64_t before = count_of(side, REGX_COUNTER_bytes_shm);
    hear(side, &key);
    unit_fill(stage_memory(side, 0), HALF, 6, 0);
    make_ready(side, &key, HALF);
    REQUIRE(take(&taken, side, MOST, &key, true) == REGX_PENDING);
    REQUIRE(regx_shm_progress(side->transport) > 0);
    make_ready(side, &key, 0);
    await(side, &taken);
    REQUIRE(taken.ended == 1 && taken.status == REGX_OK);
    for (size_t i = 0; i < MOST; i++) { /* the one half from the stage, the other by the kernel */
        REQUIRE(taken.bytes[GUARD + i] == unit_stamp(i < HALF ? 6 : 5, i));
    }
    REQUIRE(count_of(side, REGX_COUNTER_stages_late) == 1);
    REQUIRE(count_of(side, REGX_COUNTER_stages_taken) == 0);
    REQUIRE(count_of(side, REGX_COUNTER_bytes_shm) - before == MOST);
    REQUIRE(atomic_load(&side->shm->copy_count) == 0);
    drop(&taken);
    meet(side);
    meet(side);
}

static void compute_with_half_done(side_t *side)
{
    sent_t sent;

    attach(side);
    REQUIRE(expose(&sent, side, MOST, 5));
    tell(&sent);
    meet(side);
    forget(&sent, true);
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
        hear(side, &keys[i]);
        REQUIRE(take(&taken[i], side, MOST, &keys[i], true) == REGX_PENDING);
    }
    unit_fill(stage_memory(side, 1), MOST, 1, 0);
    while (taken[0].ended == 0) {
        REQUIRE(ready < 2 * REGX_STAGE_LOOKS);
        make_ready(side, &keys[1], ++ready);
        REQUIRE(regx_shm_progress(side->transport) > 0);
    }
    REQUIRE(count_of(side, REGX_COUNTER_stages_late) == 1);
    REQUIRE(taken[1].ended == 0);
    make_ready(side, &keys[1], MOST);
    await(side, &taken[1]);
    REQUIRE(count_of(side, REGX_COUNTER_stages_taken) == 1);
    for (unsigned i = 0; i < 2; i++) {
        assert_whole(&taken[i], i);
    }
    meet(side);
    meet(side);
}

static void compute_with_two(side_t *side)
{
    sent_t sent[2];

    attach(side);
    for (unsigned i = 0; i < 2; i++) {
        REQUIRE(expose(&sent[i], side, MOST, i));
        tell(&sent[i]);
    }
    meet(side);
    for (unsigned i = 0; i < 2; i++) {
        forget(&sent[i], true);
    }
    meet(side);
}

static void nor_is_it_waited_for_while_another_sends(void **state)
{
    (void)state;
    run_pair(false, take_one_of_two, compute_with_two);
}

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
            REQUIRE(expose(&sent[i], side, 100, i));
        }
        REQUIRE(!expose(&sent[REGX_STAGES], side, 100, 0));
        for (unsigned i = 0; i <= REGX_STAGES; i++) {
            forget(&sent[i], i < REGX_STAGES);
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
        REQUIRE(expose(&sent, side, MOST, i));
        while (bytes_ready(side, i % REGX_STAGES_WARM) == 0) {
            sched_yield();
        }
        regx_shm_unstage(side->transport, &sent.key);
        regx_lock(&side->shm->lock);
        REQUIRE(side->shm->stages.copying == NULL);
        regx_unlock(&side->shm->lock);
        forget(&sent, false);
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
    hear(side, &key);
    const regx_handle_t stage = regx_key_handle(&key);
    const regx_handle_t none[] = {{0, 1},
                                  {UINT32_MAX, 0},
                                  {stage.id + REGX_STAGES, stage.generation},
                                  {stage.id - 1, stage.generation}};

    for (unsigned i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        other = key;
        regx_key_mark(&other, none[i]);
        REQUIRE(take(&taken, side, MOST, &other, true) == REGX_AGAIN);
        drop(&taken);
    }
    REQUIRE(take(&taken, side, MOST + 1, &key, true) == REGX_INVALID); /* as any get */
    drop(&taken);
    /* Of another use of the stage nothing is taken. */
    regx_stage_cell_t *cell =
        &regx_shm_main_at(&regx_shm_conn_of(side->conn)->main)->stage.cells[0];
    atomic_store(&cell->ready, (uint64_t)stage.generation << 32 | MOST);
    other = key;
    regx_key_mark(&other, (regx_handle_t){stage.id, stage.generation + 1});
    REQUIRE(take(&taken, side, MOST, &other, true) == REGX_PENDING);
    await(side, &taken);
    assert_whole(&taken, 9);
    REQUIRE(count_of(side, REGX_COUNTER_stages_late) == 1);
    /* The sender says that there is more than there can be. */
    atomic_store(&cell->ready, (uint64_t)stage.generation << 32 | UINT32_MAX);
    REQUIRE(take(&taken, side, 5000, &key, true) == REGX_PENDING);
    await(side, &taken);
    REQUIRE(taken.status == REGX_OK && count_of(side, REGX_COUNTER_stages_taken) == 1);
    drop(&taken);
    meet(side);
    meet(side);
}

static void say_what_is_not(side_t *side)
{
    sent_t sent;

    attach(side);
    REQUIRE(expose(&sent, side, MOST, 9));
    tell(&sent);
    meet(side);
    forget(&sent, true);
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
    hear(side, &keys[0]);
    hear(side, &keys[1]);
    REQUIRE(take(&left, &second, MOST, &keys[0], true) == REGX_PENDING);
    REQUIRE(take(&kept, side, MOST, &keys[1], true) == REGX_PENDING);
    regx_shm_disconnect(second.conn);
    REQUIRE(left.ended == 1 && left.status == REGX_FAILED);
    REQUIRE(kept.ended == 0 && atomic_load(&side->shm->copy_count) == 1);
    drop(&left);
    await(side, &kept);
    assert_whole(&kept, 1);
    REQUIRE(atomic_load(&side->shm->copy_count) == 0);
    work_in_vain(side);
    meet(side);
    meet(side);
}

static void what_is_pending_fails_at_disconnect(void **state)
{
    (void)state;
    run_pair(false, take_and_leave, compute_with_two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_length_is_taken),
                                       cmocka_unit_test(nothing_is_copied_in_vain),
                                       cmocka_unit_test(a_sender_that_computes_is_not_waited_for),
                                       cmocka_unit_test(nor_is_it_waited_for_while_another_sends),
                                       cmocka_unit_test(the_kernel_copies_what_the_sender_has_not),
                                       cmocka_unit_test(stages_are_used_again),
                                       cmocka_unit_test(nothing_is_read_after_unstage),
                                       cmocka_unit_test(what_a_peer_says_is_checked),
                                       cmocka_unit_test(what_is_pending_fails_at_disconnect)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
