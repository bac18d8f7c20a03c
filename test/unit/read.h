/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the path read: a transfer between two processes in memory.
 */
#ifndef REGX_TEST_READ_H
#define REGX_TEST_READ_H

#include "fake.h"

#include "rendezvous/engine.h"

enum { PAGE = 4096, LENGTH = 6 * PAGE + 7, CHUNKS = 7, DEPTH = 3, SLOT = 1024 };

typedef struct stage {
    fake_t *sender;   /* process 0 */
    fake_t *receiver; /* process 1 */
    fake_t *stranger; /* process 2, without an engine */
    guarded_t sent, received;
    regx_landing_t *landing; /* NULL: closed */
    unsigned dones;
    regx_status_t status;
    unsigned frames[2]; /* delivered to the process of that number */
    /* What the transport answers. */
    struct {
        fake_t *at;
        fake_call_t call;
        unsigned number; /* of the call, 0: none */
        regx_status_t status;
    } answer;
    unsigned again_percent;
    uint64_t seed;
} stage_t;

static const fake_config_t standard = {
    .slots = 64, .slot_size = SLOT, .strategy = "read", .chunk_size = PAGE, .chunk_depth = DEPTH};

static inline regx_status_t rule(fake_t *fake, fake_call_t call, const regx_put_t *put)
{
    stage_t *stage = fake->context;

    (void)put;
    if (fake == stage->answer.at && call == stage->answer.call &&
        fake->calls[call] == stage->answer.number) {
        return stage->answer.status;
    }
    return call != FAKE_REG && chance_next(&stage->seed) % 100 < stage->again_percent ? REGX_AGAIN
                                                                                      : REGX_OK;
}

static inline void done(void *context, regx_status_t status)
{
    stage_t *stage = context;

    stage->dones++;
    stage->status = status;
}

static inline stage_t *stage_open_both(const fake_config_t *sender, const fake_config_t *receiver)
{
    const fake_config_t played = {.slots = 2, .slot_size = 64};
    stage_t *stage = calloc(1, sizeof(*stage));

    assert_non_null(stage);
    stage->sender = fake_open(0, sender);
    stage->receiver = fake_open(1, receiver);
    stage->stranger = fake_open(2, &played);
    fake_connect(stage->sender, stage->receiver, false);
    fake_connect(stage->receiver, stage->sender, false);
    fake_connect(stage->receiver, stage->stranger, false);
    fake_connect(stage->sender, stage->stranger, false);
    stage->sender->context = stage->receiver->context = stage;
    stage->sender->rule = stage->receiver->rule = rule;
    stage->sent = guarded_new(LENGTH);
    stage->received = guarded_new(LENGTH);
    guarded_fill(&stage->sent, 1);
    return stage;
}

static inline stage_t *stage_open(void)
{
    return stage_open_both(&standard, &standard);
}

static inline void begin_of(stage_t *stage, size_t length)
{
    memset(stage->received.base, 0x11, stage->received.length);
    stage->landing = regx_landing_open(stage->receiver->rndv, &stage->receiver->peers[0],
                                       stage->received.base, length);
    assert_non_null(stage->landing);
    regx_source_open(stage->sender->rndv, &stage->sender->peers[1], stage->sent.base, length,
                     regx_landing_cts(stage->landing), done, stage);
}

static inline void begin(stage_t *stage)
{
    begin_of(stage, LENGTH);
}

static inline void end(stage_t *stage)
{
    regx_landing_close(stage->receiver->rndv, stage->landing);
    stage->landing = NULL;
}

static inline void stage_close(stage_t *stage)
{
    fake_t *const fakes[] = {stage->sender, stage->receiver, stage->stranger};

    for (int i = 0; i < 2; i++) {
        fake_settle(fakes[i]);
        fake_assert_idle(fakes[i]);
    }
    for (int i = 0; i < 3; i++) {
        fake_close(fakes[i]);
    }
    guarded_free(&stage->sent);
    guarded_free(&stage->received);
    free(stage);
}

static inline uint64_t malformed(const stage_t *stage)
{
    return stage->sender->counters.malformed + stage->receiver->counters.malformed;
}

/* Delivers the next frame to the process of that number. false: there is none. */
static inline bool deliver(stage_t *stage, unsigned to)
{
    fake_t *const fakes[] = {stage->sender, stage->receiver};
    const bool there = fake_receive(fakes[to], fakes[1 - to]);

    stage->frames[to] += there;
    return there;
}

/* Lets happen all that can, gets and messages in any order. */
static inline void run(stage_t *stage)
{
    for (unsigned idle = 0; idle < 300; idle++) {
        const unsigned what = (unsigned)(chance_next(&stage->seed) % 4);

        regx_rndv_progress(stage->sender->rndv);
        regx_rndv_progress(stage->receiver->rndv);
        if (what < 2 ? deliver(stage, what) : fake_got(stage->receiver, 0, what - 2, REGX_OK)) {
            idle = 0;
        }
    }
}

/* Asserts that all has arrived, and was told once. */
static inline void assert_read_of(const stage_t *stage, size_t length)
{
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_OK);
    assert_memory_equal(stage->received.base, stage->sent.base, length);
    for (size_t i = length; i < stage->received.length; i++) {
        assert_int_equal(stage->received.base[i], 0x11);
    }
}

static inline void assert_read(const stage_t *stage)
{
    assert_read_of(stage, LENGTH);
}

/* What went by reading and by slots. */
static inline void assert_bytes(const stage_t *stage, uint64_t got)
{
    const regx_counters_t *counters = &stage->sender->counters;

    assert_int_equal(counters->bytes[REGX_PATH_read], got);
    assert_int_equal(counters->bytes[REGX_PATH_bounce], LENGTH - got);
    assert_int_equal(counters->messages[REGX_PATH_bounce], got == 0);
    assert_int_equal(counters->messages[REGX_PATH_read], got > 0);
    assert_int_equal(counters->messages[REGX_PATH_fallback], got < LENGTH);
    assert_int_equal(stage->receiver->counters.copied_out_bytes, LENGTH - got);
}

static inline void drop_frames(fake_t *from, unsigned to)
{
    fake_conn_t *conn = &from->conns[to];

    while (conn->head != NULL) {
        fake_frame_t *frame = conn->head;

        conn->head = frame->next;
        free(frame);
    }
    conn->tail = &conn->head;
}

#endif
