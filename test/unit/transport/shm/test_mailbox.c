/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The mailbox: every frame arrives once, whole and in order; a full one takes nothing.
 */
#include "box.h"

#include <stdlib.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(laps_and_wraps_keep_order_and_content),
        cmocka_unit_test(a_span_needs_all_its_lines),
        cmocka_unit_test(a_ring_full_of_payload_takes_short_frames_only),
        cmocka_unit_test(an_empty_mailbox_takes_any_length),
        cmocka_unit_test(the_laps_number_may_overflow),
    };

    return cmocka_run_group_tests(tests, box_setup, NULL);
}
