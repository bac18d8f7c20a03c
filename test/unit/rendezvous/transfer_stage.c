/* SPDX-License-Identifier: BSD-3-Clause */
#include "transfer_stage.h"

static regx_status_t answer_of(fake_t *fake, fake_call_t call)
{
    stage_t *stage = fake->context;

    if (fake == stage->answer.at && call == stage->answer.call &&
        fake->calls[call] == stage->answer.number) {
        return stage->answer.status;
    }
    if (call != FAKE_REG && chance_next(&stage->seed) % 100 < stage->again_percent) {
        return REGX_AGAIN;
    }
    return call == FAKE_PUT && chance_next(&stage->seed) % 100 < stage->late_percent ? REGX_PENDING
                                                                                     : REGX_OK;
}

static regx_status_t rule(fake_t *fake, fake_call_t call, const regx_put_t *put)
{
    const regx_status_t status = answer_of(fake, call);
    stage_t *stage = fake->context;

    if (call == FAKE_PUT && put->target == REGX_TARGET_REGION &&
        (status == REGX_OK || status == REGX_PENDING)) {
        stage->chunk_bytes += put->length;
    }
    return status;
}

void done(void *context, regx_status_t status)
{
    stage_t *stage = context;

    stage->dones++;
    stage->status = status;
}

stage_t *transfer_open(const fake_config_t *sender, const fake_config_t *receiver, regx_path_t path,
                       bool within_node)
{
    const fake_config_t played = {.slots = 2, .slot_size = 64};
    stage_t *stage = calloc(1, sizeof(*stage));

    assert_non_null(stage);
    stage->sender = fake_open(0, sender);
    stage->receiver = fake_open(1, receiver);
    stage->stranger = fake_open(2, &played);
    fake_connect(stage->sender, stage->receiver, within_node);
    fake_connect(stage->receiver, stage->sender, within_node);
    fake_connect(stage->receiver, stage->stranger, false);
    fake_connect(stage->sender, stage->stranger, false);
    stage->sender->context = stage->receiver->context = stage;
    stage->sender->rule = stage->receiver->rule = rule;
    stage->path = path;
    stage->sent = guarded_new(LENGTH);
    stage->received = guarded_new(LENGTH);
    guarded_fill(&stage->sent, 1);
    return stage;
}

void begin_of(stage_t *stage, size_t length)
{
    memset(stage->received.base, 0x11, stage->received.length);
    stage->recv = regx_rndv_recv_open(stage->receiver->rndv, &stage->receiver->peers[0],
                                      stage->received.base + stage->to, length);
    assert_non_null(stage->recv);
    regx_rndv_send_open(stage->sender->rndv, &stage->sender->peers[1],
                        stage->sent.base + stage->from, length, fake_cts(stage->recv), done, stage);
}

void begin(stage_t *stage)
{
    begin_of(stage, LENGTH);
}

void close_recv(stage_t *stage)
{
    regx_rndv_recv_close(stage->receiver->rndv, stage->recv);
    stage->recv = NULL;
}

void stage_close(stage_t *stage)
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

uint64_t malformed(const stage_t *stage)
{
    return stage->sender->counters.malformed + stage->receiver->counters.malformed;
}

bool deliver(stage_t *stage, unsigned to)
{
    fake_t *const fakes[] = {stage->sender, stage->receiver};
    const bool there = fake_receive(fakes[to], fakes[1 - to]);

    stage->frames[to] += there;
    return there;
}

bool end_put(stage_t *stage, unsigned which)
{
    const fake_frame_t *frame = stage->sender->conns[1].head;
    unsigned before = which;

    while (frame != NULL && (frame->pending == NULL || before-- > 0)) {
        frame = frame->next;
    }
    return frame != NULL &&
           fake_complete(stage->sender, 1, which,
                         frame->pending->target == REGX_TARGET_REGION ? stage->late : REGX_OK);
}

bool step(stage_t *stage)
{
    const unsigned what = (unsigned)(chance_next(&stage->seed) % 6);
    bool happened;

    regx_rndv_progress(stage->sender->rndv);
    regx_rndv_progress(stage->receiver->rndv);
    if (what < 2) {
        happened = deliver(stage, what);
    } else if (what < 4) {
        happened = fake_got(stage->receiver, 0, what - 2, REGX_OK);
    } else {
        happened = end_put(stage, what - 4);
    }
    regx_rndv_progress(stage->sender->rndv);
    regx_rndv_progress(stage->receiver->rndv);
    return happened;
}

void some_steps(stage_t *stage, unsigned steps)
{
    for (unsigned i = 0; i < steps; i++) {
        step(stage);
    }
}

void run(stage_t *stage)
{
    for (unsigned idle = 0; idle < 300; idle++) {
        if (step(stage)) {
            idle = 0;
        }
    }
}

void assert_read_of(const stage_t *stage, size_t length)
{
    const size_t end = stage->to + length;

    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_OK);
    assert_memory_equal(stage->received.base + stage->to, stage->sent.base + stage->from, length);
    for (size_t i = 0; i < stage->received.length; i++) {
        if ((i < stage->to || i >= end) && stage->received.base[i] != 0x11) {
            fail_msg("byte %zu was written, beside %zu to %zu", i, stage->to, end);
        }
    }
}

void assert_read(const stage_t *stage)
{
    assert_read_of(stage, LENGTH);
}

void assert_bytes(const stage_t *stage, uint64_t got)
{
    const regx_counters_t *counters = &stage->sender->counters;

    assert_int_equal(counters->bytes[stage->path], got);
    assert_int_equal(counters->bytes[REGX_PATH_bounce], LENGTH - got);
    assert_int_equal(counters->messages[REGX_PATH_bounce], got == 0);
    assert_int_equal(counters->messages[stage->path], got > 0);
    assert_int_equal(counters->messages[REGX_PATH_fallback], got < LENGTH);
    assert_int_equal(stage->receiver->counters.copied_out_bytes, LENGTH - got);
}

void drop_frames(fake_t *from, unsigned to)
{
    fake_conn_t *conn = &from->conns[to];

    while (conn->head != NULL) {
        fake_frame_t *frame = conn->head;

        conn->head = frame->next;
        free(frame);
    }
    conn->tail = &conn->head;
}

void forget_both(stage_t *stage)
{
    while (fake_complete(stage->sender, 1, 0, REGX_FAILED)) {
    }
    regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[1]);
    regx_rndv_forget(stage->receiver->rndv, &stage->receiver->peers[0]);
    drop_frames(stage->sender, 1);
    drop_frames(stage->receiver, 0);
}

void forget_in_mid_transfer(stage_t *stage, unsigned steps)
{
    const bool closes_first = steps % 2 == 0; /* before its gets have ended, or after */

    begin(stage);
    some_steps(stage, steps);
    const bool was_done = stage->dones == 1;
    regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[2]); /* another */
    regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[1]);
    const bool waits = fake_complete(stage->sender, 1, 0, REGX_FAILED);
    assert_true(!waits || !was_done);
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, was_done ? REGX_OK : REGX_UNREACHABLE);
    assert_int_equal(stage->sender->open_windows, 0);
    regx_rndv_forget(stage->receiver->rndv, &stage->receiver->peers[0]);
    drop_frames(stage->sender, 1);
    drop_frames(stage->receiver, 0);
    if (closes_first) {
        close_recv(stage);
        assert_int_equal(stage->receiver->open_windows, stage->receiver->conns[0].get_count);
    }
    while (fake_got(stage->receiver, 0, 0, REGX_FAILED)) {
    }
    regx_rndv_progress(stage->receiver->rndv);
    if (!closes_first) {
        close_recv(stage);
    }
    assert_null(stage->receiver->conns[0].head);
}

void assert_limits_hold(stage_t *stage, const fake_config_t *sender, const fake_config_t *receiver,
                        size_t written)
{
    const size_t chunk = regx_min(sender->chunk_size, receiver->chunk_size);
    const size_t chunks = (LENGTH - written + chunk - 1) / chunk;
    const size_t most = regx_min(regx_min(sender->chunk_depth, receiver->chunk_depth), chunks);
    const unsigned top = written > 0;

    stage->late_percent = 100;
    begin(stage);
    assert_int_equal(stage->sender->open_windows, top + most);
    while (deliver(stage, 1)) {
    }
    assert_int_equal(stage->receiver->open_windows, top + most);
    assert_int_equal(stage->receiver->conns[0].get_count, most);
    run(stage);
    assert_read(stage);
    assert_bytes(stage, LENGTH);
    close_recv(stage);
    assert_int_equal(stage->chunk_bytes, written);
    assert_in_range(stage->sender->counters.chunks_high, most, top + most);
    assert_int_equal(stage->receiver->counters.chunks_high, top + most);
    assert_int_equal(stage->receiver->counters.gets, chunks);
    assert_int_equal(malformed(stage), 0);
}
