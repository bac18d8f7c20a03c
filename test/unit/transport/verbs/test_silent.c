/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Silent puts, and gets without a region: one request each, which the peer does not notice. Those
 * that fail bring nothing.
 */
#include "sides.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"

enum { LONG = 2 * MIB, EDGE = 16 };

static regx_put_t new_put(const void *local, size_t length, const regx_mr_t *from,
                          const regx_mr_t *to, uint64_t offset)
{
    return (regx_put_t){.local = local,
                        .length = length,
                        .region = from,
                        .target = REGX_TARGET_REGION,
                        .offset = offset,
                        .key = to->key,
                        .silent = true,
                        .done = side_put_done};
}

typedef struct stage {
    uint8_t *mine, *theirs; /* of LONG bytes and edges */
    regx_mr_t local, remote;
    regx_ep_t *ep; /* of `one` to `two` */
} stage_t;

static stage_t stage;

/* Both are connected, and there is memory on both sides. */
static void open_stage(void)
{
    alarm(UNIT_PATIENCE); /* a hang is a failure, not the end of all tests */
    sides_open(false);
    stage.mine = calloc(1, LONG + 2 * EDGE);
    stage.theirs = calloc(1, LONG + 2 * EDGE);
    side_reg(&one, stage.mine, LONG + 2 * EDGE, REGX_ACCESS_LOCAL_WRITE, &stage.local);
    side_reg(&two, stage.theirs, LONG + 2 * EDGE,
             REGX_ACCESS_REMOTE_WRITE | REGX_ACCESS_REMOTE_READ, &stage.remote);
    side_send(&one, 1, 1, 1);
    side_await(&two.delivered, 1);
    stage.ep = regx_ep_find(verbs_of(&one), TWO);
}

static void close_stage(void)
{
    assert_int_equal(two.immediates, 0);
    regx_transport_ops.dereg(one.transport, &stage.local);
    regx_transport_ops.dereg(two.transport, &stage.remote);
    sides_close();
    free(stage.mine);
    free(stage.theirs);
}

/* Nothing was written around those bytes. */
static void assert_edges(const uint8_t *at, size_t length)
{
    for (int i = 1; i <= EDGE; i++) {
        assert_int_equal(at[-i], 0xee);
        assert_int_equal(at[length + (size_t)i - 1], 0xee);
    }
}

static void puts_are_one_request_that_the_peer_does_not_notice(void **state)
{
    (void)state;
    open_stage();
    const size_t sizes[] = {1, 8, 288, 289, 1025, 16384, LONG};

    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int registered = sizes[i] > one.transport->silent_copied; registered < 2;
             registered++) {
            const uint64_t posted = stage.ep->sq.posted, stream = 2 * i + (unsigned)registered;
            const unsigned before = done_ok;
            regx_put_t put = new_put(stage.mine + EDGE, sizes[i], registered ? &stage.local : NULL,
                                     &stage.remote, EDGE);

            memset(stage.theirs, 0xee, LONG + 2 * EDGE);
            unit_fill(stage.mine + EDGE, sizes[i], stream, 0);
            assert_int_equal(regx_transport_ops.put(one.conn, &put), REGX_PENDING);
            if (!registered) { /* it was copied */
                memset(stage.mine, 0xdd, LONG);
            }
            assert_int_equal(stage.ep->sq.posted - posted, 1);
            side_await(&done_ok, before + 1);
            assert_true(unit_is_filled(stage.theirs + EDGE, sizes[i], stream));
            assert_edges(stage.theirs + EDGE, sizes[i]);
        }
    }
    assert_int_equal(two.delivered, 1); /* that which connected */
    close_stage();
}

/* What cannot be registered goes all the same. */
static void a_long_put_without_a_region_is_copied_in_segments(void **state)
{
    (void)state;
    open_stage();
    const uint64_t posted = stage.ep->sq.posted;
    regx_put_t put = new_put(stage.mine + EDGE, LONG, NULL, &stage.remote, EDGE);

    memset(stage.theirs, 0xee, LONG + 2 * EDGE);
    unit_fill(stage.mine + EDGE, LONG, 5, 0);
    assert_int_equal(regx_transport_ops.put(one.conn, &put), REGX_PENDING);
    side_await(&done_ok, 1);
    assert_true(unit_is_filled(stage.theirs + EDGE, LONG, 5));
    assert_edges(stage.theirs + EDGE, LONG);
    assert_true(stage.ep->sq.posted - posted >= LONG / one.transport->silent_copied);
    assert_int_equal(two.delivered, 1);
    close_stage();
}

static void gets_without_a_region_are_one_request(void **state)
{
    (void)state;
    open_stage();
    const size_t sizes[] = {1, 8, 1025, 16384};

    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const uint64_t posted = stage.ep->sq.posted;
        regx_get_t get = side_new_get(stage.mine + EDGE, sizes[i], NULL, &stage.remote, 100);

        memset(stage.mine, 0xee, LONG);
        unit_fill(stage.theirs + 100, sizes[i], i, 0);
        assert_int_equal(regx_transport_ops.get(one.conn, &get), REGX_PENDING);
        assert_int_equal(stage.ep->sq.posted - posted, 1);
        side_await(&done_ok, i + 1);
        assert_true(unit_is_filled(stage.mine + EDGE, sizes[i], i));
        assert_edges(stage.mine + EDGE, sizes[i]);
    }
    regx_get_t longer =
        side_new_get(stage.mine, one.transport->silent_copied + 1, NULL, &stage.remote, 0);
    assert_int_equal(regx_transport_ops.get(one.conn, &longer), REGX_INVALID);
    assert_int_equal(two.delivered, 1);
    close_stage();
}

/* More than there are slots and requests, and frames beside them. */
static void many_are_made_each_once_and_hold_up_no_frame(void **state)
{
    (void)state;
    open_stage();
    enum { MANY = 600, LENGTH = 1000 };
    static regx_put_t puts[MANY];
    static regx_get_t gets[MANY];
    unsigned put = 0, got = 0, sent = 0;

    for (unsigned i = 0; i < MANY; i++) {
        const size_t at = (size_t)i * LENGTH;

        unit_fill(stage.mine + at, LENGTH, i, 0);
        unit_fill(stage.theirs + MIB + at, LENGTH, MANY + i, 0);
        puts[i] = new_put(stage.mine + at, LENGTH, NULL, &stage.remote, at);
        gets[i] = side_new_get(stage.mine + MIB + at, LENGTH, NULL, &stage.remote, MIB + at);
    }
    while (put < MANY || got < MANY || done_ok < 2 * MANY) {
        while (put < MANY && regx_transport_ops.put(one.conn, &puts[put]) == REGX_PENDING) {
            put++;
            assert_true(stage.ep->puts.first == NULL ||
                        stage.ep->puts.first == stage.ep->puts.last);
        }
        while (got < MANY && regx_transport_ops.get(one.conn, &gets[got]) == REGX_PENDING) {
            got++;
        }
        sides_progress();
        sent += sent < 20 && side_try(one.conn, 100) == REGX_OK;
    }
    assert_int_equal(sent, 20);
    side_await(&two.delivered, 21);
    assert_int_equal(done_ok, 2 * MANY);
    for (unsigned i = 0; i < MANY; i++) {
        assert_true(unit_is_filled(stage.theirs + (size_t)i * LENGTH, LENGTH, i));
        assert_true(unit_is_filled(stage.mine + MIB + (size_t)i * LENGTH, LENGTH, MANY + i));
    }
    assert_int_equal(stage.ep->gets.posted, 0);
    close_stage();
}

/* Whoever has others' puts before it is not turned away again and again; but there is one at most,
 * so that frames have their turn. */
static void one_waits_behind_puts_of_others(void **state)
{
    (void)state;
    open_stage();
    regx_put_t other = new_put(stage.mine, MIB, NULL, &stage.remote, 0);
    regx_put_t puts[] = {new_put(stage.mine + MIB, 1000, NULL, &stage.remote, MIB),
                         new_put(stage.mine + MIB + 1000, 1000, NULL, &stage.remote, MIB + 1000)};

    unit_fill(stage.mine, MIB, 1, 0);
    unit_fill(stage.mine + MIB, 1000, 2, 0);
    unit_fill(stage.mine + MIB + 1000, 1000, 3, 0);
    other.silent = false;
    other.notice_length = 3;
    assert_int_equal(regx_transport_ops.put(one.conn, &other), REGX_PENDING);
    assert_ptr_equal(stage.ep->puts.first, &other); /* it is too long to be copied at once */
    assert_int_equal(regx_transport_ops.accepts(one.conn, true), REGX_OK);
    assert_int_equal(regx_transport_ops.put(one.conn, &puts[0]), REGX_PENDING);
    assert_int_equal(regx_transport_ops.accepts(one.conn, true), REGX_AGAIN);
    assert_int_equal(regx_transport_ops.accepts(one.conn, false), REGX_OK); /* a get */
    assert_int_equal(regx_transport_ops.put(one.conn, &puts[1]), REGX_AGAIN);
    side_await(&done_ok, 2);
    assert_int_equal(regx_transport_ops.put(one.conn, &puts[1]), REGX_PENDING);
    side_await(&done_ok, 3);
    side_await(&two.delivered, 2); /* the notice of the other */
    assert_true(unit_is_filled(stage.theirs, MIB, 1));
    assert_true(unit_is_filled(stage.theirs + MIB, 1000, 2));
    assert_true(unit_is_filled(stage.theirs + MIB + 1000, 1000, 3));
    close_stage();
}

static void what_leads_outside_or_is_no_silent_put_is_invalid(void **state)
{
    (void)state;
    open_stage();
    regx_put_t put = new_put(stage.mine, 0, NULL, &stage.remote, 0);

    assert_int_equal(regx_transport_ops.put(one.conn, &put), REGX_INVALID);
    put = new_put(stage.mine, 8, NULL, &stage.remote, LONG + 2 * EDGE - 7);
    assert_int_equal(regx_transport_ops.put(one.conn, &put), REGX_INVALID);
    put = new_put(stage.mine, 8, NULL, &stage.remote, UINT64_MAX - 3);
    assert_int_equal(regx_transport_ops.put(one.conn, &put), REGX_INVALID);
    put = new_put(stage.mine, 8, NULL, &stage.remote, 0);
    put.target = REGX_TARGET_POOL;
    assert_int_equal(regx_transport_ops.put(one.conn, &put), REGX_INVALID);
    for (size_t i = 0; i < LONG + 2 * EDGE; i++) {
        assert_int_equal(stage.theirs[i], 0);
    }
    put = new_put(stage.mine, 8, NULL, &stage.remote, LONG + 2 * EDGE - 8); /* the last inside */
    assert_int_equal(regx_transport_ops.put(one.conn, &put), REGX_PENDING);
    side_await(&done_ok, 1);
    close_stage();
}

/* By a key that is dead, one for reading alone or writing alone, or none at all, the device
 * refuses: the connection breaks, all end once, no byte came and no slot is lost. */
static void by_a_wrong_key_nothing_is_written_or_read(void **state)
{
    enum { BOTH = 2, EACH = 10, KEYS = 3 };
    regx_put_t puts[EACH];
    regx_get_t gets[EACH];

    (void)state;
    for (int how = 0; how < BOTH * KEYS; how++) {
        const bool writes = how % BOTH == 0;
        regx_mr_t remote;

        sides_open(false);
        uint8_t *mine = calloc(1, MIB), *theirs = calloc(1, MIB);
        side_send(&one, 1, 1, 1);
        side_await(&two.delivered, 1);
        side_reg(&two, theirs, MIB, writes ? REGX_ACCESS_REMOTE_READ : REGX_ACCESS_REMOTE_WRITE,
                 &remote);
        const regx_mr_t given = remote;
        if (how / BOTH == 1) {
            regx_transport_ops.dereg(two.transport, &remote);
        } else if (how / BOTH == 2) {
            remote.key.bytes[16] ^= 0x5a; /* in the device's key */
        }
        memset(mine, 0xee, MIB);
        memset(theirs, 0xdd, MIB);
        for (int i = 0; i < EACH; i++) {
            puts[i] = new_put(mine, 1000, NULL, &remote, 0);
            gets[i] = side_new_get(mine, 1000, NULL, &remote, 0);
            assert_int_equal(writes ? regx_transport_ops.put(one.conn, &puts[i])
                                    : regx_transport_ops.get(one.conn, &gets[i]),
                             REGX_PENDING);
        }
        side_await(&one.broken, 1);
        sides_settle();
        assert_int_equal(done_ok, 0);
        assert_int_equal(done_failed, EACH);
        for (int i = 0; i < MIB; i++) {
            assert_int_equal(mine[i], 0xee);
            assert_int_equal(theirs[i], 0xdd);
        }
        assert_int_equal(verbs_of(&one)->buffers.slot_count, REGX_VERBS_SLOTS);
        remote = given;
        if (how / BOTH != 1) {
            regx_transport_ops.dereg(two.transport, &remote);
        }
        sides_close();
        free(mine);
        free(theirs);
    }
}

/* The caller's memory is not touched from then on. */
static void disconnecting_ends_them(void **state)
{
    enum { EACH = 30, SEGMENT = 1000, AT = 2 * SEGMENT, FAR = MIB };
    regx_get_t gets[EACH], far_gets[EACH];
    regx_put_t puts[EACH];
    unsigned accepted = 0;

    (void)state;
    open_stage();
    memset(stage.theirs, 0xdd, LONG);
    for (int i = 0; i < EACH; i++) {
        puts[i] = new_put(stage.mine, SEGMENT, NULL, &stage.remote, 0);
        gets[i] = side_new_get(stage.mine, SEGMENT, NULL, &stage.remote, SEGMENT);
        far_gets[i] = side_new_get(stage.mine + AT, FAR, &stage.local, &stage.remote, SEGMENT);
        accepted += regx_transport_ops.put(one.conn, &puts[i]) == REGX_PENDING;
        accepted += regx_transport_ops.get(one.conn, &gets[i]) == REGX_PENDING;
        accepted += regx_transport_ops.get(one.conn, &far_gets[i]) == REGX_PENDING;
    }
    regx_transport_ops.disconnect(one.conn);
    one.conn = NULL;
    assert_int_equal(done_ok + done_failed, accepted);
    memset(stage.mine, 0xee, LONG);
    sides_settle();
    for (size_t i = 0; i < LONG; i++) {
        assert_int_equal(stage.mine[i], 0xee);
    }
    close_stage();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_are_one_request_that_the_peer_does_not_notice),
        cmocka_unit_test(a_long_put_without_a_region_is_copied_in_segments),
        cmocka_unit_test(gets_without_a_region_are_one_request),
        cmocka_unit_test(many_are_made_each_once_and_hold_up_no_frame),
        cmocka_unit_test(one_waits_behind_puts_of_others),
        cmocka_unit_test(what_leads_outside_or_is_no_silent_put_is_invalid),
        cmocka_unit_test(by_a_wrong_key_nothing_is_written_or_read),
        cmocka_unit_test(disconnecting_ends_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
