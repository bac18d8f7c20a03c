/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Frames over the tcp wire: whole, in order, also from inside deliver and by several threads; every
 * byte checked.
 */
#include "sides.h"

#include <pthread.h>

#include "transport/counters.h"

enum { FRAMES = 2000 };

/* The size of frame number n: the boundaries first, then anything. */
static size_t frame_size(unsigned n)
{
    static const size_t sizes[] = {0, 1, 7, 8, 9, 100, 4095, 4096, 4097, 65535, 65536};
    uint64_t state = n;

    return n < sizeof(sizes) / sizeof(sizes[0]) ? sizes[n] : chance_next(&state) % (DATA_MAX / 8);
}

typedef struct packing {
    uint64_t stream;
    size_t from;
    unsigned calls;
} packing_t;

static void pack(void *context, void *to, size_t length)
{
    packing_t *packing = context;

    packing->calls++;
    unit_fill(to, length, packing->stream, packing->from);
}

static uint64_t stream_of(uint64_t sender, unsigned n)
{
    return sender + n;
}

static void check_frame(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    const unsigned n = side->delivered;

    REQUIRE(tag == (uint8_t)n);
    REQUIRE(length == frame_size(n));
    REQUIRE(unit_is_filled(data, length, stream_of(in_child ? PARENT : CHILD, n)));
}

/* Sends frame n: header and payload packed, or lent. Whether it was accepted. */
static bool send_frame(side_t *side, unsigned n)
{
    static uint8_t buffer[DATA_MAX];
    const size_t size = frame_size(n);
    const size_t header_length = size < 200 ? size / 2 : 56;
    packing_t packing = {.stream = stream_of(side->config.self, n), .from = header_length};
    regx_status_t status;

    unit_fill(buffer, n % 3 == 0 ? size : header_length, packing.stream, 0);
    if (n % 3 == 0) {
        regx_zcopy_t zcopy = {.data = buffer, .length = size, .tag = (uint8_t)n};

        status = regx_tcp_send_zcopy(side->conn, &zcopy);
        memset(buffer, 0, size); /* it is ours again */
    } else {
        status = regx_tcp_send(side->conn, (uint8_t)n, buffer, header_length, pack, &packing,
                               size - header_length);
        REQUIRE(packing.calls == (status == REGX_OK && size > header_length));
    }
    REQUIRE(status == REGX_OK || status == REGX_AGAIN);
    return status == REGX_OK;
}

static void stream_frames(side_t *side)
{
    unsigned sent = 0;
    uint64_t bytes = 0;

    side->deliver = check_frame;
    while (sent < FRAMES || side->delivered < FRAMES) {
        while (sent < FRAMES && send_frame(side, sent)) {
            bytes += frame_size(sent++);
        }
        progress(side);
    }
    REQUIRE(side->counters.transport[REGX_COUNTER_bytes_tcp] == bytes);
    REQUIRE(side->counters.malformed == 0);
    meet(side);
}

static void frames_arrive_whole_and_in_order(void **state)
{
    (void)state;
    run_pair(false, stream_frames, stream_frames);
}

static void too_large(side_t *side)
{
    REQUIRE(regx_tcp_send(side->conn, 1, side->pool, 1, NULL, NULL, 0) != REGX_INVALID);
    REQUIRE(regx_tcp_send(side->conn, 1, side->pool, 256, pack, NULL, DATA_MAX - 255) ==
            REGX_INVALID);
    regx_zcopy_t zcopy = {.data = side->pool, .length = DATA_MAX + 1};
    REQUIRE(regx_tcp_send_zcopy(side->conn, &zcopy) == REGX_INVALID);
    meet(side);
}

static void frames_that_are_too_large_are_refused(void **state)
{
    (void)state;
    run_pair(false, too_large, meet);
}

/* ---- calls from inside deliver ---- */

enum { ASKED = 300 };

static void answer_inside(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    const unsigned n = side->delivered;
    regx_status_t status = REGX_AGAIN;

    REQUIRE(tag == 1 && length == sizeof(n) && memcmp(data, &n, length) == 0);
    if (side->answers == 0) {
        status = regx_tcp_send(side->conn, 2, &n, sizeof(n), NULL, NULL, 0);
    }
    REQUIRE(status == REGX_OK || status == REGX_AGAIN);
    if (status == REGX_AGAIN) {
        side->answers++; /* the last `answers` numbers, in order */
    }
}

static void answer(side_t *side)
{
    side->deliver = answer_inside;
    while (side->delivered < ASKED || side->answers > 0) {
        const unsigned n = side->delivered - side->answers;

        if (side->answers > 0 &&
            regx_tcp_send(side->conn, 2, &n, sizeof(n), NULL, NULL, 0) == REGX_OK) {
            side->answers--;
        } else {
            progress(side);
        }
    }
    meet(side);
}

static void check_answer(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    const unsigned n = side->delivered;

    REQUIRE(tag == 2 && length == sizeof(n) && memcmp(data, &n, length) == 0);
}

static void ask(side_t *side)
{
    side->deliver = check_answer;
    /* All at once, so that the other makes its endpoint with more of them behind the first. */
    for (unsigned n = 0; n < ASKED; n++) {
        while (regx_tcp_send(side->conn, 1, &n, sizeof(n), NULL, NULL, 0) != REGX_OK) {
            progress(side);
        }
    }
    while (side->delivered < ASKED) {
        progress(side);
    }
    meet(side);
}

static void deliver_may_send(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        run_pair(i % 2 == 1, ask, answer);
    }
}

/* ---- threads ---- */

enum { SENDERS = 2, PER_SENDER = 3000 };

/* A frame: number of the sender, number of the frame, stamps. */
static void check_sender(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    unsigned n;

    REQUIRE(tag < SENDERS && length >= sizeof(n));
    memcpy(&n, data, sizeof(n));
    REQUIRE(n == side->received[tag]);
    REQUIRE(unit_is_filled(data + sizeof(n), length - sizeof(n), stream_of(tag, n)));
    side->received[tag]++;
    /* Sends from here run while others try to. Whether it is accepted does not matter. */
    if (n % 16 == 0) {
        regx_tcp_send(side->conn, SENDERS, NULL, 0, NULL, NULL, 0);
    }
}

static void check_some(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    if (tag < SENDERS) {
        check_sender(side, tag, data, length);
    }
}

typedef struct sender {
    side_t *side;
    uint8_t number;
} sender_t;

static void *send_many(void *argument)
{
    const sender_t *sender = argument;

    for (unsigned n = 0; n < PER_SENDER; n++) {
        uint8_t data[512];
        const size_t length = sizeof(n) + n % 500;

        memcpy(data, &n, sizeof(n));
        unit_fill(data + sizeof(n), length - sizeof(n), stream_of(sender->number, n), 0);
        for (;;) {
            const regx_status_t status =
                regx_tcp_send(sender->side->conn, sender->number, data, length, NULL, NULL, 0);

            REQUIRE(status == REGX_OK || status == REGX_AGAIN);
            if (status == REGX_OK) {
                break;
            }
            sched_yield();
        }
    }
    return NULL;
}

static void run_threads(side_t *side)
{
    sender_t senders[SENDERS];
    pthread_t threads[SENDERS];
    bool all = false;

    side->deliver = check_some;
    for (uint8_t i = 0; i < SENDERS; i++) {
        senders[i] = (sender_t){.side = side, .number = i};
        REQUIRE(pthread_create(&threads[i], NULL, send_many, &senders[i]) == 0);
    }
    while (!all) {
        char byte;

        progress(side);
        all = true;
        for (int i = 0; i < SENDERS; i++) {
            all = all && side->received[i] == PER_SENDER;
        }
        if (all) {
            /* Go on until the other has everything too. */
            tell(side, "", 1);
            while (recv(side->socket, &byte, 1, MSG_DONTWAIT) != 1) {
                progress(side);
            }
        }
    }
    for (int i = 0; i < SENDERS; i++) {
        pthread_join(threads[i], NULL);
    }
    REQUIRE(side->counters.malformed == 0);
    meet(side);
}

static void threads_share_the_wire(void **state)
{
    (void)state;
    run_pair(true, run_threads, run_threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_arrive_whole_and_in_order),
        cmocka_unit_test(frames_that_are_too_large_are_refused),
        cmocka_unit_test(deliver_may_send),
        cmocka_unit_test(threads_share_the_wire),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
