/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Conformance: puts. Each writes its bytes and none beside them, the notice finds them there, and
 * what the peer did not publish is not written.
 */
#include "parties.h"

/* From memory of any kind, from the own pool, and with an immediate. */
CONFORMANCE_TEST(puts_to_the_pool_write_their_bytes_alone)
{
    uint8_t *local = calloc(1, POOL);
    op_t op;

    uint8_t *pool = two.transport->pool_memory, *own = one.transport->pool_memory;
    for (unsigned i = 0; i < LENGTHS && op_lengths[i] < POOL / 2; i++) {
        for (unsigned how = 0; how < 3; how++) {
            uint8_t *from = how == 1 ? own : local;
            const size_t at = 4096 * how + i;

            memset(pool, 0xee, POOL);
            unit_fill(from, op_lengths[i], 3 * i + how, 0);
            op_put(&op, from, op_lengths[i], REGX_TARGET_POOL, at);
            op.put.immediate = how == 2 ? REGX_IMMEDIATE_MAX - i : 0;
            op_put_to_two(&op, pool + at, 3 * i + how);
            assert_true(at == 0 || pool[at - 1] == 0xee);
            assert_int_equal(pool[at + op_lengths[i]], 0xee);
        }
    }
    op_put(&op, local, 0, REGX_TARGET_POOL, 0);
    op.put.notice_length = 0;
    op_put_to_two(&op, pool, 0);
    memset(pool, 0xee, POOL);
    for (size_t i = 0; i < OUTSIDE; i++) {
        op_put(&op, "good", 4, REGX_TARGET_POOL, outside[i] - REGION + (i < 3 ? POOL : REGION));
        assert_int_equal(tested->ops->put(one.conn, &op.put), REGX_INVALID);
        assert_int_equal(op.ended, 0);
    }
    parties_settle();
    assert_true(unit_is_all(pool, POOL, 0xee));
    free(local);
}

CONFORMANCE_TEST(puts_to_a_region_write_their_bytes_alone)
{
    uint8_t *local = calloc(1, LONGEST), *region;
    regx_mr_t from, to;
    op_t op;

    parties_exchange();
    region = guarded_new(REGION);
    party_reg(&one, local, LONGEST, REGX_ACCESS_LOCAL, &from);
    party_reg(&two, region, REGION, REGX_ACCESS_REMOTE_WRITE, &to);
    for (unsigned i = 0; i < LENGTHS; i++) {
        memset(region + 4096 + i - 1, 0xee, op_lengths[i] + 2);
        unit_fill(local, op_lengths[i], i, 0);
        op_put(&op, local, op_lengths[i], REGX_TARGET_REGION, 4096 + i);
        op.put.key = to.key;
        op.put.region = i % 2 == 0 ? &from : NULL;
        op.put.immediate = i % 3 == 0 ? 5 + i : 0;
        op_put_to_two(&op, region + 4096 + i, i);
        assert_int_equal(region[4096 + i - 1], 0xee);
        assert_int_equal(region[4096 + i + op_lengths[i]], 0xee);
    }
    memset(region, 0xee, REGION);
    for (size_t i = 0; i < OUTSIDE; i++) {
        op_put(&op, "good", 4, REGX_TARGET_REGION, outside[i]);
        op.put.key = to.key;
        assert_int_equal(tested->ops->put(one.conn, &op.put), REGX_INVALID);
    }
    parties_settle();
    assert_true(unit_is_all(region, REGION, 0xee));
    tested->ops->dereg(one.transport, &from);
    tested->ops->dereg(two.transport, &to);
    guarded_free(region, REGION);
    free(local);
}

static unsigned frames_seen, notices_seen;

/* Ten frames before each notice. */
static void count_both(party_t *party)
{
    if (party->last_tag == 77) {
        notices_seen++;
        assert_true(frames_seen >= 10 * notices_seen);
        return;
    }
    frames_seen++;
}

CONFORMANCE_TEST(a_notice_comes_behind_the_frames_before_it)
{
    enum { PUTS = 20 };
    static op_t ops[PUTS];
    regx_mr_t from, to;

    uint8_t *local = calloc(1, 300000), *region = calloc(1, 300000);
    party_reg(&one, local, 300000, REGX_ACCESS_LOCAL, &from);
    party_reg(&two, region, 300000, REGX_ACCESS_REMOTE_WRITE, &to);
    frames_seen = notices_seen = 0;
    two.on_deliver = count_both;
    for (unsigned i = 0; i < PUTS; i++) {
        for (unsigned n = 0; n < 10; n++) {
            party_send(&one, 1, n, 200);
        }
        op_put(&ops[i], local, i % 2 == 0 ? 300000 : 70,
               i % 3 == 0 ? REGX_TARGET_POOL : REGX_TARGET_REGION, 0);
        ops[i].put.key = to.key;
        ops[i].put.region = &from;
        op_start_put(&one, &ops[i]);
    }
    parties_await(&two.delivered, 11 * PUTS);
    for (unsigned i = 0; i < PUTS; i++) {
        op_await(&ops[i]);
    }
    assert_int_equal(notices_seen, PUTS);
    two.on_deliver = NULL;
    tested->ops->dereg(one.transport, &from);
    tested->ops->dereg(two.transport, &to);
    free(local);
    free(region);
}
