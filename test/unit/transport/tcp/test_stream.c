/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What tcp makes of the bytes of a link, however the network cuts them. The link is one end of a
 * pair of sockets; the other is written here.
 */
#include "../../unit.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "transport/tcp/tcp_internal.h"

enum { SELF = 1, PEER = 7, REGION = 300000, FRAMES_MAX = 16, FRAME_MAX = 65536 };

typedef struct delivery {
    uint8_t tag;
    size_t length;
    uint8_t *data;
} delivery_t;

typedef struct receiver {
    regx_tcp_t tcp;
    regx_counters_t counters;
    regx_rkey_table_t rkeys;
    uint8_t *region;
    regx_key_t key;
    void *handle; /* NULL: taken back */
    regx_tcp_link_t *link;
    int peer;
    delivery_t got[FRAMES_MAX];
    unsigned count;
} receiver_t;

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    receiver_t *receiver = context;
    delivery_t *got = &receiver->got[receiver->count++];

    assert_int_equal(sender, PEER);
    assert_true(receiver->count <= FRAMES_MAX);
    *got = (delivery_t){.tag = tag, .length = length, .data = malloc(length + 1)};
    assert_non_null(got->data);
    memcpy(got->data, data, length);
}

static receiver_t *make_receiver(void)
{
    receiver_t *receiver = calloc(1, sizeof(*receiver));
    int ends[2];

    assert_non_null(receiver);
    receiver->tcp.config =
        (regx_transport_config_t){.self = SELF,
                                  .rkeys = &receiver->rkeys,
                                  .counters = &receiver->counters,
                                  .events = {.context = receiver, .deliver = deliver}};
    receiver->tcp.incoming = malloc(REGX_TCP_STAGING);
    receiver->region =
        mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_non_null(receiver->tcp.incoming);
    assert_true(receiver->region != MAP_FAILED);
    regx_rkey_table_init(&receiver->rkeys, false);
    assert_int_equal(regx_rkey_table_add(&receiver->rkeys, receiver->region, REGION,
                                         REGX_ACCESS_REMOTE_WRITE, &receiver->key,
                                         &receiver->handle),
                     REGX_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    /* All that is fed at once goes in without waiting. */
    const int room = 1 << 20;
    assert_int_equal(setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
    receiver->link = calloc(1, sizeof(*receiver->link));
    assert_non_null(receiver->link);
    *receiver->link = (regx_tcp_link_t){.tcp = &receiver->tcp,
                                        .peer = PEER,
                                        .fd = ends[0],
                                        .state = REGX_TCP_LINK_OPEN,
                                        .expects = REGX_TCP_SHORT_READ};
    receiver->tcp.links = receiver->link;
    receiver->tcp.link_count = 1;
    receiver->peer = ends[1];
    return receiver;
}

static void take_back(receiver_t *receiver)
{
    regx_rkey_table_remove(&receiver->rkeys, receiver->handle);
    receiver->handle = NULL;
}

static void free_receiver(receiver_t *receiver)
{
    close(receiver->peer);
    regx_tcp_link_end(receiver->link);
    regx_tcp_sweep(&receiver->tcp);
    assert_null(receiver->tcp.links);
    regx_rkey_table_fini(&receiver->rkeys);
    munmap(receiver->region, REGION);
    for (unsigned i = 0; i < receiver->count; i++) {
        free(receiver->got[i].data);
    }
    free(receiver->tcp.incoming);
    free(receiver);
}

static void read_all(receiver_t *receiver)
{
    while (receiver->link->state != REGX_TCP_LINK_ENDED && regx_tcp_link_read(receiver->link)) {
    }
}

/* Writes bytes so many at a time; each time all that can be read is read. */
static void feed(receiver_t *receiver, const uint8_t *bytes, size_t length, size_t at_a_time)
{
    for (size_t at = 0; at < length; at += at_a_time) {
        const size_t part = regx_min(at_a_time, length - at);

        assert_int_equal(write(receiver->peer, bytes + at, part), part);
        read_all(receiver);
    }
}

/* Appends a message whose data is stream number `stream`, and returns the bytes behind it. */
static uint8_t *append(const receiver_t *receiver, uint8_t *at, regx_tcp_kind_t kind, uint8_t tag,
                       uint64_t offset, size_t length, uint64_t stream)
{
    regx_tcp_frame_t frame = {.kind = kind, .tag = tag, .sender = PEER, .length = length};

    if (regx_tcp_is_put(kind)) {
        frame.target = REGX_TARGET_REGION;
        frame.offset = offset;
        frame.key = receiver->key;
    }
    if (kind == REGX_TCP_LAST) {
        frame.notice = "a notice";
        frame.notice_length = 8;
    }
    at += regx_tcp_encode(&frame, at);
    unit_fill(at, length, stream, 0);
    return at + length;
}

static const struct message {
    regx_tcp_kind_t kind;
    uint64_t offset;
    size_t length;
} messages[] = {
    {REGX_TCP_FRAME, 0, 10},         {REGX_TCP_PIECE, 5, 100},       {REGX_TCP_LAST, 105, 70000},
    {REGX_TCP_FRAME, 0, 0},          {REGX_TCP_FRAME, 0, FRAME_MAX}, {REGX_TCP_LAST, 80000, 0},
    {REGX_TCP_LAST, 80000, 4095},    {REGX_TCP_LAST, 90000, 4096},   {REGX_TCP_FRAME, 0, 5000},
    {REGX_TCP_LAST, 100000, 200000}, {REGX_TCP_FRAME, 0, 8},
};
enum { MESSAGES = sizeof(messages) / sizeof(messages[0]) };

static void check_messages(const receiver_t *receiver)
{
    unsigned got = 0;

    for (unsigned n = 0; n < MESSAGES; n++) {
        const struct message *message = &messages[n];

        if (regx_tcp_is_put(message->kind)) {
            assert_true(unit_is_filled(receiver->region + message->offset, message->length, n));
        }
        if (message->kind != REGX_TCP_PIECE) {
            const delivery_t *delivery = &receiver->got[got++];

            assert_int_equal(delivery->tag, n);
            if (message->kind == REGX_TCP_FRAME) {
                assert_int_equal(delivery->length, message->length);
                assert_true(unit_is_filled(delivery->data, message->length, n));
            } else {
                assert_int_equal(delivery->length, 8);
                assert_memory_equal(delivery->data, "a notice", 8);
            }
        }
    }
    assert_int_equal(receiver->count, got);
    assert_int_equal(receiver->counters.malformed, 0);
    assert_null(receiver->link->in); /* nothing is kept for a message that has come */
}

static void messages_arrive_however_they_are_cut(void **state)
{
    static const size_t cuts[] = {1, 7, 16, 57, 4096, 4100, 65536, 100000};
    static uint8_t bytes[1 << 20];

    (void)state;
    for (size_t cut = 0; cut < sizeof(cuts) / sizeof(cuts[0]); cut++) {
        receiver_t *receiver = make_receiver();
        uint8_t *at = bytes;

        for (unsigned n = 0; n < MESSAGES; n++) {
            const uint8_t tag = messages[n].kind == REGX_TCP_PIECE ? 0 : (uint8_t)n;

            at = append(receiver, at, messages[n].kind, tag, messages[n].offset, messages[n].length,
                        n);
        }
        feed(receiver, bytes, (size_t)(at - bytes), cuts[cut]);
        check_messages(receiver);
        free_receiver(receiver);
    }
}

/* Feeds `before` bytes of a put of `length` bytes, does something, and feeds the rest and a
 * frame. */
static void interrupt_put(receiver_t *receiver, size_t length, size_t before,
                          void (*meanwhile)(receiver_t *))
{
    static uint8_t bytes[1 << 20];
    const uint8_t *end = append(receiver, bytes, REGX_TCP_LAST, 1, 0, length, 1);
    const size_t all = (size_t)(end - bytes), first = all - length + before;
    uint8_t frame[100];

    feed(receiver, bytes, first, first);
    meanwhile(receiver);
    feed(receiver, bytes + first, all - first, 50000);
    feed(receiver, frame, (size_t)(append(receiver, frame, REGX_TCP_FRAME, 2, 0, 10, 2) - frame),
         100);
}

static void a_key_taken_back_in_the_middle_of_a_put_ends_the_writing(void **state)
{
    receiver_t *receiver = make_receiver();

    (void)state;
    interrupt_put(receiver, 250000, 100000, take_back);
    assert_true(unit_is_filled(receiver->region, 100000, 1));
    for (size_t at = 100000; at < REGION; at++) {
        assert_int_equal(receiver->region[at], 0);
    }
    assert_int_equal(receiver->counters.malformed, 1);
    assert_int_equal(receiver->count, 1); /* no notice; the frame behind the put */
    assert_int_equal(receiver->got[0].tag, 2);
    free_receiver(receiver);
}

static void make_unwritable(receiver_t *receiver)
{
    assert_int_equal(mprotect(receiver->region, REGION, PROT_NONE), 0);
}

static void a_put_to_memory_that_is_gone_is_refused(void **state)
{
    receiver_t *receiver = make_receiver();

    (void)state;
    interrupt_put(receiver, 250000, 100000, make_unwritable);
    assert_int_equal(receiver->counters.malformed, 1);
    assert_int_equal(receiver->count, 1);
    assert_int_equal(receiver->got[0].tag, 2);
    free_receiver(receiver);
}

/* Nor its first bytes, which would be inside. */
static void a_put_that_is_too_long_writes_nothing(void **state)
{
    static uint8_t bytes[1 << 20];

    (void)state;
    for (size_t at_a_time = 100; at_a_time <= sizeof(bytes); at_a_time *= 100) {
        receiver_t *receiver = make_receiver();
        uint8_t *at = append(receiver, bytes, REGX_TCP_PIECE, 0, REGION - 200000, 200001, 1);

        at = append(receiver, at, REGX_TCP_FRAME, 2, 0, 10, 2);
        feed(receiver, bytes, (size_t)(at - bytes), at_a_time);
        for (size_t byte = 0; byte < REGION; byte++) {
            assert_int_equal(receiver->region[byte], 0);
        }
        assert_int_equal(receiver->counters.malformed, 1);
        assert_int_equal(receiver->count, 1);
        assert_int_equal(receiver->got[0].tag, 2);
        free_receiver(receiver);
    }
}

/* Nothing is kept for who has not said connect. */
static void a_stranger_that_begins_with_something_else_is_put_out(void **state)
{
    static const regx_tcp_kind_t kinds[] = {REGX_TCP_FRAME, REGX_TCP_PIECE,   REGX_TCP_LAST,
                                            REGX_TCP_HELLO, REGX_TCP_GOODBYE, REGX_TCP_WELCOME};

    (void)state;
    for (size_t n = 0; n < sizeof(kinds) / sizeof(kinds[0]); n++) {
        receiver_t *receiver = make_receiver();
        uint8_t head[REGX_TCP_HEAD_MAX + 8];
        const uint8_t *end = append(receiver, head, kinds[n], 0, 0, 0, 1);

        receiver->link->state = REGX_TCP_LINK_STRANGER;
        head[4] = kinds[n] <= REGX_TCP_LAST; /* its data has not come */
        feed(receiver, head, (size_t)(end - head), sizeof(head));
        assert_int_equal(receiver->link->state, REGX_TCP_LINK_ENDED);
        assert_null(receiver->link->in);
        assert_int_equal(receiver->counters.malformed, 1);
        free_receiver(receiver);
    }
}

/* Where the next message begins is known as long as the heads are good. */
static void what_has_no_end_ends_the_link(void **state)
{
    static const struct {
        size_t byte;
        uint8_t value;
    } wrong[] = {{0, 1}, {1, 0}, {1, 8}, {7, 1}, {8, PEER + 1}, {48, REGX_NOTICE_MAX + 1}};

    (void)state;
    for (size_t n = 0; n < sizeof(wrong) / sizeof(wrong[0]); n++) {
        receiver_t *receiver = make_receiver();
        uint8_t bytes[1000];
        const uint8_t *end = append(receiver, bytes, REGX_TCP_LAST, 1, 0, 100, 1);

        bytes[wrong[n].byte] = wrong[n].value;
        feed(receiver, bytes, (size_t)(end - bytes), sizeof(bytes));
        assert_int_equal(receiver->link->state, REGX_TCP_LINK_ENDED);
        assert_int_equal(receiver->counters.malformed, 1);
        assert_int_equal(receiver->count, 0);
        for (size_t i = 0; i < REGION; i++) {
            assert_int_equal(receiver->region[i], 0);
        }
        free_receiver(receiver);
    }
}

/* A part of a put that was refused leaves a hole; its notice would say that there is none. */
static void a_put_with_a_hole_has_no_notice(void **state)
{
    static const size_t cuts[] = {97, 5000, 1 << 20};
    static uint8_t bytes[1 << 18];

    (void)state;
    for (size_t cut = 0; cut < sizeof(cuts) / sizeof(cuts[0]); cut++) {
        for (size_t length = 100; length <= 50000; length += 49900) {
            receiver_t *receiver = make_receiver();
            uint8_t *at = append(receiver, bytes, REGX_TCP_PIECE, 0, REGION, length, 1);

            at = append(receiver, at, REGX_TCP_PIECE, 0, 0, length, 2);
            at = append(receiver, at, REGX_TCP_LAST, 3, length, length, 3);
            at = append(receiver, at, REGX_TCP_LAST, 4, 0, length, 4);
            feed(receiver, bytes, (size_t)(at - bytes), cuts[cut]);
            assert_int_equal(receiver->count, 1);
            assert_int_equal(receiver->got[0].tag, 4);
            assert_true(unit_is_filled(receiver->region, length, 4));
            assert_int_equal(receiver->counters.malformed, 3);
            free_receiver(receiver);
        }
    }
}

static void a_peer_speaks_from_hello_to_goodbye(void **state)
{
    static const struct {
        regx_tcp_kind_t kind;
        bool speaks;
        unsigned malformed;
    } said[] = {{REGX_TCP_HELLO, true, 0},    {REGX_TCP_HELLO, true, 0},
                {REGX_TCP_CONNECT, true, 1},  {REGX_TCP_GOODBYE, false, 1},
                {REGX_TCP_HELLO, false, 2},   {REGX_TCP_GOODBYE, false, 3},
                {REGX_TCP_CONNECT, false, 4}, {REGX_TCP_WELCOME, false, 5}};
    receiver_t *receiver = make_receiver();
    regx_tcp_conn_t conn = {.super.peer = PEER}; /* so that the link stays */

    (void)state;
    receiver->link->conn = &conn;
    for (size_t n = 0; n < sizeof(said) / sizeof(said[0]); n++) {
        uint8_t message[REGX_TCP_HEAD_MAX];
        const uint8_t *end = append(receiver, message, said[n].kind, 0, 0, 0, 1);

        feed(receiver, message, (size_t)(end - message), sizeof(message));
        assert_int_equal(receiver->link->state, REGX_TCP_LINK_OPEN);
        assert_int_equal(receiver->link->received == REGX_TCP_RECEIVED_HELLO, said[n].speaks);
        assert_int_equal(receiver->counters.malformed, said[n].malformed);
    }
    receiver->link->conn = NULL;
    free_receiver(receiver);
}

/* Who lets go of a link before it sent anything. A connect that was said again has crossed the
 * welcome. */
static void a_goodbye_may_come_alone(void **state)
{
    static const regx_tcp_kind_t kinds[] = {REGX_TCP_CONNECT, REGX_TCP_GOODBYE};
    receiver_t *receiver = make_receiver();

    (void)state;
    for (size_t n = 0; n < 2; n++) {
        uint8_t message[REGX_TCP_HEAD_MAX];
        const uint8_t *end = append(receiver, message, kinds[n], 0, 0, 0, 1);

        assert_int_equal(receiver->link->state, REGX_TCP_LINK_OPEN);
        feed(receiver, message, (size_t)(end - message), sizeof(message));
    }
    assert_int_equal(receiver->link->state, REGX_TCP_LINK_ENDED); /* nobody sends by it */
    assert_int_equal(receiver->counters.malformed, 0);
    free_receiver(receiver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_however_they_are_cut),
        cmocka_unit_test(a_key_taken_back_in_the_middle_of_a_put_ends_the_writing),
        cmocka_unit_test(a_put_to_memory_that_is_gone_is_refused),
        cmocka_unit_test(a_put_that_is_too_long_writes_nothing),
        cmocka_unit_test(a_stranger_that_begins_with_something_else_is_put_out),
        cmocka_unit_test(what_has_no_end_ends_the_link),
        cmocka_unit_test(a_put_with_a_hole_has_no_notice),
        cmocka_unit_test(a_peer_speaks_from_hello_to_goodbye),
        cmocka_unit_test(a_goodbye_may_come_alone),
    };

    return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
