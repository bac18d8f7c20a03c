/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Gets on the node, alone and in one queue with puts: what the kernel copies between two processes.
 */
#include "../../process.h"
#include "copies.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "transport/counters.h"

enum { OPS = 24 };

/* ---- what they bring ---- */

static void get_each_length(side_t *side)
{
    static const size_t lengths[] = {1,        63,   4095,     4096,        4097,
                                     STEP - 1, STEP, STEP + 1, 2 * STEP + 5};

    begin(side);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (uint64_t offset = 0; offset <= ZONE - lengths[i]; offset += ZONE / 3 + 7) {
            const uint64_t before = side->counters.transport[REGX_COUNTER_bytes_shm];
            op_t op = op_new(side->conn, true, offset, lengths[i]);

            REQUIRE(post(&op) == REGX_PENDING);
            REQUIRE(op.ended == 0);
            while (op.ended == 0) {
                progress(side);
            }
            assert_got(&op);
            REQUIRE(side->counters.transport[REGX_COUNTER_bytes_shm] - before == lengths[i]);
            op_free(&op);
        }
    }
    REQUIRE(side->delivered == 1); /* nobody is told */
    finish(side);
}

static void each_length_is_got(void **state)
{
    (void)state;
    run_pair(false, get_each_length, get_each_length);
}

/* Whether the bytes of the operation there were written, wherever they come from. */
static bool has_arrived(const op_t *op, size_t at)
{
    static const uint8_t untouched[GUARD] = {
        [0 ... GUARD - 1] = 0xee}; /* a zone has no such run: it would fail everywhere */

    return memcmp(op->local + GUARD + at, untouched, GUARD) != 0;
}

static void get_in_both_orders(side_t *side)
{
    static const size_t lengths[] = {2 * STEP, STEP, 2 * STEP, 3 * STEP - 9, 2 * STEP + 7};
    static const bool from_end[] = {true, false, false, true,
                                    false}; /* one piece changes nothing */

    begin(side);
    for (unsigned i = 0; i < 5; i++) {
        op_t op = op_new(side->conn, true, i, lengths[i]);

        REQUIRE(post(&op) == REGX_PENDING);
        regx_shm_progress(side->transport);
        REQUIRE(has_arrived(&op, 0) == !from_end[i]);
        REQUIRE(has_arrived(&op, lengths[i] - GUARD) == (from_end[i] || lengths[i] == STEP));
        while (op.ended == 0) {
            progress(side);
        }
        assert_got(&op);
        op_free(&op);
    }
    finish(side);
}

static void every_other_get_of_several_pieces_begins_with_the_last(void **state)
{
    (void)state;
    run_pair(false, get_in_both_orders, serve);
}

static void get_and_put(side_t *side)
{
    static op_t ops[OPS];

    begin(side);
    for (unsigned i = 0; i < OPS; i++) {
        ops[i] = op_new(side->conn, i % 3 != 0, i * (ZONE / OPS), i % 5 == 2 ? ZONE / OPS : 1 + i);
        if (i % 7 == 1) { /* in steps */
            op_free(&ops[i]);
            ops[i] = op_new(side->conn, true, i, STEP + STEP / 2);
        }
        REQUIRE(post(&ops[i]) == REGX_PENDING);
    }
    while (orders < OPS) {
        progress(side);
    }
    for (unsigned i = 0; i < OPS; i++) {
        assert_got(&ops[i]);
        REQUIRE(ops[i].order == i);
        op_free(&ops[i]);
    }
    while (notices[1] < OPS / 3 - 1) { /* those of the other; 15 is a get */
        progress(side);
    }
    REQUIRE(notices[1] == OPS / 3 - 1);
    finish(side);
}

static void gets_and_puts_end_in_their_order(void **state)
{
    (void)state;
    run_pair(false, get_and_put, get_and_put);
}

static void get_behind_long_ones(side_t *side, bool get)
{
    op_t ops[] = {op_new(side->conn, get, 0, ZONE), op_new(side->conn, !get, 8, ZONE - 8),
                  op_new(side->conn, get, 0, ZONE), op_new(side->conn, true, 7, 100)};

    orders = 0;
    for (unsigned i = 0; i < 4; i++) {
        REQUIRE(post(&ops[i]) == REGX_PENDING);
    }
    while (orders < 4) {
        progress(side);
    }
    REQUIRE(ops[3].order == 0);
    for (unsigned i = 0; i < 4; i++) {
        assert_got(&ops[i]);
        op_free(&ops[i]);
    }
}

static void get_long_and_short(side_t *side)
{
    begin(side);
    get_behind_long_ones(side, false);
    get_behind_long_ones(side, true);
    finish(side);
}

static void a_short_get_does_not_wait_for_the_end_of_a_long_one(void **state)
{
    (void)state;
    run_pair(false, get_long_and_short, serve);
}

/* As many in one call of progress as make up 128 KiB, the last of which may go beyond. */
static void get_short_ones(side_t *side)
{
    enum { SHORT = 48 << 10, PER_CALL = 3 };
    op_t ops[2 * PER_CALL];

    begin(side);
    for (unsigned i = 0; i < 2 * PER_CALL; i++) {
        ops[i] = op_new(side->conn, true, i * SHORT, SHORT);
        REQUIRE(post(&ops[i]) == REGX_PENDING);
    }
    for (unsigned ended = PER_CALL; ended <= 2 * PER_CALL; ended += PER_CALL) {
        REQUIRE(regx_shm_progress(side->transport) == PER_CALL);
        REQUIRE(orders == ended);
    }
    for (unsigned i = 0; i < 2 * PER_CALL; i++) {
        assert_got(&ops[i]);
        REQUIRE(ops[i].order == i);
        op_free(&ops[i]);
    }
    finish(side);
}

static void a_call_of_progress_copies_several_short_gets(void **state)
{
    (void)state;
    run_pair(false, get_short_ones, serve);
}

/* What was copied last of one is copied first of the next. */
static void get_equal_ones(side_t *side)
{
    begin(side);
    op_t ops[] = {op_new(side->conn, true, 0, ZONE), op_new(side->conn, true, 0, ZONE)};
    REQUIRE(post(&ops[0]) == REGX_PENDING && post(&ops[1]) == REGX_PENDING);
    for (unsigned i = 0; i < ZONE / STEP; i++) {
        REQUIRE(ops[0].ended == 0 && !has_arrived(&ops[1], 0));
        regx_shm_progress(side->transport);
    }
    REQUIRE(ops[0].ended == 1);
    while (orders < 2) {
        progress(side);
    }
    for (unsigned i = 0; i < 2; i++) {
        assert_got(&ops[i]);
        op_free(&ops[i]);
    }
    finish(side);
}

static void gets_of_one_length_are_copied_one_after_the_other(void **state)
{
    (void)state;
    run_pair(false, get_equal_ones, serve);
}

/* ---- a neighbour that does not read ---- */

static void get_past_puts(side_t *side)
{
    op_t ops[] = {op_new(side->conn, false, 0, STEP + 1), op_new(side->conn, true, 5, STEP + 1),
                  op_new(side->conn, true, 6, 7), op_new(side->conn, false, ZONE - 9, 9),
                  op_new(side->conn, true, 8, STEP)};

    begin(side);
    while (regx_shm_send(side->conn, 1, "", 0, NULL, NULL, 0) == REGX_OK) {
    }
    for (unsigned i = 0; i < 5; i++) {
        REQUIRE(post(&ops[i]) == REGX_PENDING);
    }
    while (orders < 3) {
        progress(side);
    }
    for (unsigned i = 0; i < 100; i++) {
        progress(side);
    }
    REQUIRE(orders == 3 && ops[0].ended == 0 && ops[3].ended == 0);
    meet(side); /* now it reads */
    while (orders < 5) {
        progress(side);
    }
    for (unsigned i = 0; i < 5; i++) {
        assert_got(&ops[i]);
        op_free(&ops[i]);
    }
    finish(side);
}

static void read_late(side_t *side)
{
    begin(side);
    meet(side);
    while (notices[1] < 2) {
        progress(side);
    }
    finish(side);
}

/* A put that is copied, and whose notice finds no room, lets those behind it go on. */
static void gets_do_not_wait_for_a_full_mailbox(void **state)
{
    (void)state;
    run_pair(false, get_past_puts, read_late);
}

/* ---- what cannot be got ---- */

static void get_outside(side_t *side)
{
    const uint64_t offsets[] = {ZONE - 3, ZONE, ZONE + 1, UINT64_MAX, UINT64_MAX - 3};

    begin(side);
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        op_t op = op_new(side->conn, true, offsets[i], 4);

        REQUIRE(post(&op) == REGX_INVALID);
        REQUIRE(atomic_load(&side->shm->copy_count) == 0);
        for (size_t at = 0; at < 4; at++) {
            REQUIRE(op.local[GUARD + at] == 0xee);
        }
        REQUIRE(op.ended == 0);
        op_free(&op);
    }
    op_t last = op_new(side->conn, true, ZONE - 4, 4);
    REQUIRE(post(&last) == REGX_PENDING);
    while (last.ended == 0) {
        progress(side);
    }
    assert_got(&last);
    op_free(&last);
    finish(side);
}

static void nothing_is_got_outside_of_what_the_key_names(void **state)
{
    (void)state;
    run_pair(false, get_outside, serve);
}

static void get_what_is_not_there(side_t *side)
{
    op_t ops[] = {op_new(side->conn, true, 0, ZONE), op_new(side->conn, true, ZONE / 2, 1),
                  op_new(side->conn, true, ZONE / 2 - 5, 10),
                  op_new(side->conn, true, 0, ZONE / 2)};

    begin(side);
    meet(side); /* unmapped */
    for (unsigned i = 0; i < 4; i++) {
        REQUIRE(post(&ops[i]) == REGX_PENDING);
    }
    while (orders < 4) {
        progress(side);
    }
    for (unsigned i = 0; i < 4; i++) {
        REQUIRE(ops[i].ended == 1 && ops[i].order == i);
        REQUIRE(i == 3 || ops[i].status == REGX_FAILED);
        op_free(&ops[i]);
    }
    REQUIRE(ops[3].status == REGX_OK);
    finish(side);
}

static void unmap_half(side_t *side)
{
    begin(side);
    REQUIRE(munmap(zone + ZONE / 2, ZONE / 2) == 0);
    meet(side);
    finish(side);
}

static void what_is_not_there_cannot_be_got(void **state)
{
    (void)state;
    run_pair(false, get_what_is_not_there, unmap_half);
}

/* They add no bytes to the round: their number ends it. */
static void get_many_that_fail(side_t *side)
{
    enum { PER_CALL = 32, MANY = PER_CALL + 8 };
    op_t ops[MANY];

    begin(side);
    meet(side); /* unmapped */
    for (unsigned i = 0; i < MANY; i++) {
        ops[i] = op_new(side->conn, true, ZONE / 2 + i, 1);
        REQUIRE(post(&ops[i]) == REGX_PENDING);
    }
    REQUIRE(regx_shm_progress(side->transport) == PER_CALL);
    REQUIRE(orders == PER_CALL);
    REQUIRE(regx_shm_progress(side->transport) == MANY - PER_CALL);
    for (unsigned i = 0; i < MANY; i++) {
        REQUIRE(ops[i].ended == 1 && ops[i].order == i && ops[i].status == REGX_FAILED);
        op_free(&ops[i]);
    }
    finish(side);
}

static void a_call_of_progress_ends_among_gets_that_fail(void **state)
{
    (void)state;
    run_pair(false, get_many_that_fail, unmap_half);
}

/* The kernel allows it, then does not any more. */
static void get_while_allowed(side_t *side)
{
    op_t ops[] = {op_new(side->conn, true, 0, STEP + STEP / 2), op_new(side->conn, true, 0, 1)};

    begin(side);
    REQUIRE(post(&ops[0]) == REGX_PENDING && post(&ops[1]) == REGX_PENDING);
    regx_shm_progress(side->transport);
    REQUIRE(orders == 0);
    if (process_deny(SYS_process_vm_readv, EPERM)) {
        while (orders < 2) {
            progress(side);
        }
        REQUIRE(ops[0].status == REGX_DENIED && ops[1].status == REGX_DENIED);
    } else {
        printf("not tried: the kernel cannot be told to refuse\n");
        while (orders < 2) {
            progress(side);
        }
    }
    op_free(&ops[0]);
    op_free(&ops[1]);
    finish(side);
}

static void get_while_another_is_meant(side_t *side)
{
    begin(side);
    regx_shm_conn_of(side->conn)->vm.cookie.words[1] ^= 1;
    for (int i = 0; i < 2; i++) {
        op_t op = op_new(side->conn, true, 0, 1);

        REQUIRE(post(&op) == REGX_DENIED);
        REQUIRE(atomic_load(&side->shm->copy_count) == 0);
        REQUIRE(op.ended == 0);
        op_free(&op);
    }
    REQUIRE(strcmp(side->counters.fallbacks[0].reason, "process_vm: another process name space") ==
            0);
    finish(side);
}

static void the_kernel_may_refuse(void **state)
{
    (void)state;
    run_pair(false, serve, get_while_allowed);
    run_pair(false, get_while_another_is_meant, serve);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_length_is_got),
        cmocka_unit_test(every_other_get_of_several_pieces_begins_with_the_last),
        cmocka_unit_test(gets_and_puts_end_in_their_order),
        cmocka_unit_test(a_short_get_does_not_wait_for_the_end_of_a_long_one),
        cmocka_unit_test(a_call_of_progress_copies_several_short_gets),
        cmocka_unit_test(gets_of_one_length_are_copied_one_after_the_other),
        cmocka_unit_test(gets_do_not_wait_for_a_full_mailbox),
        cmocka_unit_test(nothing_is_got_outside_of_what_the_key_names),
        cmocka_unit_test(what_is_not_there_cannot_be_got),
        cmocka_unit_test(a_call_of_progress_ends_among_gets_that_fail),
        cmocka_unit_test(the_kernel_may_refuse),
    };

    return cmocka_run_group_tests_name("shm_gets", tests, NULL, NULL);
}
