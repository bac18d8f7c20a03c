/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the landing: the test as its sources. It keeps its own map of what was granted,
 * and so finds a byte that is granted twice, outside the message, in a slot of someone else's, or
 * never; it sends what a source may send, late and in any order.
 */
#ifndef REGX_TEST_LANDING_H
#define REGX_TEST_LANDING_H

#include "fake.h"

#include "rendezvous/checksum.h"

enum { GRANTS = 160, PLAYS = 120, PAGE = 4096, SENDERS = 3 };

typedef struct grant { /* told, and not yet answered */
    bool chunk;
    uint64_t offset, length;
    uint32_t slot;
    uint64_t start; /* in the region that the key names */
    regx_key_t key;
} grant_t;

typedef struct play { /* one transfer */
    fake_t *sender, *receiver;
    regx_landing_t *landing; /* NULL: closed */
    guarded_t received;
    uint8_t *map; /* of each byte: 0 not granted, 1 granted, 2 written */
    uint64_t written;
    uint64_t stream;
    regx_handle_t to, from;
    bool started;
    grant_t grants[GRANTS];
    unsigned count;
    unsigned slot_grants, chunk_grants; /* ever */
} play_t;

typedef struct stage {
    fake_config_t config;
    fake_t *receiver;
    fake_t *senders[SENDERS]; /* processes 1, 2 and 3, played by the test */
    play_t *plays[PLAYS];
    unsigned again; /* the number of the receiver's send that finds no room, 0: none */
    unsigned again_percent;
    unsigned refused; /* the number of the registration that is refused, 0: none */
    uint64_t seed;
} stage_t;

/* ---- the map ---- */

static inline void take_grant(play_t *play, grant_t grant)
{
    const stage_t *stage = play->receiver->context;
    const size_t length = play->received.length;

    assert_true(grant.length > 0 && grant.offset < length && grant.length <= length - grant.offset);
    assert_true(play->count < GRANTS);
    for (uint64_t i = 0; i < grant.length; i++) {
        if (play->map[grant.offset + i]++ != 0) {
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
        play->chunk_grants++;
    } else {
        assert_int_equal(grant.slot % stage->config.slot_size, 0);
        assert_true(grant.slot / stage->config.slot_size < stage->config.slots);
        assert_true(grant.length <= stage->config.slot_size);
        for (unsigned p = 0; p < PLAYS; p++) {
            for (unsigned i = 0; stage->plays[p] != NULL && i < stage->plays[p]->count; i++) {
                const grant_t *other = &stage->plays[p]->grants[i];

                assert_true(other->chunk || other->slot != grant.slot);
            }
        }
        play->slot_grants++;
    }
    play->grants[play->count++] = grant;
}

/* A grant was answered: the bytes are written, or to be granted again. */
static inline void drop_grant(play_t *play, unsigned index, bool written)
{
    const grant_t grant = play->grants[index];

    memset(play->map + grant.offset, written ? 2 : 0, grant.length);
    play->written += written ? grant.length : 0;
    play->grants[index] = play->grants[--play->count];
}

/* Takes the grants of a message from the landing. */
static inline void deliver(fake_t *sender, uint64_t from, uint8_t tag, const void *data,
                           size_t length)
{
    const stage_t *stage = sender->context;
    regx_control_t control;

    assert_int_equal(from, stage->receiver->id);
    assert_int_equal(tag, REGX_TAG_CONTROL);
    assert_true(regx_control_unpack(data, length, &control));
    assert_true(control.to.id < PLAYS && stage->plays[control.to.id] != NULL);
    play_t *play = stage->plays[control.to.id];
    assert_ptr_equal(play->sender, sender);
    assert_int_equal(control.to.generation, play->from.generation);
    assert_true(play->started); /* before, it cannot know the name */
    if (control.type == REGX_CONTROL_CHUNK) {
        take_grant(play, (grant_t){.chunk = true,
                                   .offset = control.offset,
                                   .length = control.length,
                                   .start = control.start,
                                   .key = control.key});
        return;
    }
    assert_int_equal(control.type, REGX_CONTROL_SLOTS);
    for (unsigned i = 0; i < control.slot_count; i++) {
        take_grant(play, (grant_t){.offset = control.offset,
                                   .length = control.slots[i].length,
                                   .slot = control.slots[i].slot});
        control.offset += control.slots[i].length;
    }
}

/* ---- the stage ---- */

static inline regx_status_t rule(fake_t *fake, fake_call_t call, const regx_put_t *put)
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

static inline stage_t *stage_open(fake_config_t config)
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

static inline play_t *play_open(stage_t *stage, unsigned index, unsigned sender, size_t length)
{
    play_t *play = calloc(1, sizeof(*play));
    regx_cts_t cts;

    assert_non_null(play);
    stage->plays[index] = play;
    play->sender = stage->senders[sender];
    play->receiver = stage->receiver;
    play->received = guarded_new(length);
    memset(play->received.base, 0x11, length);
    play->map = calloc(length, 1);
    assert_non_null(play->map);
    play->stream = index + 1;
    play->from = (regx_handle_t){.id = index, .generation = index + 77};
    play->landing =
        regx_landing_open(stage->receiver->rndv, &stage->receiver->peers[play->sender->id],
                          play->received.base, length);
    assert_non_null(play->landing);
    assert_true(regx_cts_unpack(regx_landing_cts(play->landing), &cts));
    assert_int_equal(cts.length, length);
    assert_int_equal(cts.verify, stage->config.verify);
    play->to = cts.landing;
    for (unsigned i = 0, offset = 0; i < cts.slot_count; i++) {
        take_grant(
            play,
            (grant_t){.offset = offset, .length = cts.slots[i].length, .slot = cts.slots[i].slot});
        offset += cts.slots[i].length;
    }
    if (cts.chunk_length > 0) {
        take_grant(play, (grant_t){.chunk = true,
                                   .length = cts.chunk_length,
                                   .start = cts.chunk_start,
                                   .key = cts.key});
    }
    return play;
}

/* What the sender tells about a grant. */
static inline regx_control_t notice_of(const play_t *play, const grant_t *grant,
                                       regx_control_type_t type)
{
    const stage_t *stage = play->receiver->context;
    const bool notice = type == REGX_CONTROL_WRITTEN || type == REGX_CONTROL_DONE;
    regx_control_t control = {.type = type,
                              .to = play->to,
                              .from = play->from,
                              .slot = grant->slot,
                              .offset = grant->offset,
                              .length = grant->length,
                              .has_checksum = notice && stage->config.verify};

    if (control.has_checksum) {
        uint8_t *bytes = malloc(grant->length);

        assert_non_null(bytes);
        for (uint64_t i = 0; i < grant->length; i++) {
            bytes[i] = unit_stamp(play->stream, grant->offset + i);
        }
        control.checksum = regx_checksum(bytes, grant->length);
        free(bytes);
    }
    return control;
}

static inline void tell(stage_t *stage, const play_t *play, const regx_control_t *control)
{
    uint8_t bytes[REGX_CONTROL_MAX];

    fake_arrive(stage->receiver, play->sender->id, bytes, regx_control_pack(control, bytes));
}

static inline void start(stage_t *stage, play_t *play)
{
    const regx_control_t control = {.type = REGX_CONTROL_START, .to = play->to, .from = play->from};

    play->started = true;
    tell(stage, play, &control);
}

/* Writes the bytes of a grant, into its slot or its chunk, and says nothing yet. */
static inline void write_grant(play_t *play, const grant_t *grant)
{
    regx_put_t put = {.length = grant->length,
                      .target = grant->chunk ? REGX_TARGET_REGION : REGX_TARGET_POOL,
                      .offset = grant->chunk ? grant->start : grant->slot,
                      .key = grant->key};
    char *to = fake_target(&play->sender->conns[0], &put);

    assert_non_null(to); /* that is: the chunk is still registered, … */
    if (grant->chunk) {  /* … and the grant names its own bytes of it */
        assert_ptr_equal(to, play->received.base + grant->offset);
    }
    for (uint64_t i = 0; i < grant->length; i++) {
        to[i] = (char)unit_stamp(play->stream, grant->offset + i);
    }
}

/* Answers one grant as it should be. */
static inline void serve(stage_t *stage, play_t *play, unsigned index)
{
    const grant_t grant = play->grants[index];
    const regx_control_t control =
        notice_of(play, &grant, grant.chunk ? REGX_CONTROL_DONE : REGX_CONTROL_WRITTEN);

    play->started = true;
    write_grant(play, &grant);
    drop_grant(play, index, true);
    tell(stage, play, &control);
}

static inline void refuse(stage_t *stage, play_t *play, unsigned index, bool for_ever)
{
    regx_control_t control = notice_of(play, &play->grants[index], REGX_CONTROL_REFUSED);

    control.for_ever = for_ever;
    play->started = true;
    drop_grant(play, index, false);
    tell(stage, play, &control);
}

/* Takes in what the landing has sent. */
static inline void listen(stage_t *stage)
{
    regx_rndv_progress(stage->receiver->rndv);
    for (unsigned i = 0; i < SENDERS; i++) {
        while (fake_receive(stage->senders[i], stage->receiver)) {
        }
    }
}

/* Serves whatever is granted to that transfer until all is written; whether it came to that. */
static inline bool finish(stage_t *stage, play_t *play)
{
    unsigned idle = 0;

    if (!play->started) {
        start(stage, play);
    }
    while (play->written < play->received.length && idle < 1000) {
        listen(stage);
        idle++;
        if (play->count > 0) {
            serve(stage, play, (unsigned)(chance_next(&stage->seed) % play->count));
            idle = 0;
        }
    }
    return play->written == play->received.length;
}

static inline void assert_arrived(const play_t *play)
{
    for (size_t i = 0; i < play->received.length; i++) {
        if (play->received.base[i] != unit_stamp(play->stream, i)) {
            fail_msg("byte %zu of %zu is wrong", i, play->received.length);
        }
    }
}

static inline void play_close(stage_t *stage, play_t *play)
{
    regx_landing_close(stage->receiver->rndv, play->landing);
    play->landing = NULL;
    guarded_free(&play->received);
    free(play->map);
    stage->plays[play->from.id] = NULL;
    free(play);
}

/* Serves the rest, checks every byte, closes. */
static inline void play_out(stage_t *stage, play_t *play)
{
    if (!finish(stage, play)) {
        fail_msg("stuck after %llu of %zu bytes", (unsigned long long)play->written,
                 play->received.length);
    }
    assert_arrived(play);
    play_close(stage, play);
}

static inline uint64_t malformed(const stage_t *stage)
{
    return stage->receiver->counters.malformed;
}

static inline void stage_close(stage_t *stage)
{
    fake_assert_idle(stage->receiver);
    fake_close(stage->receiver);
    for (unsigned i = 0; i < SENDERS; i++) {
        fake_close(stage->senders[i]);
    }
    free(stage);
}

static const fake_config_t bounce = {
    .slots = 16, .slot_size = 1024, .strategy = "bounce", .chunk_size = PAGE, .chunk_depth = 4};
static const fake_config_t pipeline = {
    .slots = 16, .slot_size = 1024, .strategy = "pipeline", .chunk_size = PAGE, .chunk_depth = 4};
static const fake_config_t direct = {
    .slots = 16, .slot_size = 1024, .strategy = "direct", .chunk_size = PAGE, .chunk_depth = 4};

static const fake_config_t verified_bounce = {.slots = 16,
                                              .slot_size = 1024,
                                              .strategy = "bounce",
                                              .chunk_size = PAGE,
                                              .chunk_depth = 4,
                                              .verify = true};
static const fake_config_t verified_pipeline = {.slots = 16,
                                                .slot_size = 1024,
                                                .strategy = "pipeline",
                                                .chunk_size = PAGE,
                                                .chunk_depth = 4,
                                                .verify = true};

#endif
