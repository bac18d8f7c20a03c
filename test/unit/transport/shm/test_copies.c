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

    (void)state;
    shm_parties_open(false);
    zones_new();
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
    zones_free();
    parties_close();
}

/* Nor for those from another peer. */
static void a_short_get_does_not_wait_for_the_end_of_a_long_one(void **state)
{
    op_t ops[4];

    (void)state;
    shm_parties_open(false);
    zones_new();
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
    zones_free();
    parties_close();
}

/* A put that is copied, and whose notice finds no room, lets those behind it go on. */
static void gets_do_not_wait_for_a_full_mailbox(void **state)
{
    uint8_t *local = guarded_new(PIECE), *remote = guarded_new(PIECE);
    regx_mr_t region;
    op_t put, get;

    (void)state;
    shm_parties_open(false);
    zones_new();
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
    zones_free();
    parties_close();
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
    (void)state;
    in_child_process(refused_on_the_way);
}

/* Its memory would be another's. */
static void a_process_that_is_not_the_peer_is_not_copied_from(void **state)
{
    regx_mr_t remote = {.length = SHM_ZONE};
    op_t op;

    (void)state;
    shm_parties_open(false);
    zones_new();
    conn_of(&one)->peer.vm.cookie.words[1] ^= 1;
    regx_shm_expose(source, SHM_ZONE, &remote.key);
    for (int i = 0; i < 2; i++) {
        op_get(&op, sink, 1, NULL, &remote, 0);
        assert_int_equal(regx_shm_get(one.conn, &op.get), REGX_DENIED);
        assert_true(op.ended == 0 && sink[0] == 0xee);
    }
    assert_true(fell_back(&one, "process_vm: another process name space"));
    zones_free();
    parties_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_other_get_of_several_pieces_begins_with_the_last),
        cmocka_unit_test(a_short_get_does_not_wait_for_the_end_of_a_long_one),
        cmocka_unit_test(gets_do_not_wait_for_a_full_mailbox),
        cmocka_unit_test(the_kernel_may_refuse_on_the_way),
        cmocka_unit_test(a_process_that_is_not_the_peer_is_not_copied_from),
    };

    return cmocka_run_group_tests_name("shm_copies", tests, NULL, NULL);
}
