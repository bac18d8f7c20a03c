/* SPDX-License-Identifier: BSD-3-Clause */
#include "send_stage.h"

static regx_status_t rule(fake_t *fake, fake_call_t call, const regx_put_t *put)
{
    stage_t *stage = fake->context;

    if (fake != stage->sender) {
        return REGX_OK;
    }
    if (call == FAKE_PUT) {
        const uint8_t *local = put->local;

        /* The whole transfer is over once its end was told. */
        assert_int_equal(stage->dones, 0);
        assert_true(put->length > 0);
        /* After a chunk that failed, or where the CTS says that memory may be gone, slots are sent
         * from a fault-safe copy; deliver compares it. */
        assert_true((put->target == REGX_TARGET_POOL && (stage->refused > 0 || stage->suspect)) ||
                    (local >= stage->sent.base &&
                     local + put->length <= stage->sent.base + stage->sent.length));
        if (put->target == REGX_TARGET_REGION) {
            const regx_mr_t *region = put->region;

            assert_non_null(region); /* what is sent lies within it */
            assert_ptr_equal((uint8_t *)region->base + fake->outer, local);
            assert_int_equal(region->length, put->length + 2 * fake->outer);
            assert_int_equal(region->access & REGX_ACCESS_LOCAL, REGX_ACCESS_LOCAL);
        }
    }
    if (++stage->calls[call] == stage->answer[call].at) {
        return stage->answer[call].status;
    }
    if (call == FAKE_REG) {
        return REGX_OK;
    }
    if (chance_next(&stage->seed) % 100 < stage->again_percent) {
        return REGX_AGAIN;
    }
    if (call == FAKE_SEND) {
        return REGX_OK;
    }
    return chance_next(&stage->seed) % 100 < stage->late_percent ? REGX_PENDING : stage->puts;
}

void done(void *context, regx_status_t status)
{
    stage_t *stage = context;

    assert_true(status == REGX_OK || status == REGX_UNREACHABLE || status == REGX_INVALID ||
                status == REGX_FAILED);
    stage->dones++;
    stage->status = status;
}

static void drop_grant(stage_t *stage, unsigned index)
{
    if (stage->grants[index].chunk) {
        fake_dereg(&stage->receiver->transport, &stage->grants[index].mr);
    }
    stage->grants[index] = stage->grants[--stage->count];
}

/* A message of the send: it must answer a grant, and what it says must be so. */
static void deliver(fake_t *receiver, uint64_t from, uint8_t tag, const void *data, size_t length)
{
    stage_t *stage = receiver->context;
    regx_control_t control;

    assert_int_equal(from, 0);
    assert_int_equal(tag, REGX_TAG_CONTROL);
    assert_true(regx_control_unpack(data, length, &control));
    assert_true(control.type <= REGX_CONTROL_RKEY);
    assert_int_equal(control.to.id, stage->recv.id);
    assert_int_equal(control.to.generation, stage->recv.generation);
    if (stage->started) {
        assert_int_equal(control.from.id, stage->send.id);
        assert_int_equal(control.from.generation, stage->send.generation);
    }
    if (control.type == REGX_CONTROL_READY) {
        assert_false(stage->started); /* once, and before all others */
    }
    stage->send = control.from;
    stage->started = true;
    if (control.type == REGX_CONTROL_READY || stage->any_target) {
        return;
    }
    for (unsigned i = 0; i < stage->count; i++) {
        const grant_t *grant = &stage->grants[i];
        const bool slot = control.type == REGX_CONTROL_ATP_SLOT;

        if (grant->offset != control.offset || grant->length != control.length ||
            grant->chunk == slot || (slot && grant->slot != control.slot)) {
            continue;
        }
        if (slot) {
            memcpy(stage->received.base + grant->offset,
                   stage->receiver->pool_memory.base + grant->slot, grant->length);
        }
        assert_int_equal(control.has_checksum, stage->verify && control.type < REGX_CONTROL_NACK);
        if (control.has_checksum) {
            assert_true(control.checksum ==
                        regx_checksum(stage->sent.base + grant->offset, grant->length));
        }
        if (control.type == REGX_CONTROL_NACK) {
            stage->refused++;
            stage->refused_permanent += control.permanent;
            stage->refused_failed += control.failed;
        } else {
            assert_memory_equal(stage->received.base + grant->offset,
                                stage->sent.base + grant->offset, grant->length);
            stage->written += grant->length;
        }
        drop_grant(stage, i);
        return;
    }
    fail_msg("no grant of %llu bytes at %llu", (unsigned long long)control.length,
             (unsigned long long)control.offset);
}

stage_t *stage_open_outer(size_t outer)
{
    stage_t *stage = calloc(1, sizeof(*stage));
    const fake_config_t config = {.slots = SLOTS,
                                  .slot_size = SLOT,
                                  .strategy = "bounce",
                                  .chunk_size = PAGE,
                                  .chunk_depth = 4,
                                  .outer = outer};
    const fake_config_t played = {.slots = SLOTS, .slot_size = SLOT, .outer = outer};

    assert_non_null(stage);
    stage->sender = fake_open(0, &config);
    stage->receiver = fake_open(1, &played);
    stage->stranger = fake_open(2, &played);
    stage->sender->context = stage->receiver->context = stage->stranger->context = stage;
    stage->sender->rule = stage->receiver->rule = stage->stranger->rule = rule;
    stage->receiver->deliver = deliver;
    fake_connect(stage->sender, stage->receiver, false);
    fake_connect(stage->sender, stage->stranger, false);
    fake_connect(stage->receiver, stage->sender, false);
    stage->recv = (regx_handle_t){.id = 5, .generation = 9};
    stage->sent = guarded_new(LENGTH);
    stage->received = guarded_new(LENGTH);
    guarded_fill(&stage->sent, 1);
    return stage;
}

stage_t *stage_open(void)
{
    return stage_open_outer(0);
}

uint64_t malformed(const stage_t *stage)
{
    return stage->sender->counters.malformed;
}

void stage_close(stage_t *stage)
{
    while (stage->count > 0) {
        drop_grant(stage, 0);
    }
    assert_int_equal(stage->dones, 1);
    fake_assert_idle(stage->sender);
    fake_close(stage->sender);
    fake_close(stage->receiver);
    fake_close(stage->stranger);
    guarded_free(&stage->sent);
    guarded_free(&stage->received);
    free(stage);
}

static void add_slot(stage_t *stage, uint64_t offset, uint64_t length, uint32_t slot)
{
    assert_true(stage->count < GRANTS);
    stage->grants[stage->count++] = (grant_t){.offset = offset, .length = length, .slot = slot};
}

regx_key_t add_chunk(stage_t *stage, uint64_t offset, uint64_t length, uint64_t *start)
{
    grant_t *grant = &stage->grants[stage->count++];

    *grant = (grant_t){.chunk = true, .offset = offset, .length = length};
    assert_int_equal(fake_reg(&stage->receiver->transport, stage->received.base + offset, length,
                              REGX_ACCESS_REMOTE_WRITE, &grant->mr),
                     REGX_OK);
    *start = (uint64_t)(stage->received.base + offset - (uint8_t *)grant->mr.base);
    return grant->mr.key;
}

regx_cts_t cts_of(stage_t *stage, regx_path_t path, unsigned slots, uint64_t chunk)
{
    regx_cts_t cts = {.path = path,
                      .grants = path == REGX_PATH_bounce ? REGX_GRANTS_SLOTS
                                : path == REGX_PATH_read ? REGX_GRANTS_RKEYS
                                                         : REGX_GRANTS_CHUNK,
                      .recv = stage->recv,
                      .verify = stage->verify,
                      .length = stage->sent.length,
                      .slot_count = slots,
                      .chunk_length = chunk};
    uint64_t offset = 0;

    for (unsigned i = 0; i < slots; i++) {
        const uint64_t length = regx_min(cts.length - offset, SLOT);

        cts.slots[i] = (regx_slot_grant_t){i * SLOT, (uint32_t)length};
        add_slot(stage, offset, length, i * SLOT);
        offset += length;
    }
    if (chunk > 0) {
        cts.key = add_chunk(stage, 0, chunk, &cts.chunk_start);
    }
    return cts;
}

void open_send(stage_t *stage, const regx_cts_t *cts)
{
    uint8_t bytes[REGX_CTS_SIZE];

    regx_cts_pack(cts, bytes);
    regx_rndv_send_open(stage->sender->rndv, &stage->sender->peers[1], stage->sent.base,
                        stage->sent.length, bytes, done, stage);
}

void tell(stage_t *stage, const regx_control_t *control)
{
    uint8_t bytes[REGX_CONTROL_MAX];

    fake_arrive(stage->sender, 1, bytes, regx_control_pack(control, bytes));
}

void grant_slots(stage_t *stage, uint64_t offset, uint64_t length)
{
    while (length > 0) {
        regx_control_t control = {
            .type = REGX_CONTROL_CTS_SLOTS, .to = stage->send, .offset = offset};

        for (uint32_t slot = 0; slot < SLOTS && length > 0 && control.slot_count < 4; slot++) {
            const uint64_t piece = regx_min(length, SLOT);
            bool held = false;

            for (unsigned i = 0; i < stage->count; i++) {
                held |= !stage->grants[i].chunk && stage->grants[i].slot == slot * SLOT;
            }
            if (!held) {
                add_slot(stage, offset, piece, slot * SLOT);
                control.slots[control.slot_count++] =
                    (regx_slot_grant_t){slot * SLOT, (uint32_t)piece};
                offset += piece;
                length -= piece;
            }
        }
        assert_true(control.slot_count > 0);
        tell(stage, &control);
    }
}

void grant_chunk(stage_t *stage, uint64_t offset, uint64_t length)
{
    regx_control_t control = {
        .type = REGX_CONTROL_CTS_CHUNK, .to = stage->send, .offset = offset, .length = length};

    control.key = add_chunk(stage, offset, length, &control.start);
    tell(stage, &control);
}

void run(stage_t *stage)
{
    for (unsigned idle = 0; idle < 200; idle++) {
        regx_rndv_progress(stage->sender->rndv);
        if (fake_complete(stage->sender, 1, (unsigned)(chance_next(&stage->seed) % 4), REGX_OK) ||
            fake_complete(stage->sender, 1, 0, REGX_OK) ||
            fake_receive(stage->receiver, stage->sender)) {
            idle = 0;
        }
    }
}

void assert_sent(stage_t *stage)
{
    run(stage);
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_OK);
    assert_int_equal(stage->written, stage->sent.length);
    assert_memory_equal(stage->received.base, stage->sent.base, stage->sent.length);
}

void play_on(stage_t *stage, bool chunks, uint64_t offset)
{
    run(stage);
    for (; offset < LENGTH && chunks; offset += PAGE) {
        grant_chunk(stage, offset, regx_min(LENGTH - offset, PAGE));
        if (chance_next(&stage->seed) % 2 == 0) {
            run(stage);
        }
    }
    if (!chunks) {
        grant_slots(stage, offset, LENGTH - offset);
    }
    run(stage);
}

void whole_transfer(stage_t *stage, bool chunks)
{
    const regx_cts_t cts =
        chunks ? cts_of(stage, REGX_PATH_pipeline, 0, PAGE) : cts_of(stage, REGX_PATH_bounce, 3, 0);

    open_send(stage, &cts);
    play_on(stage, chunks, chunks ? PAGE : 3 * SLOT);
}
