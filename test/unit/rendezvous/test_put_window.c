/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A transport that wants few writes to a peer at once (put_window): the others' sends wait, and go
 * on as writes end.
 */
#include "pair.h"

enum { LENGTH = 4096, MESSAGES = 7, CHUNKS = 8, WINDOW = 2 * LENGTH };

static const fake_config_t config = {.slots = 300,
                                     .slot_size = LENGTH,
                                     .strategy = "direct",
                                     .chunk_size = LENGTH,
                                     .chunk_depth = 4};

/* Messages to one peer, all open. */
typedef struct stage {
    pair_t *pair;
    unsigned count;
    guarded_t sent[MESSAGES], received[MESSAGES];
    regx_rndv_recv_t *recvs[MESSAGES];
    unsigned done[MESSAGES]; /* how often each was told that it has ended */
    regx_status_t status[MESSAGES];
    unsigned puts[MESSAGES]; /* of each, begun */
    struct context {
        struct stage *stage;
        unsigned number;
    } contexts[MESSAGES];
} stage_t;

static void message_done(void *context, regx_status_t status)
{
    const struct context *of = context;

    of->stage->done[of->number]++;
    of->stage->status[of->number] = status;
}

static stage_t *watched;

static regx_status_t count_puts(fake_t *fake, fake_call_t call, const regx_put_t *put)
{
    for (unsigned i = 0; call == FAKE_PUT && i < watched->count; i++) {
        const uint8_t *from = put->local;

        watched->puts[i] +=
            from >= watched->sent[i].base && from < watched->sent[i].base + watched->sent[i].length;
    }
    return pair_rule(fake, call, put);
}

static void message_open_to(stage_t *stage, fake_t *receiver, size_t length)
{
    fake_t *sender = stage->pair->sender;
    const unsigned i = stage->count++;

    stage->sent[i] = guarded_new(length);
    stage->received[i] = guarded_new(length);
    guarded_fill(&stage->sent[i], i + 1);
    stage->contexts[i] = (struct context){stage, i};
    stage->recvs[i] = regx_rndv_recv_open(receiver->rndv, &receiver->peers[sender->id],
                                          stage->received[i].base, length);
    assert_non_null(stage->recvs[i]);
    regx_rndv_send_open(sender->rndv, &sender->peers[receiver->id], stage->sent[i].base, length,
                        fake_cts(stage->recvs[i]), message_done, &stage->contexts[i]);
}

/* Lets the receiver grant what it has to. */
static void deliver(stage_t *stage)
{
    while (fake_receive(stage->pair->receiver, stage->pair->sender) ||
           fake_receive(stage->pair->sender, stage->pair->receiver)) {
    }
}

static void message_open(stage_t *stage, size_t length)
{
    message_open_to(stage, stage->pair->receiver, length);
    deliver(stage);
}

static stage_t *stage_new(size_t window, const char *strategy)
{
    stage_t *stage = calloc(1, sizeof(*stage));
    fake_config_t both = config;

    assert_non_null(stage);
    both.strategy = strategy;
    stage->pair = pair_open(&both, &both);
    stage->pair->sender->transport.put_window = window;
    stage->pair->puts = REGX_PENDING;
    stage->pair->sender->rule = count_puts;
    watched = stage;
    return stage;
}

static stage_t *stage_open(size_t window, const char *strategy)
{
    stage_t *stage = stage_new(window, strategy);

    for (unsigned i = 0; i < MESSAGES; i++) {
        message_open_to(stage, stage->pair->receiver, LENGTH);
    }
    return stage;
}

/* The oldest write ends, and progress does what there is to do. */
static void end_one(stage_t *stage)
{
    assert_true(fake_complete(stage->pair->sender, 1, 0, REGX_OK));
    regx_rndv_progress(stage->pair->sender->rndv);
}

static unsigned dones(const stage_t *stage)
{
    unsigned count = 0;

    for (unsigned i = 0; i < stage->count; i++) {
        assert_true(stage->done[i] <= 1);
        count += stage->done[i];
    }
    return count;
}

static void stage_close(stage_t *stage)
{
    assert_int_equal(dones(stage), stage->count);
    for (unsigned i = 0; i < stage->count; i++) {
        if (stage->recvs[i] != NULL) {
            regx_rndv_recv_close(stage->pair->receiver->rndv, stage->recvs[i]);
        }
        guarded_free(&stage->sent[i]);
        guarded_free(&stage->received[i]);
    }
    pair_close(stage->pair);
    free(stage);
}

static void assert_arrived(stage_t *stage)
{
    pair_run(stage->pair);
    for (unsigned i = 0; i < stage->count; i++) {
        assert_int_equal(stage->status[i], REGX_OK);
        assert_memory_equal(stage->received[i].base, stage->sent[i].base, stage->sent[i].length);
    }
}

static void no_more_is_written_at_once_than_the_window(void **state)
{
    stage_t *stage = stage_open(WINDOW, "direct");
    fake_t *sender = stage->pair->sender;
    unsigned begun = 2;

    (void)state;
    assert_int_equal(sender->calls[FAKE_PUT], begun);
    for (unsigned ended = 1; ended <= MESSAGES; ended++) {
        regx_rndv_progress(sender->rndv); /* nobody has ended: nobody is tried */
        assert_int_equal(sender->calls[FAKE_PUT], begun);
        assert_true(fake_complete(sender, 1, 0, REGX_OK));
        assert_int_equal(stage->done[ended - 1], 1); /* in the order of the messages */
        regx_rndv_progress(sender->rndv);
        begun += begun < MESSAGES;
        assert_int_equal(sender->calls[FAKE_PUT], begun);
    }
    assert_arrived(stage);
    stage_close(stage);
}

/* What waits is not tried again and again: progress has nothing to do, and says so. */
static void progress_is_idle_while_all_wait(void **state)
{
    stage_t *stage = stage_open(WINDOW, "direct");

    (void)state;
    regx_rndv_progress(stage->pair->sender->rndv);
    assert_int_equal(regx_rndv_progress(stage->pair->sender->rndv), 0);
    assert_arrived(stage);
    stage_close(stage);
}

/* However long they are: one would leave the wire idle until it is known to have ended. */
static void two_are_written_at_least(void **state)
{
    stage_t *stage = stage_open(1, "direct");

    (void)state;
    assert_int_equal(stage->pair->sender->calls[FAKE_PUT], 2);
    assert_arrived(stage);
    stage_close(stage);
}

static void slots_and_wires_without_a_window_do_not_wait(void **state)
{
    (void)state;
    for (unsigned slots = 0; slots < 2; slots++) {
        stage_t *stage = stage_open(slots ? WINDOW : 0, slots ? "bounce" : "direct");

        assert_int_equal(stage->pair->sender->calls[FAKE_PUT], MESSAGES);
        assert_arrived(stage);
        stage_close(stage);
    }
}

/* A write that fails makes room like any other. Its bytes go by slots. */
static void failed_writes_make_room(void **state)
{
    stage_t *stage = stage_open(WINDOW, "direct");

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        assert_true(fake_complete(stage->pair->sender, 1, 0, REGX_FAILED));
        regx_rndv_progress(stage->pair->sender->rndv);
    }
    assert_arrived(stage);
    assert_int_equal(stage->pair->sender->counters.messages[REGX_PATH_fallback], 3);
    stage_close(stage);
}

static void those_that_wait_fail_with_their_peer(void **state)
{
    stage_t *stage = stage_open(WINDOW, "direct");
    fake_t *sender = stage->pair->sender;

    (void)state;
    regx_rndv_forget(sender->rndv, &sender->peers[1]);
    assert_int_equal(dones(stage), MESSAGES - 2); /* two are under way */
    assert_true(fake_complete(sender, 1, 0, REGX_UNREACHABLE));
    assert_true(fake_complete(sender, 1, 0, REGX_UNREACHABLE));
    for (unsigned i = 0; i < MESSAGES; i++) {
        assert_int_equal(stage->status[i], REGX_UNREACHABLE);
    }
    assert_int_equal(sender->calls[FAKE_PUT], 2);
    stage_close(stage);
}

/* One that has much left to write does not go before one that has waited. */
static void a_long_message_lets_a_short_one_by(void **state)
{
    stage_t *stage = stage_new(WINDOW, "pipeline");

    (void)state;
    message_open(stage, CHUNKS * (size_t)LENGTH);
    message_open(stage, LENGTH);
    assert_int_equal(stage->puts[0], 2);
    assert_int_equal(stage->puts[1], 0);
    end_one(stage); /* the long one waited before the short one was there */
    end_one(stage);
    assert_int_equal(stage->puts[1], 1);
    assert_int_equal(stage->done[0], 0);
    assert_arrived(stage);
    stage_close(stage);
}

/* Nor do two of them keep out the third by turns. */
static void long_messages_take_turns(void **state)
{
    enum { LONG = 3 };
    stage_t *stage = stage_new(WINDOW, "pipeline");

    (void)state;
    for (unsigned i = 0; i < LONG; i++) {
        message_open(stage, CHUNKS * (size_t)LENGTH);
    }
    for (unsigned ended = 1; ended <= LONG * (CHUNKS - 1); ended++) {
        unsigned most = 0, fewest = CHUNKS;

        end_one(stage);
        deliver(stage);
        for (unsigned i = 0; i < LONG; i++) {
            most = stage->puts[i] > most ? stage->puts[i] : most;
            fewest = stage->puts[i] < fewest ? stage->puts[i] : fewest;
        }
        assert_int_equal(stage->pair->sender->peers[1].writes, 2);
        assert_true(most <= fewest + 3); /* the first began with two, and waited first */
    }
    assert_arrived(stage);
    stage_close(stage);
}

static void a_full_window_holds_up_no_other_peer(void **state)
{
    stage_t *stage = stage_new(WINDOW, "direct");
    fake_t *sender = stage->pair->sender, *other = fake_open(2, &config);

    (void)state;
    fake_connect(sender, other, false);
    fake_connect(other, sender, false);
    for (unsigned i = 0; i < 3; i++) {
        message_open(stage, LENGTH);
    }
    assert_int_equal(sender->calls[FAKE_PUT], 2);
    message_open_to(stage, other, LENGTH);
    message_open_to(stage, other, LENGTH);
    assert_int_equal(sender->calls[FAKE_PUT], 4);
    for (unsigned i = 3; i < 5; i++) {
        assert_true(fake_complete(sender, 2, 0, REGX_OK));
        assert_true(fake_receive(other, sender));
        regx_rndv_recv_close(other->rndv, stage->recvs[i]);
        stage->recvs[i] = NULL;
    }
    assert_int_equal(sender->calls[FAKE_PUT], 4); /* those to the first still wait */
    assert_arrived(stage);
    stage_close(stage);
    fake_assert_idle(other);
    fake_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_more_is_written_at_once_than_the_window),
        cmocka_unit_test(progress_is_idle_while_all_wait),
        cmocka_unit_test(two_are_written_at_least),
        cmocka_unit_test(slots_and_wires_without_a_window_do_not_wait),
        cmocka_unit_test(failed_writes_make_room),
        cmocka_unit_test(those_that_wait_fail_with_their_peer),
        cmocka_unit_test(a_long_message_lets_a_short_one_by),
        cmocka_unit_test(long_messages_take_turns),
        cmocka_unit_test(a_full_window_holds_up_no_other_peer),
    };

    return cmocka_run_group_tests_name("few writes to a peer at once", tests, NULL, NULL);
}
