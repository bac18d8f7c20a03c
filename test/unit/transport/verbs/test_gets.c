/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Gets over a real device bring every byte and none beyond, however many are under way; those that
 * fail bring none.
 */
#include "sides.h"

#include <stdlib.h>

/* All lengths, in one segment and in several. Nothing beyond is read or written. The peer gets no
 * event. */
static void gets_of_every_length_bring_their_bytes_and_none_beyond(void **state)
{
    regx_mr_t into, remote;

    (void)state;
    sides_open(false);

    uint8_t *to = malloc(4 * MIB), *from = malloc(4 * MIB);
    side_send(&one, 1, 1, 1);
    side_await(&two.delivered, 1);
    side_reg(&one, to, 4 * MIB, REGX_ACCESS_LOCAL_WRITE, &into);
    side_reg(&two, from + 100, 3 * MIB, REGX_ACCESS_REMOTE_READ, &remote);
    for (size_t length = 1, i = 1; length <= 3 * MIB; length = length * 7 + 13, i++) {
        const size_t start = 3 * MIB - length;
        regx_get_t get = side_new_get(to + 7, length, &into, &remote, start);

        verbs_of(&one)->can.segment_max = i % 2 == 0 ? 4096 * i : 1u << 30;
        memset(to, 0xee, 4 * MIB);
        unit_fill(from + 100 + start, length, length, 0);
        assert_int_equal(regx_transport_ops.get(one.conn, &get), REGX_PENDING);
        side_await(&done_ok, (unsigned)i);
        assert_true(unit_is_filled(to + 7, length, length));
        assert_int_equal(to[6], 0xee);
        assert_int_equal(to[7 + length], 0xee);
        get.offset++; /* a byte further than it goes */
        assert_int_equal(regx_transport_ops.get(one.conn, &get), REGX_INVALID);
        get.offset = UINT64_MAX;
        assert_int_equal(regx_transport_ops.get(one.conn, &get), REGX_INVALID);
        get = side_new_get(to + 4 * MIB - length + 1, length, &into, &remote, 0);
        assert_int_equal(regx_transport_ops.get(one.conn, &get), REGX_INVALID);
    }
    assert_int_equal(two.delivered, 1);
    regx_transport_ops.dereg(one.transport, &into);
    regx_transport_ops.dereg(two.transport, &remote);
    sides_close();
    free(from);
    free(to);
}

/* Far more than may be under way at once, and frames overtake them. */
static void queued_gets_end_in_order(void **state)
{
    enum { GETS = 100, LENGTH = 50000 };
    static regx_get_t gets[GETS];
    regx_mr_t into, remote;

    (void)state;
    sides_open(false);

    uint8_t *to = calloc(GETS, LENGTH), *from = malloc((size_t)GETS * LENGTH);
    side_send(&one, 1, 1, 1);
    side_await(&two.delivered, 1);
    const regx_ep_t *ep = regx_ep_find(verbs_of(&one), TWO);
    assert_in_range(ep->gets.max, 1, REGX_VERBS_READS);
    side_reg(&one, to, (size_t)GETS * LENGTH, REGX_ACCESS_LOCAL_WRITE, &into);
    side_reg(&two, from, (size_t)GETS * LENGTH, REGX_ACCESS_REMOTE_READ, &remote);
    for (unsigned i = 0; i < GETS; i++) {
        unit_fill(from + (size_t)i * LENGTH, LENGTH, i, 0);
        gets[i] =
            side_new_get(to + (size_t)i * LENGTH, LENGTH, &into, &remote, (uint64_t)i * LENGTH);
        assert_int_equal(regx_transport_ops.get(one.conn, &gets[i]), REGX_PENDING);
        assert_in_range(ep->gets.posted, 1, ep->gets.max);
    }
    side_send(&one, 2, 2, 100);
    assert_non_null(ep->gets.first); /* it did not wait for them */
    while (done_ok < GETS) {
        sides_progress();
        assert_in_range(ep->gets.posted, 0, ep->gets.max);
    }
    for (unsigned i = 0; i < GETS; i++) {
        assert_true(unit_is_filled(to + (size_t)i * LENGTH, LENGTH, i));
    }
    side_await(&two.delivered, 2);
    assert_int_equal(ep->gets.posted, 0);
    regx_transport_ops.dereg(one.transport, &into);
    regx_transport_ops.dereg(two.transport, &remote);
    sides_close();
    free(from);
    free(to);
}

/* Gets of memory that cannot be read (any more) fail, all of them, and none brings a byte of it: a
 * dead key, one that grants writing alone, and a queue pair that is cut. */
static void gets_of_what_cannot_be_read_all_end_and_bring_no_byte(void **state)
{
    enum { GETS = 20 };
    regx_get_t gets[GETS];

    (void)state;
    for (int how = 0; how < 3; how++) {
        regx_mr_t into, remote;

        sides_open(false);
        uint8_t *to = malloc(MIB), *from = calloc(1, MIB);
        side_send(&one, 1, 1, 1);
        side_await(&two.delivered, 1);
        side_reg(&one, to, MIB, REGX_ACCESS_LOCAL_WRITE, &into);
        side_reg(&two, from, MIB, how == 1 ? REGX_ACCESS_REMOTE_WRITE : REGX_ACCESS_REMOTE_READ,
                 &remote);
        memset(to, 0xee, MIB);
        for (int i = 0; i < GETS; i++) {
            gets[i] = side_new_get(to, MIB, &into, &remote, 0);
        }
        if (how == 0) {
            regx_transport_ops.dereg(two.transport, &remote);
        }
        for (int i = 0; i < GETS; i++) {
            assert_int_equal(regx_transport_ops.get(one.conn, &gets[i]), REGX_PENDING);
        }
        if (how == 2) {
            regx_transport_ops.disconnect(one.conn);
            one.conn = NULL;
            assert_int_equal(done_ok + done_failed, GETS);
        } else {
            side_await(&one.broken, 1);
            sides_settle();
            assert_int_equal(done_ok, 0);
            assert_non_null(strstr(one.what, "RDMA READ: "));
            assert_non_null(strstr(one.what, "remote access error"));
            for (size_t i = 0; i < MIB; i++) {
                assert_int_equal(to[i], 0xee);
            }
            assert_int_equal(regx_transport_ops.get(one.conn, &gets[0]), REGX_UNREACHABLE);
        }
        assert_int_equal(done_failed + done_ok, GETS);
        regx_transport_ops.dereg(one.transport, &into);
        if (how > 0) {
            regx_transport_ops.dereg(two.transport, &remote);
        }
        sides_close();
        free(from);
        free(to);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gets_of_every_length_bring_their_bytes_and_none_beyond),
        cmocka_unit_test(queued_gets_end_in_order),
        cmocka_unit_test(gets_of_what_cannot_be_read_all_end_and_bring_no_byte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
