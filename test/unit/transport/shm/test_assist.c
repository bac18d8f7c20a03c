/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Assisted gets: what the peer writes of what this process reads, and who copies what.
 */
#include "copies.h"

#include <pthread.h>

#include "transport/counters.h"
#include "transport/shm/piece.h"

/* Halves of TWO are one piece each, those of LONG two. */
enum { TWO = 2 * STEP, LONG = 2 * STEP + 200000, THREADS = 3, EACH = 40 };

/* ---- every length ---- */

static void get_each_length(side_t *side)
{
    static const size_t lengths[] = {1,
                                     REGX_ASSIST_MIN - 1,
                                     REGX_ASSIST_MIN,
                                     REGX_ASSIST_MIN + 1,
                                     STEP - 1,
                                     STEP,
                                     STEP + 1,
                                     LONG,
                                     ZONE - 77};

    begin(side);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (uint64_t offset = 0; offset <= ZONE - lengths[i]; offset += ZONE / 5 + 7) {
            op_t op = assisted_op(side, offset, lengths[i]);

            REQUIRE(post(&op) == REGX_PENDING);
            await(side, &op);
            assert_got(&op);
            op_free(&op);
        }
    }
    REQUIRE(atomic_load(&side->shm->copy_count) == side->shm->requests.count);
    finish(side);
}

static void each_length_is_got(void **state)
{
    (void)state;
    run_pair(false, get_each_length, serve);
    run_pair(false, get_each_length, get_each_length);
}

/* ---- who copies ---- */

static void get_alone(side_t *side)
{
    begin(side);
    op_t op = assisted_op(side, 3, LONG);
    REQUIRE(post(&op) == REGX_PENDING);
    await(side, &op);
    assert_got(&op);
    REQUIRE(side->counters.chunks_receiver > 2);
    REQUIRE(side->counters.transport[REGX_COUNTER_bytes_shm] == LONG);
    memset(op.local + GUARD, 0xdd, LONG);
    meet(side); /* now it finds the request */
    meet(side);
    for (size_t i = 0; i < LONG; i++) {
        REQUIRE(op.local[GUARD + i] == 0xdd);
    }
    op_free(&op);
    finish(side);
}

static void come_late(side_t *side)
{
    begin(side);
    meet(side);
    work_alone(side);
    REQUIRE(side->counters.chunks_sender == 0 && side->counters.malformed == 0);
    REQUIRE(side->shm->requests.count == 0);
    meet(side);
    finish(side);
}

static void a_peer_that_is_busy_is_not_waited_for(void **state)
{
    (void)state;
    run_pair(false, get_alone, come_late);
}

static void get_first_half(side_t *side)
{
    begin(side);
    op_t op = assisted_op(side, 3, LONG);
    REQUIRE(post(&op) == REGX_PENDING);
    meet(side); /* it works */
    meet(side);
    while (op.ended == 0) {
        REQUIRE(regx_shm_progress(side->transport) > 0);
    }
    assert_got(&op);
    REQUIRE(side->counters.chunks_receiver == 2);
    uint64_t theirs;
    pair_hear(side->socket, &theirs, sizeof(theirs));
    const uint64_t bytes = side->counters.transport[REGX_COUNTER_bytes_shm];
    REQUIRE(bytes + theirs == LONG && bytes - theirs <= 2 * REGX_CLAIM_PAGE);
    op_free(&op);
    finish(side);
}

static void write_second_half(side_t *side)
{
    begin(side);
    meet(side);
    work_alone(side);
    REQUIRE(side->counters.chunks_sender == 2 && side->counters.chunks_receiver == 0);
    meet(side);
    const uint64_t bytes = side->counters.transport[REGX_COUNTER_bytes_shm];
    pair_tell(side->socket, &bytes, sizeof(bytes));
    finish(side);
}

static void the_peer_copies_the_second_half(void **state)
{
    (void)state;
    run_pair(false, get_first_half, write_second_half);
}

static void get_the_rest(side_t *side)
{
    begin(side);
    op_t op = assisted_op(side, 3, ZONE - 3);
    REQUIRE(post(&op) == REGX_PENDING);
    meet(side); /* it makes one step */
    meet(side);
    await(side, &op);
    assert_got(&op);
    REQUIRE(side->counters.chunks_receiver > 3);
    const uint64_t theirs = ZONE - 3 - side->counters.transport[REGX_COUNTER_bytes_shm];
    REQUIRE(theirs <= STEP && theirs > STEP - REGX_CLAIM_PAGE); /* the last page is not whole */
    op_free(&op);
    finish(side);
}

static void assist_once(side_t *side)
{
    begin(side);
    meet(side);
    regx_shm_progress(side->transport);
    REQUIRE(side->counters.chunks_sender == 1);
    meet(side);
    finish(side);
}

static void what_the_peer_does_not_claim_is_read(void **state)
{
    (void)state;
    run_pair(false, get_the_rest, assist_once);
}

/* ---- several gets ---- */

static uint32_t claimed(const side_t *side, unsigned cell)
{
    const regx_assists_t *assists = &side->shm->assists;

    return regx_claim_look(&assists->cells[cell], assists->gets[cell].number);
}

static void get_two(side_t *side)
{
    begin(side);
    op_t ops[] = {assisted_op(side, 0, TWO), assisted_op(side, 1, TWO)};
    REQUIRE(post(&ops[0]) == REGX_PENDING && post(&ops[1]) == REGX_PENDING);
    meet(side); /* it makes a step */
    meet(side);
    REQUIRE(claimed(side, 0) > 0 && claimed(side, 1) == 0);
    meet(side); /* another */
    meet(side);
    REQUIRE(claimed(side, 1) > 0);
    for (unsigned i = 0; i < 2; i++) {
        await(side, &ops[i]);
        assert_got(&ops[i]);
        op_free(&ops[i]);
    }
    finish(side);
}

static void assist_twice(side_t *side)
{
    begin(side);
    for (unsigned i = 1; i <= 2; i++) {
        meet(side);
        regx_shm_progress(side->transport);
        REQUIRE(side->counters.chunks_sender == i);
        meet(side);
    }
    finish(side);
}

static void the_peer_helps_with_the_oldest(void **state)
{
    (void)state;
    run_pair(false, get_two, assist_twice);
}

/* Of a peer that helps, the second halves are left to it while there are first ones to read. */
static void get_first_halves_first(side_t *side)
{
    begin(side);
    for (unsigned helps = 0; helps < 2; helps++) {
        op_t ops[] = {assisted_op(side, 0, TWO), assisted_op(side, 1, TWO)};
        const uint64_t before = side->counters.chunks_receiver;

        regx_shm_conn_of(side->conn)->assisted = helps != 0; /* with the last get */
        REQUIRE(post(&ops[0]) == REGX_PENDING && post(&ops[1]) == REGX_PENDING);
        while (side->counters.chunks_receiver < before + 2) {
            regx_shm_progress(side->transport);
        }
        REQUIRE(ops[0].ended == 1 - helps && ops[1].ended == 0);
        for (unsigned i = 0; i < 2; i++) {
            await(side, &ops[i]);
            assert_got(&ops[i]);
            REQUIRE(ops[i].order == 2 * helps + i);
            op_free(&ops[i]);
        }
        REQUIRE(!regx_shm_conn_of(side->conn)->assisted);
    }
    finish(side);
}

static void idle(side_t *side)
{
    begin(side);
    finish(side);
}

static void what_the_peer_may_take_is_read_last(void **state)
{
    (void)state;
    run_pair(false, get_first_halves_first, idle);
}

/* ---- both ways ---- */

static void get_and_wait(side_t *side)
{
    begin(side);
    op_t op = assisted_op(side, 5, LONG);
    REQUIRE(post(&op) == REGX_PENDING);
    meet(side);
    meet(side);
    await(side, &op);
    assert_got(&op);
    op_free(&op);
    finish(side);
}

static void get_before_helping(side_t *side)
{
    begin(side);
    meet(side);
    op_t op = assisted_op(side, 5, LONG);
    REQUIRE(post(&op) == REGX_PENDING);
    REQUIRE(side->shm->assists.free == &side->shm->assists.gets[0]); /* who is busy is not asked */
    while (op.ended == 0) {
        REQUIRE(regx_shm_progress(side->transport) > 0);
        REQUIRE(side->counters.chunks_sender == 0);
    }
    assert_got(&op);
    op_free(&op);
    work_alone(side);
    REQUIRE(side->counters.chunks_sender > 0);
    meet(side);
    finish(side);
}

static void own_gets_come_first(void **state)
{
    (void)state;
    run_pair(false, get_and_wait, get_before_helping);
}

/* Twice: in both orders. */
static void ask_in_vain(side_t *side)
{
    begin(side);
    for (unsigned i = 0; i < 2; i++) {
        op_t op = assisted_op(side, 5, LONG);

        REQUIRE(post(&op) == REGX_PENDING);
        REQUIRE(side->shm->assists.free != &side->shm->assists.gets[0]);
        meet(side); /* it gets, too */
        meet(side);
        while (op.ended == 0) {
            REQUIRE(regx_shm_progress(side->transport) > 0);
            REQUIRE(side->shm->assists.free == &side->shm->assists.gets[0]);
        }
        assert_got(&op);
        op_free(&op);
        REQUIRE(side->counters.chunks_receiver == 0);
        REQUIRE(side->counters.transport[REGX_COUNTER_bytes_shm] == (i + 1) * LONG);
        meet(side); /* it goes on */
        meet(side);
    }
    finish(side);
}

static void be_busy(side_t *side)
{
    begin(side);
    for (unsigned i = 0; i < 2; i++) {
        op_t op = op_new(side->conn, true, 5, LONG);

        meet(side);
        REQUIRE(post(&op) == REGX_PENDING);
        meet(side);
        meet(side);
        work_alone(side);
        assert_got(&op);
        op_free(&op);
        REQUIRE(side->counters.chunks_sender == 0 && side->counters.malformed == 0);
        REQUIRE(side->shm->requests.count == 0);
        meet(side);
    }
    finish(side);
}

static void a_request_to_a_busy_peer_is_taken_back(void **state)
{
    (void)state;
    run_pair(false, ask_in_vain, be_busy);
}

/* ---- bounds ---- */

static void get_more_than_cells(side_t *side)
{
    enum { MANY = REGX_ASSIST_CELLS + 8 };
    static op_t ops[MANY];

    begin(side);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < MANY; i++) {
            ops[i] = assisted_op(side, i, REGX_ASSIST_MIN + i);
            REQUIRE(post(&ops[i]) == REGX_PENDING);
        }
        REQUIRE(side->shm->assists.free == NULL);
        for (unsigned i = 0; i < MANY; i++) {
            await(side, &ops[i]);
            assert_got(&ops[i]);
            op_free(&ops[i]);
        }
        unsigned cells = 0;
        for (const regx_assisted_t *a = side->shm->assists.free; a != NULL; a = a->next_free) {
            cells++;
        }
        REQUIRE(cells == REGX_ASSIST_CELLS);
    }
    finish(side);
}

static void without_a_cell_a_get_is_a_plain_one(void **state)
{
    (void)state;
    run_pair(false, get_more_than_cells, serve);
}

/* ---- turns of connections ---- */

static void get_past_another_peers(side_t *side)
{
    regx_shm_address_t own;
    regx_status_t status;

    begin(side);
    side_address(side, &own);
    regx_conn_t *self = side_connect(side, PARENT, &own);
    while ((status = regx_shm_send(self, 1, "", 0, NULL, NULL, 0)) == REGX_AGAIN) {
        progress(side);
    }
    REQUIRE(status == REGX_OK);
    op_t ops[] = {op_new(side->conn, true, 0, ZONE), op_new(side->conn, true, 1, ZONE - 1),
                  op_new(side->conn, true, 2, ZONE - 2), op_new(self, true, 9, 99)};
    for (unsigned i = 0; i < 4; i++) {
        REQUIRE(post(&ops[i]) == REGX_PENDING);
    }
    regx_shm_progress(side->transport);
    regx_shm_progress(side->transport);
    REQUIRE(ops[3].ended == 1 && orders == 1);
    while (orders < 4) {
        progress(side);
    }
    for (unsigned i = 0; i < 4; i++) {
        assert_got(&ops[i]);
        op_free(&ops[i]);
    }
    regx_shm_disconnect(self);
    finish(side);
}

static void a_get_does_not_wait_for_long_ones_from_another_peer(void **state)
{
    (void)state;
    run_pair(false, get_past_another_peers, serve);
}

/* ---- copies at once ---- */

static void get_while_the_peer_copies(side_t *side)
{
    const _Atomic uint64_t *overlapped = &side->counters.transport[REGX_COUNTER_copies_overlapped];

    begin(side);
    for (unsigned i = 0; i < 2; i++) {
        meet(side); /* first it copies, then not */
        for (unsigned piece = 0; piece < 2 * REGX_PIECE_LOOKS; piece++) {
            op_t op = op_new(side->conn, true, 0, 100);

            REQUIRE(post(&op) == REGX_PENDING);
            regx_shm_progress(side->transport);
            assert_got(&op);
            op_free(&op);
            REQUIRE(regx_shm_main(side->shm)->copying == 0);
        }
        REQUIRE(*overlapped == 2);
        meet(side);
    }
    finish(side);
}

static void pretend_to_copy(side_t *side)
{
    begin(side);
    for (uint32_t i = 0; i < 2; i++) {
        regx_shm_main(side->shm)->copying = 1 - i;
        meet(side);
        meet(side);
    }
    finish(side);
}

static void a_copy_begun_while_the_peer_copies_is_counted(void **state)
{
    (void)state;
    run_pair(false, get_while_the_peer_copies, pretend_to_copy);
}

/* ---- threads ---- */

typedef struct thread_part {
    op_t ops[EACH];
    pthread_t thread;
} thread_part_t;

static void *post_all(void *context)
{
    thread_part_t *part = context;

    for (unsigned i = 0; i < EACH; i++) {
        REQUIRE(post(&part->ops[i]) == REGX_PENDING);
    }
    return NULL;
}

static void get_by_threads(side_t *side)
{
    static thread_part_t parts[THREADS];

    begin(side);
    for (unsigned t = 0; t < THREADS; t++) {
        for (unsigned i = 0; i < EACH; i++) {
            parts[t].ops[i] = assisted_op(side, t * 1000 + i, REGX_ASSIST_MIN / 2 * (1 + i % 4));
        }
        REQUIRE(pthread_create(&parts[t].thread, NULL, post_all, &parts[t]) == 0);
    }
    while (orders < THREADS * EACH) {
        progress(side);
    }
    for (unsigned t = 0; t < THREADS; t++) {
        pthread_join(parts[t].thread, NULL);
        for (unsigned i = 0; i < EACH; i++) {
            assert_got(&parts[t].ops[i]);
            op_free(&parts[t].ops[i]);
        }
    }
    REQUIRE(atomic_load(&side->shm->copy_count) == side->shm->requests.count);
    finish(side);
}

static void any_thread_may_get(void **state)
{
    (void)state;
    side_threads = true;
    run_pair(false, get_by_threads, serve);
    run_pair(false, get_by_threads, get_by_threads);
    side_threads = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_length_is_got),
        cmocka_unit_test(a_peer_that_is_busy_is_not_waited_for),
        cmocka_unit_test(the_peer_copies_the_second_half),
        cmocka_unit_test(what_the_peer_does_not_claim_is_read),
        cmocka_unit_test(the_peer_helps_with_the_oldest),
        cmocka_unit_test(what_the_peer_may_take_is_read_last),
        cmocka_unit_test(own_gets_come_first),
        cmocka_unit_test(a_request_to_a_busy_peer_is_taken_back),
        cmocka_unit_test(without_a_cell_a_get_is_a_plain_one),
        cmocka_unit_test(a_get_does_not_wait_for_long_ones_from_another_peer),
        cmocka_unit_test(a_copy_begun_while_the_peer_copies_is_counted),
        cmocka_unit_test(any_thread_may_get),
    };

    return cmocka_run_group_tests_name("assist", tests, NULL, NULL);
}
