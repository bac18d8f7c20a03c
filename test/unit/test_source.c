/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The source, with the test as its landing. The test grants what a landing may grant, late, in
 * any order and mutated, looks at every put before it is made, and compares what was written.
 */
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
    regx_name_t landing; /* as the source knows it */
    regx_name_t source;  /* as it said */
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
    if (unit_random(&stage->seed) % 100 < stage->again_percent) {
        return REGX_AGAIN;
    }
    if (call == FAKE_SEND) {
        return REGX_OK;
    }
    return unit_random(&stage->seed) % 100 < stage->late_percent ? REGX_PENDING : stage->puts;
}

static void done(void *context, regx_status_t status)
{
    stage_t *stage = context;

    assert_true(status == REGX_OK || status == REGX_FAILED);
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

/* A message of the source: it must answer a grant, and what it says must be so. */
static void deliver(fake_t *receiver, uint64_t from, uint8_t tag, const void *data, size_t length)
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
static stage_t *stage_open_outer(size_t outer)
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
    stage->landing = (regx_name_t){.id = 5, .generation = 9};
    stage->sent = guarded_new(LENGTH);
    stage->received = guarded_new(LENGTH);
    guarded_fill(&stage->sent, 1);
    return stage;
}

static stage_t *stage_open(void)
{
    return stage_open_outer(0);
}

static uint64_t malformed(const stage_t *stage)
{
    return stage->sender->counters.malformed;
}

static void stage_close(stage_t *stage)
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

static void add_slot(stage_t *stage, uint64_t offset, uint64_t length, uint32_t slot)
{
    assert_true(stage->count < GRANTS);
    stage->grants[stage->count++] = (grant_t){.offset = offset, .length = length, .slot = slot};
}

/* The key, and where the chunk begins in what it names. */
static regx_key_t add_chunk(stage_t *stage, uint64_t offset, uint64_t length, uint64_t *start)
{
    grant_t *grant = &stage->grants[stage->count++];

    *grant = (grant_t){.chunk = true, .offset = offset, .length = length};
    assert_int_equal(fake_reg(&stage->receiver->transport, stage->received.base + offset, length,
                              REGX_ACCESS_REMOTE_WRITE, &grant->mr),
                     REGX_OK);
    *start = (uint64_t)(stage->received.base + offset - (uint8_t *)grant->mr.base);
    return grant->mr.key;
}

static uint64_t at_most(uint64_t length, uint64_t most)
{
    return length < most ? length : most;
}

/* A CTS that grants `slots` slots, or a chunk of `chunk` bytes. */
static regx_cts_t cts_of(stage_t *stage, regx_path_t path, unsigned slots, uint64_t chunk)
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

static void open_source(stage_t *stage, const regx_cts_t *cts)
{
    uint8_t bytes[REGX_CTS_SIZE];

    regx_cts_pack(cts, bytes);
    regx_source_open(stage->sender->rndv, &stage->sender->peers[1], stage->sent.base,
                     stage->sent.length, bytes, done, stage);
}

static void arrive(stage_t *stage, uint64_t sender, const uint8_t *bytes, size_t length)
{
    uint8_t *copy = malloc(length); /* so that reading past the end is found */

    assert_non_null(copy);
    memcpy(copy, bytes, length);
    regx_rndv_control(stage->sender->rndv, sender, copy, length);
    free(copy);
}

static void tell(stage_t *stage, const regx_control_t *control)
{
    uint8_t bytes[REGX_CONTROL_MAX];

    arrive(stage, 1, bytes, regx_control_pack(control, bytes));
}

/* Grants [offset, offset + length) by slots that no one holds, in messages of up to four. */
static void grant_slots(stage_t *stage, uint64_t offset, uint64_t length)
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

static void grant_chunk(stage_t *stage, uint64_t offset, uint64_t length)
{
    regx_control_t control = {
        .type = REGX_CONTROL_CHUNK, .to = stage->source, .offset = offset, .length = length};

    control.key = add_chunk(stage, offset, length, &control.start);
    tell(stage, &control);
}

/* Lets happen what can happen, puts ending in any order. */
static void run(stage_t *stage)
{
    for (unsigned idle = 0; idle < 200; idle++) {
        regx_rndv_progress(stage->sender->rndv);
        if (fake_complete(stage->sender, 1, (unsigned)(unit_random(&stage->seed) % 4), REGX_OK) ||
            fake_complete(stage->sender, 1, 0, REGX_OK) ||
            fake_receive(stage->receiver, stage->sender)) {
            idle = 0;
        }
    }
}

/* Asserts that all has arrived, told once and well. */
static void assert_sent(stage_t *stage)
{
    run(stage);
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_OK);
    assert_int_equal(stage->written, stage->sent.length);
    assert_memory_equal(stage->received.base, stage->sent.base, stage->sent.length);
}

/* The rest of a transfer from `offset` on, as a landing of that path would do it: chunks, and
 * slots for what was refused. */
static void play_on(stage_t *stage, bool chunks, uint64_t offset)
{
    run(stage);
    for (; offset < LENGTH && chunks; offset += PAGE) {
        grant_chunk(stage, offset, at_most(LENGTH - offset, PAGE));
        if (unit_random(&stage->seed) % 2 == 0) {
            run(stage);
        }
    }
    if (!chunks) {
        grant_slots(stage, offset, LENGTH - offset);
    }
    run(stage);
}

/* ---- what each path does ---- */

static void slots_of_the_cts_are_all_that_is_needed(void **state)
{
    stage_t *stage = stage_open();
    const regx_counters_t *counters = &stage->sender->counters;

    (void)state;
    stage->sent.length = 5 * SLOT + 1; /* its end is not guarded now; the rule checks it */
    const regx_cts_t cts = cts_of(stage, REGX_PATH_bounce, 6, 0);
    open_source(stage, &cts);
    assert_int_equal(stage->dones, 1); /* the transport took all at once */
    assert_int_equal(stage->calls[FAKE_SEND], 0);
    assert_sent(stage);
    assert_int_equal(counters->puts, 6);
    assert_int_equal(counters->registrations, 0);
    assert_int_equal(counters->messages[REGX_PATH_bounce], 1);
    assert_int_equal(counters->bytes[REGX_PATH_bounce], 5 * SLOT + 1);
    assert_int_equal(counters->messages[REGX_PATH_fallback], 0);
    stage->sent.length = LENGTH;
    stage_close(stage);
}

static void a_chunk_of_the_cts_is_all_that_is_needed(void **state)
{
    stage_t *stage = stage_open();
    const regx_cts_t cts = cts_of(stage, REGX_PATH_direct, 0, LENGTH);
    const regx_counters_t *counters = &stage->sender->counters;

    (void)state;
    open_source(stage, &cts);
    assert_int_equal(stage->calls[FAKE_SEND], 0);
    assert_sent(stage);
    assert_int_equal(counters->puts, 1);
    assert_int_equal(counters->registrations, 1);
    assert_int_equal(counters->largest_registration, LENGTH);
    assert_int_equal(counters->messages[REGX_PATH_direct], 1);
    assert_int_equal(counters->bytes[REGX_PATH_direct], LENGTH);
    assert_int_equal(counters->bytes[REGX_PATH_bounce], 0);
    stage_close(stage);
}

static void an_empty_cts_is_answered_by_start(void **state)
{
    static const regx_path_t paths[] = {REGX_PATH_bounce, REGX_PATH_pipeline, REGX_PATH_direct};

    (void)state;
    for (size_t p = 0; p < 3; p++) {
        stage_t *stage = stage_open();
        const regx_cts_t cts = cts_of(stage, paths[p], 0, 0);

        open_source(stage, &cts);
        run(stage);
        assert_true(stage->started);
        assert_int_equal(stage->calls[FAKE_PUT], 0);
        play_on(stage, p > 0, 0);
        assert_sent(stage);
        assert_int_equal(malformed(stage), 0);
        stage_close(stage);
    }
}

static void pipeline_puts_each_chunk_once(void **state)
{
    stage_t *stage = stage_open();
    const regx_cts_t cts = cts_of(stage, REGX_PATH_pipeline, 0, PAGE);
    const regx_counters_t *counters = &stage->sender->counters;

    (void)state;
    open_source(stage, &cts);
    run(stage);
    assert_true(stage->started);
    play_on(stage, true, PAGE);
    assert_sent(stage);
    assert_int_equal(counters->puts, 7);
    assert_int_equal(counters->registrations, 7);
    assert_int_equal(counters->largest_registration, PAGE);
    assert_int_equal(counters->messages[REGX_PATH_pipeline], 1);
    assert_int_equal(counters->bytes[REGX_PATH_pipeline], LENGTH);
    stage_close(stage);
}

static void grants_come_late_and_in_any_order(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 200; seed++) {
        enum { PIECES = LENGTH / SLOT + 1 };
        stage_t *stage = stage_open();
        const regx_cts_t cts = cts_of(stage, REGX_PATH_pipeline, 0, 0);
        unsigned order[PIECES];

        stage->seed = seed;
        stage->again_percent = seed % 4 * 20;
        stage->late_percent = seed % 3 * 40;
        open_source(stage, &cts);
        run(stage);
        for (unsigned i = 0; i < PIECES; i++) {
            const unsigned other = (unsigned)(unit_random(&stage->seed) % (i + 1));

            order[i] = order[other];
            order[other] = i;
        }
        for (unsigned i = 0; i < PIECES; i++) {
            const uint64_t offset = order[i] * SLOT;
            const uint64_t length = at_most(LENGTH - offset, SLOT);

            if (unit_random(&stage->seed) % 2 == 0) {
                grant_slots(stage, offset, length);
            } else {
                grant_chunk(stage, offset, length);
            }
            if (unit_random(&stage->seed) % 3 == 0) {
                run(stage);
            }
            assert_true(stage->dones == 0 || i == PIECES - 1);
        }
        assert_sent(stage);
        assert_int_equal(malformed(stage), 0);
        stage_close(stage);
    }
}

/* ---- no room, late, refused, failed ---- */

/* One transfer by chunks or slots, disturbed as the stage says. */
static void whole_transfer(stage_t *stage, bool chunks)
{
    const regx_cts_t cts =
        chunks ? cts_of(stage, REGX_PATH_pipeline, 0, PAGE) : cts_of(stage, REGX_PATH_bounce, 3, 0);

    open_source(stage, &cts);
    play_on(stage, chunks, chunks ? PAGE : 3 * SLOT);
}

static void every_notice_has_its_checksum(void **state)
{
    (void)state;
    for (int chunks = 0; chunks < 2; chunks++) {
        for (unsigned late = 0; late < 100; late += 40) {
            stage_t *stage = stage_open();

            stage->verify = true;
            stage->late_percent = late;
            stage->again_percent = late;
            whole_transfer(stage, chunks);
            assert_sent(stage);
            stage_close(stage);
        }
    }
}

static void each_call_may_find_no_room(void **state)
{
    (void)state;
    for (int call = FAKE_SEND; call <= FAKE_PUT; call++) {
        for (unsigned nth = 1; nth < 30; nth++) {
            for (int chunks = 0; chunks < 2; chunks++) {
                stage_t *stage = stage_open();

                stage->answer[call].at = nth;
                stage->answer[call].status = REGX_AGAIN;
                whole_transfer(stage, chunks);
                assert_sent(stage);
                assert_int_equal(malformed(stage), 0);
                stage_close(stage);
            }
        }
    }
}

static void done_waits_for_the_last_put(void **state)
{
    (void)state;
    for (unsigned nth = 1; nth <= 7; nth++) {
        for (int chunks = 0; chunks < 2; chunks++) {
            stage_t *stage = stage_open();
            const regx_cts_t cts = chunks ? cts_of(stage, REGX_PATH_direct, 0, LENGTH)
                                          : cts_of(stage, REGX_PATH_bounce, 7, 0);

            stage->sent.length = chunks ? LENGTH : 7 * SLOT;
            stage->answer[FAKE_PUT].at = chunks ? 1 : nth;
            stage->answer[FAKE_PUT].status = REGX_PENDING;
            regx_cts_t whole = cts;
            whole.length = stage->sent.length;
            open_source(stage, &whole);
            while (fake_receive(stage->receiver, stage->sender)) {
            }
            assert_int_equal(stage->dones, 0);
            assert_true(fake_complete(stage->sender, 1, 0, REGX_OK));
            assert_int_equal(stage->dones, 1);
            assert_sent(stage);
            stage->sent.length = LENGTH;
            stage_close(stage);
        }
    }
}

/* The registrations that serve a chunk may be of more, at either end. */
static void chunks_lie_within_larger_regions(void **state)
{
    (void)state;
    for (size_t outer = 1; outer <= PAGE; outer += outer < 3 ? 1 : 500) {
        for (int direct = 0; direct < 2; direct++) {
            stage_t *stage = stage_open_outer(outer);

            stage->late_percent = outer % 2 == 0 ? 50 : 0;
            stage->again_percent = outer % 3 == 0 ? 30 : 0;
            if (direct) {
                const regx_cts_t cts = cts_of(stage, REGX_PATH_direct, 0, LENGTH);

                assert_int_equal(cts.chunk_start, outer);
                open_source(stage, &cts);
            } else {
                whole_transfer(stage, true);
            }
            assert_sent(stage);
            assert_int_equal(malformed(stage), 0);
            assert_int_equal(stage->refused, 0);
            stage_close(stage);
        }
    }
}

/* A grant that begins where its region does not reach is refused, and that range goes by slots. */
static void a_chunk_outside_its_region_is_refused(void **state)
{
    static const uint64_t starts[] = {1, PAGE, LENGTH, UINT64_MAX - PAGE, UINT64_MAX};

    (void)state;
    for (size_t s = 0; s < sizeof(starts) / sizeof(starts[0]); s++) {
        stage_t *stage = stage_open();
        const regx_cts_t cts = cts_of(stage, REGX_PATH_pipeline, 0, PAGE);
        regx_control_t control = {
            .type = REGX_CONTROL_CHUNK, .offset = PAGE, .length = LENGTH - PAGE};

        open_source(stage, &cts);
        run(stage);
        control.to = stage->source;
        control.key = add_chunk(stage, PAGE, LENGTH - PAGE, &control.start);
        control.start = starts[s];
        tell(stage, &control);
        run(stage);
        assert_int_equal(stage->refused, 1);
        assert_int_equal(stage->refused_for_ever, 0);
        grant_slots(stage, PAGE, LENGTH - PAGE);
        assert_sent(stage);
        stage_close(stage);
    }
}

/* A chunk that cannot be put is refused, and what it was for goes by slots. */
static void each_chunk_may_be_refused(void **state)
{
    static const regx_status_t answers[] = {REGX_DENIED, REGX_INVALID, REGX_FAILED, REGX_NO_MEMORY};

    (void)state;
    for (size_t a = 0; a < 5; a++) { /* the last: the registration */
        for (unsigned nth = 1; nth <= 7; nth++) {
            stage_t *stage = stage_open();
            const fake_call_t call = a < 4 ? FAKE_PUT : FAKE_REG;
            const regx_status_t answer = a < 4 ? answers[a] : REGX_NO_MEMORY;
            const uint64_t offset = (nth - 1) * PAGE;
            const uint64_t length = at_most(LENGTH - offset, PAGE);

            stage->answer[call].at = nth;
            stage->answer[call].status = answer;
            whole_transfer(stage, true);
            assert_int_equal(stage->dones, 0);
            assert_int_equal(stage->refused, 1);
            assert_int_equal(stage->refused_for_ever, answer == REGX_DENIED);
            assert_int_equal(stage->refused_failed, answer == REGX_FAILED);
            grant_slots(stage, offset, length);
            assert_sent(stage);
            assert_int_equal(malformed(stage), 0);
            assert_int_equal(stage->sender->counters.bytes[REGX_PATH_bounce], length);
            assert_int_equal(stage->sender->counters.bytes[REGX_PATH_pipeline], LENGTH - length);
            assert_int_equal(stage->sender->counters.messages[REGX_PATH_fallback], 1);
            stage_close(stage);
        }
    }
}

/* As above, but the refusal comes late, and all chunks are refused. */
static void all_chunks_may_fail_late(void **state)
{
    stage_t *stage = stage_open();
    const regx_cts_t cts = cts_of(stage, REGX_PATH_pipeline, 0, PAGE);

    (void)state;
    stage->late_percent = 100;
    open_source(stage, &cts);
    run(stage);
    stage->refused = 0;
    const uint64_t first = stage->written;
    for (uint64_t offset = PAGE; offset < LENGTH; offset += PAGE) {
        grant_chunk(stage, offset, at_most(LENGTH - offset, PAGE));
    }
    while (fake_complete(stage->sender, 1, 1, REGX_FAILED) ||
           fake_complete(stage->sender, 1, 0, REGX_FAILED)) {
    }
    assert_int_equal(stage->dones, 0);
    run(stage);
    assert_int_equal(stage->refused, 6);
    assert_int_equal(stage->written, first);
    grant_slots(stage, first, LENGTH - first);
    assert_sent(stage);
    stage_close(stage);
}

/* A slot that cannot be written is the end: told once, when nothing is in flight any more. */
static void a_slot_that_fails_is_the_end(void **state)
{
    static const regx_status_t answers[] = {REGX_DENIED, REGX_INVALID, REGX_FAILED,
                                            REGX_UNREACHABLE, REGX_NO_MEMORY};

    (void)state;
    for (size_t a = 0; a < 5; a++) {
        for (unsigned nth = 1; nth <= 25; nth++) {
            for (unsigned late = 0; late <= 100; late += 50) {
                stage_t *stage = stage_open();

                stage->answer[FAKE_PUT].at = nth;
                stage->answer[FAKE_PUT].status = answers[a];
                stage->late_percent = late;
                whole_transfer(stage, false); /* the rule asserts that no put follows the end */
                assert_int_equal(stage->dones, 1);
                assert_int_equal(stage->status, REGX_FAILED);
                assert_false(fake_complete(stage->sender, 1, 0, REGX_OK));
                assert_int_equal(stage->sender->counters.messages[REGX_PATH_bounce], 0);
                stage_close(stage);
            }
        }
    }
}

static void a_failure_waits_for_what_is_in_flight(void **state)
{
    stage_t *stage = stage_open();
    const regx_cts_t cts = cts_of(stage, REGX_PATH_bounce, 5, 0);

    (void)state;
    stage->puts = REGX_PENDING;
    stage->answer[FAKE_PUT].at = 4;
    stage->answer[FAKE_PUT].status = REGX_FAILED;
    open_source(stage, &cts);
    assert_int_equal(stage->calls[FAKE_PUT], 4);
    for (unsigned left = 3; left > 0; left--) {
        assert_int_equal(stage->dones, 0);
        assert_true(fake_complete(stage->sender, 1, left - 1, REGX_OK));
    }
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_FAILED);
    run(stage);
    stage_close(stage);
}

static void each_send_may_be_unreachable(void **state)
{
    (void)state;
    for (int chunks = 0; chunks < 2; chunks++) {
        stage_t *stage = stage_open();
        const regx_cts_t cts =
            cts_of(stage, chunks ? REGX_PATH_pipeline : REGX_PATH_bounce, 0, chunks ? PAGE : 0);

        stage->answer[FAKE_SEND].at = 1; /* START */
        stage->answer[FAKE_SEND].status = REGX_UNREACHABLE;
        open_source(stage, &cts);
        run(stage);
        assert_int_equal(stage->dones, 1);
        assert_int_equal(stage->status, REGX_FAILED);
        stage_close(stage);
    }
}

static void a_peer_may_be_forgotten_at_any_time(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 300; seed++) {
        stage_t *stage = stage_open();
        const bool chunks = seed % 2;
        const regx_cts_t cts = chunks ? cts_of(stage, REGX_PATH_pipeline, 0, PAGE)
                                      : cts_of(stage, REGX_PATH_bounce, 3, 0);

        stage->seed = seed;
        stage->again_percent = seed % 5 * 24;
        stage->late_percent = seed % 3 * 50;
        open_source(stage, &cts);
        if (seed % 7 != 0) {
            run(stage);
        }
        if (seed % 11 > 3 && stage->started) {
            chunks ? grant_chunk(stage, PAGE, PAGE) : grant_slots(stage, 3 * SLOT, 9 * SLOT);
        }
        if (seed % 11 > 7) {
            run(stage);
        }
        assert_int_equal(stage->dones, 0);
        regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[2]); /* another */
        assert_int_equal(stage->dones, 0);
        regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[1]);
        /* Puts that are in flight end with the connection, and end the source. */
        while (fake_complete(stage->sender, 1, 0, REGX_FAILED)) {
        }
        assert_int_equal(stage->dones, 1);
        assert_int_equal(stage->status, REGX_FAILED);
        stage->any_target = true;
        run(stage);
        stage_close(stage);
    }
}

/* ---- the end may begin the next ---- */

typedef struct chain {
    stage_t *stage;
    regx_cts_t cts;
    unsigned left;
} chain_t;

static void chain_done(void *context, regx_status_t status)
{
    chain_t *chain = context;
    uint8_t bytes[REGX_CTS_SIZE];

    assert_int_equal(status, REGX_OK);
    if (chain->left-- > 0) {
        regx_cts_pack(&chain->cts, bytes);
        regx_source_open(chain->stage->sender->rndv, &chain->stage->sender->peers[1],
                         chain->stage->sent.base, chain->cts.length, bytes, chain_done, chain);
    } else {
        chain->stage->dones++;
    }
}

static void the_end_may_begin_the_next(void **state)
{
    for (unsigned late = 0; late <= 100; late += 50) {
        stage_t *stage = stage_open();
        chain_t chain = {.stage = stage, .left = 50};

        (void)state;
        stage->late_percent = late;
        stage->any_target = true;
        stage->sent.length = 4 * SLOT;
        chain.cts = cts_of(stage, REGX_PATH_bounce, 4, 0);
        chain_done(&chain, REGX_OK);
        for (unsigned i = 0; i < 1000; i++) {
            fake_complete(stage->sender, 1, 0, REGX_OK);
            stage->started = false;
            fake_receive(stage->receiver, stage->sender);
        }
        assert_int_equal(stage->dones, 1);
        assert_int_equal(stage->sender->counters.messages[REGX_PATH_bounce], 50);
        while (fake_receive(stage->receiver, stage->sender)) {
            stage->started = false;
        }
        stage->sent.length = LENGTH;
        stage_close(stage);
    }
}

/* ---- a CTS that is wrong ---- */

typedef struct change {
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

/* Whether the grants of a CTS can be those of this transfer. */
static bool cts_is_sound(const regx_cts_t *cts)
{
    uint64_t granted = 0;

    for (unsigned i = 0; i < cts->slot_count; i++) {
        if (cts->slots[i].length == 0 || cts->slots[i].length > LENGTH - granted) {
            return false;
        }
        granted += cts->slots[i].length;
    }
    return cts->length == LENGTH && (cts->path == REGX_PATH_read || cts->chunk_length <= LENGTH);
}

/* Opens a source with a changed CTS: it ends at once and is counted, or does what it was told as
 * far as that is possible. Told once in any case. */
static void try_cts(unsigned slots, uint64_t chunk, change_t change)
{
    stage_t *stage = stage_open();
    uint8_t bytes[REGX_CTS_SIZE];
    regx_cts_t cts = cts_of(stage, slots > 0 ? REGX_PATH_bounce : REGX_PATH_pipeline, slots, chunk);
    uint8_t *copy = malloc(sizeof(bytes)); /* so that reading past the end is found */

    assert_non_null(copy);
    regx_cts_pack(&cts, bytes);
    mutate(bytes, sizeof(bytes), &change);
    memcpy(copy, bytes, sizeof(bytes));
    const bool sound = regx_cts_unpack(bytes, &cts) && cts_is_sound(&cts);
    stage->landing = cts.landing;
    stage->any_target = true;
    regx_source_open(stage->sender->rndv, &stage->sender->peers[1], stage->sent.base, LENGTH, copy,
                     done, stage);
    free(copy);
    assert_int_equal(malformed(stage), !sound);
    if (!sound) {
        assert_int_equal(stage->dones, 1);
        assert_int_equal(stage->status, REGX_FAILED);
        assert_int_equal(stage->calls[FAKE_PUT] + stage->calls[FAKE_SEND], 0);
    }
    run(stage);
    regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[1]);
    stage_close(stage);
}

static void every_byte_of_the_cts_may_be_wrong(void **state)
{
    static const uint8_t flips[] = {0, 1, 2, 4, 8, 16, 32, 64, 128, 255, 3, 7};

    (void)state;
    for (size_t at = 0; at < REGX_CTS_SIZE; at++) {
        for (size_t f = 0; f < sizeof(flips); f++) {
            try_cts(8, 0, (change_t){at, 1, flips[f], true});
            try_cts(2, 0, (change_t){at, 1, flips[f], true});
            try_cts(0, PAGE, (change_t){at, 1, flips[f], true});
            try_cts(0, LENGTH, (change_t){at, 1, flips[f], true});
        }
    }
}

static const uint64_t values[] = {0,
                                  1,
                                  SLOT - 1,
                                  SLOT + 1,
                                  SLOTS *SLOT - SLOT,
                                  SLOTS *SLOT - 1,
                                  SLOTS *SLOT,
                                  LENGTH - 1,
                                  LENGTH,
                                  LENGTH + 1,
                                  INT32_MAX,
                                  UINT64_C(1) << 31,
                                  UINT32_MAX - SLOT,
                                  UINT32_MAX,
                                  UINT64_C(1) << 32,
                                  INT64_MAX,
                                  UINT64_C(1) << 63,
                                  UINT64_MAX - LENGTH,
                                  UINT64_MAX};

enum { VALUES = sizeof(values) / sizeof(values[0]) };

static void every_field_of_the_cts_may_be_wrong(void **state)
{
    static const size_t wide[] = {16, 24, 32, 40, 48};

    (void)state;
    for (size_t v = 0; v < VALUES; v++) {
        for (size_t at = 0; at < REGX_CTS_SIZE; at += 4) {
            try_cts(8, 0, (change_t){at, 4, values[v], false});
            try_cts(0, PAGE, (change_t){at, 4, values[v], false});
        }
        for (size_t w = 0; w < sizeof(wide) / sizeof(wide[0]); w++) {
            try_cts(0, PAGE, (change_t){wide[w], 8, values[v], false});
            try_cts(8, 0, (change_t){wide[w], 8, values[v], false});
        }
    }
}

static void a_message_of_no_bytes_is_refused(void **state)
{
    stage_t *stage = stage_open();
    regx_cts_t cts = {.path = REGX_PATH_bounce, .landing = stage->landing};

    (void)state;
    stage->sent.length = 0;
    open_source(stage, &cts);
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_FAILED);
    stage->sent.length = LENGTH;
    stage_close(stage);
}

/* ---- grants that are wrong ---- */

enum { FIRST = 2 * SLOT }; /* bytes granted and sent before */

/* Whether a message can be a grant of the stage's transfer. */
static bool grant_is_sound(const stage_t *stage, const regx_control_t *control)
{
    uint64_t offset = control->offset;
    uint64_t left = LENGTH - FIRST;

    if (control->to.id != stage->source.id || control->to.generation != stage->source.generation) {
        return false;
    }
    if (control->type == REGX_CONTROL_CHUNK) {
        return control->length > 0 && control->length <= left && offset <= LENGTH &&
               control->length <= LENGTH - offset;
    }
    for (unsigned i = 0; i < control->slot_count; i++) {
        const uint64_t length = control->slots[i].length;

        if (length == 0 || length > left || offset > LENGTH || length > LENGTH - offset) {
            return false;
        }
        left -= length;
        offset += length;
    }
    return control->type == REGX_CONTROL_SLOTS;
}

/* Sends a changed grant in the middle of a transfer. If it cannot be one it is counted and has no
 * effect: the transfer is then served as if nothing had been, and ends well. */
static void try_grant(bool chunk, change_t change, uint64_t sender)
{
    stage_t *stage = stage_open();
    const regx_cts_t cts = cts_of(stage, REGX_PATH_bounce, 2, 0);
    uint8_t bytes[REGX_CONTROL_MAX];
    regx_control_t control = {.type = 0};

    open_source(stage, &cts);
    run(stage);
    assert_true(stage->started);
    control = (regx_control_t){.type = chunk ? REGX_CONTROL_CHUNK : REGX_CONTROL_SLOTS,
                               .to = stage->source,
                               .offset = FIRST,
                               .length = PAGE,
                               .slot_count = chunk ? 0 : 4};
    for (uint32_t i = 0; i < 4; i++) {
        control.slots[i] = (regx_slot_grant_t){i * SLOT, SLOT};
    }
    if (chunk) {
        control.key = add_chunk(stage, FIRST, PAGE, &control.start);
    }
    const size_t size = regx_control_pack(&control, bytes);
    mutate(bytes, size, &change);
    memset(&control, 0, sizeof(control));
    const bool sound = regx_control_unpack(bytes, size, &control) && sender == 1 &&
                       grant_is_sound(stage, &control);

    stage->any_target = sound;
    arrive(stage, sender, bytes, size);
    assert_int_equal(malformed(stage), !sound);
    if (sound) { /* it does what it was told; the rule and the fake check where */
        run(stage);
        regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[1]);
    } else {
        assert_int_equal(stage->calls[FAKE_PUT], 2);
        grant_slots(stage, FIRST, LENGTH - FIRST);
        assert_sent(stage);
        assert_int_equal(malformed(stage), 1);
    }
    stage_close(stage);
}

static void every_byte_of_a_grant_may_be_wrong(void **state)
{
    static const uint8_t flips[] = {0, 1, 2, 4, 8, 16, 32, 64, 128, 255, 3, 7};

    (void)state;
    for (size_t at = 0; at < REGX_CONTROL_MAX; at++) {
        for (size_t f = 0; f < sizeof(flips); f++) {
            try_grant(false, (change_t){at, 1, flips[f], true}, 1);
            try_grant(true, (change_t){at, 1, flips[f], true}, 1);
        }
    }
}

static void every_field_of_a_grant_may_be_wrong(void **state)
{
    (void)state;
    for (size_t v = 0; v < VALUES; v++) {
        for (size_t at = 0; at < REGX_CONTROL_MAX; at += 4) {
            try_grant(false, (change_t){at, 4, values[v], false}, 1);
            try_grant(true, (change_t){at, 4, values[v], false}, 1);
        }
        for (size_t at = 16; at < REGX_CONTROL_MAX; at += 8) {
            try_grant(false, (change_t){at, 8, values[v], false}, 1);
            try_grant(true, (change_t){at, 8, values[v], false}, 1);
        }
    }
}

static void another_process_may_not_grant(void **state)
{
    (void)state;
    for (int chunk = 0; chunk < 2; chunk++) {
        try_grant(chunk, (change_t){.size = 0}, 2);
        try_grant(chunk, (change_t){.size = 0}, 0);
        try_grant(chunk, (change_t){.size = 0}, UINT64_MAX);
    }
}

/* More grants than anyone may give at once are refused, and those that were taken are done. */
static void a_flood_of_grants_is_bounded(void **state)
{
    stage_t *stage = stage_open();
    const regx_cts_t cts = cts_of(stage, REGX_PATH_bounce, 0, 0);

    (void)state;
    stage->any_target = true;
    open_source(stage, &cts);
    run(stage);
    stage->puts = REGX_AGAIN;
    for (uint64_t offset = 0; offset < 1000; offset++) {
        const regx_control_t control = {.type = REGX_CONTROL_SLOTS,
                                        .to = stage->source,
                                        .offset = offset,
                                        .slot_count = 1,
                                        .slots = {{0, 1}}};
        tell(stage, &control);
    }
    const uint64_t taken = 1000 - malformed(stage);
    assert_in_range(taken, 64, 300);
    stage->puts = REGX_OK;
    run(stage);
    assert_int_equal(stage->sender->counters.puts, taken);
    regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[1]);
    stage_close(stage);
}

/* What is granted already, used or not, is not granted again: the end would never come. */
static void no_more_is_taken_than_there_is(void **state)
{
    (void)state;
    for (int used = 0; used < 2; used++) {
        stage_t *stage = stage_open();
        const regx_cts_t cts = cts_of(stage, REGX_PATH_pipeline, 0, PAGE);

        open_source(stage, &cts);
        run(stage);
        stage->puts = used ? REGX_OK : REGX_AGAIN;
        grant_chunk(stage, PAGE, LENGTH - 2 * PAGE);
        run(stage);
        const regx_control_t again = {.type = REGX_CONTROL_SLOTS,
                                      .to = stage->source,
                                      .offset = 0,
                                      .slot_count = 4,
                                      .slots = {{0, SLOT}, {0, SLOT}, {0, SLOT}, {0, SLOT + 1}}};
        tell(stage, &again); /* a byte more than is left */
        assert_int_equal(malformed(stage), 1);
        stage->puts = REGX_OK;
        grant_slots(stage, LENGTH - PAGE, PAGE);
        assert_sent(stage);
        assert_int_equal(malformed(stage), 1);
        stage_close(stage);
    }
}

static void a_source_that_is_done_has_no_name(void **state)
{
    (void)state;
    for (int failed = 0; failed < 2; failed++) {
        stage_t *stage = stage_open();
        const regx_control_t late = {
            .type = REGX_CONTROL_SLOTS, .offset = 0, .slot_count = 1, .slots = {{0, SLOT}}};

        stage->answer[FAKE_PUT].at = failed ? 5 : 0;
        stage->answer[FAKE_PUT].status = REGX_FAILED;
        whole_transfer(stage, false);
        assert_int_equal(stage->dones, 1);
        const uint64_t before = malformed(stage); /* grants that the failed one did not need */
        regx_control_t control = late;
        control.to = stage->source;
        tell(stage, &control); /* the rule asserts that there is no put */
        assert_int_equal(malformed(stage), before + 1);
        stage_close(stage);
    }
}

static void noise_is_survived(void **state)
{
    stage_t *stage = stage_open();
    const regx_cts_t cts = cts_of(stage, REGX_PATH_bounce, 2, 0);
    uint64_t seed = 29;

    (void)state;
    open_source(stage, &cts);
    run(stage);
    for (unsigned i = 0; i < 50000; i++) {
        uint64_t words[8];
        uint8_t *bytes = (uint8_t *)words;

        for (unsigned w = 0; w < 8; w++) {
            words[w] = unit_random(&seed);
        }
        if (i % 2 == 0) { /* of the right form, for the right source, with absurd numbers */
            bytes[0] = REGX_CONTROL_VERSION;
            bytes[1] = i % 4 == 0 ? REGX_CONTROL_SLOTS : REGX_CONTROL_CHUNK;
            bytes[2] = i % 4 == 0 ? 4 : 0;
            bytes[3] = 0;
            memcpy(bytes + 4, &stage->source, 8);
            memset(bytes + 12, 0, 4);
            arrive(stage, 1, bytes, 56);
        } else {
            arrive(stage, i / 2 % 3, bytes, unit_random(&seed) % 64 + 1);
        }
    }
    assert_int_equal(malformed(stage), 50000);
    assert_int_equal(stage->calls[FAKE_PUT], 2);
    grant_slots(stage, FIRST, LENGTH - FIRST);
    assert_sent(stage);
    stage_close(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_of_the_cts_are_all_that_is_needed),
        cmocka_unit_test(a_chunk_of_the_cts_is_all_that_is_needed),
        cmocka_unit_test(an_empty_cts_is_answered_by_start),
        cmocka_unit_test(pipeline_puts_each_chunk_once),
        cmocka_unit_test(grants_come_late_and_in_any_order),
        cmocka_unit_test(every_notice_has_its_checksum),
        cmocka_unit_test(each_call_may_find_no_room),
        cmocka_unit_test(done_waits_for_the_last_put),
        cmocka_unit_test(chunks_lie_within_larger_regions),
        cmocka_unit_test(a_chunk_outside_its_region_is_refused),
        cmocka_unit_test(each_chunk_may_be_refused),
        cmocka_unit_test(all_chunks_may_fail_late),
        cmocka_unit_test(a_slot_that_fails_is_the_end),
        cmocka_unit_test(a_failure_waits_for_what_is_in_flight),
        cmocka_unit_test(each_send_may_be_unreachable),
        cmocka_unit_test(a_peer_may_be_forgotten_at_any_time),
        cmocka_unit_test(the_end_may_begin_the_next),
        cmocka_unit_test(every_byte_of_the_cts_may_be_wrong),
        cmocka_unit_test(every_field_of_the_cts_may_be_wrong),
        cmocka_unit_test(a_message_of_no_bytes_is_refused),
        cmocka_unit_test(every_byte_of_a_grant_may_be_wrong),
        cmocka_unit_test(every_field_of_a_grant_may_be_wrong),
        cmocka_unit_test(another_process_may_not_grant),
        cmocka_unit_test(a_flood_of_grants_is_bounded),
        cmocka_unit_test(no_more_is_taken_than_there_is),
        cmocka_unit_test(a_source_that_is_done_has_no_name),
        cmocka_unit_test(noise_is_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
