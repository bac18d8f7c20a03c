/* SPDX-License-Identifier: BSD-3-Clause */
#include "recv_stage.h"

#include "rendezvous/send.h"

static void take_grant(transfer_t *transfer, grant_t grant)
{
    const stage_t *stage = transfer->receiver->context;
    const size_t length = transfer->received.length;

    assert_true(grant.length > 0 && grant.offset < length && grant.length <= length - grant.offset);
    assert_true(transfer->count < GRANTS);
    for (uint64_t i = 0; i < grant.length; i++) {
        if (transfer->map[grant.offset + i]++ != 0) {
            fail_msg("byte %llu is granted twice", (unsigned long long)(grant.offset + i));
        }
    }
    if (grant.chunk) {
        const uint64_t left = length - grant.offset;
        const uint64_t chunk = stage->config.chunk_size;

        if (strcmp(stage->config.strategy, "direct") == 0) {
            assert_true(grant.offset == 0 && grant.length == length);
        } else {
            assert_int_equal(grant.offset % chunk, 0);
            assert_int_equal(grant.length, left < chunk ? left : chunk);
        }
        transfer->chunk_grants++;
    } else {
        assert_int_equal(grant.slot % stage->config.slot_size, 0);
        assert_true(grant.slot / stage->config.slot_size < stage->config.slots);
        assert_true(grant.length <= stage->config.slot_size);
        for (unsigned p = 0; p < TRANSFERS; p++) {
            for (unsigned i = 0; stage->transfers[p] != NULL && i < stage->transfers[p]->count;
                 i++) {
                const grant_t *other = &stage->transfers[p]->grants[i];

                assert_true(other->chunk || other->slot != grant.slot);
            }
        }
        transfer->slot_grants++;
    }
    transfer->grants[transfer->count++] = grant;
}

void drop_grant(transfer_t *transfer, unsigned index, bool written)
{
    const grant_t grant = transfer->grants[index];

    memset(transfer->map + grant.offset, written ? 2 : 0, grant.length);
    transfer->written += written ? grant.length : 0;
    transfer->grants[index] = transfer->grants[--transfer->count];
}

/* Takes the grants of a message from the receive. */
static void deliver(fake_t *sender, uint64_t from, uint8_t tag, const void *data, size_t length)
{
    const stage_t *stage = sender->context;
    regx_control_t control;

    assert_int_equal(from, stage->receiver->id);
    assert_int_equal(tag, REGX_TAG_CONTROL);
    assert_true(regx_control_unpack(data, length, &control));
    assert_true(control.to.id < TRANSFERS && stage->transfers[control.to.id] != NULL);
    transfer_t *transfer = stage->transfers[control.to.id];
    assert_ptr_equal(transfer->sender, sender);
    assert_int_equal(control.to.generation, transfer->from.generation);
    assert_true(transfer->started); /* before, it cannot know the name */
    if (control.type == REGX_CONTROL_CTS_CHUNK) {
        take_grant(transfer, (grant_t){.chunk = true,
                                       .offset = control.offset,
                                       .length = control.length,
                                       .start = control.start,
                                       .key = control.key});
        return;
    }
    assert_int_equal(control.type, REGX_CONTROL_CTS_SLOTS);
    for (unsigned i = 0; i < control.slot_count; i++) {
        take_grant(transfer, (grant_t){.offset = control.offset,
                                       .length = control.slots[i].length,
                                       .slot = control.slots[i].slot});
        control.offset += control.slots[i].length;
    }
}

static regx_status_t rule(fake_t *fake, fake_call_t call, const regx_put_t *put)
{
    stage_t *stage = fake->context;

    (void)put;
    if (fake != stage->receiver) {
        return REGX_OK;
    }
    if (call == FAKE_REG) {
        return fake->calls[call] == stage->refused ? REGX_NO_MEMORY : REGX_OK;
    }
    return fake->calls[call] == stage->again ||
                   chance_next(&stage->seed) % 100 < stage->again_percent
               ? REGX_AGAIN
               : REGX_OK;
}

stage_t *stage_open(fake_config_t config)
{
    stage_t *stage = calloc(1, sizeof(*stage));
    const fake_config_t played = {.slots = 2, .slot_size = 64};

    assert_non_null(stage);
    stage->config = config;
    stage->receiver = fake_open(0, &config);
    stage->receiver->context = stage;
    stage->receiver->rule = rule;
    for (unsigned i = 0; i < SENDERS; i++) {
        stage->senders[i] = fake_open(i + 1, &played);
        stage->senders[i]->context = stage;
        stage->senders[i]->rule = rule;
        stage->senders[i]->deliver = deliver;
        fake_connect(stage->receiver, stage->senders[i], false);
        fake_connect(stage->senders[i], stage->receiver, false);
    }
    return stage;
}

transfer_t *transfer_open(stage_t *stage, unsigned index, unsigned sender, size_t length)
{
    transfer_t *transfer = calloc(1, sizeof(*transfer));
    regx_cts_t cts;

    assert_non_null(transfer);
    stage->transfers[index] = transfer;
    transfer->sender = stage->senders[sender];
    transfer->receiver = stage->receiver;
    transfer->received = guarded_new(length);
    memset(transfer->received.base, 0x11, length);
    transfer->map = calloc(length, 1);
    assert_non_null(transfer->map);
    transfer->stream = index + 1;
    transfer->from = (regx_handle_t){.id = index, .generation = index + 77};
    transfer->recv =
        regx_rndv_recv_open(stage->receiver->rndv, &stage->receiver->peers[transfer->sender->id],
                            transfer->received.base, length);
    assert_non_null(transfer->recv);
    assert_true(regx_send_read_cts(stage->receiver->rndv, fake_cts(transfer->recv), &cts));
    assert_int_equal(cts.length, length);
    assert_int_equal(cts.verify, stage->config.verify);
    transfer->to = cts.recv;
    for (unsigned i = 0, offset = 0; i < cts.slot_count; i++) {
        take_grant(
            transfer,
            (grant_t){.offset = offset, .length = cts.slots[i].length, .slot = cts.slots[i].slot});
        offset += cts.slots[i].length;
    }
    if (cts.chunk_length > 0) {
        take_grant(transfer, (grant_t){.chunk = true,
                                       .length = cts.chunk_length,
                                       .start = cts.chunk_start,
                                       .key = cts.key});
    }
    return transfer;
}

regx_control_t notice_of(const transfer_t *transfer, const grant_t *grant, regx_control_type_t type)
{
    const stage_t *stage = transfer->receiver->context;
    const bool notice = type == REGX_CONTROL_ATP_SLOT || type == REGX_CONTROL_ATP_CHUNK;
    regx_control_t control = {.type = type,
                              .to = transfer->to,
                              .from = transfer->from,
                              .slot = grant->slot,
                              .offset = grant->offset,
                              .length = grant->length,
                              .has_checksum = notice && stage->config.verify};

    if (control.has_checksum) {
        uint8_t *bytes = malloc(grant->length);

        assert_non_null(bytes);
        for (uint64_t i = 0; i < grant->length; i++) {
            bytes[i] = unit_stamp(transfer->stream, grant->offset + i);
        }
        control.checksum = regx_checksum(bytes, grant->length);
        free(bytes);
    }
    return control;
}

void tell(stage_t *stage, const transfer_t *transfer, const regx_control_t *control)
{
    uint8_t bytes[REGX_CONTROL_MAX];

    fake_arrive(stage->receiver, transfer->sender->id, bytes, regx_control_pack(control, bytes));
}

void start(stage_t *stage, transfer_t *transfer)
{
    const regx_control_t control = {
        .type = REGX_CONTROL_READY, .to = transfer->to, .from = transfer->from};

    transfer->started = true;
    tell(stage, transfer, &control);
}

void write_grant(transfer_t *transfer, const grant_t *grant)
{
    regx_put_t put = {.length = grant->length,
                      .target = grant->chunk ? REGX_TARGET_REGION : REGX_TARGET_POOL,
                      .offset = grant->chunk ? grant->start : grant->slot,
                      .key = grant->key};
    char *to = fake_target(&transfer->sender->conns[0], &put);

    assert_non_null(to); /* that is: the chunk is still registered, … */
    if (grant->chunk) {  /* … and the grant names its own bytes of it */
        assert_ptr_equal(to, transfer->received.base + grant->offset);
    }
    for (uint64_t i = 0; i < grant->length; i++) {
        to[i] = (char)unit_stamp(transfer->stream, grant->offset + i);
    }
}

void serve(stage_t *stage, transfer_t *transfer, unsigned index)
{
    const grant_t grant = transfer->grants[index];
    const regx_control_t control =
        notice_of(transfer, &grant, grant.chunk ? REGX_CONTROL_ATP_CHUNK : REGX_CONTROL_ATP_SLOT);

    transfer->started = true;
    write_grant(transfer, &grant);
    drop_grant(transfer, index, true);
    tell(stage, transfer, &control);
}

void refuse(stage_t *stage, transfer_t *transfer, unsigned index, bool permanent)
{
    regx_control_t control = notice_of(transfer, &transfer->grants[index], REGX_CONTROL_NACK);

    control.permanent = permanent;
    transfer->started = true;
    drop_grant(transfer, index, false);
    tell(stage, transfer, &control);
}

void hear_all(stage_t *stage)
{
    regx_rndv_progress(stage->receiver->rndv);
    for (unsigned i = 0; i < SENDERS; i++) {
        while (fake_receive(stage->senders[i], stage->receiver)) {
        }
    }
}

bool finish(stage_t *stage, transfer_t *transfer)
{
    unsigned idle = 0;

    if (!transfer->started) {
        start(stage, transfer);
    }
    while (transfer->written < transfer->received.length && idle < 1000) {
        hear_all(stage);
        idle++;
        if (transfer->count > 0) {
            serve(stage, transfer, (unsigned)(chance_next(&stage->seed) % transfer->count));
            idle = 0;
        }
    }
    return transfer->written == transfer->received.length;
}

void assert_arrived(const transfer_t *transfer)
{
    for (size_t i = 0; i < transfer->received.length; i++) {
        if (transfer->received.base[i] != unit_stamp(transfer->stream, i)) {
            fail_msg("byte %zu of %zu is wrong", i, transfer->received.length);
        }
    }
}

void transfer_close(stage_t *stage, transfer_t *transfer)
{
    regx_rndv_recv_close(stage->receiver->rndv, transfer->recv);
    transfer->recv = NULL;
    guarded_free(&transfer->received);
    free(transfer->map);
    stage->transfers[transfer->from.id] = NULL;
    free(transfer);
}

void transfer_finish(stage_t *stage, transfer_t *transfer)
{
    if (!finish(stage, transfer)) {
        fail_msg("stuck after %llu of %zu bytes", (unsigned long long)transfer->written,
                 transfer->received.length);
    }
    assert_arrived(transfer);
    transfer_close(stage, transfer);
}

uint64_t malformed(const stage_t *stage)
{
    return stage->receiver->counters.malformed;
}

void stage_close(stage_t *stage)
{
    fake_assert_idle(stage->receiver);
    fake_close(stage->receiver);
    for (unsigned i = 0; i < SENDERS; i++) {
        fake_close(stage->senders[i]);
    }
    free(stage);
}

const fake_config_t bounce = {
    .slots = 16, .slot_size = 1024, .strategy = "bounce", .chunk_size = PAGE, .chunk_depth = 4};
const fake_config_t pipeline = {
    .slots = 16, .slot_size = 1024, .strategy = "pipeline", .chunk_size = PAGE, .chunk_depth = 4};
const fake_config_t direct = {
    .slots = 16, .slot_size = 1024, .strategy = "direct", .chunk_size = PAGE, .chunk_depth = 4};

const fake_config_t verified_bounce = {.slots = 16,
                                       .slot_size = 1024,
                                       .strategy = "bounce",
                                       .chunk_size = PAGE,
                                       .chunk_depth = 4,
                                       .verify = true};
const fake_config_t verified_pipeline = {.slots = 16,
                                         .slot_size = 1024,
                                         .strategy = "pipeline",
                                         .chunk_size = PAGE,
                                         .chunk_depth = 4,
                                         .verify = true};
