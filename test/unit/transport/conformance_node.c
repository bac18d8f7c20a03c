/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Conformance of transports whose processes map each other's memory: copies by the kernel, stages, and
 * memory that the transport gives.
 */
#include "parties.h"

CONFORMANCE_TEST(the_kernel_copies_between_the_processes)
{
    assert_true(one.conn->single_copy);
    uint8_t *local = guarded_new(LONGEST), *remote = guarded_new(LONGEST);
    for (unsigned i = 0; i < LENGTHS; i++) {
        unit_fill(local, op_lengths[i], i, 0);
        assert_int_equal(tested->ops->node.copy(one.conn, REGX_COPY_TO_PEER, local,
                                                (uintptr_t)remote, op_lengths[i]),
                         REGX_OK);
        assert_true(unit_is_filled(remote, op_lengths[i], i));
        unit_fill(remote, op_lengths[i], 100 + i, 0);
        assert_int_equal(tested->ops->node.copy(one.conn, REGX_COPY_FROM_PEER, local,
                                                (uintptr_t)remote, op_lengths[i]),
                         REGX_OK);
        assert_true(unit_is_filled(local, op_lengths[i], 100 + i));
    }
    assert_int_equal(tested->ops->node.copy(one.conn, REGX_COPY_FROM_PEER, local, 64, 100),
                     REGX_FAILED);
    guarded_free(local, LONGEST);
    guarded_free(remote, LONGEST);
}

/* What is exposed without being registered, by the kernel and from a stage, which the sender fills
 * if the receiver asks. stays_away: the sender makes no progress meanwhile. */
static void get_staged(readable_t *readable, size_t length, bool stays_away)
{
    regx_mr_t exposed = {.length = length};
    op_t op;

    memset(readable->to, 0xee, REGION);
    tested->ops->node.expose(two.transport, readable->from, length, &exposed.key);
    assert_true(tested->ops->node.stage(two.conn, readable->from, length, &exposed.key));
    op_get(&op, readable->to, length, NULL, &exposed, 0);
    op.get.staged = true;
    assert_int_equal(tested->ops->get(one.conn, &op.get), REGX_PENDING);
    while (op.ended == 0) {
        tested->ops->progress(one.transport);
        if (!stays_away) {
            tested->ops->progress(two.transport);
        }
    }
    assert_true(op.ended == 1 && op.status == REGX_OK);
    tested->ops->node.unstage(two.transport, &exposed.key);
    assert_got(readable, 0, length);
    assert_int_equal(readable->to[length], 0xee);
}

CONFORMANCE_TEST(staged_gets_bring_their_bytes_alone)
{
    readable_t readable;

    readable_new(&readable);
    for (unsigned i = 0; i < LENGTHS && op_lengths[i] <= REGION; i++) {
        for (unsigned how = 0; how < 8; how++) { /* after some in a row the sender does not wait */
            get_staged(&readable, op_lengths[i], how == 5);
        }
    }
    readable_free(&readable);
}

/* There are only so many. Those that are not asked for are given back, and the others refused. */
CONFORMANCE_TEST(what_is_not_staged_is_refused)
{
    enum { MANY = 1000 };
    static regx_mr_t exposed[MANY];
    readable_t readable;
    unsigned staged = 0;
    op_t op;

    readable_new(&readable);
    tested->ops->node.expose(two.transport, readable.from, REGION, &exposed[0].key);
    assert_false(tested->ops->node.stage(two.conn, readable.from, 3u << 30, &exposed[0].key));
    op_get(&op, readable.to, 100, NULL, &exposed[0], 0);
    op.get.staged = true;
    assert_int_equal(tested->ops->get(one.conn, &op.get), REGX_AGAIN);
    for (unsigned round = 0; round < 2; round++) {
        for (staged = 0; staged < MANY; staged++) {
            tested->ops->node.expose(two.transport, readable.from, 1000, &exposed[staged].key);
            if (!tested->ops->node.stage(two.conn, readable.from, 1000, &exposed[staged].key)) {
                break;
            }
        }
        assert_in_range(staged, 2, MANY - 1);
        for (unsigned i = 0; i < staged; i++) {
            tested->ops->node.unstage(two.transport, &exposed[i].key);
        }
    }
    get_staged(&readable, 100000, false);
    readable_free(&readable);
}

/* Memory that the transport gives is memory like any other. */
CONFORMANCE_TEST(memory_of_the_transport_is_put_to_and_got_from)
{
    regx_mr_t mine, its;
    op_t op;

    parties_exchange();
    assert_null(tested->ops->node.allocate(one.transport, 17 * MIB));
    for (unsigned round = 0; round < 3; round++) {
        uint8_t *local = tested->ops->node.allocate(one.transport, 3 * MIB);
        uint8_t *remote = tested->ops->node.allocate(two.transport, 3 * MIB);

        assert_true(local != NULL && remote != NULL);
        assert_true((uintptr_t)local % 4096 == 0 && (uintptr_t)remote % 4096 == 0);
        party_reg(&one, local, 3 * MIB, REGX_ACCESS_LOCAL | REGX_ACCESS_LOCAL_WRITE, &mine);
        party_reg(&two, remote, 3 * MIB, REGX_ACCESS_REMOTE_WRITE | REGX_ACCESS_REMOTE_READ, &its);
        for (unsigned i = 0; i < LENGTHS && op_lengths[i] < 2 * MIB; i++) {
            unit_fill(local, op_lengths[i], i, 0);
            op_put(&op, local, op_lengths[i], REGX_TARGET_REGION, 100);
            op.put.key = its.key;
            op.put.region = &mine;
            op_put_to_two(&op, remote + 100, i);
            memset(local, 0, op_lengths[i]);
            op_get(&op, local, op_lengths[i], &mine, &its, 100);
            op.get.assisted = i % 2 != 0;
            op_start_get(&one, &op);
            op_await(&op);
            assert_true(unit_is_filled(local, op_lengths[i], i));
        }
        tested->ops->dereg(one.transport, &mine);
        tested->ops->dereg(two.transport, &its);
        tested->ops->node.release(one.transport, local);
        tested->ops->node.release(two.transport, remote);
    }
}
