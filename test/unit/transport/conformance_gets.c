/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Conformance: gets. Each brings its bytes and none beside them; what the peer did not publish is
 * not read.
 */
#include "parties.h"

/* A get to the same place as it is from. */
static void get(readable_t *readable, size_t at, size_t length, bool assisted)
{
    op_t op;

    memset(readable->to + (at == 0 ? 0 : at - 1), 0xee, length + 2);
    op_get(&op, readable->to + at, length, &readable->into, &readable->remote, at);
    op.get.assisted = assisted;
    op_start_get(&one, &op);
    op_await(&op);
    assert_got(readable, at, length);
    assert_true((at == 0 || readable->to[at - 1] == 0xee) && readable->to[at + length] == 0xee);
}

/* Also with the hint that the peer may help. */
CONFORMANCE_TEST(gets_of_each_length_bring_their_bytes_alone)
{
    readable_t readable;
    op_t op;

    readable_new(&readable);
    const unsigned before = two.delivered;
    for (unsigned i = 0; i < 2 * LENGTHS; i++) {
        get(&readable, 4096 + i, op_lengths[i / 2], i % 2 != 0);
    }
    memset(readable.to, 0xee, REGION);
    for (size_t i = 0; i < OUTSIDE; i++) {
        op_get(&op, readable.to, 4, &readable.into, &readable.remote, outside[i]);
        assert_int_equal(tested->ops->get(one.conn, &op.get), REGX_INVALID);
        assert_int_equal(op.ended, 0);
    }
    parties_settle();
    assert_true(readable.to[0] == 0xee && readable.to[3] == 0xee);
    assert_int_equal(two.delivered, before); /* it does not notice */
    readable_free(&readable);
}

/* Many at once, of lengths that are drawn: each ends once, and none touches what another brings. */
CONFORMANCE_TEST(many_gets_and_puts_at_once_bring_all_bytes)
{
    enum { OPS = 60, ROUNDS = 2, EACH = 100000, ALL = OPS * EACH };
    static op_t ops[OPS];
    uint8_t *put_from = calloc(1, ALL), *put_to = calloc(1, ALL);
    uint8_t *got_from = calloc(1, ALL), *got_to = calloc(1, ALL);
    regx_mr_t from, to, remote, into;
    uint64_t random = 7;

    parties_exchange();
    party_reg(&one, put_from, ALL, REGX_ACCESS_LOCAL, &from);
    party_reg(&two, put_to, ALL, REGX_ACCESS_REMOTE_WRITE, &to);
    party_reg(&two, got_from, ALL, REGX_ACCESS_REMOTE_READ, &remote);
    party_reg(&one, got_to, ALL, REGX_ACCESS_LOCAL_WRITE, &into);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unit_fill(got_from, ALL, 2 * round, 0);
        unit_fill(put_from, ALL, 2 * round + 1, 0);
        for (unsigned i = 0; i < OPS; i++) {
            const uint64_t drawn = chance_next(&random);
            const size_t at = (size_t)i * EACH;
            const size_t length = 1 + (drawn >> 8) % (drawn % 2 == 0 ? EACH : 1024);

            if (i % 3 == 0) {
                op_put(&ops[i], put_from + at, length, REGX_TARGET_REGION, at);
                ops[i].put.key = to.key;
                ops[i].put.region = &from;
                op_start_put(&one, &ops[i]);
            } else {
                op_get(&ops[i], got_to + at, length, &into, &remote, at);
                ops[i].get.assisted = (drawn & 2) != 0;
                op_start_get(&one, &ops[i]);
            }
        }
        for (unsigned i = 0; i < OPS; i++) {
            const size_t at = (size_t)i * EACH;

            op_await(&ops[i]);
            if (i % 3 == 0) {
                assert_memory_equal(put_to + at, put_from + at, ops[i].put.length);
            } else {
                assert_memory_equal(got_to + at, got_from + at, ops[i].get.length);
            }
        }
        parties_settle();
    }
    tested->ops->dereg(one.transport, &from);
    tested->ops->dereg(two.transport, &to);
    tested->ops->dereg(two.transport, &remote);
    tested->ops->dereg(one.transport, &into);
    free(put_from);
    free(put_to);
    free(got_from);
    free(got_to);
}

static unsigned left;

static void start_next(op_t *op)
{
    if (left > 0) {
        left--;
        assert_int_equal(tested->ops->get(one.conn, &op->get), REGX_PENDING);
    }
}

CONFORMANCE_TEST(the_end_of_a_get_may_start_the_next)
{
    readable_t readable;
    op_t op;

    readable_new(&readable);
    left = 50;
    op_get(&op, readable.to, 100000, &readable.into, &readable.remote, 0);
    op.then = start_next;
    op_start_get(&one, &op);
    parties_await(&op.ended, 51);
    assert_got(&readable, 0, 100000);
    readable_free(&readable);
}

/* What is not there (any more) is not got: each get ends once, badly, and brings no byte. */
CONFORMANCE_TEST(gets_of_what_is_gone_fail)
{
    enum { GETS = 40 };
    static op_t ops[GETS];
    regx_mr_t into, remote;

    parties_exchange();
    uint8_t *to = guarded_new(MIB);
    void *from = unit_map(NULL, MIB);
    memset(to, 0xee, MIB);
    party_reg(&one, to, MIB, REGX_ACCESS_LOCAL_WRITE, &into);
    party_reg(&two, from, MIB, REGX_ACCESS_REMOTE_READ, &remote);
    tested->ops->dereg(two.transport, &remote);
    /* Nothing is there. The address stays taken, or the transport may map its own memory there. */
    assert_ptr_equal(mmap(from, MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                     from);
    unsigned begun = 0;
    for (unsigned i = 0; i < GETS; i++) {
        op_get(&ops[i], to, i % 2 == 0 ? MIB : 1, &into, &remote, 0);
        ops[i].get.assisted = i % 4 == 0;
        begun += tested->ops->get(one.conn, &ops[i].get) == REGX_PENDING;
    }
    assert_int_equal(begun, GETS);
    for (unsigned i = 0; i < GETS; i++) {
        parties_await(&ops[i].ended, 1);
        assert_int_not_equal(ops[i].status, REGX_OK);
    }
    assert_true(unit_is_all(to, MIB, 0xee));
    if (one.broken == 0) {
        parties_exchange();
    }
    tested->ops->dereg(one.transport, &into);
    munmap(from, MIB);
    guarded_free(to, MIB);
}

/* ---- threads ---- */

/* The peer helps at the same time, in its own thread. */
UNIT_TEST_BETWEEN(a_peer_that_helps_copies_the_same_bytes, conformance_reset, NULL)
{
    readable_t readable;

    parties_open(true);
    readable_new(&readable);
    two_works_begin();
    for (unsigned i = 0; i < 60; i++) {
        get(&readable, i % 5 * 1000, op_lengths[7 + i % (LENGTHS - 7)], true);
    }
    two_works_end();
    readable_free(&readable);
    parties_close();
}
