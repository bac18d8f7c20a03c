/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is sent while something that came is dealt with: it leaves together, at once and in order,
 * however much the kernel takes.
 */
#include "ends.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { ASK = 6, ANSWER = 7, NOTICE = 8 };

enum { ASKS = 600, BURST = 300, PUT_MAX = 50000, ANSWER_MAX = 20000, HEADER_MAX = 256 };

static end_t asking, answering;
static uint32_t asked,
    answered;          /* questions that have come, and steps of answering that are done */
static uint32_t heard; /* steps whose result has come */
static uint8_t data[PUT_MAX];
static regx_put_t put;
static bool putting;

static bool varied;               /* the answers are not all as short as can be */
static unsigned together, singly; /* answers that left later, with others, and at once */
static uint8_t said[ANSWER_MAX];

static bool may_break; /* the connection */

/* ---- the kernel ---- */

static unsigned writes;      /* by sendmsg */
static bool stingy;          /* the kernel takes a part, or nothing */
static uint64_t chance = 11; /* of how much */

static size_t below(size_t limit)
{
    return chance_next(&chance) % limit;
}

ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct iovec parts[4];
    struct msghdr less = *message;
    size_t room;

    writes++;
    if (!stingy) {
        return __real_sendmsg(fd, message, flags);
    }
    if (below(4) == 0) {
        errno = EAGAIN;
        return -1;
    }
    room = 1 + below(below(2) == 0 ? 60 : 30000);
    assert_in_range(message->msg_iovlen, 1, 4);
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        parts[i] = message->msg_iov[i];
        parts[i].iov_len = regx_min(parts[i].iov_len, room);
        room -= parts[i].iov_len;
    }
    less.msg_iov = parts;
    return __real_sendmsg(fd, &less, flags);
}

/* ---- questions and answers: a frame for each, and a put for every third ---- */

/* Steps: even ones are the frame of a question, odd ones its put, if it has one. */
static bool has_put(uint32_t question)
{
    return question % 3 == 0;
}

static size_t put_length(uint32_t question)
{
    return question % 2 == 0 ? 40 : 1 + question * 7919u % PUT_MAX;
}

/* Some leave together, some are too long for that. */
static size_t answer_length(uint32_t question)
{
    if (!varied) {
        return sizeof(question);
    }
    return question % 17 == 5 ? ANSWER_MAX : question * 7919u % 601;
}

static void pack_answer(void *context, void *to, size_t length)
{
    const uint32_t *question = context;

    unit_fill(to, length, *question, 0);
}

static regx_status_t send_answer(uint32_t question)
{
    const size_t length = answer_length(question);
    const size_t header = regx_min(length / (1 + question / 4 % 2), HEADER_MAX);

    unit_fill(said, length, question, 0);
    switch (question % 4) {
    case 0:
        return regx_tcp_send(answering.conn, ANSWER, NULL, 0, NULL, said, length);
    case 1:
        return regx_tcp_send(answering.conn, ANSWER, NULL, 0, pack_answer, &question, length);
    default:
        return regx_tcp_send(answering.conn, ANSWER, said, header, NULL, said + header,
                             length - header);
    }
}

static regx_status_t answer_one(uint32_t question)
{
    const unsigned before = writes;
    const regx_status_t status = send_answer(question);

    if (status == REGX_OK) {
        together += writes == before;
        singly += writes > before;
    }
    return status;
}

static void answer_more(void);

static void put_done(regx_put_t *ended, regx_status_t status)
{
    assert_ptr_equal(ended, &put);
    assert_int_equal(status, REGX_OK);
    putting = false;
    answered++;
    answer_more();
}

static regx_status_t put_one(uint32_t question)
{
    unit_fill(data, put_length(question), question, 0);
    put = (regx_put_t){.local = data,
                       .length = put_length(question),
                       .target = REGX_TARGET_POOL,
                       .tag = NOTICE,
                       .notice_length = sizeof(question),
                       .done = put_done};
    memcpy(put.notice, &question, sizeof(question));
    putting = true;
    const regx_status_t status = regx_tcp_put(answering.conn, &put);
    putting = status == REGX_PENDING;
    return status;
}

static void answer_more(void)
{
    while (!putting && answered / 2 < asked) {
        const uint32_t question = answered / 2;
        regx_status_t status = REGX_OK;

        if (answered % 2 == 0) {
            status = answer_one(question);
        } else if (has_put(question)) {
            status = put_one(question);
        }
        if (status != REGX_OK) {
            assert_true(status == REGX_AGAIN || status == REGX_PENDING ||
                        (may_break && status == REGX_UNREACHABLE));
            return;
        }
        answered++;
    }
}

static void hear_question(void *context, uint64_t sender, uint8_t tag, const void *bytes,
                          size_t length)
{
    (void)context, (void)sender;
    assert_int_equal(tag, ASK);
    assert_int_equal(length, sizeof(asked));
    assert_memory_equal(bytes, &asked, length);
    asked++;
    answer_more();
}

static void hear_answer(void *context, uint64_t sender, uint8_t tag, const void *bytes,
                        size_t length)
{
    const uint32_t question = heard / 2;

    (void)context, (void)sender;
    assert_int_equal(tag, heard % 2 == 0 ? ANSWER : NOTICE);
    if (tag == ANSWER) {
        assert_int_equal(length, answer_length(question));
        assert_true(unit_is_filled(bytes, length, question));
    } else {
        assert_int_equal(length, sizeof(question));
        assert_memory_equal(bytes, &question, length);
        assert_true(unit_is_filled(asking.tcp->super.pool_memory, put_length(question), question));
    }
    heard += heard % 2 == 0 && !has_put(question) ? 2 : 1;
}

static void begin(void)
{
    open_both(&asking, &answering);
    exchange(&asking, &answering, 1);
    settle(&asking, &answering);
    asking.tcp->config.events.deliver = hear_answer;
    answering.tcp->config.events.deliver = hear_question;
    asked = answered = heard = 0;
}

static void end(void)
{
    stingy = false;
    settle(&asking, &answering);
    assert_int_equal(asking.broken + answering.broken, 0);
    assert_int_equal(asking.counters.malformed + answering.counters.malformed, 0);
    close_both(&asking, &answering);
}

static bool ask_next(uint32_t question)
{
    return regx_tcp_send(asking.conn, ASK, &question, sizeof(question), NULL, NULL, 0) == REGX_OK;
}

/* Until so many questions wait to be read. */
static void wait_for_questions(int count)
{
    const int length = count * (16 + (int)sizeof(uint32_t));
    int there = 0;

    while (there < length) {
        assert_int_equal(ioctl(link_of(&answering)->fd, FIONREAD, &there), 0);
    }
    assert_int_equal(there, length);
}

static void one_look(const end_t *end)
{
    regx_tcp_stir(end->tcp);
    regx_tcp_progress(end->transport);
}

/* ---- tests ---- */

/* In the look in which the questions came: the program may not call MPI again for long. */
static void answers_leave_at_once_and_together(void **state)
{
    enum { FEW = 20, PUTS = 7 };

    (void)state;
    begin();
    for (uint32_t question = 0; question < FEW; question++) {
        assert_true(ask_next(question));
    }
    wait_for_questions(FEW);
    writes = 0;
    one_look(&answering);
    assert_int_equal(asked, FEW);
    assert_int_equal(answered, 2 * FEW);
    assert_in_range(writes, 1, PUTS + 2); /* the last of 20 questions has no put */
    while (heard < 2 * FEW) {
        one_look(&asking);
    }
    end();
}

static void ask_many(uint32_t first, uint32_t count)
{
    for (uint32_t question = first; question < first + count; question++) {
        while (!ask_next(question)) {
            one_look(&asking);
        }
    }
}

static void hear_all(uint32_t questions)
{
    while (heard < 2 * questions) {
        one_look(&asking);
        one_look(&answering);
        answer_more();
    }
    assert_int_equal(heard, 2 * questions);
}

static void answer_bursts(bool busy)
{
    begin();
    varied = true;
    stingy = busy;
    together = singly = 0;
    for (uint32_t first = 0; first < ASKS; first += BURST) {
        ask_many(first, BURST);
        hear_all(first + BURST);
    }
    assert_in_range(together, 1, ASKS - 1);
    assert_in_range(singly, 1, ASKS - 1);
    assert_int_equal(together + singly, ASKS);
    varied = false;
    end();
}

static void answers_of_any_length_keep_their_order(void **state)
{
    (void)state;
    answer_bursts(false);
}

static void answers_keep_their_order_if_the_kernel_is_busy(void **state)
{
    (void)state;
    answer_bursts(true);
}

/* What was accepted is lost with the connection, which is told. */
static void an_answer_that_cannot_leave_is_missed(void **state)
{
    (void)state;
    begin();
    may_break = true;
    asked = 1; /* the first would have a put */
    answered = 2;
    assert_true(ask_next(1));
    assert_true(ask_next(2));
    wait_for_questions(2);
    assert_int_equal(shutdown(link_of(&answering)->fd, SHUT_WR), 0);
    one_look(&answering);
    settle(&answering, &answering);
    assert_int_equal(answering.broken, 1);
    disconnect(&asking);
    disconnect(&answering);
    close_end(&asking);
    close_end(&answering);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_leave_at_once_and_together),
        cmocka_unit_test(answers_of_any_length_keep_their_order),
        cmocka_unit_test(answers_keep_their_order_if_the_kernel_is_busy),
        cmocka_unit_test(an_answer_that_cannot_leave_is_missed),
    };

    return cmocka_run_group_tests_name("gather", tests, NULL, NULL);
}
