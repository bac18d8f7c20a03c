/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A whole message, read from what its sender exposed before the RTS. The test plays the MPI library
 * at both ends: it ships the exposure, and if the receiver does not read, the CTS.
 */
#include "transfer_stage.h"

#include "rendezvous/send.h"
#include "rendezvous/strategy.h"

enum { DEPTH = 3 };

static fake_config_t config_of(const char *strategy)
{
    return (fake_config_t){.slots = 8,
                           .slot_size = SLOT,
                           .strategy = strategy,
                           .chunk_size = PAGE,
                           .chunk_depth = DEPTH};
}

/* What the receiver's MPI library hears. */
typedef struct heard {
    stage_t *stage;
    unsigned times;
    regx_status_t status;
} heard_t;

static void got(void *context, regx_status_t status)
{
    heard_t *heard = context;

    heard->times++;
    heard->status = status;
}

static bool expose(const stage_t *stage, size_t length, uint8_t *bytes)
{
    regx_rndv_exposure_t exposure;
    const bool exposed = regx_rndv_expose(stage->sender->rndv, &stage->sender->peers[1],
                                          stage->sent.base + stage->from, length, &exposure);

    memcpy(bytes, exposure.bytes, exposed ? REGX_CTS_SIZE : 0);
    return exposed;
}

/* The RTS arrives. */
static void match(stage_t *stage, const uint8_t *exposure, size_t length, heard_t *heard)
{
    *heard = (heard_t){.stage = stage};
    memset(stage->received.base, 0x11, stage->received.length);
    stage->recv = regx_rndv_recv_open(stage->receiver->rndv, &stage->receiver->peers[0],
                                      stage->received.base + stage->to, length);
    assert_non_null(stage->recv);
    regx_rndv_recv_get(stage->receiver->rndv, stage->recv, exposure, got, heard);
}

/* The CTS arrives, and all that follows. */
static void clear_to_send(stage_t *stage, size_t length)
{
    stage->dones = 0;
    regx_rndv_send_open(stage->sender->rndv, &stage->sender->peers[1],
                        stage->sent.base + stage->from, length, regx_rndv_recv_cts(stage->recv),
                        done, stage);
    run(stage);
    assert_read_of(stage, length);
}

static stage_t *open_both(const char *sender, const char *receiver)
{
    const fake_config_t sends = config_of(sender), receives = config_of(receiver);

    fake_overtaking = true;
    return transfer_open(&sends, &receives, regx_strategy_find(receiver)->path, true);
}

static void answer(stage_t *stage, fake_call_t call, unsigned number, regx_status_t status)
{
    stage->answer.at = stage->receiver;
    stage->answer.call = call;
    stage->answer.number = number;
    stage->answer.status = status;
}

static void close_both(stage_t *stage)
{
    close_recv(stage);
    stage_close(stage);
}

static void assert_whole(const stage_t *stage, size_t length)
{
    assert_memory_equal(stage->received.base + stage->to, stage->sent.base + stage->from, length);
    for (size_t i = 0; i < stage->received.length; i++) {
        if ((i < stage->to || i >= stage->to + length) && stage->received.base[i] != 0x11) {
            fail_msg("byte %zu was written", i);
        }
    }
}

/* One get, no message, no registration; counted where it was done. */
static void every_length_is_read_at_once(void **state)
{
    stage_t *stage = open_both("read", "read");
    const regx_counters_t *sender = &stage->sender->counters;
    const regx_counters_t *receiver = &stage->receiver->counters;
    uint64_t messages = 0, bytes = 0;
    uint8_t exposure[REGX_CTS_SIZE];
    heard_t heard;

    (void)state;
    for (size_t length = 1; length <= LENGTH; length += length % PAGE < 2 ? 1 : PAGE - 3) {
        assert_true(expose(stage, length, exposure));
        match(stage, exposure, length, &heard);
        assert_int_equal(heard.times, 0);
        assert_true(fake_got(stage->receiver, 0, 0, REGX_OK));
        assert_int_equal(heard.times, 1);
        assert_int_equal(heard.status, REGX_OK);
        assert_whole(stage, length);
        close_recv(stage);
        messages++;
        bytes += length;
    }
    assert_int_equal(stage->receiver->calls[FAKE_SEND] + stage->sender->calls[FAKE_SEND], 0);
    assert_int_equal(stage->receiver->calls[FAKE_REG] + stage->sender->calls[FAKE_REG], 0);
    assert_int_equal(receiver->gets, messages);
    assert_int_equal(receiver->messages[REGX_PATH_read], messages);
    assert_int_equal(receiver->bytes[REGX_PATH_read], bytes);
    assert_int_equal(sender->messages[REGX_PATH_read], 0);
    assert_int_equal(malformed(stage), 0);
    stage_close(stage);
}

/* Together is a get for which the sender's help is asked; read does without. */
static void together_asks_for_assistance(void **state)
{
    static const char *const strategies[] = {"read", "together"};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        stage_t *stage = open_both(strategies[i], strategies[i]);
        const regx_counters_t *receiver = &stage->receiver->counters;
        uint8_t exposure[REGX_CTS_SIZE];
        heard_t heard;

        assert_true(expose(stage, LENGTH, exposure));
        match(stage, exposure, LENGTH, &heard);
        assert_int_equal(stage->receiver->assisted, i);
        assert_true(fake_got(stage->receiver, 0, 0, REGX_OK));
        assert_int_equal(heard.status, REGX_OK);
        assert_whole(stage, LENGTH);
        assert_int_equal(receiver->messages[stage->path], 1);
        assert_int_equal(receiver->bytes[stage->path], LENGTH);
        close_both(stage);
    }
}

/* A receiver whose path is another ships its CTS at once, and nothing is different from then on. */
static void paths_that_write_answer_with_their_cts(void **state)
{
    static const char *const strategies[] = {"bounce", "pipeline", "direct"};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        stage_t *stage = open_both("read", strategies[i]);
        const regx_counters_t *sender = &stage->sender->counters;
        uint8_t exposure[REGX_CTS_SIZE];
        heard_t heard;

        assert_true(expose(stage, LENGTH, exposure));
        match(stage, exposure, LENGTH, &heard);
        assert_int_equal(heard.times, 1);
        assert_int_not_equal(heard.status, REGX_OK);
        assert_int_equal(stage->receiver->conns[0].get_count, 0);
        clear_to_send(stage, LENGTH);
        assert_int_equal(sender->messages[stage->path], 1);
        assert_int_equal(sender->bytes[stage->path], LENGTH);
        assert_int_equal(sender->messages[REGX_PATH_fallback], 0);
        assert_int_equal(malformed(stage), 0);
        close_both(stage);
    }
}

static void nothing_is_exposed_where_nobody_would_read(void **state)
{
    static const char *const strategies[] = {"bounce", "pipeline", "direct"};
    uint8_t exposure[REGX_CTS_SIZE];

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        stage_t *stage = open_both(strategies[i], "read");

        assert_false(expose(stage, LENGTH, exposure));
        stage_close(stage);
    }
    stage_t *stage = open_both("read", "read");
    stage->sender->conns[1].conn.single_copy = false;
    assert_false(expose(stage, LENGTH, exposure));
    stage_close(stage);
}

/* ---- bounce: from where the sender copies it ---- */

/* The receiver alone decides by what path it goes. Senders of a path of their own, of which nobody
 * takes anything from a stage, have none. */
static void only_a_sender_that_leaves_the_choice_stages(void **state)
{
    static const char *const strategies[] = {"read", "together", "auto"};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        stage_t *stage = open_both(strategies[i], "bounce");
        regx_rndv_exposure_t exposure;

        stage->sender->stages = true;
        assert_true(regx_rndv_expose(stage->sender->rndv, &stage->sender->peers[1],
                                     stage->sent.base, LENGTH, &exposure));
        assert_int_equal(stage->sender->staged, i == 2);
        regx_rndv_unexpose(stage->sender->rndv, &exposure);
        assert_int_equal(stage->sender->unstaged, i == 2);
        stage_close(stage);
    }
}

static stage_t *open_staged(void)
{
    stage_t *stage = open_both("auto", "bounce");

    stage->sender->stages = true;
    return stage;
}

static void what_is_staged_is_taken_and_counted_as_bounce(void **state)
{
    stage_t *stage = open_staged();
    const regx_counters_t *receiver = &stage->receiver->counters;
    uint8_t exposure[REGX_CTS_SIZE];
    heard_t heard;

    (void)state;
    assert_true(expose(stage, LENGTH, exposure));
    match(stage, exposure, LENGTH, &heard);
    assert_true(stage->receiver->conns[0].gets[0]->staged);
    assert_true(fake_got(stage->receiver, 0, 0, REGX_OK));
    assert_int_equal(heard.status, REGX_OK);
    assert_whole(stage, LENGTH);
    assert_int_equal(receiver->messages[REGX_PATH_bounce], 1);
    assert_int_equal(receiver->bytes[REGX_PATH_bounce], LENGTH);
    close_both(stage);
}

static void what_is_too_long_for_a_stage_is_not_asked_for(void **state)
{
    stage_t *stage = open_staged();
    const size_t lengths[] = {REGX_STAGE_SIZE, REGX_STAGE_SIZE + 1};
    guarded_t sent = guarded_new(lengths[1]);
    uint8_t exposure[REGX_CTS_SIZE];
    heard_t heard;

    (void)state;
    guarded_free(&stage->received);
    stage->received = guarded_new(lengths[1]);
    for (unsigned i = 0; i < 2; i++) {
        regx_rndv_exposure_t exposed;

        assert_true(regx_rndv_expose(stage->sender->rndv, &stage->sender->peers[1], sent.base,
                                     lengths[i], &exposed));
        memcpy(exposure, exposed.bytes, sizeof(exposure));
        match(stage, exposure, lengths[i], &heard);
        assert_int_equal(stage->receiver->calls[FAKE_GET], 1);
        assert_int_equal(heard.times, i);
        if (i == 0) {
            assert_true(fake_got(stage->receiver, 0, 0, REGX_OK));
        }
        close_recv(stage);
        regx_rndv_unexpose(stage->sender->rndv, &exposed);
    }
    guarded_free(&sent);
    stage_close(stage);
}

/* The slots that its CTS grants are still this receive's. */
static void what_cannot_be_taken_goes_by_its_cts(void **state)
{
    const regx_status_t statuses[] = {REGX_DENIED, REGX_FAILED};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        stage_t *stage = open_staged();
        uint8_t exposure[REGX_CTS_SIZE];
        regx_cts_t before, after;
        heard_t heard;

        assert_true(expose(stage, LENGTH, exposure));
        match(stage, exposure, LENGTH, &heard);
        assert_true(
            regx_send_read_cts(stage->receiver->rndv, regx_rndv_recv_cts(stage->recv), &before));
        memset(stage->received.base, 0x22, LENGTH / 2); /* some of it was taken */
        assert_true(fake_got(stage->receiver, 0, 0, statuses[i]));
        assert_int_equal(heard.times, 1);
        assert_int_not_equal(heard.status, REGX_OK);
        assert_true(
            regx_send_read_cts(stage->receiver->rndv, regx_rndv_recv_cts(stage->recv), &after));
        /* The buffer at either end may be gone. */
        assert_true(!before.suspect && after.suspect == (statuses[i] == REGX_FAILED));
        assert_true(before.slot_count > 0);
        after.suspect = false;
        assert_memory_equal(&before, &after, sizeof(before));
        clear_to_send(stage, LENGTH);
        assert_int_equal(stage->receiver->counters.messages[REGX_PATH_bounce], 0); /* not twice */
        assert_int_equal(stage->sender->counters.messages[REGX_PATH_bounce], 1);
        close_recv(stage);
        match(stage, exposure, LENGTH, &heard); /* the next is tried if that one may have worked */
        assert_int_equal(stage->receiver->calls[FAKE_GET], 1 + (statuses[i] == REGX_FAILED));
        assert_int_equal(heard.times, statuses[i] == REGX_DENIED);
        if (statuses[i] == REGX_FAILED) {
            assert_true(fake_got(stage->receiver, 0, 0, REGX_OK));
        }
        close_both(stage);
    }
}

/* ---- trouble ---- */

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
    assert_true(regx_send_read_cts(stage->receiver->rndv, regx_rndv_recv_cts(stage->recv), &cts));
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
    assert_true(regx_send_read_cts(stage->receiver->rndv, regx_rndv_recv_cts(stage->recv), &cts));
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
        cmocka_unit_test(every_length_is_read_at_once),
        cmocka_unit_test(together_asks_for_assistance),
        cmocka_unit_test(paths_that_write_answer_with_their_cts),
        cmocka_unit_test(nothing_is_exposed_where_nobody_would_read),
        cmocka_unit_test(only_a_sender_that_leaves_the_choice_stages),
        cmocka_unit_test(what_is_staged_is_taken_and_counted_as_bounce),
        cmocka_unit_test(what_is_too_long_for_a_stage_is_not_asked_for),
        cmocka_unit_test(what_cannot_be_taken_goes_by_its_cts),
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
