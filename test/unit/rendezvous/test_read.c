/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The path read: what is advertised, got, told and kept.
 */
#include "read_stage.h"

/* One registration at each end, one get and two messages for each chunk, and nothing else. */
static void every_length_is_read_in_its_chunks(void **state)
{
    stage_t *stage = stage_open();
    const regx_counters_t *sender = &stage->sender->counters;
    const regx_counters_t *receiver = &stage->receiver->counters;

    (void)state;
    for (size_t length = 1; length <= LENGTH; length += length % PAGE < 2 ? 1 : PAGE - 3) {
        const uint64_t chunks = (length + PAGE - 1) / PAGE;
        const uint64_t before = receiver->gets;

        memset(stage->frames, 0, sizeof(stage->frames));
        stage->dones = 0;
        begin_of(stage, length);
        run(stage);
        assert_read_of(stage, length);
        close_recv(stage);
        assert_int_equal(receiver->gets - before, chunks);
        assert_int_equal(stage->frames[0], chunks);
        assert_int_equal(stage->frames[1], chunks);
        assert_int_equal(sender->registrations, receiver->gets);
        assert_int_equal(receiver->registrations, receiver->gets);
    }
    assert_int_equal(sender->puts + sender->gets + receiver->puts + receiver->grants, 0);
    assert_int_equal(sender->messages[REGX_PATH_fallback], 0);
    assert_int_equal(sender->largest_registration, PAGE);
    assert_int_equal(receiver->largest_registration, PAGE);
    assert_int_equal(malformed(stage), 0);
    stage_close(stage);
}

/* Both ends' limits hold, whichever is the smaller. */
static void both_ends_limits_hold(void **state)
{
    static const struct {
        size_t chunk;
        unsigned depth;
    } limits[] = {{PAGE, 1}, {PAGE, 4}, {3 * PAGE, 2}, {16 * PAGE, 64}};

    (void)state;
    for (unsigned i = 0; i < 16; i++) {
        fake_config_t sender = standard, receiver = standard;

        sender.chunk_size = limits[i / 4].chunk;
        sender.chunk_depth = limits[i / 4].depth;
        receiver.chunk_size = limits[i % 4].chunk;
        receiver.chunk_depth = limits[i % 4].depth;
        stage_t *stage = stage_open_both(&sender, &receiver);
        assert_limits_hold(stage, &sender, &receiver, 0);
        stage_close(stage);
    }
}

/* What is advertised stays so until it was got, whatever else ends before; then not a moment longer
 * than the message takes. */
static void the_end_waits_for_the_last_get(void **state)
{
    (void)state;
    for (unsigned last = 0; last < DEPTH; last++) {
        stage_t *stage = stage_open();

        begin_of(stage, DEPTH * PAGE);
        while (deliver(stage, 1)) {
        }
        for (unsigned i = 0; i < DEPTH - 1; i++) {
            assert_true(fake_got(stage->receiver, 0, last == 0 ? 1 : i < last ? 0 : 1, REGX_OK));
            assert_true(deliver(stage, 0));
            assert_int_equal(stage->sender->open_windows, DEPTH - 1 - i);
            assert_int_equal(stage->dones, 0);
        }
        assert_true(fake_got(stage->receiver, 0, 0, REGX_OK));
        assert_int_equal(stage->receiver->open_windows, 0);
        assert_int_equal(stage->dones, 0); /* it has not heard of it */
        assert_true(deliver(stage, 0));
        assert_int_equal(stage->sender->open_windows, 0);
        assert_read_of(stage, DEPTH * PAGE);
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

        begin(stage);
        run(stage);
        assert_read(stage);
        assert_bytes(stage, LENGTH);
        close_recv(stage);
        stage_close(stage);
    }
}

/* With a cache at both ends the second time costs no registration, and a change of the memory costs
 * those of that end again. */
static void kept_registrations_serve_again(void **state)
{
    fake_config_t config = standard;

    (void)state;
    config.cache_bytes = REGX_UNLIMITED;
    stage_t *stage = stage_open_both(&config, &config);
    const regx_counters_t *sender = &stage->sender->counters;
    const regx_counters_t *receiver = &stage->receiver->counters;
    uint64_t sending = 0, receiving = 0;

    for (unsigned round = 0; round < 3; round++) {
        stage->dones = 0;
        begin(stage);
        run(stage);
        assert_read(stage);
        close_recv(stage);
        if (round == 0) { /* a region is of whole pages, and may serve the last chunk too */
            sending = sender->registrations;
            receiving = receiver->registrations;
            assert_in_range(sending, CHUNKS - 1, CHUNKS);
            assert_in_range(receiving, CHUNKS - 1, CHUNKS);
        }
        assert_int_equal(sender->registrations, round < 2 ? sending : 2 * sending);
        assert_int_equal(receiver->registrations, receiving);
        if (round == 1) {
            fake_changed(stage->sent.base, LENGTH);
        }
    }
    guarded_free(&stage->sent);
    guarded_free(&stage->received);
    stage->sent = guarded_new(1);
    stage->received = guarded_new(1);
    stage_close(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_is_read_in_its_chunks),
        cmocka_unit_test(both_ends_limits_hold),
        cmocka_unit_test(the_end_waits_for_the_last_get),
        cmocka_unit_test(chunks_lie_within_larger_regions),
        cmocka_unit_test(kept_registrations_serve_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
