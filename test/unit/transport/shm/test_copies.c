/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernel's copies on the node: in which order they are made, and what becomes of them where
 * they are refused.
 */
#include "../../process.h"
#include "shm_parties.h"

#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../pair.h"

static void every_other_get_of_several_pieces_begins_with_the_last(void **state)
{
    static const size_t lengths[] = {2 * PIECE, PIECE, 2 * PIECE, 3 * PIECE - 9, 2 * PIECE + 7};
    unsigned long_ones = 0;
    op_t op;

    for (unsigned i = 0; i < 20; i++) {
        const size_t length = lengths[i % 5], last = length - 64;

        get_start(&one, &op, 0, length, false);
        step(&one);
        if (length > PIECE) {
            const bool from_end = long_ones++ % 2 == 0;

            assert_int_equal(op.ended, 0);
            assert_int_equal(memcmp(sink, source, 64) == 0, !from_end);
            assert_int_equal(memcmp(sink + last, source + last, 64) == 0, from_end);
        }
        parties_await(&op.ended, 1);
        get_check(&op);
    }
}

/* Nor for those from another peer. */
static void a_short_get_does_not_wait_for_the_end_of_a_long_one(void **state)
{
    op_t ops[4];

    regx_conn_t *const to_two = one.conn;
    party_open(&three, THREE, false);
    party_connect(&one, &three);
    regx_conn_t *const to_three = one.conn;
    for (unsigned other = 0; other < 2; other++) {
        one.conn = to_two;
        for (unsigned i = 0; i < 3; i++) {
            get_start(&one, &ops[i], 0, SHM_ZONE, false);
        }
        one.conn = other != 0 ? to_three : to_two;
        get_start(&one, &ops[3], 7, 100, false);
        while (ops[3].ended == 0) {
            step(&one);
            assert_int_equal(ops[0].ended + ops[1].ended + ops[2].ended, 0);
        }
        for (unsigned i = 0; i < 3; i++) {
            parties_await(&ops[i].ended, 1);
        }
        get_check(&ops[2]);
    }
    tested->ops->disconnect(to_three);
    one.conn = to_two;
    party_close(&three);
}

/* A put that is copied, and whose notice finds no room, lets those behind it go on. */
static void gets_do_not_wait_for_a_full_mailbox(void **state)
{
    uint8_t *local = guarded_new(PIECE), *remote = guarded_new(PIECE);
    regx_mr_t region;
    op_t put, get;

    while (party_try(&one, 1, 1, 100) == REGX_OK) {
    }
    party_reg(&two, remote, PIECE, REGX_ACCESS_REMOTE_WRITE, &region);
    unit_fill(local, PIECE, 5, 0);
    op_put(&put, local, PIECE, REGX_TARGET_REGION, 0);
    put.put.key = region.key;
    assert_int_equal(regx_shm_put(one.conn, &put.put), REGX_PENDING);
    get_start(&one, &get, 8, PIECE, false);
    while (get.ended == 0) {
        step(&one);
    }
    get_check(&get);
    for (unsigned i = 0; i < 100; i++) {
        step(&one);
    }
    assert_int_equal(put.ended, 0);
    op_await(&put); /* now the other reads */
    assert_true(unit_is_filled(remote, PIECE, 5));
    guarded_free(local, PIECE);
    guarded_free(remote, PIECE);
}

/* ---- where the kernel refuses ---- */

/* It allows it, then does not any more. */
static void refused_on_the_way(void)
{
    op_t ops[2];

    in_child = true;
    shm_parties_open(false);
    zones_new();
    get_start(&one, &ops[0], 0, 2 * PIECE, false);
    get_start(&one, &ops[1], 0, 1, false);
    step(&one);
    if (!process_deny(SYS_process_vm_readv, EPERM)) {
        printf("not tried: the kernel cannot be told to refuse\n");
        return;
    }
    while (ops[0].ended + ops[1].ended < 2) {
        step(&one);
    }
    REQUIRE(ops[0].status == REGX_DENIED);
}

static void the_kernel_may_refuse_on_the_way(void **state)
{
    in_child_process(refused_on_the_way);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHM_TEST(every_other_get_of_several_pieces_begins_with_the_last),
        SHM_TEST(a_short_get_does_not_wait_for_the_end_of_a_long_one),
        SHM_TEST(gets_do_not_wait_for_a_full_mailbox),
        cmocka_unit_test(the_kernel_may_refuse_on_the_way),
    };

    return cmocka_run_group_tests_name("shm_copies", tests, NULL, NULL);
}
