/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A transport that wants few writes to a peer at once (put_window): the others' sends wait, and go
 * on as writes end.
 */
#include "pair.h"

enum { LENGTH = 4096, MESSAGES = 7, WINDOW = 2 * LENGTH };

static const fake_config_t config = {.slots = 300,
                                     .slot_size = LENGTH,
                                     .strategy = "direct",
                                     .chunk_size = LENGTH,
                                     .chunk_depth = 4};

/* Messages to one peer, all open. */
typedef struct stage {
    pair_t *pair;
    guarded_t sent[MESSAGES], received[MESSAGES];
    regx_rndv_recv_t *recvs[MESSAGES];
    unsigned done[MESSAGES]; /* how often each was told that it has ended */
    regx_status_t status[MESSAGES];
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

static stage_t *stage_open(size_t window, const char *strategy)
{
    stage_t *stage = calloc(1, sizeof(*stage));
    fake_config_t both = config;

    assert_non_null(stage);
    both.strategy = strategy;
    stage->pair = pair_open(&both, &both);
    stage->pair->sender->transport.put_window = window;
    stage->pair->puts = REGX_PENDING;
    for (unsigned i = 0; i < MESSAGES; i++) {
        const fake_t *sender = stage->pair->sender, *receiver = stage->pair->receiver;

        stage->sent[i] = guarded_new(LENGTH);
        stage->received[i] = guarded_new(LENGTH);
        guarded_fill(&stage->sent[i], i + 1);
        stage->contexts[i] = (struct context){stage, i};
        stage->recvs[i] = regx_rndv_recv_open(receiver->rndv, &stage->pair->receiver->peers[0],
                                              stage->received[i].base, LENGTH);
        assert_non_null(stage->recvs[i]);
        regx_rndv_send_open(sender->rndv, &stage->pair->sender->peers[1], stage->sent[i].base,
                            LENGTH, regx_rndv_recv_cts(stage->recvs[i]), message_done,
                            &stage->contexts[i]);
    }
    return stage;
}

static unsigned dones(const stage_t *stage)
{
    unsigned count = 0;

    for (unsigned i = 0; i < MESSAGES; i++) {
        assert_true(stage->done[i] <= 1);
        count += stage->done[i];
    }
    return count;
}

static void stage_close(stage_t *stage)
{
    assert_int_equal(dones(stage), MESSAGES);
    for (unsigned i = 0; i < MESSAGES; i++) {
        regx_rndv_recv_close(stage->pair->receiver->rndv, stage->recvs[i]);
        guarded_free(&stage->sent[i]);
        guarded_free(&stage->received[i]);
    }
    assert_int_equal(stage->pair->sender->peers[1].writes, 0);
    assert_int_equal(stage->pair->sender->peers[1].writing, 0);
    pair_close(stage->pair);
    free(stage);
}

static void assert_arrived(stage_t *stage)
{
    pair_run(stage->pair);
    for (unsigned i = 0; i < MESSAGES; i++) {
        assert_int_equal(stage->status[i], REGX_OK);
        assert_memory_equal(stage->received[i].base, stage->sent[i].base, LENGTH);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_more_is_written_at_once_than_the_window),
        cmocka_unit_test(progress_is_idle_while_all_wait),
        cmocka_unit_test(two_are_written_at_least),
        cmocka_unit_test(slots_and_wires_without_a_window_do_not_wait),
        cmocka_unit_test(failed_writes_make_room),
        cmocka_unit_test(those_that_wait_fail_with_their_peer),
    };

    return cmocka_run_group_tests_name("few writes to a peer at once", tests, NULL, NULL);
}
