/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Buffers that are new, by the strategy auto over a transport that registers: short messages go by
 * bounce where buffers do not come back, and are registered again where they do.
 */
#include "pair.h"

#include "rendezvous/auto.h"

enum { KIB = 1024, LENGTH = 32 * KIB, MESSAGES = 160, BUFFERS = 64 };

static const fake_config_t keeping = {.slots = 64,
                                      .slot_size = 16 * KIB,
                                      .strategy = "auto",
                                      .chunk_size = 32 * KIB,
                                      .chunk_depth = 4,
                                      .cache_bytes = REGX_UNLIMITED};

static void receive_into(pair_t *pair, const guarded_t *received)
{
    static uint64_t stream;
    const unsigned dones = pair->dones;
    guarded_t sent = guarded_new(received->length);

    guarded_fill(&sent, ++stream);
    regx_rndv_recv_t *recv = regx_rndv_recv_open(pair->receiver->rndv, &pair->receiver->peers[0],
                                                 received->base, received->length);
    regx_rndv_send_open(pair->sender->rndv, &pair->sender->peers[1], sent.base, sent.length,
                        fake_cts(recv), pair_done, pair);
    pair_run(pair);
    assert_int_equal(pair->dones, dones + 1);
    assert_memory_equal(received->base, sent.base, sent.length);
    regx_rndv_recv_close(pair->receiver->rndv, recv);
    fake_changed(sent.base, sent.length);
    guarded_free(&sent);
    fake_settle(pair->sender); /* as the MPI library's progress does */
    fake_settle(pair->receiver);
}

static void give_back(const pair_t *pair, guarded_t *received)
{
    fake_changed(received->base, received->length);
    guarded_free(received);
    fake_settle(pair->receiver);
}

/* Messages, each into a buffer that is new. */
static void receive_into_new(pair_t *pair, size_t length, unsigned count)
{
    for (; count > 0; count--) {
        guarded_t received = guarded_new(length);

        receive_into(pair, &received);
        give_back(pair, &received);
    }
}

static uint64_t registrations(const pair_t *pair)
{
    return pair->sender->counters.registrations + pair->receiver->counters.registrations;
}

static uint64_t bounced(const pair_t *pair)
{
    return pair->sender->counters.messages[REGX_PATH_bounce];
}

static void new_short_buffers_go_by_bounce(void **state)
{
    static const unsigned sampled = (MESSAGES - REGX_REUSE_FIRST) / REGX_REUSE_SAMPLE;
    static const unsigned registered = REGX_REUSE_FIRST + sampled;
    pair_t *pair = pair_open(&keeping, &keeping);

    (void)state;
    receive_into_new(pair, LENGTH, MESSAGES);
    assert_int_equal(registrations(pair), 2 * registered);
    assert_int_equal(bounced(pair), MESSAGES - registered);
    assert_int_equal(pair->sender->counters.messages[REGX_PATH_fallback], 0);
    assert_int_equal(pair->receiver->counters.decisions[1].count, MESSAGES - registered);
    assert_string_equal(pair->receiver->counters.decisions[1].reason, "bounce: the buffer is new");
    pair_close(pair);
}

static void long_ones_are_registered(void **state)
{
    pair_t *pair = pair_open(&keeping, &keeping);

    (void)state;
    receive_into_new(pair, REGX_REUSE_MAX + 1, MESSAGES);
    assert_int_equal(bounced(pair), 0);
    receive_into_new(pair, REGX_REUSE_MAX, MESSAGES);
    assert_true(bounced(pair) > 0);
    pair_close(pair);
}

/* Without a cache nothing comes back; a transport that does not register has nothing to save. */
static void where_nothing_is_kept_or_registering_is_free_all_is_as_ever(void **state)
{
    fake_config_t without = keeping;

    (void)state;
    without.cache_bytes = 0;
    for (unsigned is_free = 0; is_free < 2; is_free++) {
        const fake_config_t *config = is_free ? &keeping : &without;
        pair_t *pair = pair_open(config, config);

        pair->receiver->transport.registers = !is_free;
        receive_into_new(pair, LENGTH, MESSAGES);
        assert_int_equal(bounced(pair), 0);
        pair_close(pair);
    }
}

/* A program begins to use a buffer again: it is noticed, and from then on no message bounces. */
static void buffer_that_comes_back_is_registered(void **state)
{
    pair_t *pair = pair_open(&keeping, &keeping);
    guarded_t received = guarded_new(LENGTH);

    (void)state;
    receive_into_new(pair, LENGTH, MESSAGES);
    for (unsigned i = 0; i < REGX_REUSE_SAMPLE; i++) {
        receive_into(pair, &received);
    }
    const uint64_t before = bounced(pair), registered = pair->receiver->counters.registrations;
    for (unsigned i = 0; i < MESSAGES; i++) {
        receive_into(pair, &received);
    }
    assert_int_equal(bounced(pair), before);
    assert_int_equal(pair->receiver->counters.registrations, registered);
    give_back(pair, &received);
    pair_close(pair);
}

static void many_buffers_that_come_back_are_all_registered(void **state)
{
    pair_t *pair = pair_open(&keeping, &keeping);
    guarded_t received[BUFFERS];
    uint64_t before = 0;

    (void)state;
    receive_into_new(pair, LENGTH, MESSAGES);
    for (unsigned i = 0; i < BUFFERS; i++) {
        received[i] = guarded_new(LENGTH);
    }
    for (unsigned i = 0; i < 7 * BUFFERS; i++) {
        before = i == 6 * BUFFERS ? bounced(pair) : before;
        receive_into(pair, &received[i % BUFFERS]);
    }
    assert_int_equal(bounced(pair), before);
    for (unsigned i = 0; i < BUFFERS; i++) {
        give_back(pair, &received[i]);
    }
    pair_close(pair);
}

/* Some new buffers among many that come back do not change the guess. */
static void few_new_buffers_are_registered_like_the_others(void **state)
{
    pair_t *pair = pair_open(&keeping, &keeping);
    guarded_t received = guarded_new(LENGTH);

    (void)state;
    for (unsigned i = 0; i < MESSAGES; i++) {
        receive_into(pair, &received);
        receive_into_new(pair, LENGTH, 1);
    }
    assert_int_equal(bounced(pair), 0);
    give_back(pair, &received);
    pair_close(pair);
}

static void what_the_user_pins_goes_so(void **state)
{
    pair_t *pair = pair_open(&keeping, &keeping);
    char error[REGX_OPTION_ERROR];

    (void)state;
    assert_true(
        regx_auto_choice_read("16K:pipeline", &pair->receiver->rndv->config.auto_choice, error));
    receive_into_new(pair, LENGTH, MESSAGES);
    assert_int_equal(bounced(pair), 0);
    pair_close(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_short_buffers_go_by_bounce),
        cmocka_unit_test(long_ones_are_registered),
        cmocka_unit_test(where_nothing_is_kept_or_registering_is_free_all_is_as_ever),
        cmocka_unit_test(buffer_that_comes_back_is_registered),
        cmocka_unit_test(many_buffers_that_come_back_are_all_registered),
        cmocka_unit_test(few_new_buffers_are_registered_like_the_others),
        cmocka_unit_test(what_the_user_pins_goes_so),
    };

    return cmocka_run_group_tests_name("new buffers, by auto", tests, NULL, NULL);
}
