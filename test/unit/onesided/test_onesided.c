/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Puts, gets and atomic operations by messages: what is asked is done, in its order and within
 * bounds.
 */
#include "stage.h"

#define TEST(name) UNIT_TEST_BETWEEN(name, open_stage, close_stage)

TEST(a_put_of_several_pieces_and_a_get_of_it)
{
    char mine[1000], back[1000] = {0}, around[2] = {stage.base[9], stage.base[1010]};

    for (size_t i = 0; i < sizeof(mine); i++) {
        mine[i] = (char)(i * 13 + 1);
    }
    call_t *put = asked(REGX_ONESIDED_PUT, 10, mine, sizeof(mine));
    assert_int_equal(put->times, 0);
    expect_at_last(put, REGX_OK);
    assert_memory_equal(stage.base + 10, mine, sizeof(mine));
    assert_true(stage.base[9] == around[0] && stage.base[1010] == around[1]);
    call_t *get = asked(REGX_ONESIDED_GET, 10, back, sizeof(back));
    expect_at_last(get, REGX_OK);
    assert_memory_equal(back, mine, sizeof(mine));
    assert_int_equal(stage.origin->counters.onesided_messages, 2);
}

TEST(a_put_is_not_done_before_its_last_piece_is_there)
{
    char mine[500];

    memset(mine, 5, sizeof(mine));
    call_t *put = asked(REGX_ONESIDED_PUT, 0, mine, sizeof(mine));
    assert_true(stage.origin->conns[1].count >= 3);
    while (stage.origin->conns[1].count > 1) {
        line_deliver(stage.origin, stage.target);
        assert_int_equal(stage.target->conns[0].count, 0);
    }
    line_deliver(stage.origin, stage.target);
    assert_memory_equal(stage.base, mine, sizeof(mine));
    assert_int_equal(put->times, 0);
    line_deliver(stage.target, stage.origin);
    expect(put, REGX_OK);
}

typedef struct row {
    regx_onesided_op_t op;
    uint64_t before, operand, compare, after;
} row_t;

static const row_t rows[] = {
    {REGX_ONESIDED_ADD, UINT64_C(0x1ffffffff), 3, 0, UINT64_C(0x200000002)},
    {REGX_ONESIDED_ADD, 5, (uint64_t)-7, 0, (uint64_t)-2},
    {REGX_ONESIDED_AND, UINT64_C(0xff00ff00ff00ff00), UINT64_C(0x0ff00ff00ff00ff0), 0,
     UINT64_C(0x0f000f000f000f00)},
    {REGX_ONESIDED_OR, UINT64_C(0xff00000000000001), 0x10, 0, UINT64_C(0xff00000000000011)},
    {REGX_ONESIDED_XOR, UINT64_MAX, UINT64_C(0x8000000080000000), 0, UINT64_C(0x7fffffff7fffffff)},
    {REGX_ONESIDED_SWAP, UINT64_C(0x123456789abcdef0), 9, 0, 9},
    {REGX_ONESIDED_COMPARE_SWAP, UINT64_C(0x500000007), UINT64_MAX, UINT64_C(0x500000007),
     UINT64_MAX},
    {REGX_ONESIDED_COMPARE_SWAP, 7, 9, 8, 7},
};

/* Of 8 or of 4 bytes, whose neighbours stay. */
static void operate(const row_t *row, size_t size)
{
    const uint64_t half = UINT64_C(0xffffffff), mask = size == 4 ? half : UINT64_MAX;
    call_t *made = call(REGX_ONESIDED_ATOMIC, 8, NULL, 0);
    uint64_t numbers[3] = {1, row->before, 2};

    memcpy(stage.base, numbers, sizeof(numbers));
    made->request.op = row->op;
    made->request.size = size;
    made->request.operand = row->operand;
    made->request.compare = row->compare;
    assert_int_equal(ask(made), REGX_PENDING);
    line_run(stage.processes);
    assert_int_equal(made->request.result, row->before & mask);
    memcpy(numbers, stage.base, sizeof(numbers));
    assert_int_equal(numbers[1], (row->after & mask) | (row->before & ~mask));
    assert_true(numbers[0] == 1 && numbers[2] == 2);
    expect(made, REGX_OK);
}

TEST(atomic_operations_answer_what_was_before)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        operate(&rows[i], 8);
        operate(&rows[i], 4);
    }
}

TEST(no_room_on_the_wire_delays_and_loses_nothing)
{
    char mine[3000], back[3000] = {0};

    memset(mine, 9, sizeof(mine));
    stage.origin->conns[1].room = stage.target->conns[0].room = 1;
    call_t *put = asked(REGX_ONESIDED_PUT, 0, mine, sizeof(mine));
    assert_true(stage.origin->waiting > 0);
    expect_at_last(put, REGX_OK);
    call_t *get = asked(REGX_ONESIDED_GET, 0, back, sizeof(back));
    call_t *add = asked(REGX_ONESIDED_ATOMIC, 3200, NULL, 0);
    expect_at_last(get, REGX_OK);
    expect(add, REGX_OK);
    assert_memory_equal(back, mine, sizeof(mine));
    assert_true(stage.origin->waiting == 0 && stage.target->waiting == 0);
}

TEST(more_requests_than_a_peer_may_have_open_wait_here)
{
    enum { MANY = 3 * REGX_ONESIDED_ASKED };
    call_t *adds[MANY];
    uint64_t number = 0;

    memcpy(stage.base, &number, sizeof(number));
    stage.target->conns[0].room = 1;
    for (unsigned i = 0; i < MANY; i++) {
        adds[i] = call(REGX_ONESIDED_ATOMIC, 0, NULL, 0);
        adds[i]->request.operand = 1;
        assert_int_equal(ask(adds[i]), REGX_PENDING);
    }
    assert_int_equal(stage.origin->conns[1].count, REGX_ONESIDED_ASKED);
    assert_int_equal(stage.origin->waiting, 0); /* the peer's answer wakes them */
    line_run(stage.processes);
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(adds[i]->request.result, i);
        expect(adds[i], REGX_OK);
    }
    assert_int_equal(malformed(stage.target), 0);
}

TEST(puts_and_gets_are_refused_where_too_many_are_open)
{
    call_t *gets[REGX_ONESIDED_PENDING], *add = call(REGX_ONESIDED_ATOMIC, 0, NULL, 0);
    char back[4];

    for (unsigned i = 0; i < REGX_ONESIDED_PENDING; i++) {
        gets[i] = call(REGX_ONESIDED_GET, 0, back, sizeof(back));
        assert_int_equal(ask(gets[i]), REGX_PENDING);
    }
    call_t *one = call(REGX_ONESIDED_GET, 0, back, sizeof(back));
    assert_int_equal(ask(one), REGX_AGAIN);
    assert_int_equal(ask(add), REGX_PENDING);
    line_deliver(stage.origin, stage.target);
    line_deliver(stage.origin, stage.target);
    line_deliver_only(stage.target, stage.origin);
    line_deliver_only(stage.target, stage.origin);
    assert_int_equal(ask(one), REGX_AGAIN); /* two have ended, but are not done */
    regx_onesided_complete(stage.origin->onesided, NULL);
    assert_int_equal(ask(one), REGX_PENDING);
    line_run(stage.processes);
    for (unsigned i = 0; i < REGX_ONESIDED_PENDING; i++) {
        expect(gets[i], REGX_OK);
    }
    expect(one, REGX_OK);
    expect(add, REGX_OK);
}

static void ended_and_waiting(regx_onesided_request_t *request, regx_status_t status)
{
    const call_t *other = ((call_t *)request)->awaits;

    done(request, status);
    while (other->times == 0 && line_deliver(stage.target, stage.origin)) {
    }
    assert_int_equal(other->times, 1);
}

/* Two are asked for; the completion of the first, which is returned, waits for the second. */
static call_t *asked_and_waiting(call_t **second)
{
    call_t *first = call(REGX_ONESIDED_ATOMIC, 0, NULL, 0);

    *second = call(REGX_ONESIDED_ATOMIC, 8, NULL, 0);
    first->request.done = ended_and_waiting;
    first->awaits = *second;
    ask(first);
    ask(*second);
    return first;
}

TEST(a_completion_may_wait_for_another_operation)
{
    call_t *second, *first = asked_and_waiting(&second);

    while (line_deliver(stage.origin, stage.target)) {
    }
    expect_at_last(first, REGX_OK);
    expect(second, REGX_OK);
}

TEST(a_completion_may_wait_for_one_that_has_ended_too)
{
    call_t *second, *first = asked_and_waiting(&second);

    call_t *third = asked(REGX_ONESIDED_ATOMIC, 16, NULL, 0);
    while (line_deliver(stage.origin, stage.target)) {
    }
    line_deliver_only(stage.target, stage.origin);
    line_deliver_only(stage.target, stage.origin);
    assert_true(stage.origin->ended == 2 && first->times == 0);
    expect_at_last(first, REGX_OK);
    expect(second, REGX_OK);
    expect(third, REGX_OK);
}

TEST(a_long_put_or_get_goes_in_bursts)
{
    char mine[BYTES], back[BYTES] = {0};

    memset(mine, 5, sizeof(mine));
    call_t *put = asked(REGX_ONESIDED_PUT, 0, mine, sizeof(mine));
    assert_int_equal(stage.origin->conns[1].count, REGX_ONESIDED_BURST);
    assert_true(stage.origin->waiting > 0);
    expect_at_last(put, REGX_OK);
    call_t *get = asked(REGX_ONESIDED_GET, 0, back, sizeof(back));
    line_deliver(stage.origin, stage.target);
    assert_int_equal(stage.target->conns[0].count, REGX_ONESIDED_BURST);
    assert_true(stage.target->waiting > 0);
    expect_at_last(get, REGX_OK);
    assert_memory_equal(back, mine, sizeof(mine));
    assert_true(stage.origin->waiting == 0 && stage.target->waiting == 0);
}

TEST(the_kernels_copy_asks_nobody)
{
    char mine[100], back[100];

    memset(mine, 3, sizeof(mine));
    assert_false(regx_onesided_copy(stage.origin->onesided, &stage.origin->peers[1],
                                    REGX_ONESIDED_PUT, mine, stage.name.base, sizeof(mine)));
    stage.origin->copies = true;
    assert_true(regx_onesided_copy(stage.origin->onesided, &stage.origin->peers[1],
                                   REGX_ONESIDED_PUT, mine, stage.name.base, sizeof(mine)));
    assert_true(regx_onesided_copy(stage.origin->onesided, &stage.origin->peers[1],
                                   REGX_ONESIDED_GET, back, stage.name.base, sizeof(back)));
    assert_memory_equal(back, mine, sizeof(mine));
    assert_true(stage.origin->counters.onesided == 2 &&
                stage.origin->counters.onesided_messages == 0);
}
