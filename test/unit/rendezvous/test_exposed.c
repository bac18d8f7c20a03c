/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A whole message, read from what its sender exposed before the RTS, or taken from where the sender
 * copied it.
 */
#include "exposed_stage.h"

#include "rendezvous/send.h"

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
        assert_true(regx_send_read_cts(stage->receiver->rndv, fake_cts(stage->recv), &before));
        memset(stage->received.base, 0x22, LENGTH / 2); /* some of it was taken */
        assert_true(fake_got(stage->receiver, 0, 0, statuses[i]));
        assert_int_equal(heard.times, 1);
        assert_int_not_equal(heard.status, REGX_OK);
        assert_true(regx_send_read_cts(stage->receiver->rndv, fake_cts(stage->recv), &after));
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
