/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Three processes: 0 asks, 1 has a window, 2 is a stranger to what they do.
 */
#include "../unit.h"

#include <stdlib.h>

#include "line.h"

enum { BYTES = 4096, BEFORE = 64 };

typedef struct stage {
    line_t processes[LINE_PROCESSES];
    line_t *origin, *target, *stranger;
    _Alignas(8) char memory[BEFORE + BYTES + BEFORE]; /* the window, and what lies around it */
    char *base;
    regx_window_t *window;
    regx_window_name_t name;
    uint8_t bytes[REGX_WINDOW_NAME_SIZE];
} stage_t;

static stage_t stage;

typedef struct call {
    regx_onesided_request_t request;
    unsigned times;
    regx_status_t status;
} call_t;

static void done(regx_onesided_request_t *request, regx_status_t status)
{
    call_t *call = (call_t *)request;

    call->times++;
    call->status = status;
}

static int open_stage(void **state)
{
    (void)state;
    memset(&stage, 0, sizeof(stage));
    line_open(stage.processes);
    stage.origin = &stage.processes[0];
    stage.target = &stage.processes[1];
    stage.stranger = &stage.processes[2];
    for (size_t i = 0; i < sizeof(stage.memory); i++) {
        stage.memory[i] = (char)(i * 7 + i / 256);
    }
    stage.base = stage.memory + BEFORE;
    assert_int_equal(
        regx_onesided_offer(stage.target->onesided, stage.base, BYTES, &stage.window, stage.bytes),
        REGX_OK);
    assert_true(regx_window_is(stage.bytes));
    regx_window_unpack(stage.bytes, &stage.name);
    return 0;
}

static int close_stage(void **state)
{
    (void)state;
    line_close(stage.processes);
    return 0;
}

static call_t *call(regx_onesided_type_t type, size_t at, void *local, size_t length)
{
    call_t *made = calloc(1, sizeof(*made));

    made->request = (regx_onesided_request_t){.type = type,
                                              .window = stage.name.handle,
                                              .address = stage.name.base + at,
                                              .local = local,
                                              .length = length,
                                              .size = 8,
                                              .done = done};
    return made;
}

static regx_status_t ask(call_t *made)
{
    return regx_onesided_ask(stage.origin->onesided, &stage.origin->peers[1], &made->request);
}

static void expect(call_t *made, regx_status_t status)
{
    assert_int_equal(made->times, 1);
    assert_int_equal(made->status, status);
    free(made);
}

static uint64_t malformed(const line_t *process)
{
    return process->counters.malformed;
}

static void assert_untouched(void)
{
    for (size_t i = 0; i < sizeof(stage.memory); i++) {
        assert_int_equal(stage.memory[i], (char)(i * 7 + i / 256));
    }
}

static void a_put_of_several_pieces_and_a_get_of_it(void **state)
{
    char mine[1000], back[1000] = {0}, around[2] = {stage.base[9], stage.base[1010]};
    call_t *put = call(REGX_ONESIDED_PUT, 10, mine, sizeof(mine));
    call_t *get = call(REGX_ONESIDED_GET, 10, back, sizeof(back));

    (void)state;
    for (size_t i = 0; i < sizeof(mine); i++) {
        mine[i] = (char)(i * 13 + 1);
    }
    assert_int_equal(ask(put), REGX_PENDING);
    assert_int_equal(put->times, 0);
    line_run(stage.processes);
    expect(put, REGX_OK);
    assert_memory_equal(stage.base + 10, mine, sizeof(mine));
    assert_true(stage.base[9] == around[0] && stage.base[1010] == around[1]);
    assert_int_equal(ask(get), REGX_PENDING);
    line_run(stage.processes);
    expect(get, REGX_OK);
    assert_memory_equal(back, mine, sizeof(mine));
    assert_int_equal(stage.origin->counters.onesided_messages, 2);
}

static void a_put_is_not_done_before_its_last_piece_is_there(void **state)
{
    char mine[500];
    call_t *put = call(REGX_ONESIDED_PUT, 0, mine, sizeof(mine));

    (void)state;
    memset(mine, 5, sizeof(mine));
    ask(put);
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

static void atomic_operations_answer_what_was_before(void **state)
{
    uint64_t number = 40;
    call_t *add = call(REGX_ONESIDED_ATOMIC, 8, NULL, 0);
    call_t *swap = call(REGX_ONESIDED_SWAP, 8, NULL, 0);

    (void)state;
    memcpy(stage.base + 8, &number, sizeof(number));
    add->request.op = REGX_ATOMIC_ADD;
    add->request.operand = 2;
    swap->request.compare = 42;
    swap->request.operand = 7;
    ask(add);
    ask(swap);
    line_run(stage.processes);
    assert_int_equal(add->request.result, 40);
    assert_int_equal(swap->request.result, 42);
    memcpy(&number, stage.base + 8, sizeof(number));
    assert_int_equal(number, 7);
    expect(add, REGX_OK);
    expect(swap, REGX_OK);
}

static void no_room_on_the_wire_delays_and_loses_nothing(void **state)
{
    char mine[3000], back[3000] = {0};
    call_t *put = call(REGX_ONESIDED_PUT, 0, mine, sizeof(mine));
    call_t *get = call(REGX_ONESIDED_GET, 0, back, sizeof(back));
    call_t *add = call(REGX_ONESIDED_ATOMIC, 3200, NULL, 0);

    (void)state;
    memset(mine, 9, sizeof(mine));
    stage.origin->conns[1].room = stage.target->conns[0].room = 1;
    ask(put);
    assert_true(stage.origin->waiting > 0);
    line_run(stage.processes);
    expect(put, REGX_OK);
    ask(get);
    ask(add);
    line_run(stage.processes);
    expect(get, REGX_OK);
    expect(add, REGX_OK);
    assert_memory_equal(back, mine, sizeof(mine));
    assert_true(stage.origin->waiting == 0 && stage.target->waiting == 0);
}

static void more_requests_than_a_peer_may_have_open_wait_here(void **state)
{
    enum { MANY = 3 * REGX_ONESIDED_ASKED };
    call_t *adds[MANY];
    uint64_t number = 0;

    (void)state;
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

static void puts_and_gets_are_refused_where_too_many_are_open(void **state)
{
    call_t *gets[REGX_ONESIDED_PENDING], *add = call(REGX_ONESIDED_ATOMIC, 0, NULL, 0);
    char back[4];

    (void)state;
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
    regx_onesided_complete(stage.origin->onesided);
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
    const call_t *other = request->context;

    done(request, status);
    while (other->times == 0 && line_deliver(stage.target, stage.origin)) {
    }
    assert_int_equal(other->times, 1);
}

static void a_completion_may_wait_for_another_operation(void **state)
{
    call_t *first = call(REGX_ONESIDED_ATOMIC, 0, NULL, 0);
    call_t *second = call(REGX_ONESIDED_ATOMIC, 8, NULL, 0);

    (void)state;
    first->request.done = ended_and_waiting;
    first->request.context = second;
    ask(first);
    ask(second);
    while (line_deliver(stage.origin, stage.target)) {
    }
    line_run(stage.processes);
    expect(first, REGX_OK);
    expect(second, REGX_OK);
}

static void a_completion_may_wait_for_one_that_has_ended_too(void **state)
{
    call_t *first = call(REGX_ONESIDED_ATOMIC, 0, NULL, 0);
    call_t *second = call(REGX_ONESIDED_ATOMIC, 8, NULL, 0);
    call_t *third = call(REGX_ONESIDED_ATOMIC, 16, NULL, 0);

    (void)state;
    first->request.done = ended_and_waiting;
    first->request.context = second;
    ask(first);
    ask(second);
    ask(third);
    while (line_deliver(stage.origin, stage.target)) {
    }
    line_deliver_only(stage.target, stage.origin);
    line_deliver_only(stage.target, stage.origin);
    assert_true(stage.origin->ended == 2 && first->times == 0);
    line_run(stage.processes);
    expect(first, REGX_OK);
    expect(second, REGX_OK);
    expect(third, REGX_OK);
}

static void a_long_put_or_get_goes_in_bursts(void **state)
{
    char mine[BYTES], back[BYTES] = {0};
    call_t *put = call(REGX_ONESIDED_PUT, 0, mine, sizeof(mine));
    call_t *get = call(REGX_ONESIDED_GET, 0, back, sizeof(back));

    (void)state;
    memset(mine, 5, sizeof(mine));
    ask(put);
    assert_int_equal(stage.origin->conns[1].count, REGX_ONESIDED_BURST);
    assert_true(stage.origin->waiting > 0);
    line_run(stage.processes);
    expect(put, REGX_OK);
    ask(get);
    line_deliver(stage.origin, stage.target);
    assert_int_equal(stage.target->conns[0].count, REGX_ONESIDED_BURST);
    assert_true(stage.target->waiting > 0);
    line_run(stage.processes);
    expect(get, REGX_OK);
    assert_memory_equal(back, mine, sizeof(mine));
    assert_true(stage.origin->waiting == 0 && stage.target->waiting == 0);
}

static void the_kernels_copy_asks_nobody(void **state)
{
    char mine[100], back[100];

    (void)state;
    memset(mine, 3, sizeof(mine));
    assert_int_equal(regx_onesided_copy(stage.origin->onesided, &stage.origin->peers[1],
                                        REGX_COPY_TO_PEER, mine, stage.name.base, sizeof(mine)),
                     REGX_DENIED);
    stage.origin->copies = true;
    assert_int_equal(regx_onesided_copy(stage.origin->onesided, &stage.origin->peers[1],
                                        REGX_COPY_TO_PEER, mine, stage.name.base, sizeof(mine)),
                     REGX_OK);
    assert_int_equal(regx_onesided_copy(stage.origin->onesided, &stage.origin->peers[1],
                                        REGX_COPY_FROM_PEER, back, stage.name.base, sizeof(back)),
                     REGX_OK);
    assert_memory_equal(back, mine, sizeof(mine));
    assert_true(stage.origin->counters.onesided_puts == 1 &&
                stage.origin->counters.onesided_gets == 1 &&
                stage.origin->counters.onesided_messages == 0);
}

/* ---- nothing that a peer sends is trusted ---- */

/* Each kind of request, of 8 bytes at that address. */
static void try_all(regx_handle_t window, uint64_t address)
{
    static const regx_onesided_type_t types[] = {REGX_ONESIDED_PUT, REGX_ONESIDED_GET,
                                                 REGX_ONESIDED_ATOMIC, REGX_ONESIDED_SWAP};
    char local[8] = "evil888";

    for (unsigned i = 0; i < 4; i++) {
        call_t *made = call(types[i], 0, local, sizeof(local));
        uint64_t before = malformed(stage.target);

        made->request.window = window;
        made->request.address = address;
        assert_int_equal(ask(made), REGX_PENDING);
        line_run(stage.processes);
        assert_int_equal(malformed(stage.target), before + 1);
        expect(made, REGX_INVALID);
        assert_memory_equal(local, "evil888", sizeof(local));
        assert_untouched();
    }
}

static void nothing_outside_the_window_is_touched(void **state)
{
    const regx_handle_t window = stage.name.handle;

    (void)state;
    try_all(window, stage.name.base - 8);
    try_all(window, stage.name.base + BYTES);
    try_all(window, 0);
    try_all(window, UINT64_MAX - 7);
}

static void a_put_or_get_across_the_end_is_refused(void **state)
{
    char local[16] = "";
    call_t *put = call(REGX_ONESIDED_PUT, BYTES - 8, local, sizeof(local));
    call_t *get = call(REGX_ONESIDED_GET, 8, local, UINT64_MAX - 7);

    (void)state;
    ask(put);
    ask(get);
    line_run(stage.processes);
    expect(put, REGX_INVALID);
    expect(get, REGX_INVALID);
    assert_untouched();
}

static void handles_that_were_never_given_or_taken_back_are_refused(void **state)
{
    regx_handle_t other = stage.name.handle;

    (void)state;
    other.generation++;
    try_all(other, stage.name.base);
    other = stage.name.handle;
    other.id = 12345;
    try_all(other, stage.name.base);
    regx_onesided_withdraw(stage.target->onesided, stage.window);
    try_all(stage.name.handle, stage.name.base);
}

static void a_get_whose_window_goes_meanwhile_is_refused(void **state)
{
    char back[1000];
    call_t *get = call(REGX_ONESIDED_GET, 0, back, sizeof(back));

    (void)state;
    stage.target->conns[0].room = 1;
    ask(get);
    line_deliver(stage.origin, stage.target);
    regx_onesided_withdraw(stage.target->onesided, stage.window);
    line_run(stage.processes);
    expect(get, REGX_INVALID);
}

static void more_than_a_peer_may_ask_is_dropped(void **state)
{
    const regx_onesided_message_t message = {.type = REGX_ONESIDED_ATOMIC,
                                             .size = 8,
                                             .request = {9, 9},
                                             .window = stage.name.handle,
                                             .address = stage.name.base};

    (void)state;
    stage.target->conns[2].room = 0;
    for (unsigned i = 0; i < REGX_ONESIDED_ASKED; i++) {
        line_say(stage.target, stage.stranger->id, &message, NULL, 0);
    }
    assert_int_equal(malformed(stage.target), 0);
    line_say(stage.target, stage.stranger->id, &message, NULL, 0);
    assert_int_equal(malformed(stage.target), 1);
    stage.target->conns[2].room = LINE_FRAMES;
    line_run(stage.processes); /* the stranger asked nothing: answers are malformed there */
    assert_int_equal(malformed(stage.stranger), REGX_ONESIDED_ASKED);
}

/* Says it from that process, and expects that it is refused. */
static void refuse_answer(const line_t *from, const regx_onesided_message_t *message, size_t length)
{
    const uint64_t before = malformed(stage.origin);
    char data[200] = "evil";

    line_say(stage.origin, from->id, message, data, length);
    assert_int_equal(malformed(stage.origin), before + 1);
}

static void answers_count_only_from_whom_was_asked_and_as_was_asked(void **state)
{
    char back[100] = "untouched";
    call_t *get = call(REGX_ONESIDED_GET, 0, back, sizeof(back));
    regx_onesided_message_t data = {.type = REGX_ONESIDED_DATA}, reply;

    (void)state;
    ask(get);
    data.request = get->request.handle;
    reply = data;
    reply.type = REGX_ONESIDED_REPLY;
    refuse_answer(stage.stranger, &data, 100);
    refuse_answer(stage.target, &reply, 0);
    refuse_answer(stage.target, &data, 101); /* more than was asked for */
    refuse_answer(stage.target, &data, 0);   /* nothing of it */
    data.operand = 1;                        /* not the next bytes */
    refuse_answer(stage.target, &data, 50);
    data.operand = UINT64_MAX;
    refuse_answer(stage.target, &data, 50);
    data.operand = 0;
    data.request.generation++;
    refuse_answer(stage.target, &data, 50);
    data.request.id = 77;
    refuse_answer(stage.target, &data, 50);
    assert_string_equal(back, "untouched");
    assert_int_equal(get->times, 0);
    line_run(stage.processes);
    assert_memory_equal(back, stage.base, sizeof(back));
    expect(get, REGX_OK);
}

static void an_answer_before_the_question_is_sent_is_refused(void **state)
{
    char mine[1000] = "";
    call_t *put = call(REGX_ONESIDED_PUT, 0, mine, sizeof(mine));
    regx_onesided_message_t reply = {.type = REGX_ONESIDED_REPLY};

    (void)state;
    stage.origin->conns[1].room = 1;
    ask(put);
    reply.request = put->request.handle;
    refuse_answer(stage.target, &reply, 0);
    assert_int_equal(put->times, 0);
    line_run(stage.processes);
    expect(put, REGX_OK);
}

static void a_process_that_is_not_known_is_not_heard(void **state)
{
    const regx_onesided_message_t message = {.type = REGX_ONESIDED_PUT,
                                             .detail = 1,
                                             .window = stage.name.handle,
                                             .address = stage.name.base};

    (void)state;
    line_say(stage.target, 4711, &message, "evil", 4);
    assert_int_equal(malformed(stage.target), 1);
    assert_untouched();
}

static void a_peer_that_is_forgotten_ends_what_was_asked_of_it(void **state)
{
    char mine[1000] = "";
    call_t *first = call(REGX_ONESIDED_PUT, 0, mine, sizeof(mine));
    call_t *second = call(REGX_ONESIDED_GET, 0, mine, sizeof(mine));
    line_conn_t *conn = &stage.origin->conns[1];

    (void)state;
    conn->room = 1;
    ask(first);
    ask(second);
    regx_onesided_forget(stage.origin->onesided, &stage.origin->peers[1]);
    expect(first, REGX_UNREACHABLE);
    expect(second, REGX_UNREACHABLE);
    assert_int_equal(stage.origin->waiting, 0);
    regx_onesided_add(stage.origin->onesided, &stage.origin->peers[1], stage.target->id,
                      &conn->conn);
    line_run(stage.processes);
}

static void what_has_ended_ends_so_if_the_peer_is_forgotten(void **state)
{
    call_t *first = call(REGX_ONESIDED_ATOMIC, 0, NULL, 0);
    call_t *second = call(REGX_ONESIDED_ATOMIC, 0, NULL, 0);
    call_t *others = call(REGX_ONESIDED_ATOMIC, 0, NULL, 0);

    (void)state;
    ask(first);
    ask(second);
    assert_int_equal(
        regx_onesided_ask(stage.origin->onesided, &stage.origin->peers[2], &others->request),
        REGX_PENDING);
    line_deliver(stage.origin, stage.target);
    line_deliver(stage.origin, stage.stranger);
    line_deliver_only(stage.target, stage.origin);
    line_deliver_only(stage.stranger, stage.origin);
    assert_int_equal(stage.origin->ended, 2);
    regx_onesided_forget(stage.origin->onesided, &stage.origin->peers[1]);
    assert_int_equal(stage.origin->ended, 1);
    expect(first, REGX_OK);
    expect(second, REGX_UNREACHABLE);
    assert_int_equal(others->times, 0);
    regx_onesided_add(stage.origin->onesided, &stage.origin->peers[1], stage.target->id,
                      &stage.origin->conns[1].conn);
    line_run(stage.processes);
    expect(others, REGX_INVALID); /* the stranger has no window */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_stage, close_stage)
    const struct CMUnitTest tests[] = {
        TEST(a_put_of_several_pieces_and_a_get_of_it),
        TEST(a_put_is_not_done_before_its_last_piece_is_there),
        TEST(atomic_operations_answer_what_was_before),
        TEST(no_room_on_the_wire_delays_and_loses_nothing),
        TEST(more_requests_than_a_peer_may_have_open_wait_here),
        TEST(puts_and_gets_are_refused_where_too_many_are_open),
        TEST(a_completion_may_wait_for_another_operation),
        TEST(a_completion_may_wait_for_one_that_has_ended_too),
        TEST(a_long_put_or_get_goes_in_bursts),
        TEST(the_kernels_copy_asks_nobody),
        TEST(nothing_outside_the_window_is_touched),
        TEST(a_put_or_get_across_the_end_is_refused),
        TEST(handles_that_were_never_given_or_taken_back_are_refused),
        TEST(a_get_whose_window_goes_meanwhile_is_refused),
        TEST(more_than_a_peer_may_ask_is_dropped),
        TEST(answers_count_only_from_whom_was_asked_and_as_was_asked),
        TEST(an_answer_before_the_question_is_sent_is_refused),
        TEST(a_process_that_is_not_known_is_not_heard),
        TEST(a_peer_that_is_forgotten_ends_what_was_asked_of_it),
        TEST(what_has_ended_ends_so_if_the_peer_is_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
