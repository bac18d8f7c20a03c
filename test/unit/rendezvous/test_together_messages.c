/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The path together and messages that are wrong.
 */
#include "together_stage.h"

/* ---- to the receive ---- */

/* What is in the first frame from one to the other that can be delivered. */
static regx_control_t next_message(const fake_t *from, unsigned to)
{
    const fake_frame_t *frame = from->conns[to].head;
    regx_control_t control = {0};

    while (frame != NULL && frame->pending != NULL) {
        frame = frame->next;
    }
    assert_non_null(frame);
    assert_true(regx_control_unpack(frame->data, frame->length, &control));
    return control;
}

/* What each end has of the transfer, but for the frames to come. */
typedef struct effects {
    uint64_t registrations, deregistrations, gets, puts, grants, copied_out;
    unsigned windows, calls, unused, dones;
} effects_t;

static effects_t effects_at(const fake_t *fake, unsigned dones)
{
    const regx_counters_t *counters = &fake->counters;
    effects_t effects;

    memset(&effects, 0, sizeof(effects)); /* they are compared as bytes */
    effects.registrations = counters->registrations;
    effects.deregistrations = counters->deregistrations;
    effects.gets = counters->gets;
    effects.puts = counters->puts;
    effects.grants = counters->grants;
    effects.copied_out = counters->copied_out_bytes;
    effects.windows = fake->open_windows;
    effects.calls = fake->calls[FAKE_GET] + fake->calls[FAKE_PUT] + fake->calls[FAKE_SEND];
    effects.unused = fake->pool.unused;
    effects.dones = dones;
    return effects;
}

/* The process is told a lie, in the name of another: it counts it, and does nothing. */
static void lie(stage_t *stage, unsigned to, uint64_t from, const regx_control_t *control)
{
    fake_t *fake = to == 0 ? stage->sender : stage->receiver;
    const effects_t before = effects_at(fake, stage->dones);
    const uint64_t lies = malformed(stage);
    uint8_t bytes[REGX_CONTROL_MAX];

    fake_arrive(fake, from, bytes, regx_control_pack(control, bytes));
    if (malformed(stage) != lies + 1) {
        fail_msg("taken: type %d, offset %llu, length %llu", control->type,
                 (unsigned long long)control->offset, (unsigned long long)control->length);
    }
    const effects_t after = effects_at(fake, stage->dones);
    assert_memory_equal(&before, &after, sizeof(before));
}

static void lie_of(stage_t *stage, unsigned to, regx_control_t control, regx_control_type_t type,
                   uint64_t offset, uint64_t length)
{
    control.type = type;
    control.offset = offset;
    control.length = length;
    control.slot_count = type == REGX_CONTROL_CTS_SLOTS;
    if (type == REGX_CONTROL_CTS_SLOTS) {
        control.slots[0] = (regx_slot_grant_t){0, (uint32_t)length};
    }
    lie(stage, to, 1 - to, &control);
}

/* All that is wrong while the half is granted, or not any more, and what is before `next` was
 * advertised. */
static void lie_to_receiver(stage_t *stage, regx_control_t control, bool granted, uint64_t next)
{
    const uint64_t offsets[] = {
        0,          1,         HALF - PAGE,       HALF - 1,   HALF,   next - PAGE, next - 1,
        next + 1,   next + 7,  next + PAGE,       LENGTH - 1, LENGTH, LENGTH + 1,  UINT32_MAX,
        1ULL << 32, INT64_MAX, UINT64_MAX - PAGE, UINT64_MAX};
    const uint64_t lengths[] = {0,    1,        PAGE - 1, PAGE,          PAGE + 1,      HALF - 1,
                                HALF, HALF + 1, LENGTH,   LENGTH - HALF, LENGTH - next, UINT32_MAX};

    for (size_t o = 0; o < sizeof(offsets) / sizeof(offsets[0]); o++) {
        for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
            const uint64_t offset = offsets[o], length = lengths[l];
            const bool half = granted && offset == 0 && length == HALF;
            const bool rest = offset == next && length > 0;

            if (!rest || length > PAGE || length > LENGTH - next) {
                lie_of(stage, 1, control, REGX_CONTROL_RKEY, offset, length);
            }
            if (!half) {
                lie_of(stage, 1, control, REGX_CONTROL_ATP_CHUNK, offset, length);
            }
            if (!half && (!rest || length != LENGTH - next)) {
                lie_of(stage, 1, control, REGX_CONTROL_NACK, offset, length);
            }
            lie_of(stage, 1, control, REGX_CONTROL_ATP_SLOT, offset, length);
        }
    }
}

/* What is right from the send is wrong from others. */
static void lie_as_another(stage_t *stage, unsigned to, regx_control_t right)
{
    static const uint64_t others[] = {2, 3, UINT64_MAX};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        lie(stage, to, others[i], &right);
    }
    lie(stage, to, to, &right);
    regx_control_t other = right;
    other.to.id++;
    lie(stage, to, 1 - to, &other);
    other = right;
    other.to.generation++;
    lie(stage, to, 1 - to, &other);
}

static void the_receiver_takes_only_what_it_granted(void **state)
{
    stage_t *stage = stage_open();
    uint64_t lies;

    (void)state;
    stage->late_percent = 100;
    begin(stage);
    const regx_control_t first = next_message(stage->sender, 1);
    lie_to_receiver(stage, first, true, HALF);
    lie_as_another(stage, 1, first);
    assert_true(deliver(stage, 1)); /* advertised */
    lie_to_receiver(stage, first, true, HALF + PAGE);
    regx_control_t other = next_message(stage->sender, 1);
    other.from.generation++; /* by now it knows the send */
    lie(stage, 1, 0, &other);
    assert_true(end_put(stage, 0));
    assert_true(deliver(stage, 1)); /* written: not to be said again */
    lie_to_receiver(stage, first, false, HALF + PAGE);
    assert_true(deliver(stage, 1)); /* no more may be advertised at once */
    lie_to_receiver(stage, first, false, HALF + 2 * PAGE);
    lie_of(stage, 1, first, REGX_CONTROL_RKEY, HALF + 2 * PAGE, PAGE);
    lies = malformed(stage);
    run(stage);
    assert_read(stage);
    assert_bytes(stage, LENGTH);
    assert_int_equal(malformed(stage), lies);
    close_recv(stage);
    stage_close(stage);
}

/* The last chunk is shorter than chunks may be, … */
static void rkeys_beyond_the_end_are_refused(void **state)
{
    stage_t *stage = stage_open();
    const uint64_t length = 2 * PAGE;

    (void)state;
    begin_of(stage, length);
    const uint64_t half = half_of(stage, length), rest = length - half;
    assert_true(deliver(stage, 1));
    const regx_control_t last = next_message(stage->sender, 1);
    assert_in_range(rest, 1, PAGE - 1);
    lie_of(stage, 1, last, REGX_CONTROL_RKEY, half, rest + 1);
    lie_of(stage, 1, last, REGX_CONTROL_RKEY, half, PAGE);
    lie_of(stage, 1, last, REGX_CONTROL_NACK, half, rest + 1);
    assert_true(deliver(stage, 1));
    lie_of(stage, 1, last, REGX_CONTROL_RKEY, length, 1); /* … and nothing is behind it */
    lie_of(stage, 1, last, REGX_CONTROL_NACK, length, 0);
    run(stage);
    assert_read_of(stage, length);
    assert_int_equal(malformed(stage), 5);
    close_recv(stage);
    stage_close(stage);
}

/* Once refused, neither the half nor the rest comes that way any more, nor is it refused again. */
static void nacked_bytes_are_not_taken_again(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) { /* the half, the rest, both */
        stage_t *stage = stage_open();
        regx_control_t first;

        stage->late_percent = 100;
        stage->late = i != 1 ? REGX_FAILED : REGX_OK;
        if (i != 0) {
            answer(stage, stage->sender, FAKE_REG, 2, REGX_NO_MEMORY);
        }
        begin(stage);
        if (i == 0) {
            assert_true(end_put(stage, 0));
        }
        first = next_message(stage->sender, 1);
        first.failed = first.permanent = false;
        while (deliver(stage, 1)) {
        }
        if (i == 2) {
            assert_true(end_put(stage, 0));
            assert_true(deliver(stage, 1));
        }
        if (i == 0) { /* DEPTH chunks are advertised */
            lie_to_receiver(stage, first, false, HALF + 2 * PAGE);
        } else {
            lie_to_receiver(stage, first, i == 1, LENGTH);
            lie_of(stage, 1, first, REGX_CONTROL_RKEY, HALF, PAGE);
            lie_of(stage, 1, first, REGX_CONTROL_NACK, HALF, LENGTH - HALF);
        }
        const uint64_t lies = malformed(stage);
        run(stage);
        assert_read(stage);
        assert_bytes(stage, i == 0 ? LENGTH - HALF : i == 1 ? HALF : 0);
        assert_int_equal(malformed(stage), lies);
        close_recv(stage);
        stage_close(stage);
    }
}

/* ---- to the send ---- */

/* Grants of what was granted or is to be advertised, and ATS of what is not advertised. */
static void lie_to_sender(stage_t *stage, regx_control_t control, uint64_t got)
{
    static const uint64_t offsets[] = {0,        1,           HALF - 1,        HALF,
                                       HALF + 1, HALF + PAGE, HALF + 2 * PAGE, LENGTH - 1,
                                       LENGTH,   UINT64_MAX};
    static const uint64_t lengths[] = {0, 1, PAGE - 1, PAGE, PAGE + 1, HALF, LENGTH, UINT32_MAX};

    for (size_t o = 0; o < sizeof(offsets) / sizeof(offsets[0]); o++) {
        for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
            const uint64_t offset = offsets[o], length = lengths[l];
            const bool advertised = length == PAGE && offset >= HALF &&
                                    offset < got + DEPTH * PAGE && (offset - HALF) % PAGE == 0 &&
                                    offset >= got;

            lie_of(stage, 0, control, REGX_CONTROL_CTS_CHUNK, offset, length);
            lie_of(stage, 0, control, REGX_CONTROL_CTS_SLOTS, offset, length);
            if (!advertised) {
                lie_of(stage, 0, control, REGX_CONTROL_ATS, offset, length);
                control.unread = true;
                lie_of(stage, 0, control, REGX_CONTROL_ATS, offset, length);
                control.unread = false;
            }
        }
    }
}

static void the_sender_takes_only_what_it_advertised(void **state)
{
    (void)state;
    for (unsigned late = 0; late < 2; late++) {
        stage_t *stage = stage_open();

        stage->late_percent = late * 100;
        begin(stage);
        const regx_control_t advertised = next_message(stage->sender, 1);
        lie_to_sender(stage, (regx_control_t){.to = advertised.from}, HALF);
        while (deliver(stage, 1)) {
        }
        assert_true(fake_got(stage->receiver, 0, 0, REGX_OK));
        const regx_control_t got = next_message(stage->receiver, 0);
        lie_as_another(stage, 0, got);
        assert_true(deliver(stage, 0));
        lie(stage, 0, 1, &got); /* again */
        lie_to_sender(stage, (regx_control_t){.to = advertised.from}, HALF + PAGE);
        const uint64_t lies = malformed(stage);
        run(stage);
        assert_read(stage);
        assert_bytes(stage, LENGTH);
        assert_int_equal(stage->chunk_bytes, HALF);
        assert_int_equal(malformed(stage), lies);
        close_recv(stage);
        stage_close(stage);
    }
}

/* What the receive cannot know of yet it has not got. */
static void an_ats_of_an_unsent_rkey_is_refused(void **state)
{
    stage_t *stage = stage_open();

    (void)state;
    stage->late_percent = 100;
    answer(stage, stage->sender, FAKE_SEND, 2, REGX_AGAIN);
    begin(stage);
    const regx_control_t advertised = next_message(stage->sender, 1);
    assert_int_equal(stage->sender->open_windows, 3);
    lie_of(stage, 0, (regx_control_t){.to = advertised.from}, REGX_CONTROL_ATS, HALF + PAGE, PAGE);
    run(stage);
    assert_read(stage);
    assert_bytes(stage, LENGTH);
    assert_int_equal(malformed(stage), 1);
    close_recv(stage);
    stage_close(stage);
}

/* A half that was refused is granted as slots, and no more than that. */
static void grants_of_more_than_was_nacked_are_refused(void **state)
{
    stage_t *stage = stage_open();

    (void)state;
    answer(stage, stage->sender, FAKE_PUT, 1, REGX_NO_MEMORY);
    begin(stage);
    const regx_control_t to = {.to = next_message(stage->sender, 1).from};
    lie_of(stage, 0, to, REGX_CONTROL_CTS_CHUNK, 0, HALF + 1);
    lie_of(stage, 0, to, REGX_CONTROL_CTS_CHUNK, HALF, HALF + 1);
    lie_of(stage, 0, to, REGX_CONTROL_CTS_CHUNK, LENGTH, 1);
    lie_of(stage, 0, to, REGX_CONTROL_CTS_SLOTS, 0, HALF + 1);
    lie_of(stage, 0, to, REGX_CONTROL_CTS_SLOTS, LENGTH - 1, 2);
    run(stage);
    assert_read(stage);
    assert_bytes(stage, LENGTH - HALF);
    assert_int_equal(malformed(stage), 5);
    close_recv(stage);
    stage_close(stage);
}

/* ---- the CTS ---- */

/* A stage whose receive is open; its CTS. */
static stage_t *open_recv(regx_cts_t *cts)
{
    stage_t *stage = stage_open();

    memset(stage->received.base, 0x11, stage->received.length);
    stage->recv = regx_rndv_recv_open(stage->receiver->rndv, &stage->receiver->peers[0],
                                      stage->received.base, LENGTH);
    assert_non_null(stage->recv);
    assert_true(regx_cts_unpack(regx_rndv_recv_cts(stage->recv), cts));
    return stage;
}

static void open_send(stage_t *stage, const uint8_t *cts)
{
    regx_rndv_send_open(stage->sender->rndv, &stage->sender->peers[1], stage->sent.base, LENGTH,
                        cts, done, stage);
}

static void abandon(stage_t *stage)
{
    forget_both(stage);
    while (fake_got(stage->receiver, 0, 0, REGX_FAILED)) {
    }
    assert_int_equal(stage->dones, 1);
    close_recv(stage);
    stage_close(stage);
}

static void a_cts_that_does_not_fit_ends_the_transfer(void **state)
{
    static const struct {
        size_t field;
        unsigned size;
        uint64_t value;
    } lies[] = {{offsetof(regx_cts_t, length), 8, LENGTH - 1},
                {offsetof(regx_cts_t, length), 8, LENGTH + 1},
                {offsetof(regx_cts_t, chunk_length), 8, LENGTH + 1},
                {offsetof(regx_cts_t, chunk_length), 8, UINT64_MAX},
                {offsetof(regx_cts_t, chunk_length), 8, 0},
                {offsetof(regx_cts_t, rkeys), 4, 0},
                {offsetof(regx_cts_t, rkeys), 4, REGX_CTS_RKEYS + 1},
                {offsetof(regx_cts_t, rkeys), 4, UINT16_MAX},
                {offsetof(regx_cts_t, rkey_max), 8, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        uint8_t bytes[REGX_CTS_SIZE];
        regx_cts_t cts;
        stage_t *stage = open_recv(&cts);

        memcpy((char *)&cts + lies[i].field, &lies[i].value, lies[i].size); /* little-endian */
        regx_cts_pack(&cts, bytes);
        open_send(stage, bytes);
        assert_int_equal(stage->dones, 1);
        assert_int_equal(stage->status, REGX_INVALID);
        assert_int_equal(stage->sender->counters.malformed, 1);
        assert_int_equal(stage->sender->calls[FAKE_REG] + stage->sender->calls[FAKE_PUT], 0);
        assert_null(stage->sender->conns[1].head);
        abandon(stage);
    }
}

/* A wire that does not read cannot take part. */
static void a_wire_without_gets_ends_the_transfer(void **state)
{
    regx_transport_ops_t ops = fake_ops;
    regx_cts_t cts;
    stage_t *stage = open_recv(&cts);

    (void)state;
    ops.get = NULL;
    stage->sender->transport.ops = &ops;
    open_send(stage, regx_rndv_recv_cts(stage->recv));
    assert_int_equal(stage->status, REGX_INVALID);
    assert_int_equal(stage->sender->calls[FAKE_REG] + stage->sender->calls[FAKE_PUT], 0);
    abandon(stage);
}

/* More may be advertised than the sender would: it keeps to its own limits. */
static void the_senders_limits_hold(void **state)
{
    uint8_t bytes[REGX_CTS_SIZE];
    regx_cts_t cts;
    stage_t *stage = open_recv(&cts);

    (void)state;
    cts.rkeys = REGX_CTS_RKEYS;
    cts.rkey_max = UINT64_MAX;
    regx_cts_pack(&cts, bytes);
    open_send(stage, bytes);
    assert_int_equal(stage->sender->open_windows, DEPTH);
    run(stage);
    assert_read(stage);
    assert_bytes(stage, LENGTH);
    assert_int_equal(stage->sender->counters.largest_registration, HALF);
    close_recv(stage);
    stage_close(stage);
}

/* Whatever a CTS says, the send touches nothing but what it sends, and ends once. */
static void a_cts_with_any_byte_changed_is_refused_or_fits(void **state)
{
    (void)state;
    for (size_t at = 0; at < REGX_CTS_SIZE; at++) {
        for (unsigned bit = 0; bit < 9; bit++) {
            uint8_t bytes[REGX_CTS_SIZE];
            regx_cts_t cts;
            stage_t *stage = open_recv(&cts);

            stage->late_percent = bit % 2 * 100;
            memcpy(bytes, regx_rndv_recv_cts(stage->recv), sizeof(bytes));
            bytes[at] ^= (uint8_t)(bit < 8 ? 1U << bit : 255);
            open_send(stage, bytes);
            run(stage);
            abandon(stage);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_receiver_takes_only_what_it_granted),
        cmocka_unit_test(rkeys_beyond_the_end_are_refused),
        cmocka_unit_test(nacked_bytes_are_not_taken_again),
        cmocka_unit_test(the_sender_takes_only_what_it_advertised),
        cmocka_unit_test(an_ats_of_an_unsent_rkey_is_refused),
        cmocka_unit_test(grants_of_more_than_was_nacked_are_refused),
        cmocka_unit_test(a_cts_that_does_not_fit_ends_the_transfer),
        cmocka_unit_test(a_wire_without_gets_ends_the_transfer),
        cmocka_unit_test(the_senders_limits_hold),
        cmocka_unit_test(a_cts_with_any_byte_changed_is_refused_or_fits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
