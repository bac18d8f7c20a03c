/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Nothing that a peer sends is trusted, and a peer that is gone ends what was asked of it.
 */
#include "stage.h"

static bool no_memory;

UNIT_WRAP(void *, calloc, size_t count, size_t size)
{
    return no_memory ? NULL : __real_calloc(count, size);
}

static void assert_untouched(void)
{
    for (size_t i = 0; i < sizeof(stage.memory); i++) {
        assert_int_equal(stage.memory[i], (char)(i * 7 + i / 256));
    }
}

/* Each kind of request, of 8 bytes at that address. */
static void try_all(regx_handle_t window, uint64_t address)
{
    static const regx_onesided_type_t types[] = {REGX_ONESIDED_PUT, REGX_ONESIDED_GET,
                                                 REGX_ONESIDED_ATOMIC};
    char local[8] = "evil888";

    for (unsigned i = 0; i < 3; i++) {
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

#define TEST(name) UNIT_TEST_BETWEEN(name, open_stage, close_stage)

TEST(nothing_outside_the_window_is_touched)
{
    const regx_handle_t window = stage.name.handle;

    try_all(window, stage.name.base - 8);
    try_all(window, stage.name.base + BYTES);
    try_all(window, 0);
    try_all(window, UINT64_MAX - 7);
}

TEST(a_put_or_get_across_the_end_is_refused)
{
    char local[16] = "";

    call_t *put = asked(REGX_ONESIDED_PUT, BYTES - 8, local, sizeof(local));
    call_t *get = asked(REGX_ONESIDED_GET, 8, local, UINT64_MAX - 7);
    expect_at_last(put, REGX_INVALID);
    expect(get, REGX_INVALID);
    assert_untouched();
}

TEST(handles_that_were_never_given_or_taken_back_are_refused)
{
    regx_handle_t other = stage.name.handle;

    other.generation++;
    try_all(other, stage.name.base);
    other = stage.name.handle;
    other.id = 12345;
    try_all(other, stage.name.base);
    regx_onesided_withdraw(stage.target->onesided, &stage.window);
    try_all(stage.name.handle, stage.name.base);
}

TEST(a_get_whose_window_goes_meanwhile_is_refused)
{
    char back[1000];

    stage.target->conns[0].room = 1;
    call_t *get = asked(REGX_ONESIDED_GET, 0, back, sizeof(back));
    line_deliver(stage.origin, stage.target);
    regx_onesided_withdraw(stage.target->onesided, &stage.window);
    expect_at_last(get, REGX_INVALID);
}

TEST(more_than_a_peer_may_ask_is_dropped)
{
    const regx_onesided_message_t message = {.type = REGX_ONESIDED_ATOMIC,
                                             .size = 8,
                                             .request = {9, 9},
                                             .window = stage.name.handle,
                                             .address = stage.name.base};

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

TEST(answers_count_only_from_whom_was_asked_and_as_was_asked)
{
    char back[100] = "untouched";
    regx_onesided_message_t data = {.type = REGX_ONESIDED_ANSWER};

    call_t *get = asked(REGX_ONESIDED_GET, 0, back, sizeof(back));
    data.request = get->request.handle;
    refuse_answer(stage.stranger, &data, 100);
    refuse_answer(stage.target, &data, 101); /* more than was asked for */
    refuse_answer(stage.target, &data, 0);   /* nothing of it */
    data.value = 1;                          /* not the next bytes */
    refuse_answer(stage.target, &data, 50);
    data.value = UINT64_MAX;
    refuse_answer(stage.target, &data, 50);
    data.value = 0;
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

TEST(an_answer_before_the_question_is_sent_is_refused)
{
    char mine[1000] = "";
    regx_onesided_message_t reply = {.type = REGX_ONESIDED_ANSWER};

    stage.origin->conns[1].room = 1;
    call_t *put = asked(REGX_ONESIDED_PUT, 0, mine, sizeof(mine));
    reply.request = put->request.handle;
    refuse_answer(stage.target, &reply, 0);
    assert_int_equal(put->times, 0);
    expect_at_last(put, REGX_OK);
}

TEST(a_process_that_is_not_known_is_not_heard)
{
    const regx_onesided_message_t message = {.type = REGX_ONESIDED_PUT,
                                             .detail = 1,
                                             .window = stage.name.handle,
                                             .address = stage.name.base};

    line_say(stage.target, 4711, &message, "evil", 4);
    assert_int_equal(malformed(stage.target), 1);
    assert_untouched();
}

TEST(a_peer_that_is_forgotten_ends_what_was_asked_of_it)
{
    char mine[1000] = "";
    line_conn_t *conn = &stage.origin->conns[1];

    conn->room = 1;
    call_t *first = asked(REGX_ONESIDED_PUT, 0, mine, sizeof(mine));
    call_t *second = asked(REGX_ONESIDED_GET, 0, mine, sizeof(mine));
    regx_onesided_forget(stage.origin->onesided, &stage.origin->peers[1]);
    expect(first, REGX_UNREACHABLE);
    expect(second, REGX_UNREACHABLE);
    assert_int_equal(stage.origin->waiting, 0);
    regx_onesided_add(stage.origin->onesided, &stage.origin->peers[1], &conn->conn);
    line_run(stage.processes);
}

TEST(what_has_ended_ends_so_if_the_peer_is_forgotten)
{
    call_t *others = call(REGX_ONESIDED_ATOMIC, 0, NULL, 0);

    call_t *first = asked(REGX_ONESIDED_ATOMIC, 0, NULL, 0);
    call_t *second = asked(REGX_ONESIDED_ATOMIC, 0, NULL, 0);
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
    regx_onesided_add(stage.origin->onesided, &stage.origin->peers[1],
                      &stage.origin->conns[1].conn);
    expect_at_last(others, REGX_INVALID); /* the stranger has no window */
}

/* A good message, one byte of which is another. */
static void refuse_byte(regx_onesided_type_t type, size_t at, uint8_t value)
{
    const regx_onesided_message_t message = {.version = REGX_ONESIDED_VERSION,
                                             .type = (uint8_t)type,
                                             .size = 8,
                                             .window = stage.name.handle,
                                             .address = stage.name.base};
    const uint64_t before = malformed(stage.target);
    uint8_t bytes[REGX_ONESIDED_HEADER];

    memcpy(bytes, &message, sizeof(bytes));
    bytes[at] = value;
    regx_onesided_deliver(stage.target->onesided, stage.origin->id, bytes, sizeof(bytes));
    assert_int_equal(malformed(stage.target), before + 1);
    assert_untouched();
}

TEST(what_no_process_sends_is_refused)
{
    uint8_t bytes[REGX_ONESIDED_HEADER + 1] = {0};
    const regx_onesided_message_t message = {.version = REGX_ONESIDED_VERSION,
                                             .type = REGX_ONESIDED_GET,
                                             .window = stage.name.handle,
                                             .address = stage.name.base,
                                             .value = 8};

    for (uint8_t type = REGX_ONESIDED_PUT; type < REGX_ONESIDED_TYPES; type++) {
        refuse_byte((regx_onesided_type_t)type, 0, 1); /* another version */
    }
    refuse_byte(REGX_ONESIDED_GET, 1, 0); /* no such types */
    refuse_byte(REGX_ONESIDED_GET, 1, REGX_ONESIDED_TYPES);
    refuse_byte(REGX_ONESIDED_GET, 1, 255);
    refuse_byte(REGX_ONESIDED_ATOMIC, 2, REGX_ONESIDED_OPS); /* no such operation */
    refuse_byte(REGX_ONESIDED_ATOMIC, 3, 0);                 /* numbers of another size */
    refuse_byte(REGX_ONESIDED_ATOMIC, 3, 2);
    refuse_byte(REGX_ONESIDED_ATOMIC, 3, 16);
    refuse_byte(REGX_ONESIDED_ATOMIC, 24, (uint8_t)(stage.name.base + 4)); /* not aligned */
    memcpy(bytes, &message, REGX_ONESIDED_HEADER);
    const uint64_t before = malformed(stage.target);
    for (size_t length = 0; length < REGX_ONESIDED_HEADER; length++) { /* cut */
        regx_onesided_deliver(stage.target->onesided, stage.origin->id, bytes, length);
    }
    regx_onesided_deliver(stage.target->onesided, stage.origin->id, bytes, sizeof(bytes));
    assert_int_equal(malformed(stage.target), before + REGX_ONESIDED_HEADER + 1);
    assert_int_equal(stage.target->conns[0].count, 0); /* nothing was answered */
}

/* It waits: the target's owner is told whom it cannot answer. Once there is memory, all is as
 * usual. */
TEST(whom_the_target_cannot_answer_is_told_to_its_owner)
{
    call_t *add = call(REGX_ONESIDED_ATOMIC, 0, NULL, 0);

    add->request.operand = 2;
    call_t *lost = asked(REGX_ONESIDED_ATOMIC, 0, NULL, 0);
    ask(add);
    no_memory = true;
    assert_true(line_deliver(stage.origin, stage.target));
    no_memory = false;
    assert_int_equal(stage.target->unanswered, 1);
    assert_int_equal(stage.target->unanswered_peer, stage.origin->id);
    line_run(stage.processes);
    assert_int_equal(stage.target->unanswered, 1);
    expect(add, REGX_OK);
    assert_int_equal(lost->times, 0); /* until the connection is lost */
    regx_onesided_forget(stage.origin->onesided, &stage.origin->peers[1]);
    expect(lost, REGX_UNREACHABLE);
    regx_onesided_add(stage.origin->onesided, &stage.origin->peers[1],
                      &stage.origin->conns[1].conn);
}
