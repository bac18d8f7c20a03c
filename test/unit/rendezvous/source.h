/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the source: the test as its landing. It grants what a landing may grant, late
 * and in any order, looks at every put before it is made, and compares what was written.
 */
#ifndef REGX_TEST_SOURCE_H
#define REGX_TEST_SOURCE_H

#include "fake.h"

#include "rendezvous/checksum.h"

enum { SLOT = 1024, SLOTS = 64, PAGE = 4096, GRANTS = 256, LENGTH = 6 * PAGE + 7 };

typedef struct grant { /* told to the source and not answered */
    bool chunk;
    uint64_t offset, length;
    uint32_t slot;
    regx_mr_t mr; /* of a chunk */
} grant_t;

typedef struct stage {
    fake_t *sender;   /* process 0 */
    fake_t *receiver; /* process 1, played by the test */
    fake_t *stranger; /* process 2, likewise */
    guarded_t sent, received;
    regx_handle_t landing; /* as the source knows it */
    regx_handle_t source;  /* as it said */
    bool started;
    bool verify; /* the CTS asks for checksums */
    grant_t grants[GRANTS];
    unsigned count;
    uint64_t written;
    unsigned refused; /* chunks */
    unsigned refused_for_ever;
    unsigned refused_failed;
    unsigned dones;
    regx_status_t status;
    bool any_target; /* grants were made up: puts may go anywhere that there is */
    /* what the transport answers */
    unsigned calls[FAKE_CALLS];
    struct {
        unsigned at; /* the number of the call, 0: none */
        regx_status_t status;
    } answer[FAKE_CALLS];
    regx_status_t puts; /* all others */
    unsigned again_percent;
    unsigned late_percent;
    uint64_t seed;
} stage_t;

static inline regx_status_t rule(fake_t *fake, fake_call_t call, const regx_put_t *put)
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
        /* After a chunk that failed slots are sent from a careful copy; deliver compares it. */
        assert_true((put->target == REGX_TARGET_POOL && stage->refused > 0) ||
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

static inline void done(void *context, regx_status_t status)
{
    stage_t *stage = context;

    assert_true(status == REGX_OK || status == REGX_UNREACHABLE || status == REGX_INVALID ||
                status == REGX_FAILED);
    stage->dones++;
    stage->status = status;
}

static inline void drop_grant(stage_t *stage, unsigned index)
{
    if (stage->grants[index].chunk) {
        fake_dereg(&stage->receiver->transport, &stage->grants[index].mr);
    }
    stage->grants[index] = stage->grants[--stage->count];
}

/* A message of the source: it must answer a grant, and what it says must be so. */
static inline void deliver(fake_t *receiver, uint64_t from, uint8_t tag, const void *data,
                           size_t length)
{
    stage_t *stage = receiver->context;
    regx_control_t control;

    assert_int_equal(from, 0);
    assert_int_equal(tag, REGX_TAG_CONTROL);
    assert_true(regx_control_unpack(data, length, &control));
    assert_true(control.type <= REGX_CONTROL_EXPOSED);
    assert_int_equal(control.to.id, stage->landing.id);
    assert_int_equal(control.to.generation, stage->landing.generation);
    if (stage->started) {
        assert_int_equal(control.from.id, stage->source.id);
        assert_int_equal(control.from.generation, stage->source.generation);
    }
    if (control.type == REGX_CONTROL_START) {
        assert_false(stage->started); /* once, and before all others */
    }
    stage->source = control.from;
    stage->started = true;
    if (control.type == REGX_CONTROL_START || stage->any_target) {
        return;
    }
    for (unsigned i = 0; i < stage->count; i++) {
        const grant_t *grant = &stage->grants[i];
        const bool slot = control.type == REGX_CONTROL_WRITTEN;

        if (grant->offset != control.offset || grant->length != control.length ||
            grant->chunk == slot || (slot && grant->slot != control.slot)) {
            continue;
        }
        if (slot) {
            memcpy(stage->received.base + grant->offset,
                   stage->receiver->pool_memory.base + grant->slot, grant->length);
        }
        assert_int_equal(control.has_checksum,
                         stage->verify && control.type < REGX_CONTROL_REFUSED);
        if (control.has_checksum) {
            assert_true(control.checksum ==
                        regx_checksum(stage->sent.base + grant->offset, grant->length));
        }
        if (control.type == REGX_CONTROL_REFUSED) {
            stage->refused++;
            stage->refused_for_ever += control.for_ever;
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

/* Regions are larger than asked for, on both ends, by `outer` bytes on either side. */
static inline stage_t *stage_open_outer(size_t outer)
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
    stage->landing = (regx_handle_t){.id = 5, .generation = 9};
    stage->sent = guarded_new(LENGTH);
    stage->received = guarded_new(LENGTH);
    guarded_fill(&stage->sent, 1);
    return stage;
}

static inline stage_t *stage_open(void)
{
    return stage_open_outer(0);
}

static inline uint64_t malformed(const stage_t *stage)
{
    return stage->sender->counters.malformed;
}

static inline void stage_close(stage_t *stage)
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

/* ---- granting ---- */

static inline void add_slot(stage_t *stage, uint64_t offset, uint64_t length, uint32_t slot)
{
    assert_true(stage->count < GRANTS);
    stage->grants[stage->count++] = (grant_t){.offset = offset, .length = length, .slot = slot};
}

/* The key, and where the chunk begins in what it names. */
static inline regx_key_t add_chunk(stage_t *stage, uint64_t offset, uint64_t length,
                                   uint64_t *start)
{
    grant_t *grant = &stage->grants[stage->count++];

    *grant = (grant_t){.chunk = true, .offset = offset, .length = length};
    assert_int_equal(fake_reg(&stage->receiver->transport, stage->received.base + offset, length,
                              REGX_ACCESS_REMOTE_WRITE, &grant->mr),
                     REGX_OK);
    *start = (uint64_t)(stage->received.base + offset - (uint8_t *)grant->mr.base);
    return grant->mr.key;
}

static inline uint64_t at_most(uint64_t length, uint64_t most)
{
    return length < most ? length : most;
}

/* A CTS that grants `slots` slots, or a chunk of `chunk` bytes. */
static inline regx_cts_t cts_of(stage_t *stage, regx_path_t path, unsigned slots, uint64_t chunk)
{
    regx_cts_t cts = {.path = path,
                      .landing = stage->landing,
                      .verify = stage->verify,
                      .length = stage->sent.length,
                      .slot_count = slots,
                      .chunk_length = chunk};
    uint64_t offset = 0;

    for (unsigned i = 0; i < slots; i++) {
        const uint64_t length = at_most(cts.length - offset, SLOT);

        cts.slots[i] = (regx_slot_grant_t){i * SLOT, (uint32_t)length};
        add_slot(stage, offset, length, i * SLOT);
        offset += length;
    }
    if (chunk > 0) {
        cts.key = add_chunk(stage, 0, chunk, &cts.chunk_start);
    }
    return cts;
}

static inline void open_source(stage_t *stage, const regx_cts_t *cts)
{
    uint8_t bytes[REGX_CTS_SIZE];

    regx_cts_pack(cts, bytes);
    regx_source_open(stage->sender->rndv, &stage->sender->peers[1], stage->sent.base,
                     stage->sent.length, bytes, done, stage);
}

static inline void tell(stage_t *stage, const regx_control_t *control)
{
    uint8_t bytes[REGX_CONTROL_MAX];

    fake_arrive(stage->sender, 1, bytes, regx_control_pack(control, bytes));
}

/* Grants [offset, offset + length) by slots that no one holds, in messages of up to four. */
static inline void grant_slots(stage_t *stage, uint64_t offset, uint64_t length)
{
    while (length > 0) {
        regx_control_t control = {
            .type = REGX_CONTROL_SLOTS, .to = stage->source, .offset = offset};

        for (uint32_t slot = 0; slot < SLOTS && length > 0 && control.slot_count < 4; slot++) {
            const uint64_t piece = at_most(length, SLOT);
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

static inline void grant_chunk(stage_t *stage, uint64_t offset, uint64_t length)
{
    regx_control_t control = {
        .type = REGX_CONTROL_CHUNK, .to = stage->source, .offset = offset, .length = length};

    control.key = add_chunk(stage, offset, length, &control.start);
    tell(stage, &control);
}

/* Lets happen what can happen, puts ending in any order. */
static inline void run(stage_t *stage)
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

/* Asserts that all has arrived, told once and well. */
static inline void assert_sent(stage_t *stage)
{
    run(stage);
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_OK);
    assert_int_equal(stage->written, stage->sent.length);
    assert_memory_equal(stage->received.base, stage->sent.base, stage->sent.length);
}

/* The rest of a transfer from `offset` on, as a landing of that path would do it: chunks, and
 * slots for what was refused. */
static inline void play_on(stage_t *stage, bool chunks, uint64_t offset)
{
    run(stage);
    for (; offset < LENGTH && chunks; offset += PAGE) {
        grant_chunk(stage, offset, at_most(LENGTH - offset, PAGE));
        if (chance_next(&stage->seed) % 2 == 0) {
            run(stage);
        }
    }
    if (!chunks) {
        grant_slots(stage, offset, LENGTH - offset);
    }
    run(stage);
}

/* One transfer by chunks or slots, disturbed as the stage says. */
static inline void whole_transfer(stage_t *stage, bool chunks)
{
    const regx_cts_t cts =
        chunks ? cts_of(stage, REGX_PATH_pipeline, 0, PAGE) : cts_of(stage, REGX_PATH_bounce, 3, 0);

    open_source(stage, &cts);
    play_on(stage, chunks, chunks ? PAGE : 3 * SLOT);
}

#endif
