/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The mailbox: every frame arrives once, whole and in order; a full one takes nothing.
 */
#include "box.h"

#include <stdlib.h>

static void every_length_arrives(void **state)
{
    box_t *box = box_open();

    (void)state;
    assert_empty(box);
    for (size_t length = 0; length <= REGX_MAILBOX_MAX; length++) {
        assert_int_equal(post(box, length, length), REGX_OK);
        take(box, length, length);
        assert_empty(box);
    }
    assert_int_equal(post(box, 1, REGX_MAILBOX_MAX + 1), REGX_INVALID);
    assert_empty(box);
    box_close(box);
}

static void laps_and_wraps_keep_order_and_content(void **state)
{
    enum { FRAMES = 50000 };
    box_t *box = box_open();
    uint64_t seed = 1; /* decides how many are in flight */
    uint64_t posting = 2;
    uint64_t taking = 2;
    uint64_t posted = 0;
    uint64_t taken = 0;
    uint64_t full = 0;

    (void)state;
    while (taken < FRAMES) {
        for (uint64_t more = chance_next(&seed) % 300; more > 0; more--) {
            uint64_t ahead = posting;

            if (post(box, posted, some_length(&ahead)) == REGX_AGAIN) {
                full++;
                break;
            }
            posting = ahead;
            posted++;
        }
        for (uint64_t fewer = chance_next(&seed) % 300; fewer > 0 && taken < posted; fewer--) {
            take(box, taken, some_length(&taking));
            taken++;
        }
    }
    while (taken < posted) {
        take(box, taken, some_length(&taking));
        taken++;
    }
    assert_empty(box);
    assert_true(full > 100);
    assert_true(box->out.line > 100 * REGX_MAILBOX_LINES);
    assert_true(box->out.payload > 100 * (uint64_t)BOX_RING);
    box_close(box);
}

/* Asserts that posting that frame answers AGAIN and that nothing shows it. */
static void assert_refused(box_t *box, uint64_t number, size_t length)
{
    regx_mailbox_memory_t *copy = malloc(BOX_SIZE);
    const uint64_t line = box->out.line;
    const uint64_t payload = box->out.payload;

    assert_non_null(copy);
    memcpy(copy, box->memory, BOX_SIZE);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(post(box, number, length), REGX_AGAIN);
    }
    assert_memory_equal(copy, box->memory, BOX_SIZE);
    assert_int_equal(box->out.line, line);
    assert_int_equal(box->out.payload, payload);
    free(copy);
}

static void a_ring_full_of_lines_takes_nothing(void **state)
{
    box_t *box = box_open();
    uint64_t posted = 0;
    uint64_t taken = 0;

    (void)state;
    for (int round = 0; round < 5; round++) {
        while (regx_mailbox_ready(&box->out)) {
            assert_int_equal(post(box, posted, posted % (REGX_MAILBOX_INLINE + 1)), REGX_OK);
            posted++;
        }
        assert_int_equal(posted - taken, REGX_MAILBOX_LINES);
        assert_refused(box, posted, 0);
        assert_refused(box, posted, REGX_MAILBOX_INLINE);
        assert_refused(box, posted, REGX_MAILBOX_MAX);
        assert_int_equal(regx_mailbox_post_zcopy(&box->out, 1, 0, 64, 0, 1), REGX_AGAIN);
        assert_false(regx_mailbox_ready(&box->out));
        while (taken < posted) {
            take(box, taken, taken % (REGX_MAILBOX_INLINE + 1));
            taken++;
        }
        assert_empty(box);
    }
    box_close(box);
}

/* A frame that goes on in the next lines needs them all, wherever the ring ends. */
static void a_span_needs_all_its_lines(void **state)
{
    static const uint64_t starts[] = {0, 1, 100, 248, 252, 255, 256, 700};
    enum { MOST = 8 };

    (void)state;
    for (size_t s = 0; s < sizeof(starts) / sizeof(starts[0]); s++) {
        for (uint32_t room = 0; room <= MOST; room++) {
            for (uint32_t lines = 2; lines <= MOST; lines++) {
                const size_t length = (size_t)lines * REGX_MAILBOX_INLINE;
                box_t *box = box_open();
                uint64_t taken = starts[s];

                for (uint64_t number = 0; number < starts[s]; number++) {
                    assert_int_equal(post(box, number, 8), REGX_OK);
                    take(box, number, 8);
                }
                /* What the poller freed and has not said yet is not there for the poster. */
                atomic_store(&box->memory->consumed.lines, box->in.line);
                box->in.published_lines = box->in.line;
                uint64_t number = starts[s];
                for (; number < starts[s] + REGX_MAILBOX_LINES - room; number++) {
                    assert_int_equal(post(box, number, 8), REGX_OK);
                }
                if (lines > room) {
                    assert_refused(box, number, length);
                } else {
                    assert_int_equal(post(box, number, length), REGX_OK);
                }
                while (taken < number) {
                    take(box, taken++, 8);
                }
                if (lines <= room) {
                    take(box, number, length);
                }
                assert_empty(box);
                assert_int_equal(post(box, number + 1, length), REGX_OK);
                take(box, number + 1, length);
                assert_empty(box);
                box_close(box);
            }
        }
    }
}

static void a_ring_full_of_payload_takes_short_frames_only(void **state)
{
    (void)state;
    for (size_t length = REGX_MAILBOX_SPAN + 1; length <= REGX_MAILBOX_MAX;
         length += length < 600 ? 1 : 997) {
        box_t *box = box_open();
        uint64_t posted = 0;
        uint64_t taken = 0;

        for (int round = 0; round < 6; round++) {
            while (post(box, posted, length) == REGX_OK) {
                posted++;
            }
            /* At least half of the payload, or all lines. */
            assert_true((posted - taken) * length >= BOX_RING / 2 - length ||
                        posted - taken == REGX_MAILBOX_LINES);
            assert_refused(box, posted, length);
            if (regx_mailbox_ready(&box->out)) {
                assert_int_equal(post(box, posted, REGX_MAILBOX_INLINE), REGX_OK);
                assert_refused(box, posted, length); /* with another header it may fit */
                while (taken < posted) {
                    take(box, taken++, length);
                }
                take(box, taken++, REGX_MAILBOX_INLINE);
                posted++;
            }
            while (taken < posted) {
                take(box, taken++, length);
            }
            assert_empty(box);
        }
        box_close(box);
    }
}

static void pack_plain(void *context, void *to, size_t length)
{
    memcpy(to, context, length);
}

/* Posts and takes one, of plain bytes or packed, whose payload lies at that place of a line. */
static void post_of(box_t *box, uint64_t number, size_t header_length, size_t length, size_t skew)
{
    static _Alignas(64) uint8_t bytes[REGX_MAILBOX_MAX + 64];
    const bool packed = number % 3 == 0;
    const uint8_t *header = content(number);
    uint8_t *payload = bytes + skew;
    regx_frame_t frame;

    memcpy(payload, header + header_length, length);
    assert_int_equal(regx_mailbox_post(&box->out, 1, header, header_length,
                                       packed ? pack_plain : NULL, payload, length),
                     REGX_OK);
    assert_int_equal(regx_mailbox_peek(&box->in, &frame), REGX_OK);
    assert_int_equal(frame.length, header_length + length);
    assert_memory_equal(frame.data, header, frame.length);
    assert_int_equal(((uintptr_t)frame.data + header_length) % REGX_COPY_LINE,
                     packed ? 0 : (uintptr_t)payload % REGX_COPY_LINE);
    regx_mailbox_pop(&box->in, &frame);
    assert_empty(box);
}

/* Of a long frame the payload lies within its cache line as it did, wherever the rings stand. What
 * is packed begins one. */
static void long_payload_keeps_its_place_in_the_line(void **state)
{
    enum { HEADERS = 80, LONG = REGX_COPY_PIECE + 1 };
    box_t *box = box_open();
    uint64_t number = 0;

    (void)state;
    for (size_t length = LONG; length + HEADERS <= REGX_MAILBOX_MAX; length += 1771) {
        for (size_t header = 0; header < HEADERS; header++) {
            for (size_t skew = 0; skew < 64; skew += 7) {
                post_of(box, ++number, header, length, skew);
            }
        }
    }
    assert_true(box->out.payload > 100 * (uint64_t)BOX_RING);
    box_close(box);
}

/* Wherever the rings stand, an emptied mailbox takes a frame of any length: nothing starves. */
static void an_empty_mailbox_takes_any_length(void **state)
{
    (void)state;
    for (size_t step = REGX_MAILBOX_INLINE + 1; step <= REGX_MAILBOX_MAX; step += 61) {
        box_t *box = box_open();

        for (uint64_t number = 0; number < 200; number++) {
            const size_t length = number % 2 == 0 ? step : REGX_MAILBOX_MAX;

            assert_int_equal(post(box, number, length), REGX_OK);
            take(box, number, length);
        }
        box_close(box);
    }
}

static void the_laps_number_may_overflow(void **state)
{
    box_t *box = box_open();
    const uint64_t start = (UINT64_C(0xfffffffe) - 1) * REGX_MAILBOX_LINES;

    (void)state;
    box->out.line = box->out.consumed_lines = start;
    box->in.line = box->in.published_lines = start;
    box->in.lap = UINT32_C(0xfffffffe);
    box->memory->consumed.lines = start;
    for (uint64_t number = 0; number < 5 * REGX_MAILBOX_LINES; number++) {
        assert_empty(box);
        assert_int_equal(post(box, number, number % 100), REGX_OK);
        take(box, number, number % 100);
    }
    box_close(box);
}

static void lent_frames_come_back(void **state)
{
    box_t *box = box_open();
    regx_frame_t frame;

    (void)state;
    for (uint32_t lap = 1; lap <= 100; lap++) {
        for (uint32_t token = 0; token < REGX_MAILBOX_ZCOPIES; token++) {
            assert_false(regx_mailbox_returned(&box->out, token, lap));
            assert_int_equal(regx_mailbox_post_zcopy(&box->out, (uint8_t)(token + lap),
                                                     UINT64_C(0x123456789a) * lap + token,
                                                     0xfedcba98u - token, token, lap),
                             REGX_OK);
        }
        for (uint32_t token = 0; token < REGX_MAILBOX_ZCOPIES; token++) {
            assert_int_equal(regx_mailbox_peek(&box->in, &frame), REGX_OK);
            assert_int_equal(frame.kind, REGX_FRAME_ZCOPY);
            assert_int_equal(frame.tag, (uint8_t)(token + lap));
            assert_int_equal(frame.offset, UINT64_C(0x123456789a) * lap + token);
            assert_int_equal(frame.length, 0xfedcba98u - token);
            assert_int_equal(frame.token, token);
            assert_int_equal(frame.lap, lap);
            regx_mailbox_pop(&box->in, &frame);
        }
        assert_empty(box);
        /* Given back later and in another order. */
        for (uint32_t i = 0; i < REGX_MAILBOX_ZCOPIES; i++) {
            const uint32_t token = i * 5 % REGX_MAILBOX_ZCOPIES;

            assert_false(regx_mailbox_returned(&box->out, token, lap));
            regx_mailbox_return(&box->in, token, lap);
            assert_true(regx_mailbox_returned(&box->out, token, lap));
        }
    }
    box_close(box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_arrives),
        cmocka_unit_test(laps_and_wraps_keep_order_and_content),
        cmocka_unit_test(a_ring_full_of_lines_takes_nothing),
        cmocka_unit_test(a_span_needs_all_its_lines),
        cmocka_unit_test(a_ring_full_of_payload_takes_short_frames_only),
        cmocka_unit_test(long_payload_keeps_its_place_in_the_line),
        cmocka_unit_test(an_empty_mailbox_takes_any_length),
        cmocka_unit_test(the_laps_number_may_overflow),
        cmocka_unit_test(lent_frames_come_back),
    };

    return cmocka_run_group_tests(tests, box_setup, NULL);
}
