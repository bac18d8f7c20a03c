/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Conformance: gets and copies, and memory that the processes map. Each brings its bytes and none
 * beside them; what the peer did not publish is not read.
 */
#include "parties.h"

#include <stdlib.h>
#include <sys/mman.h>

typedef struct readable {
    uint8_t *to, *from;
    regx_mr_t into, remote;
} readable_t;

/* Memory of `one`, guarded, and memory of `two` that it may get, stamped. */
static void readable_new(readable_t *readable)
{
    parties_exchange();
    readable->to = guarded_new(REGION);
    readable->from = malloc(REGION);
    unit_fill(readable->from, REGION, 1, 0);
    party_reg(&one, readable->to, REGION, REGX_ACCESS_LOCAL_WRITE, &readable->into);
    party_reg(&two, readable->from, REGION, REGX_ACCESS_REMOTE_READ, &readable->remote);
}

static void readable_free(readable_t *readable)
{
    tested->ops->dereg(one.transport, &readable->into);
    tested->ops->dereg(two.transport, &readable->remote);
    guarded_free(readable->to, REGION);
    free(readable->from);
}

static void assert_got(const readable_t *readable, size_t at, size_t length)
{
    assert_memory_equal(readable->to + at, readable->from + at, length);
}

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
static void gets_of_each_length_bring_their_bytes_alone(void **state)
{
    readable_t readable;
    op_t op;

    parties_open(false);
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
    parties_close();
}

/* Many at once, of lengths that are drawn: each ends once, and none touches what another brings. */
static void many_gets_and_puts_at_once_bring_all_bytes(void **state)
{
    enum { OPS = 60, ROUNDS = 2, EACH = 100000, ALL = OPS * EACH };
    static op_t ops[OPS];
    uint8_t *put_from = calloc(1, ALL), *put_to = calloc(1, ALL);
    uint8_t *got_from = calloc(1, ALL), *got_to = calloc(1, ALL);
    regx_mr_t from, to, remote, into;
    uint64_t random = 7;

    parties_open(false);
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
    parties_close();
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

static void the_end_of_a_get_may_start_the_next(void **state)
{
    readable_t readable;
    op_t op;

    parties_open(false);
    readable_new(&readable);
    left = 50;
    op_get(&op, readable.to, 100000, &readable.into, &readable.remote, 0);
    op.then = start_next;
    op_start_get(&one, &op);
    parties_await(&op.ended, 51);
    assert_got(&readable, 0, 100000);
    readable_free(&readable);
    parties_close();
}

/* What is not there (any more) is not got: each get ends once, badly, and brings no byte. */
static void gets_of_what_is_gone_fail(void **state)
{
    enum { GETS = 40 };
    static op_t ops[GETS];
    regx_mr_t into, remote;

    parties_open(false);
    parties_exchange();
    uint8_t *to = guarded_new(MIB);
    void *from = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(from, MAP_FAILED);
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
    for (size_t i = 0; i < MIB; i++) {
        assert_int_equal(to[i], 0xee);
    }
    if (one.broken == 0) {
        parties_exchange();
    }
    tested->ops->dereg(one.transport, &into);
    munmap(from, MIB);
    guarded_free(to, MIB);
    parties_close();
}

/* ---- where the processes map each other's memory ---- */

static void the_kernel_copies_between_the_processes(void **state)
{
    parties_open(false);
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
    parties_close();
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

static void staged_gets_bring_their_bytes_alone(void **state)
{
    readable_t readable;

    parties_open(false);
    readable_new(&readable);
    for (unsigned i = 0; i < LENGTHS && op_lengths[i] <= REGION; i++) {
        for (unsigned how = 0; how < 8; how++) { /* after some in a row the sender does not wait */
            get_staged(&readable, op_lengths[i], how == 5);
        }
    }
    readable_free(&readable);
    parties_close();
}

/* There are only so many. Those that are not asked for are given back, and the others refused. */
static void what_is_not_staged_is_refused(void **state)
{
    enum { MANY = 1000 };
    static regx_mr_t exposed[MANY];
    readable_t readable;
    unsigned staged = 0;
    op_t op;

    parties_open(false);
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
    parties_close();
}

/* Memory that the transport gives is memory like any other. */
static void memory_of_the_transport_is_put_to_and_got_from(void **state)
{
    regx_mr_t mine, its;
    op_t op;

    parties_open(false);
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
    parties_close();
}

/* ---- threads ---- */

/* The peer helps at the same time, in its own thread. */
static void a_peer_that_helps_copies_the_same_bytes(void **state)
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

const struct CMUnitTest conformance_gets[] = {
    cmocka_unit_test(gets_of_each_length_bring_their_bytes_alone),
    cmocka_unit_test(many_gets_and_puts_at_once_bring_all_bytes),
    cmocka_unit_test(the_end_of_a_get_may_start_the_next),
    cmocka_unit_test(gets_of_what_is_gone_fail),
    cmocka_unit_test(a_peer_that_helps_copies_the_same_bytes),
    {.name = NULL},
};

const struct CMUnitTest conformance_node[] = {
    cmocka_unit_test(the_kernel_copies_between_the_processes),
    cmocka_unit_test(staged_gets_bring_their_bytes_alone),
    cmocka_unit_test(what_is_not_staged_is_refused),
    cmocka_unit_test(memory_of_the_transport_is_put_to_and_got_from),
    {.name = NULL},
};
