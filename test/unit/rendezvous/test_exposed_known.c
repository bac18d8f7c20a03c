/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Buffers that are used again, over a transport that registers: the sender exposes one that it
 * keeps registered, and a receiver that keeps its own registered reads. The test plays the MPI
 * library at both ends.
 */
#include "pair.h"

enum { CHUNK = 128 * 1024, DEPTH = 4, WHOLE = DEPTH * CHUNK - 5, SHORT = 2 * CHUNK };

static const fake_config_t keeping = {.slots = 300,
                                      .slot_size = 64,
                                      .strategy = "auto",
                                      .chunk_size = CHUNK,
                                      .chunk_depth = DEPTH,
                                      .cache_bytes = REGX_UNLIMITED};

/* One message at a time. */
typedef struct stage {
    pair_t *pair;
    guarded_t sent, received;
    uint64_t stream;
    regx_rndv_exposure_t exposure;
    regx_rndv_recv_t *recv;
    unsigned heard;
    regx_status_t status;
} stage_t;

static stage_t *stage_open_of(size_t length, const fake_config_t *sender,
                              const fake_config_t *receiver)
{
    stage_t *stage = calloc(1, sizeof(*stage));

    assert_non_null(stage);
    stage->pair = pair_open(sender, receiver);
    /* All gets of these tests are of whole messages. */
    stage->pair->receiver->gets_into_targets = strcmp(receiver->strategy, "read") != 0;
    stage->sent = guarded_new(length);
    stage->received = guarded_new(length);
    return stage;
}

static stage_t *stage_open(const fake_config_t *sender, const fake_config_t *receiver)
{
    return stage_open_of(WHOLE, sender, receiver);
}

static void stage_close(stage_t *stage)
{
    guarded_free(&stage->sent);
    guarded_free(&stage->received);
    fake_settle(stage->pair->sender); /* nothing is used, so the caches give up what is gone */
    fake_settle(stage->pair->receiver);
    assert_int_equal(stage->pair->sender->counters.malformed, 0);
    assert_int_equal(stage->pair->receiver->counters.malformed, 0);
    pair_close(stage->pair);
    free(stage);
}

static void got(void *context, regx_status_t status)
{
    stage_t *stage = context;

    stage->heard++;
    stage->status = status;
}

static bool expose(stage_t *stage)
{
    guarded_fill(&stage->sent, ++stage->stream);
    return regx_rndv_expose(stage->pair->sender->rndv, &stage->pair->sender->peers[1],
                            stage->sent.base, stage->sent.length, &stage->exposure);
}

/* The RTS arrives, with what was exposed. */
static void match(stage_t *stage)
{
    fake_t *receiver = stage->pair->receiver;

    stage->heard = 0;
    stage->recv = regx_rndv_recv_open(receiver->rndv, &receiver->peers[0], stage->received.base,
                                      stage->sent.length);
    assert_non_null(stage->recv);
    regx_rndv_recv_get(receiver->rndv, stage->recv, stage->exposure.bytes, got, stage);
}

/* The message is in the buffer, and both ends give up what they had. */
static void end(stage_t *stage, bool exposed)
{
    assert_memory_equal(stage->received.base, stage->sent.base, stage->sent.length);
    regx_rndv_recv_close(stage->pair->receiver->rndv, stage->recv);
    if (exposed) {
        regx_rndv_unexpose(stage->pair->sender->rndv, &stage->exposure);
    }
}

static void clear_to_send(stage_t *stage)
{
    pair_t *pair = stage->pair;
    const unsigned dones = pair->dones;

    regx_rndv_send_open(pair->sender->rndv, &pair->sender->peers[1], stage->sent.base,
                        stage->sent.length, fake_cts(stage->recv), pair_done, pair);
    pair_run(pair);
    assert_int_equal(pair->dones, dones + 1);
    assert_int_equal(pair->status, REGX_OK);
}

static void send_by_cts(stage_t *stage)
{
    fake_t *receiver = stage->pair->receiver;

    guarded_fill(&stage->sent, ++stage->stream);
    stage->recv = regx_rndv_recv_open(receiver->rndv, &receiver->peers[0], stage->received.base,
                                      stage->sent.length);
    clear_to_send(stage);
    end(stage, false);
}

static void keep(const regx_rndv_t *rndv, const guarded_t *buffer, unsigned access)
{
    regx_region_t region;

    assert_int_equal(
        regx_region_acquire(rndv->registry, buffer->base, buffer->length, access, &region),
        REGX_OK);
    regx_region_release(rndv->registry, &region);
}

/* The sender's buffer is kept registered as what it was written from. */
static void keep_sent(const stage_t *stage)
{
    const regx_rndv_t *rndv = stage->pair->sender->rndv;

    keep(rndv, &stage->sent, rndv->send_access);
}

/* Buffers are known once they have gone whole. */
static void make_known(stage_t *stage)
{
    assert_false(expose(stage)); /* it is new: registered chunk by chunk, while others are sent */
    send_by_cts(stage);
    send_by_cts(stage);
}

static void known_buffers_are_read_whole(void **state)
{
    stage_t *stage = stage_open(&keeping, &keeping);
    fake_t *sender = stage->pair->sender, *receiver = stage->pair->receiver;

    (void)state;
    make_known(stage);
    const uint64_t registrations =
        sender->counters.registrations + receiver->counters.registrations;
    const unsigned sends = sender->calls[FAKE_SEND] + receiver->calls[FAKE_SEND];
    const unsigned puts = sender->calls[FAKE_PUT];
    for (unsigned i = 1; i <= 10; i++) {
        assert_true(expose(stage));
        match(stage);
        assert_int_equal(stage->heard, 0);
        assert_true(fake_got(receiver, 0, 0, REGX_OK));
        assert_int_equal(stage->heard, 1);
        assert_int_equal(stage->status, REGX_OK);
        end(stage, true);
        assert_int_equal(receiver->calls[FAKE_GET], i);
        assert_int_equal(receiver->counters.messages[REGX_PATH_read], i);
        assert_int_equal(receiver->counters.bytes[REGX_PATH_read], i * WHOLE);
    }
    assert_int_equal(sender->calls[FAKE_SEND] + receiver->calls[FAKE_SEND], sends);
    assert_int_equal(sender->calls[FAKE_PUT], puts);
    assert_int_equal(sender->counters.registrations + receiver->counters.registrations,
                     registrations);
    assert_int_equal(receiver->counters.messages[REGX_PATH_fallback], 0);
    stage_close(stage);
}

/* What is registered for puts is no place for its gets. */
static void path_read_reads_into_what_is_registered_for_gets(void **state)
{
    fake_config_t reads = keeping;

    (void)state;
    reads.strategy = "read";
    for (unsigned for_gets = 0; for_gets < 2; for_gets++) {
        stage_t *stage = stage_open(&reads, &reads);

        keep(stage->pair->sender->rndv, &stage->sent, REGX_ACCESS_REMOTE_READ);
        keep(stage->pair->receiver->rndv, &stage->received,
             for_gets ? REGX_ACCESS_LOCAL_WRITE : REGX_ACCESS_REMOTE_WRITE);
        assert_true(expose(stage));
        match(stage);
        assert_int_equal(fake_got(stage->pair->receiver, 0, 0, REGX_OK), for_gets);
        assert_int_equal(stage->heard, 1);
        if (for_gets) {
            assert_int_equal(stage->status, REGX_OK);
        } else {
            clear_to_send(stage);
        }
        end(stage, true);
        stage_close(stage);
    }
}

/* The receiver's strategy decides, and what it keeps: by its CTS all goes as ever. */
static void receiver_that_does_not_read_answers_with_its_cts(void **state)
{
    fake_config_t receivers[] = {keeping, keeping, keeping};

    (void)state;
    receivers[0].strategy = "pipeline";
    receivers[1].strategy = "bounce";
    receivers[2].cache_bytes = 0;
    for (unsigned i = 0; i < 3; i++) {
        stage_t *stage = stage_open(&keeping, &receivers[i]);

        send_by_cts(stage);
        keep_sent(stage);
        assert_true(expose(stage));
        match(stage);
        assert_int_equal(stage->heard, 1);
        assert_int_not_equal(stage->status, REGX_OK);
        clear_to_send(stage);
        end(stage, true);
        assert_int_equal(stage->pair->receiver->calls[FAKE_GET], 0);
        stage_close(stage);
    }
}

/* Nobody would read, so nothing is exposed; nor is it registered to be read. */
static void sender_whose_strategy_writes_exposes_nothing(void **state)
{
    fake_config_t writes = keeping;

    (void)state;
    writes.strategy = "pipeline";
    stage_t *stage = stage_open(&writes, &keeping);
    make_known(stage);
    keep_sent(stage);
    assert_false(expose(stage));
    stage_close(stage);
}

/* As with several ports, by which ob1 does not get. */
static void what_is_not_exposed_is_not_registered_to_be_read(void **state)
{
    fake_config_t hides = keeping;

    (void)state;
    hides.exposes_nothing = true;
    stage_t *stage = stage_open(&hides, &keeping);
    make_known(stage);
    regx_registry_t *registry = stage->pair->sender->rndv->registry;
    assert_true(regx_region_seems_kept(registry, stage->sent.base, WHOLE, REGX_ACCESS_LOCAL));
    assert_false(
        regx_region_seems_kept(registry, stage->sent.base, WHOLE, REGX_ACCESS_REMOTE_READ));
    keep(stage->pair->sender->rndv, &stage->sent, REGX_ACCESS_REMOTE_READ);
    assert_false(expose(stage)); /* whatever it is registered for */
    stage_close(stage);
}

static void flip_one(fake_t *fake, const void *from, size_t length, char *written)
{
    (void)fake, (void)from;
    written[length / 2] ^= 1;
}

/* Its CTS was by pipeline. */
static void corruption_of_a_whole_read_is_told_as_of_a_read(void **state)
{
    fake_config_t verifies = keeping;

    (void)state;
    verifies.verify = true;
    stage_t *stage = stage_open(&verifies, &verifies);
    make_known(stage);
    assert_true(expose(stage));
    match(stage);
    stage->pair->receiver->corrupt = flip_one;
    assert_true(fake_got(stage->pair->receiver, 0, 0, REGX_OK));
    assert_int_equal(stage->pair->receiver->mismatches, 1);
    assert_non_null(strstr(stage->pair->receiver->mismatch, "by read arrived as something else"));
    regx_rndv_recv_close(stage->pair->receiver->rndv, stage->recv);
    regx_rndv_unexpose(stage->pair->sender->rndv, &stage->exposure);
    stage_close(stage);
}

/* The transport cannot begin, or the read fails: the CTS holds. */
static void cts_holds_if_nothing_comes_of_the_read(void **state)
{
    static const regx_status_t begun[] = {REGX_AGAIN, REGX_DENIED, REGX_PENDING};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        stage_t *stage = stage_open(&keeping, &keeping);

        make_known(stage);
        assert_true(expose(stage));
        stage->pair->puts = begun[i];
        match(stage);
        stage->pair->puts = REGX_OK;
        if (begun[i] == REGX_PENDING) {
            assert_int_equal(stage->heard, 0);
            assert_true(fake_got(stage->pair->receiver, 0, 0, REGX_FAILED));
        }
        assert_int_equal(stage->heard, 1);
        assert_int_not_equal(stage->status, REGX_OK);
        clear_to_send(stage);
        end(stage, true);
        assert_true(expose(stage)); /* the next is read */
        match(stage);
        assert_true(fake_got(stage->pair->receiver, 0, 0, REGX_OK));
        assert_int_equal(stage->status, REGX_OK);
        end(stage, true);
        stage_close(stage);
    }
}

/* Up to 256 KiB a read takes a message less; beyond, what goes both ways at once is written. */
static void long_messages_that_go_both_ways_are_written(void **state)
{
    (void)state;
    for (unsigned is_long = 0; is_long < 2; is_long++) {
        stage_t *stage = stage_open_of(is_long ? SHORT + 1 : SHORT, &keeping, &keeping);
        fake_t *receiver = stage->pair->receiver;
        regx_rndv_exposure_t other;

        make_known(stage);
        keep(receiver->rndv, &stage->received, receiver->rndv->send_access);
        assert_true(regx_rndv_expose(receiver->rndv, &receiver->peers[0], stage->received.base,
                                     stage->sent.length, &other));
        assert_true(expose(stage));
        match(stage);
        if (is_long) {
            assert_int_equal(stage->heard, 1);
            assert_int_not_equal(stage->status, REGX_OK);
            clear_to_send(stage);
        } else {
            assert_true(fake_got(receiver, 0, 0, REGX_OK));
        }
        end(stage, true);
        assert_int_equal(receiver->calls[FAKE_GET], is_long ? 0 : 1);
        regx_rndv_unexpose(receiver->rndv, &other);
        assert_true(expose(stage)); /* the other direction is idle again: it is read */
        match(stage);
        assert_true(fake_got(receiver, 0, 0, REGX_OK));
        assert_int_equal(stage->status, REGX_OK);
        end(stage, true);
        stage_close(stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_buffers_are_read_whole),
        cmocka_unit_test(path_read_reads_into_what_is_registered_for_gets),
        cmocka_unit_test(receiver_that_does_not_read_answers_with_its_cts),
        cmocka_unit_test(sender_whose_strategy_writes_exposes_nothing),
        cmocka_unit_test(what_is_not_exposed_is_not_registered_to_be_read),
        cmocka_unit_test(corruption_of_a_whole_read_is_told_as_of_a_read),
        cmocka_unit_test(cts_holds_if_nothing_comes_of_the_read),
        cmocka_unit_test(long_messages_that_go_both_ways_are_written),
    };

    return cmocka_run_group_tests_name("exposures of known buffers", tests, NULL, NULL);
}
