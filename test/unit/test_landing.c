/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The landing, with the test as its sources. The test keeps its own map of what was granted, and
 * so finds a byte that is granted twice, outside the message, in a slot of someone else's, or
 * never; it sends what a source may send, late, in any order and mutated.
 */
#include "fake.h"

#include <stdio.h>

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
    regx_name_t to, from;
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

static void take_grant(play_t *play, grant_t grant)
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
static void drop_grant(play_t *play, unsigned index, bool written)
{
    const grant_t grant = play->grants[index];

    memset(play->map + grant.offset, written ? 2 : 0, grant.length);
    play->written += written ? grant.length : 0;
    play->grants[index] = play->grants[--play->count];
}

/* Takes the grants of a message from the landing. */
static void deliver(fake_t *sender, uint64_t from, uint8_t tag, const void *data, size_t length)
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
                   unit_random(&stage->seed) % 100 < stage->again_percent
               ? REGX_AGAIN
               : REGX_OK;
}

static stage_t *stage_open(fake_config_t config)
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

static play_t *play_open(stage_t *stage, unsigned index, unsigned sender, size_t length)
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
    play->from = (regx_name_t){.id = index, .generation = index + 77};
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
static regx_control_t notice_of(const play_t *play, const grant_t *grant, regx_control_type_t type)
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

/* Hands the bytes to the engine as if they had arrived from that process. */
static void arrive(stage_t *stage, uint64_t sender, const uint8_t *bytes, size_t length)
{
    uint8_t *copy = malloc(length); /* so that reading past the end is found */

    assert_non_null(copy);
    memcpy(copy, bytes, length);
    regx_rndv_control(stage->receiver->rndv, sender, copy, length);
    free(copy);
}

static void tell(stage_t *stage, const play_t *play, const regx_control_t *control)
{
    uint8_t bytes[REGX_CONTROL_MAX];

    arrive(stage, play->sender->id, bytes, regx_control_pack(control, bytes));
}

static void start(stage_t *stage, play_t *play)
{
    const regx_control_t control = {.type = REGX_CONTROL_START, .to = play->to, .from = play->from};

    play->started = true;
    tell(stage, play, &control);
}

/* Writes the bytes of a grant, into its slot or its chunk, and says nothing yet. */
static void write_grant(play_t *play, const grant_t *grant)
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
static void serve(stage_t *stage, play_t *play, unsigned index)
{
    const grant_t grant = play->grants[index];
    const regx_control_t control =
        notice_of(play, &grant, grant.chunk ? REGX_CONTROL_DONE : REGX_CONTROL_WRITTEN);

    play->started = true;
    write_grant(play, &grant);
    drop_grant(play, index, true);
    tell(stage, play, &control);
}

static void refuse(stage_t *stage, play_t *play, unsigned index, bool for_ever)
{
    regx_control_t control = notice_of(play, &play->grants[index], REGX_CONTROL_REFUSED);

    control.for_ever = for_ever;
    play->started = true;
    drop_grant(play, index, false);
    tell(stage, play, &control);
}

/* Takes in what the landing has sent. */
static void listen(stage_t *stage)
{
    regx_rndv_progress(stage->receiver->rndv);
    for (unsigned i = 0; i < SENDERS; i++) {
        while (fake_receive(stage->senders[i], stage->receiver)) {
        }
    }
}

/* Serves whatever is granted to that transfer until all is written; whether it came to that. */
static bool finish(stage_t *stage, play_t *play)
{
    unsigned idle = 0;

    if (!play->started) {
        start(stage, play);
    }
    while (play->written < play->received.length && idle < 1000) {
        listen(stage);
        idle++;
        if (play->count > 0) {
            serve(stage, play, (unsigned)(unit_random(&stage->seed) % play->count));
            idle = 0;
        }
    }
    return play->written == play->received.length;
}

static void assert_arrived(const play_t *play)
{
    for (size_t i = 0; i < play->received.length; i++) {
        if (play->received.base[i] != unit_stamp(play->stream, i)) {
            fail_msg("byte %zu of %zu is wrong", i, play->received.length);
        }
    }
}

static void play_close(stage_t *stage, play_t *play)
{
    regx_landing_close(stage->receiver->rndv, play->landing);
    play->landing = NULL;
    guarded_free(&play->received);
    free(play->map);
    stage->plays[play->from.id] = NULL;
    free(play);
}

/* Serves the rest, checks every byte, closes. */
static void play_out(stage_t *stage, play_t *play)
{
    if (!finish(stage, play)) {
        fail_msg("stuck after %llu of %zu bytes", (unsigned long long)play->written,
                 play->received.length);
    }
    assert_arrived(play);
    play_close(stage, play);
}

static uint64_t malformed(const stage_t *stage)
{
    return stage->receiver->counters.malformed;
}

static void stage_close(stage_t *stage)
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

/* ---- what each path does ---- */

static void every_length_lands(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 3; c++) {
        stage_t *stage = stage_open(*configs[c]);

        for (size_t length = 1; length < 6 * PAGE; length += length < 40 ? 1 : 509) {
            play_out(stage, play_open(stage, 0, 0, length));
        }
        for (size_t length = 1024; length <= 5 * PAGE; length += 1024) {
            for (size_t around = length - 1; around <= length + 1; around++) {
                play_out(stage, play_open(stage, 0, 0, around));
            }
        }
        assert_int_equal(malformed(stage), 0);
        stage_close(stage);
    }
}

static void bounce_copies_and_registers_nothing(void **state)
{
    stage_t *stage = stage_open(bounce);

    (void)state;
    play_out(stage, play_open(stage, 0, 0, 100000));
    assert_int_equal(stage->receiver->counters.copied_out_bytes, 100000);
    assert_int_equal(stage->receiver->counters.registrations, 0);
    assert_int_equal(stage->receiver->counters.grants, 98);
    stage_close(stage);
}

static void pipeline_registers_chunks_no_more_than_depth_at_once(void **state)
{
    (void)state;
    for (unsigned depth = 1; depth <= 64; depth *= 2) {
        fake_config_t config = pipeline;

        config.chunk_depth = depth;
        stage_t *stage = stage_open(config);
        const regx_counters_t *counters = &stage->receiver->counters;
        play_t *play = play_open(stage, 0, 0, 20 * PAGE + 1);

        assert_int_equal(play->count, 1); /* in the CTS */
        start(stage, play);
        listen(stage);
        assert_int_equal(play->count, depth < 21 ? depth : 21);
        play_out(stage, play);
        assert_int_equal(counters->registrations, 21);
        assert_int_equal(counters->chunks_high, depth < 21 ? depth : 21);
        assert_int_equal(counters->largest_registration, PAGE);
        assert_int_equal(counters->copied_out_bytes, 0);
        assert_int_equal(counters->grants, 21);
        stage_close(stage);
    }
}

/* The registration that serves a chunk may be of more: the grant says where in it the chunk is. */
static void chunks_lie_within_larger_regions(void **state)
{
    static const fake_config_t *const configs[] = {&pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 2; c++) {
        for (size_t outer = 1; outer <= PAGE; outer += outer < 3 ? 1 : 1000) {
            fake_config_t config = *configs[c];

            config.outer = outer;
            stage_t *stage = stage_open(config);
            play_t *play = play_open(stage, 0, 0, 6 * PAGE + 7);

            assert_int_equal(play->grants[0].start, outer);
            play_out(stage, play);
            assert_int_equal(malformed(stage), 0);
            stage_close(stage);
        }
    }
}

static void direct_registers_the_whole(void **state)
{
    stage_t *stage = stage_open(direct);

    (void)state;
    play_out(stage, play_open(stage, 0, 0, 20 * PAGE + 1));
    assert_int_equal(stage->receiver->counters.registrations, 1);
    assert_int_equal(stage->receiver->counters.largest_registration, 20 * PAGE + 1);
    assert_int_equal(stage->receiver->counters.copied_out_bytes, 0);
    stage_close(stage);
}

static void two_slots_serve_a_hundred_landings(void **state)
{
    enum { LANDINGS = 100 };
    const size_t length = 5000;
    fake_config_t config = bounce;
    unsigned done = 0;
    unsigned idle = 0;

    (void)state;
    config.slots = 2;
    stage_t *stage = stage_open(config);
    for (unsigned i = 0; i < LANDINGS; i++) {
        play_open(stage, i, i % SENDERS, length);
    }
    for (unsigned i = 0; i < LANDINGS; i++) {
        start(stage, stage->plays[(i * 37) % LANDINGS]);
    }
    while (done < LANDINGS && idle < 1000) {
        const unsigned first = (unsigned)(unit_random(&stage->seed) % LANDINGS);

        listen(stage);
        idle++;
        for (unsigned i = 0; i < LANDINGS; i++) {
            play_t *play = stage->plays[(first + i) % LANDINGS];

            if (play != NULL && play->count > 0) {
                serve(stage, play, 0);
                idle = 0;
                if (play->written == length) {
                    assert_arrived(play);
                    play_close(stage, play);
                    done++;
                }
                break;
            }
        }
    }
    assert_int_equal(done, LANDINGS);
    assert_int_equal(stage->receiver->counters.slots_high, 2);
    assert_true(stage->receiver->counters.grant_stalls > 0);
    assert_int_equal(malformed(stage), 0);
    stage_close(stage);
}

/* Peers that are told and do not answer leave half of the pool to those who do. */
static void unanswered_landings_hold_no_more_than_half(void **state)
{
    (void)state;
    for (unsigned slots = 2; slots < 40; slots++) {
        fake_config_t config = bounce;
        unsigned told = 0;

        config.slots = slots;
        stage_t *stage = stage_open(config);
        for (unsigned i = 0; i < 60; i++) {
            told += play_open(stage, i, i % 2, 9 * 1024)->count;
        }
        assert_in_range(told, 1, (slots + 1) / 2);
        assert_int_equal(stage->receiver->pool.unused, slots - told);
        for (unsigned i = 60; i < 70; i++) { /* the third process answers */
            play_out(stage, play_open(stage, i, 2, 9 * 1024));
        }
        for (unsigned i = 0; i < 60; i++) {
            play_out(stage, stage->plays[i]);
        }
        assert_int_equal(malformed(stage), 0);
        stage_close(stage);
    }
}

/* A landing that waits is one stall, however often progress looks whether it can go on. */
static void a_stall_is_counted_once(void **state)
{
    fake_config_t config = bounce;

    (void)state;
    config.slots = 2;
    stage_t *stage = stage_open(config);
    play_t *holding[2];

    for (unsigned i = 0; i < 2; i++) {
        holding[i] = play_open(stage, i, i, 1024);
        start(stage, holding[i]);
    }
    play_t *waiting = play_open(stage, 2, 2, 1024);
    start(stage, waiting);
    for (unsigned i = 0; i < 100; i++) {
        start(stage, holding[i % 2]); /* news that makes no room */
        listen(stage);
    }
    assert_int_equal(holding[0]->count + holding[1]->count, 2);
    assert_int_equal(waiting->count, 0);
    assert_int_equal(stage->receiver->counters.grant_stalls, 1);
    play_out(stage, holding[0]);
    play_out(stage, holding[1]);
    play_out(stage, waiting);
    assert_int_equal(stage->receiver->counters.grant_stalls, 1);
    stage_close(stage);
}

/* Slots may be with fragments too. Who waits for one goes on when it is back, without a notice. */
static void a_slot_that_comes_back_serves_who_waits(void **state)
{
    (void)state;
    for (unsigned waiting = 1; waiting <= 20; waiting++) {
        fake_config_t config = bounce;

        config.slots = 4;
        stage_t *stage = stage_open(config);
        uint32_t slots[4];

        for (unsigned i = 0; i < 4; i++) {
            slots[i] = regx_pool_get(&stage->receiver->pool);
        }
        for (unsigned i = 0; i < waiting; i++) {
            start(stage, play_open(stage, i, i % SENDERS, 5000));
        }
        listen(stage);
        /* One slot is enough for all of them. */
        regx_pool_put(&stage->receiver->pool, slots[0]);
        for (unsigned i = waiting; i-- > 0;) {
            while (!finish(stage, stage->plays[i])) {
                for (unsigned other = 0; other < waiting; other++) {
                    play_t *play = stage->plays[other];

                    if (play != NULL && play->count > 0) {
                        serve(stage, play, 0);
                        other = waiting;
                    } else if (other == waiting - 1) {
                        fail_msg("%u wait, and nobody has the slot", waiting);
                    }
                }
            }
        }
        for (unsigned i = 0; i < waiting; i++) {
            play_out(stage, stage->plays[i]);
        }
        for (unsigned i = 1; i < 4; i++) {
            regx_pool_put(&stage->receiver->pool, slots[i]);
        }
        stage_close(stage);
    }
}

/* A transfer by chunks needs no slot, so that it does not wait for who needs one. */
static void chunks_do_not_wait_for_slots(void **state)
{
    fake_config_t config = bounce;
    uint32_t slots[4];

    (void)state;
    config.slots = 4;
    config.strategy = "auto";
    config.chunk_depth = 1;
    stage_t *stage = stage_open(config);
    stage->receiver->conns[1].conn.shares_pool = true; /* process 1 bounces, process 2 does not */
    for (unsigned i = 0; i < 4; i++) {
        slots[i] = regx_pool_get(&stage->receiver->pool);
    }
    play_t *dry = play_open(stage, 0, 0, 5 * PAGE);
    play_t *chunks = play_open(stage, 1, 1, 20 * PAGE);
    start(stage, dry);
    listen(stage);
    assert_int_equal(dry->count, 0);
    play_out(stage, chunks);
    for (unsigned i = 0; i < 4; i++) {
        regx_pool_put(&stage->receiver->pool, slots[i]);
    }
    play_out(stage, dry);
    stage_close(stage);
}

/* ---- closing early ---- */

static void grants_of_a_closed_landing_come_back(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 3; c++) {
        for (unsigned served = 0; served < 6; served++) {
            stage_t *stage = stage_open(*configs[c]);
            play_t *play = play_open(stage, 0, 0, 30 * PAGE);
            const regx_name_t old = play->to;
            grant_t grants[GRANTS];

            for (unsigned i = 0; i < served && play->count > 0; i++) {
                serve(stage, play, 0);
                listen(stage);
            }
            const unsigned count = play->count;
            memcpy(grants, play->grants, sizeof(grants));
            play_close(stage, play);
            fake_assert_idle(stage->receiver);
            /* What arrives for it later has no effect, also not on who has its number now. */
            play = play_open(stage, 0, 0, 30 * PAGE);
            for (unsigned i = 0; i < count; i++) {
                regx_control_t late = notice_of(
                    play, &grants[i], grants[i].chunk ? REGX_CONTROL_DONE : REGX_CONTROL_WRITTEN);

                late.to = old;
                tell(stage, play, &late);
            }
            assert_int_equal(malformed(stage), count);
            play_out(stage, play);
            assert_int_equal(malformed(stage), count);
            stage_close(stage);
        }
    }
}

/* A landing that waits for the slots of others gets them when those are given back. */
static void a_closed_landings_slots_serve_who_waits(void **state)
{
    (void)state;
    for (unsigned slots = 2; slots <= 512; slots *= 2) {
        for (size_t slot_size = 64; slot_size <= 65536; slot_size *= 32) {
            fake_config_t config = bounce;

            config.slots = slots;
            config.slot_size = slot_size;
            stage_t *stage = stage_open(config);
            play_t *waiting;
            unsigned held = 0;

            /* Held by transfers that have not begun and never will. */
            for (; held < 100; held++) {
                play_t *play = play_open(stage, held, 0, 1 << 20);

                if (play->count == 0) {
                    break;
                }
            }
            waiting = play_open(stage, 110, 0, 1000);
            start(stage, waiting);
            listen(stage);
            for (unsigned i = 0; i <= held && i < 100; i++) {
                play_close(stage, stage->plays[i]);
            }
            if (!finish(stage, waiting)) {
                fail_msg("stuck with %u slots of %zu bytes, %u held, now all free", slots,
                         slot_size, held);
            }
            assert_arrived(waiting);
            play_close(stage, waiting);
            stage_close(stage);
        }
    }
}

/* ---- refusals, and no room ---- */

static void each_registration_may_be_refused(void **state)
{
    static const fake_config_t *const configs[] = {&pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 2; c++) {
        for (unsigned k = 1; k <= (c == 0 ? 11 : 1); k++) {
            stage_t *stage = stage_open(*configs[c]);

            stage->refused = k;
            play_t *play = play_open(stage, 0, 0, 10 * PAGE + 100);
            assert_true(finish(stage, play));
            assert_int_equal(play->chunk_grants, k - 1);
            assert_true(play->slot_grants > 0);
            assert_int_equal(stage->receiver->counters.copied_out_bytes,
                             10 * PAGE + 100 - (k - 1) * PAGE);
            play_out(stage, play);
            assert_int_equal(malformed(stage), 0);
            /* The next transfer tries again. */
            play = play_open(stage, 0, 0, PAGE);
            assert_int_equal(play->chunk_grants, 1);
            play_out(stage, play);
            stage_close(stage);
        }
    }
}

static void each_chunk_may_be_refused_by_the_source(void **state)
{
    static const fake_config_t *const configs[] = {&pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 2; c++) {
        for (unsigned mask = 1; mask < (c == 0 ? 128 : 2); mask++) {
            for (int for_ever = 0; for_ever < 2; for_ever++) {
                stage_t *stage = stage_open(*configs[c]);
                play_t *play = play_open(stage, 0, 0, 6 * PAGE + 100);
                unsigned answered = 0;

                start(stage, play);
                listen(stage);
                while (play->count > 0 && play->grants[0].chunk) {
                    if ((mask >> answered++ & 1) != 0) {
                        refuse(stage, play, 0, for_ever);
                    } else {
                        serve(stage, play, 0);
                    }
                    listen(stage);
                }
                play_out(stage, play);
                assert_int_equal(malformed(stage), 0);
                play = play_open(stage, 0, 0, 3 * PAGE);
                assert_int_equal(play->chunk_grants, !for_ever);
                play_out(stage, play);
                /* The other process has refused nothing. */
                play = play_open(stage, 1, 1, 3 * PAGE);
                assert_int_equal(play->chunk_grants, 1);
                play_out(stage, play);
                stage_close(stage);
            }
        }
    }
}

static void each_send_may_find_no_room(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline};

    (void)state;
    for (size_t c = 0; c < 2; c++) {
        for (unsigned refused = 0; refused < 4; refused++) {
            for (unsigned nth = 1; nth < 30; nth++) {
                stage_t *stage = stage_open(*configs[c]);

                stage->again = nth;
                stage->refused = refused;
                play_open(stage, 0, 0, 9 * PAGE + 1);
                play_open(stage, 1, 1, 9 * PAGE + 1);
                start(stage, stage->plays[1]);
                play_out(stage, stage->plays[0]);
                play_out(stage, stage->plays[1]);
                assert_int_equal(malformed(stage), 0);
                stage_close(stage);
            }
        }
        for (unsigned seed = 0; seed < 20; seed++) {
            stage_t *stage = stage_open(*configs[c]);

            stage->again_percent = 70;
            stage->seed = seed;
            stage->refused = seed % 9;
            play_open(stage, 0, 0, 9 * PAGE + 1);
            play_open(stage, 1, 1, 9 * PAGE + 1);
            start(stage, stage->plays[1]);
            play_out(stage, stage->plays[0]);
            play_out(stage, stage->plays[1]);
            stage_close(stage);
        }
    }
}

static void a_landing_may_be_closed_while_its_grant_is_unsent(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline};

    (void)state;
    for (size_t c = 0; c < 2; c++) {
        stage_t *stage = stage_open(*configs[c]);
        play_t *play = play_open(stage, 0, 0, 30 * PAGE);

        stage->again_percent = 100;
        start(stage, play);
        regx_rndv_progress(stage->receiver->rndv);
        play_close(stage, play);
        fake_assert_idle(stage->receiver);
        stage->again_percent = 0;
        play_out(stage, play_open(stage, 0, 0, 30 * PAGE));
        assert_int_equal(malformed(stage), 0);
        stage_close(stage);
    }
}

/* ---- messages that are wrong ---- */

typedef struct change { /* of a message: `size` bytes from `at` on become, or are flipped by, value
                         */
    size_t at, size;
    uint64_t value;
    bool flip;
} change_t;

static void mutate(uint8_t *bytes, size_t size, const change_t *change)
{
    for (size_t i = 0; i < change->size && change->at + i < size; i++) {
        const uint8_t value = (uint8_t)(change->value >> (8 * i));

        bytes[change->at + i] = change->flip ? bytes[change->at + i] ^ value : value;
    }
}

static bool same_name(regx_name_t one, regx_name_t other)
{
    return one.id == other.id && one.generation == other.generation;
}

/* The grant that the message answers, or -1. */
static int answered(const play_t *play, const regx_control_t *control)
{
    for (unsigned i = 0; i < play->count; i++) {
        const grant_t *grant = &play->grants[i];

        if (grant->offset != control->offset || grant->length != control->length) {
            continue;
        }
        if (grant->chunk
                ? control->type == REGX_CONTROL_DONE || control->type == REGX_CONTROL_REFUSED
                : control->type == REGX_CONTROL_WRITTEN && control->slot == grant->slot) {
            return (int)i;
        }
    }
    return -1;
}

/* Asserts that of a buffer of 0x11 only what the message said was copied out is changed (and what
 * the source itself wrote to chunks). */
static void assert_untouched(const play_t *play, const regx_control_t *copied)
{
    const bool chunks = play->chunk_grants > 0;

    for (size_t i = 0; i < play->received.length; i++) {
        const bool out =
            copied != NULL && i >= copied->offset && i - copied->offset < copied->length;
        const bool in_chunk = chunks && play->map[i] == 1;

        if (play->received.base[i] != (out || in_chunk ? unit_stamp(play->stream, i) : 0x11)) {
            fail_msg("byte %zu was touched", i);
        }
    }
}

static void ignore(fake_t *sender, uint64_t from, uint8_t tag, const void *data, size_t length)
{
    (void)sender, (void)from, (void)tag, (void)data, (void)length;
}

/* Sends, changed, the message that would answer the first grant. It must have the effect of what
 * it says, if that can be, or none. Then the transfer goes on to its end, which tells. */
static void try_message(const fake_config_t *config, bool started, regx_control_type_t type,
                        change_t change, uint64_t sender)
{
    stage_t *stage = stage_open(*config);
    play_t *play = play_open(stage, 0, 0, 6 * PAGE + 7);
    regx_control_t control = {.type = 0};
    uint8_t bytes[REGX_CONTROL_MAX];

    if (started) {
        start(stage, play);
        listen(stage);
    }
    assert_true(play->count > 0);
    for (unsigned i = 0; i < play->count; i++) {
        write_grant(play, &play->grants[i]);
    }
    const regx_control_t right = notice_of(play, &play->grants[0], type);
    const size_t size = regx_control_pack(&right, bytes);
    mutate(bytes, size, &change);

    const bool form = regx_control_unpack(bytes, size, &control);
    const bool addressed = form && control.type <= REGX_CONTROL_EXPOSED &&
                           same_name(control.to, play->to) && sender == play->sender->id &&
                           (!started || same_name(control.from, play->from));
    const bool checked = control.has_checksum || !config->verify ||
                         control.type == REGX_CONTROL_START || control.type == REGX_CONTROL_REFUSED;
    const int grant =
        addressed && checked && control.type != REGX_CONTROL_START ? answered(play, &control) : -1;
    const bool sound = addressed && (control.type == REGX_CONTROL_START || grant >= 0);

    arrive(stage, sender, bytes, size);
    assert_int_equal(malformed(stage), !sound);
    assert_untouched(play, grant >= 0 && control.type == REGX_CONTROL_WRITTEN ? &control : NULL);
    /* Its checksum is the one thing that may be wrong in a notice that is taken. */
    const bool spoiled =
        grant >= 0 && control.has_checksum &&
        control.checksum != notice_of(play, &play->grants[grant], control.type).checksum;
    assert_int_equal(stage->receiver->mismatches, spoiled);
    if (sound && !same_name(control.from, play->from)) {
        /* The first to speak is the source; the one of this test is now a stranger. */
        play_close(stage, play);
        stage->senders[0]->deliver = ignore;
        listen(stage);
        stage_close(stage);
        return;
    }
    play->started |= sound;
    if (grant >= 0) {
        drop_grant(play, (unsigned)grant, control.type != REGX_CONTROL_REFUSED);
    }
    play_out(stage, play);
    assert_int_equal(malformed(stage), !sound);
    stage_close(stage);
}

typedef struct answer {
    const fake_config_t *config;
    regx_control_type_t type;
    size_t length;
} answer_t;

static const answer_t answers[] = {{&bounce, REGX_CONTROL_START, 20},
                                   {&bounce, REGX_CONTROL_WRITTEN, 40},
                                   {&pipeline, REGX_CONTROL_START, 20},
                                   {&pipeline, REGX_CONTROL_DONE, 40},
                                   {&pipeline, REGX_CONTROL_REFUSED, 40},
                                   {&direct, REGX_CONTROL_DONE, 40},
                                   {&verified_bounce, REGX_CONTROL_WRITTEN, 48},
                                   {&verified_pipeline, REGX_CONTROL_DONE, 48}};

enum { ANSWERS = sizeof(answers) / sizeof(answers[0]) };

static void every_byte_may_be_wrong(void **state)
{
    static const uint8_t flips[] = {0, 1, 2, 4, 8, 16, 32, 64, 128, 255, 3, 7};

    (void)state;
    for (size_t a = 0; a < ANSWERS; a++) {
        for (int started = 0; started < 2; started++) {
            for (size_t at = 0; at < answers[a].length; at++) {
                for (size_t f = 0; f < sizeof(flips); f++) {
                    try_message(answers[a].config, started, answers[a].type,
                                (change_t){at, 1, flips[f], true}, 1);
                }
            }
        }
    }
}

static void every_field_may_be_wrong(void **state)
{
    static const struct {
        size_t at, size;
    } fields[] = {{0, 1},  {1, 1},  {2, 2},  {4, 4},  {8, 4}, {12, 4},
                  {16, 4}, {20, 4}, {24, 8}, {32, 8}, {40, 8}};
    static const uint64_t values[] = {0,
                                      1,
                                      2,
                                      64,
                                      1023,
                                      1024,
                                      1025,
                                      15 * 1024,
                                      16 * 1024,
                                      PAGE,
                                      6 * PAGE + 6,
                                      6 * PAGE + 7,
                                      6 * PAGE + 8,
                                      INT32_MAX,
                                      UINT64_C(1) << 31,
                                      UINT32_MAX,
                                      UINT64_C(1) << 32,
                                      INT64_MAX,
                                      UINT64_C(1) << 63,
                                      UINT64_MAX - 1023,
                                      UINT64_MAX};

    (void)state;
    for (size_t a = 0; a < ANSWERS; a++) {
        for (int started = 0; started < 2; started++) {
            for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
                for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
                    try_message(answers[a].config, started, answers[a].type,
                                (change_t){fields[f].at, fields[f].size, values[v], false}, 1);
                }
            }
        }
    }
}

static void another_process_may_not_answer(void **state)
{
    (void)state;
    for (size_t a = 0; a < ANSWERS; a++) {
        for (int started = 0; started < 2; started++) {
            try_message(answers[a].config, started, answers[a].type, (change_t){.size = 0}, 2);
            try_message(answers[a].config, started, answers[a].type, (change_t){.size = 0}, 3);
            try_message(answers[a].config, started, answers[a].type, (change_t){.size = 0},
                        UINT64_MAX);
        }
    }
}

static void an_answer_counts_once(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 3; c++) {
        stage_t *stage = stage_open(*configs[c]);
        play_t *play = play_open(stage, 0, 0, 6 * PAGE);
        const grant_t grant = play->grants[0];
        const regx_control_type_t type = grant.chunk ? REGX_CONTROL_DONE : REGX_CONTROL_WRITTEN;
        const regx_control_t again = notice_of(play, &grant, type);

        serve(stage, play, 0);
        for (unsigned i = 1; i <= 3; i++) {
            tell(stage, play, &again);
            assert_int_equal(malformed(stage), i);
        }
        play_out(stage, play);
        stage_close(stage);
    }
}

/* A message that is refused does not make its sender the source of the landing. */
static void a_wrong_answer_is_not_a_start(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 3; c++) {
        stage_t *stage = stage_open(*configs[c]);
        play_t *play = play_open(stage, 0, 0, 6 * PAGE);
        regx_control_t wrong =
            notice_of(play, &play->grants[0],
                      play->grants[0].chunk ? REGX_CONTROL_DONE : REGX_CONTROL_WRITTEN);

        wrong.from.generation++;
        wrong.length--;
        tell(stage, play, &wrong);
        assert_int_equal(malformed(stage), 1);
        play_out(stage, play);
        assert_int_equal(malformed(stage), 1);
        stage_close(stage);
    }
}

static void one_landings_slot_is_not_anothers(void **state)
{
    stage_t *stage = stage_open(bounce);
    play_t *one = play_open(stage, 0, 0, 3000);
    play_t *other = play_open(stage, 1, 0, 3000);

    (void)state;
    assert_true(one->count > 0 && other->count > 0);
    regx_control_t control = notice_of(one, &one->grants[0], REGX_CONTROL_WRITTEN);
    control.slot = other->grants[0].slot; /* same offset and length, same process */
    write_grant(one, &one->grants[0]);
    write_grant(other, &other->grants[0]);
    tell(stage, one, &control);
    assert_int_equal(malformed(stage), 1);
    assert_untouched(one, NULL);
    assert_untouched(other, NULL);
    play_out(stage, one);
    play_out(stage, other);
    stage_close(stage);
}

static void noise_is_survived(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline, &direct};
    uint64_t seed = 23;

    (void)state;
    for (size_t c = 0; c < 3; c++) {
        stage_t *stage = stage_open(*configs[c]);
        play_t *play = play_open(stage, 0, 0, 6 * PAGE);

        start(stage, play);
        listen(stage);
        for (unsigned i = 0; i < play->count; i++) {
            write_grant(play, &play->grants[i]);
        }
        for (unsigned i = 0; i < 20000; i++) {
            uint64_t words[8];
            uint8_t *bytes = (uint8_t *)words;

            for (unsigned w = 0; w < 8; w++) {
                words[w] = unit_random(&seed);
            }
            if (i % 2 == 0) { /* of the right form, for the right landing */
                bytes[0] = REGX_CONTROL_VERSION;
                bytes[1] = (uint8_t)(2 + bytes[1] % 3);
                bytes[2] = bytes[3] = 0;
                memcpy(bytes + 4, &play->to, 8);
                memcpy(bytes + 12, &play->from, 8);
                memset(bytes + 20, 0, 4);
                arrive(stage, 1, bytes, 40);
            } else {
                arrive(stage, 1 + i / 2 % 2, bytes, unit_random(&seed) % 64 + 1);
            }
        }
        assert_int_equal(malformed(stage), 20000);
        assert_untouched(play, NULL);
        play_out(stage, play);
        stage_close(stage);
    }
}

/* ---- verify ---- */

/* Where checksums are asked for, a notice without one is no notice. Where they are not, one that
 * comes is compared all the same. */
static void what_is_to_have_a_checksum_has_one(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 3; c++) {
        for (int verify = 0; verify < 2; verify++) {
            fake_config_t config = *configs[c];

            config.verify = verify;
            stage_t *stage = stage_open(config);
            const regx_counters_t *counters = &stage->receiver->counters;
            play_t *play = play_open(stage, 0, 0, 6 * PAGE);
            regx_control_t notice =
                notice_of(play, &play->grants[0],
                          play->grants[0].chunk ? REGX_CONTROL_DONE : REGX_CONTROL_WRITTEN);

            write_grant(play, &play->grants[0]);
            if (verify) {
                notice.has_checksum = false;
                tell(stage, play, &notice);
                assert_int_equal(malformed(stage), 1);
                assert_int_equal(counters->verified, 0);
            } else {
                notice.has_checksum = true;
                notice.checksum = 12345;
                drop_grant(play, 0, true);
                tell(stage, play, &notice);
                play->started = true;
                assert_int_equal(malformed(stage), 0);
                assert_int_equal(counters->verified, 1);
                assert_int_equal(counters->mismatches, 1);
                assert_int_equal(stage->receiver->mismatches, 1);
                assert_int_equal(stage->receiver->mismatch_peer, 1);
            }
            play_out(stage, play);
            assert_int_equal(counters->verified > 1, verify && c < 2);
            assert_int_equal(counters->mismatches, !verify);
            stage_close(stage);
        }
    }
}

/* Messages name a slot by 32 bits of its place in the pool. */
static void a_pool_of_four_gigabytes_is_refused(void **state)
{
    static const size_t slot_size = 1 << 20;
    const regx_rndv_config_t config = {
        .strategy = regx_strategy_find("bounce"), .chunk_size = PAGE, .chunk_depth = 1};
    regx_counters_t counters = {0};
    regx_registry_t registry = {0};

    (void)state;
    for (size_t slots = 4094; slots <= 4097; slots++) {
        regx_pool_t pool;

        /* The memory is not there, and is not touched. */
        assert_int_equal(
            regx_pool_init(&pool, NULL, slots * slot_size, slot_size, false, &counters), REGX_OK);
        regx_rndv_t *rndv = regx_rndv_create(&config, &pool, &registry, &counters);
        assert_int_equal(rndv != NULL, slots < 4096);
        if (rndv != NULL) {
            regx_rndv_destroy(rndv);
        }
        regx_pool_fini(&pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_lands),
        cmocka_unit_test(bounce_copies_and_registers_nothing),
        cmocka_unit_test(pipeline_registers_chunks_no_more_than_depth_at_once),
        cmocka_unit_test(chunks_lie_within_larger_regions),
        cmocka_unit_test(direct_registers_the_whole),
        cmocka_unit_test(two_slots_serve_a_hundred_landings),
        cmocka_unit_test(unanswered_landings_hold_no_more_than_half),
        cmocka_unit_test(a_stall_is_counted_once),
        cmocka_unit_test(a_slot_that_comes_back_serves_who_waits),
        cmocka_unit_test(chunks_do_not_wait_for_slots),
        cmocka_unit_test(grants_of_a_closed_landing_come_back),
        cmocka_unit_test(a_closed_landings_slots_serve_who_waits),
        cmocka_unit_test(each_registration_may_be_refused),
        cmocka_unit_test(each_chunk_may_be_refused_by_the_source),
        cmocka_unit_test(each_send_may_find_no_room),
        cmocka_unit_test(a_landing_may_be_closed_while_its_grant_is_unsent),
        cmocka_unit_test(every_byte_may_be_wrong),
        cmocka_unit_test(every_field_may_be_wrong),
        cmocka_unit_test(another_process_may_not_answer),
        cmocka_unit_test(an_answer_counts_once),
        cmocka_unit_test(a_wrong_answer_is_not_a_start),
        cmocka_unit_test(one_landings_slot_is_not_anothers),
        cmocka_unit_test(noise_is_survived),
        cmocka_unit_test(what_is_to_have_a_checksum_has_one),
        cmocka_unit_test(a_pool_of_four_gigabytes_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
