/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The path together: which bytes go which way, and when a message goes so.
 */
#include "together_stage.h"

/* What one message took: of the sender and of the receiver. */
typedef struct taken {
    uint64_t puts, gets, chunks_sender, chunks_receiver, grants, messages, bytes, registrations[2];
    uint64_t copied_out, fallbacks;
} taken_t;

static taken_t taken_so_far(const stage_t *stage)
{
    const regx_counters_t *sender = &stage->sender->counters;
    const regx_counters_t *receiver = &stage->receiver->counters;

    return (taken_t){.puts = sender->puts,
                     .gets = receiver->gets,
                     .chunks_sender = sender->chunks_sender,
                     .chunks_receiver = receiver->chunks_receiver,
                     .grants = receiver->grants,
                     .messages = sender->messages[REGX_PATH_together],
                     .bytes = sender->bytes[REGX_PATH_together],
                     .registrations = {sender->registrations, receiver->registrations},
                     .copied_out = receiver->copied_out_bytes,
                     .fallbacks = sender->messages[REGX_PATH_fallback]};
}

/* One put of the half, a get for each chunk of the rest, one registration at each end for each of
 * these, a message for the put, two for each get, and nothing else. */
static void goes_together(stage_t *stage, size_t length)
{
    const size_t half = half_of(stage, length);
    const uint64_t gets = (length - half + PAGE - 1) / PAGE;
    const taken_t before = taken_so_far(stage);

    memset(stage->frames, 0, sizeof(stage->frames));
    stage->chunk_bytes = 0;
    goes_well(stage, length);
    const taken_t after = taken_so_far(stage);
    assert_int_equal(stage->chunk_bytes, half);
    assert_int_equal(after.puts - before.puts, 1);
    assert_int_equal(after.gets - before.gets, gets);
    assert_int_equal(after.chunks_sender - before.chunks_sender, 1);
    assert_int_equal(after.chunks_receiver - before.chunks_receiver, gets);
    assert_int_equal(after.grants - before.grants, 1);
    assert_int_equal(after.messages - before.messages, 1);
    assert_int_equal(after.bytes - before.bytes, length);
    assert_int_equal(after.registrations[0] - before.registrations[0], 1 + gets);
    assert_int_equal(after.registrations[1] - before.registrations[1], 1 + gets);
    assert_int_equal(after.copied_out, before.copied_out);
    assert_int_equal(after.fallbacks, before.fallbacks);
    assert_int_equal(stage->frames[0], gets);
    assert_int_equal(stage->frames[1], 1 + gets);
    assert_int_equal(malformed(stage), 0);
}

static void each_length_at_each_base_goes_together(void **state)
{
    static const size_t bases[] = {0, 1, 6, 7, 8, PAGE / 2 + 7, PAGE + 6};

    (void)state;
    for (unsigned i = 0; i < 49; i++) {
        stage_t *stage = stage_open();

        stage->seed = i;
        stage->late_percent = i % 3 * 50;
        stage->from = bases[i / 7];
        stage->to = bases[i % 7];
        for (size_t length = 1; length <= 5 * PAGE;
             length += length % PAGE < 10 || length % PAGE > PAGE - 9 ? 1 : PAGE / 2 - 9) {
            goes_together(stage, length);
        }
        stage_close(stage);
    }
}

/* Where the middle and the end lie in the same page there is nothing for the receiver to do. */
static void a_short_message_has_no_second_half(void **state)
{
    stage_t *stage = stage_open();

    (void)state;
    stage->to = 6; /* the last byte of a page, which is half of two or three */
    for (size_t length = 1; length <= PAGE + 2; length++) {
        const unsigned gets = length == 2 || length == 3 || length == PAGE + 2;
        const unsigned before = stage->receiver->calls[FAKE_GET];

        goes_together(stage, length);
        assert_int_equal(stage->receiver->calls[FAKE_GET] - before, gets);
    }
    stage_close(stage);
}

/* Puts may end before, between and after all gets and messages, which may find no room. */
static void halves_may_end_in_any_order(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 1000; seed++) {
        stage_t *stage = stage_open();

        stage->seed = seed;
        stage->again_percent = seed % 4 * 25;
        stage->late_percent = 75;
        goes_together(stage, LENGTH);
        assert_bytes(stage, LENGTH);
        stage_close(stage);
    }
}

/* Both ends' limits hold, whichever is the smaller, and the half comes on top. */
static void both_ends_limits_hold(void **state)
{
    static const struct {
        size_t chunk;
        unsigned depth;
    } limits[] = {{PAGE, 1}, {PAGE, 2}, {2 * PAGE, 1}, {16 * PAGE, 64}};

    (void)state;
    for (unsigned i = 0; i < 16; i++) {
        fake_config_t sender = standard, receiver = standard;

        sender.chunk_size = limits[i / 4].chunk;
        sender.chunk_depth = limits[i / 4].depth;
        receiver.chunk_size = limits[i % 4].chunk;
        receiver.chunk_depth = limits[i % 4].depth;
        stage_t *stage = stage_open_both(&sender, &receiver);
        assert_limits_hold(stage, &sender, &receiver, HALF);
        stage_close(stage);
    }
}

/* The send ends with the last of all, be it the put or what the receive says of a get; and no
 * memory stays registered for longer than its own. */
static void the_done_callback_waits_for_both_halves(void **state)
{
    (void)state;
    for (unsigned last = 0; last < 2; last++) {
        stage_t *stage = stage_open();

        stage->late_percent = 100;
        begin_of(stage, 2 * PAGE);
        while (deliver(stage, 1)) {
        }
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(stage->dones, 0);
            assert_int_equal(stage->sender->open_windows, 2 - i);
            assert_int_equal(stage->receiver->open_windows, 2 - i);
            if ((i == 0) == (last == 0)) {
                assert_true(fake_got(stage->receiver, 0, 0, REGX_OK));
                assert_true(deliver(stage, 0));
            } else {
                assert_true(end_put(stage, 0));
                assert_true(deliver(stage, 1));
            }
        }
        assert_read_of(stage, 2 * PAGE);
        close_recv(stage);
        stage_close(stage);
    }
}

/* The registrations that serve a chunk may be of more, at either end. */
static void chunks_lie_within_larger_regions(void **state)
{
    (void)state;
    for (size_t outer = 1; outer <= PAGE; outer += outer < 3 ? 1 : 500) {
        fake_config_t config = standard;

        config.outer = outer;
        stage_t *stage = stage_open_both(&config, &config);
        goes_well(stage, LENGTH);
        assert_bytes(stage, LENGTH);
        stage_close(stage);
    }
}

/* ---- verify ---- */

static unsigned corrupt_write; /* so many writes from now */

static void corrupt(fake_t *fake, const void *from, size_t length, char *written)
{
    (void)fake, (void)from;
    if (corrupt_write > 0 && --corrupt_write == 0) {
        written[length - 1] ^= 1;
    }
}

static void both_halves_are_verified(void **state)
{
    (void)state;
    for (unsigned which = 0; which <= 1 + GETS; which++) {
        fake_config_t config = standard;

        config.verify = true;
        stage_t *stage = stage_open_both(&standard, &config);
        stage->sender->corrupt = stage->receiver->corrupt = corrupt;
        corrupt_write = which; /* the put comes first */
        begin(stage);
        run(stage);
        assert_int_equal(stage->status, REGX_OK);
        assert_int_equal(stage->dones, 1);
        close_recv(stage);
        assert_int_equal(stage->receiver->counters.verified, 1 + GETS);
        assert_int_equal(stage->receiver->counters.mismatches, which > 0);
        assert_int_equal(stage->receiver->mismatches, which > 0);
        assert_int_equal(strstr(stage->receiver->mismatch, "by together") != NULL, which > 0);
        assert_int_equal(strstr(stage->receiver->mismatch, "bytes 0 to 12294 of") != NULL,
                         which == 1);
        stage_close(stage);
    }
}

/* ---- whether a message goes so ---- */

static void a_peer_without_single_copy_gets_bounce(void **state)
{
    static const char reason[] = "together: the kernel does not copy to this peer";
    stage_t *stage = stage_open();

    (void)state;
    stage->receiver->conns[0].conn.single_copy = false;
    goes_well(stage, LENGTH);
    assert_bytes(stage, 0);
    assert_int_equal(fallbacks_of(stage->receiver, reason), 1);
    assert_int_equal(stage->sender->calls[FAKE_REG] + stage->receiver->calls[FAKE_REG], 0);
    stage->receiver->conns[0].conn.single_copy = true;
    goes_together(stage, 1);
    assert_int_equal(fallbacks_of(stage->receiver, reason), 1);
    stage_close(stage);
}

/* The receiver decides: what the sender itself would do does not matter. */
static void a_sender_of_another_strategy_takes_part(void **state)
{
    static const char *const strategies[] = {"auto", "bounce", "pipeline", "direct", "read"};

    (void)state;
    for (size_t i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++) {
        fake_config_t sender = standard;

        sender.strategy = strategies[i];
        stage_t *stage = stage_open_both(&sender, &standard);
        goes_together(stage, LENGTH);
        stage_close(stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_length_at_each_base_goes_together),
        cmocka_unit_test(a_short_message_has_no_second_half),
        cmocka_unit_test(halves_may_end_in_any_order),
        cmocka_unit_test(both_ends_limits_hold),
        cmocka_unit_test(the_done_callback_waits_for_both_halves),
        cmocka_unit_test(chunks_lie_within_larger_regions),
        cmocka_unit_test(both_halves_are_verified),
        cmocka_unit_test(a_peer_without_single_copy_gets_bounce),
        cmocka_unit_test(a_sender_of_another_strategy_takes_part),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
