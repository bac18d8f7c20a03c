/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Gets of what was exposed that are refused, fail or never end, and exposures that are wrong.
 */
#include "exposed_stage.h"

#include "rendezvous/send.h"

static void answer(stage_t *stage, fake_call_t call, unsigned number, regx_status_t status)
{
    stage->answer.at = stage->receiver;
    stage->answer.call = call;
    stage->answer.number = number;
    stage->answer.status = status;
}

/* It is read all the same, as between nodes: in chunks that the sender registers. */
static void a_transport_that_cannot_begin_now_reads_in_chunks(void **state)
{
    stage_t *stage = open_both("read", "read");
    uint8_t exposure[REGX_CTS_SIZE];
    heard_t heard;

    (void)state;
    answer(stage, FAKE_GET, 1, REGX_AGAIN);
    assert_true(expose(stage, LENGTH, exposure));
    match(stage, exposure, LENGTH, &heard);
    assert_int_equal(heard.times, 1);
    assert_int_not_equal(heard.status, REGX_OK);
    clear_to_send(stage, LENGTH);
    assert_bytes(stage, LENGTH);
    assert_int_equal(stage->receiver->counters.messages[REGX_PATH_read], 0); /* not twice */
    close_both(stage);
}

/* By slots, which is counted, and so does the next message. */
static void assert_by_slots(stage_t *stage, const heard_t *heard)
{
    regx_counters_t *receiver = &stage->receiver->counters;

    assert_int_equal(heard->times, 1);
    assert_int_not_equal(heard->status, REGX_OK);
    clear_to_send(stage, LENGTH);
    assert_bytes(stage, 0);
    assert_int_equal(receiver->messages[REGX_PATH_read] + receiver->gets, 0);
    close_recv(stage);
}

static void refused_gets_go_by_slots_and_are_not_tried_again(void **state)
{
    (void)state;
    for (unsigned late = 0; late < 2; late++) {
        stage_t *stage = open_both("read", "read");
        uint8_t exposure[REGX_CTS_SIZE];
        heard_t heard;

        if (late == 0) {
            answer(stage, FAKE_GET, 1, REGX_DENIED);
        }
        assert_true(expose(stage, LENGTH, exposure));
        match(stage, exposure, LENGTH, &heard);
        if (late == 1) {
            memset(stage->received.base, 0x22, LENGTH / 2); /* some of it was read */
            assert_true(fake_got(stage->receiver, 0, 0, REGX_DENIED));
        }
        memset(stage->received.base + LENGTH, 0x11, stage->received.length - LENGTH);
        assert_by_slots(stage, &heard);
        assert_int_equal(regx_tally_find(stage->receiver->counters.fallbacks,
                                         "receiver: reading from this peer refused")
                             ->count,
                         1);
        match(stage, exposure, LENGTH, &heard);
        assert_int_equal(stage->receiver->calls[FAKE_GET], 1);
        assert_int_equal(heard.times, 1);
        clear_to_send(stage, LENGTH);
        close_both(stage);
    }
}

/* The buffer at either end may be gone, so both copy what there is with care. */
static void a_get_that_fails_goes_by_slots_with_care(void **state)
{
    stage_t *stage = open_both("read", "read");
    uint8_t exposure[REGX_CTS_SIZE];
    heard_t heard;
    regx_cts_t cts;

    (void)state;
    assert_true(expose(stage, LENGTH, exposure));
    match(stage, exposure, LENGTH, &heard);
    assert_true(fake_got(stage->receiver, 0, 0, REGX_FAILED));
    assert_true(regx_send_read_cts(stage->receiver->rndv, fake_cts(stage->recv), &cts));
    assert_true(cts.suspect && cts.fallback && cts.path == REGX_PATH_bounce);
    assert_by_slots(stage, &heard);
    assert_false(stage->receiver->peers[0].no_gets);
    match(stage, exposure, LENGTH, &heard); /* the next is read again */
    assert_true(fake_got(stage->receiver, 0, 0, REGX_OK));
    assert_int_equal(heard.status, REGX_OK);
    close_both(stage);
}

static void flip_one(fake_t *fake, const void *from, size_t length, char *written)
{
    (void)fake, (void)from;
    written[length / 2] ^= 1;
}

static void verify_compares_the_whole(void **state)
{
    (void)state;
    for (unsigned corrupt = 0; corrupt < 2; corrupt++) {
        fake_config_t config = config_of("read");
        uint8_t exposure[REGX_CTS_SIZE];
        heard_t heard;

        config.verify = true;
        stage_t *stage = transfer_open(&config, &config, REGX_PATH_read, true);
        stage->receiver->corrupt = corrupt ? flip_one : NULL;
        assert_true(expose(stage, LENGTH, exposure));
        match(stage, exposure, LENGTH, &heard);
        assert_true(fake_got(stage->receiver, 0, 0, REGX_OK));
        assert_int_equal(heard.status, REGX_OK);
        assert_int_equal(stage->receiver->counters.verified, 1);
        assert_int_equal(stage->receiver->counters.mismatches, corrupt);
        assert_int_equal(stage->receiver->mismatches, corrupt);
        if (corrupt) {
            assert_non_null(strstr(stage->receiver->mismatch, "by read arrived as something else"));
        }
        close_both(stage);
    }
}

/* A sender that does not verify has made no checksum, so it is asked for one, by CTS. */
static void a_receiver_that_verifies_alone_asks_for_checksums(void **state)
{
    fake_config_t plain = config_of("read"), verifies = config_of("read");
    uint8_t exposure[REGX_CTS_SIZE];
    heard_t heard;

    (void)state;
    verifies.verify = true;
    stage_t *stage = transfer_open(&plain, &verifies, REGX_PATH_read, true);
    assert_true(expose(stage, LENGTH, exposure));
    match(stage, exposure, LENGTH, &heard);
    assert_int_equal(heard.times, 1);
    clear_to_send(stage, LENGTH);
    assert_bytes(stage, LENGTH);
    assert_true(stage->receiver->counters.verified > 0);
    close_both(stage);
}

/* Nothing that a peer sends is trusted: it is counted, and the message goes by CTS. */
static void malformed_exposures_are_refused(void **state)
{
    stage_t *stage = open_both("read", "read");
    uint8_t exposure[REGX_CTS_SIZE], bad[REGX_CTS_SIZE];
    /* A byte each of version, tag, unused, bits, length, and the key's length. */
    static const unsigned bytes[] = {0, 1, 2, 4, 7, 8, 15, 32};
    heard_t heard;

    (void)state;
    assert_true(expose(stage, LENGTH, exposure));
    for (unsigned i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
        memcpy(bad, exposure, sizeof(bad));
        bad[bytes[i]] ^= 2;
        match(stage, bad, LENGTH, &heard);
        assert_int_equal(heard.times, 1);
        assert_int_not_equal(heard.status, REGX_OK);
        assert_int_equal(stage->receiver->counters.malformed, i + 1);
        clear_to_send(stage, LENGTH);
        close_recv(stage);
    }
    match(stage, exposure, LENGTH - 1, &heard); /* of another length than the RTS says */
    assert_int_equal(heard.times, 1);
    assert_int_equal(stage->receiver->counters.malformed, sizeof(bytes) / sizeof(bytes[0]) + 1);
    assert_int_equal(stage->receiver->conns[0].get_count, 0);
    close_both(stage);
}

/* Nobody knows the receive while it is read: what a peer says of it was guessed. */
static void messages_for_a_receive_that_is_read_have_no_effect(void **state)
{
    stage_t *stage = open_both("read", "read");
    regx_control_t guesses[] = {{.type = REGX_CONTROL_READY},
                                {.type = REGX_CONTROL_RKEY, .length = PAGE},
                                {.type = REGX_CONTROL_NACK, .length = LENGTH},
                                {.type = REGX_CONTROL_ATP_CHUNK, .length = LENGTH}};
    uint8_t exposure[REGX_CTS_SIZE], bytes[REGX_CONTROL_MAX];
    heard_t heard;
    regx_cts_t cts;

    (void)state;
    assert_true(expose(stage, LENGTH, exposure));
    match(stage, exposure, LENGTH, &heard);
    assert_true(regx_send_read_cts(stage->receiver->rndv, fake_cts(stage->recv), &cts));
    for (unsigned i = 0; i < 4; i++) {
        guesses[i].to = cts.recv;
        fake_arrive(stage->receiver, 0, bytes, regx_control_pack(&guesses[i], bytes));
        assert_int_equal(stage->receiver->counters.malformed, i + 1);
    }
    assert_int_equal(stage->receiver->conns[0].get_count, 1);
    assert_true(fake_got(stage->receiver, 0, 0, REGX_OK));
    assert_int_equal(heard.status, REGX_OK);
    assert_whole(stage, LENGTH);
    close_both(stage);
}

/* The peer is forgotten first, then the transport ends what was pending. */
static void a_peer_that_dies_ends_the_get(void **state)
{
    stage_t *stage = open_both("read", "read");
    uint8_t exposure[REGX_CTS_SIZE];
    heard_t heard;

    (void)state;
    assert_true(expose(stage, LENGTH, exposure));
    match(stage, exposure, LENGTH, &heard);
    regx_rndv_forget(stage->receiver->rndv, &stage->receiver->peers[0]);
    assert_int_equal(heard.times, 0);
    assert_true(fake_got(stage->receiver, 0, 0, REGX_UNREACHABLE));
    assert_int_equal(heard.times, 1);
    assert_int_not_equal(heard.status, REGX_OK);
    assert_int_equal(stage->receiver->counters.messages[REGX_PATH_read], 0);
    close_both(stage);
}

/* Against the rules, as at the end of a job that goes wrong: nobody is told, and nothing leaks. */
static void a_receive_that_is_closed_too_early_lives_until_the_get_ends(void **state)
{
    stage_t *stage = open_both("read", "read");
    uint8_t exposure[REGX_CTS_SIZE];
    heard_t heard;

    (void)state;
    assert_true(expose(stage, LENGTH, exposure));
    match(stage, exposure, LENGTH, &heard);
    close_recv(stage);
    assert_true(fake_got(stage->receiver, 0, 0, REGX_FAILED));
    assert_int_equal(heard.times, 0);
    assert_true(regx_list_empty(&stage->receiver->rndv->free_recvs) == false);
    stage_close(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transport_that_cannot_begin_now_reads_in_chunks),
        cmocka_unit_test(refused_gets_go_by_slots_and_are_not_tried_again),
        cmocka_unit_test(a_get_that_fails_goes_by_slots_with_care),
        cmocka_unit_test(verify_compares_the_whole),
        cmocka_unit_test(a_receiver_that_verifies_alone_asks_for_checksums),
        cmocka_unit_test(malformed_exposures_are_refused),
        cmocka_unit_test(messages_for_a_receive_that_is_read_have_no_effect),
        cmocka_unit_test(a_peer_that_dies_ends_the_get),
        cmocka_unit_test(a_receive_that_is_closed_too_early_lives_until_the_get_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
