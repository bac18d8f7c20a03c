/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The path read and messages that are wrong.
 */
#include "../mutate.h"
#include "read_stage.h"

/* Whose turn is tried: the first advertised chunk, a later one, the refusal of the rest, the first
 * ATS, and one that tells that it was not. */
typedef enum turn { FIRST, LATER, REST, GOT, UNREAD, TURNS } turn_t;

/* Brings a transfer to where the next frame to the process `to` is that message. */
static void bring_to(stage_t *stage, turn_t turn, unsigned *to)
{
    *to = turn < GOT ? 1 : 0;
    if (turn == REST || turn == UNREAD) {
        stage->answer.at = turn == REST ? stage->sender : stage->receiver;
        stage->answer.call = FAKE_REG;
        stage->answer.number = 2;
        stage->answer.status = REGX_NO_MEMORY;
    }
    begin(stage);
    if (turn == LATER || turn == REST) {
        assert_true(deliver(stage, 1));
    } else if (turn == GOT || turn == UNREAD) {
        while (deliver(stage, 1)) {
        }
        if (turn == GOT) {
            fake_got(stage->receiver, 0, 1, REGX_OK);
        }
    }
}

/* Whether the receive can take the message, by what it has taken before. */
static bool receiver_takes(const stage_t *stage, const regx_control_t *control,
                           const regx_control_t *right, turn_t turn)
{
    const uint64_t granted = turn == FIRST ? 0 : PAGE;

    (void)stage;
    if (memcmp(&control->to, &right->to, sizeof(control->to)) != 0 ||
        (turn != FIRST && memcmp(&control->from, &right->from, sizeof(control->from)) != 0)) {
        return false;
    }
    switch (control->type) {
    case REGX_CONTROL_READY:
        return true;
    case REGX_CONTROL_RKEY:
        return control->offset == granted && control->length > 0 && control->length <= PAGE;
    case REGX_CONTROL_NACK:
        return control->offset == granted && control->length == LENGTH - granted;
    default:
        return false;
    }
}

/* Whether the send can: it has advertised the first DEPTH chunks, and been told of none. */
static bool sender_takes(const regx_control_t *control, const regx_control_t *right)
{
    return control->type == REGX_CONTROL_ATS &&
           memcmp(&control->to, &right->to, sizeof(control->to)) == 0 && control->length == PAGE &&
           control->offset % PAGE == 0 && control->offset < DEPTH * PAGE;
}

static void arrive(stage_t *stage, unsigned to, uint64_t from, const void *bytes, size_t size)
{
    fake_arrive(to == 0 ? stage->sender : stage->receiver, from, bytes, size);
}

/* Ends what a lie has corrupted, and asserts that nothing else was. */
static void abandon(stage_t *stage)
{
    run(stage);
    regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[1]);
    regx_rndv_forget(stage->receiver->rndv, &stage->receiver->peers[0]);
    while (fake_got(stage->receiver, 0, 0, REGX_FAILED)) {
    }
    drop_frames(stage->sender, 1);
    drop_frames(stage->receiver, 0);
    assert_int_equal(stage->dones, 1);
    close_recv(stage);
    stage_close(stage);
}

/* The message is changed. If it cannot be one it is counted and has no effect: the right one is
 * then taken, and all ends well. Else it does what it says, to the memory of this transfer. */
static void try_message(turn_t turn, change_t change, uint64_t sender)
{
    stage_t *stage = stage_open();
    regx_control_t control = {0}, right = {0};
    uint8_t bytes[FAKE_FRAME];
    unsigned to;

    bring_to(stage, turn, &to);
    fake_t *from = to == 1 ? stage->sender : stage->receiver;
    const fake_frame_t *frame = from->conns[to].head;
    assert_non_null(frame);
    memcpy(bytes, frame->data, frame->length);
    assert_true(regx_control_unpack(bytes, frame->length, &right));
    mutate(bytes, frame->length, &change);
    const bool same = memcmp(bytes, frame->data, frame->length) == 0;
    const bool form = regx_control_unpack(bytes, frame->length, &control);
    const bool sound =
        form && sender == from->id &&
        (to == 1 ? receiver_takes(stage, &control, &right, turn) : sender_takes(&control, &right));
    const uint64_t regs = stage->receiver->counters.registrations;
    const unsigned windows = stage->sender->open_windows;

    arrive(stage, to, sender, bytes, frame->length);
    if (!sound) {
        assert_int_equal(malformed(stage), 1);
        assert_int_equal(stage->receiver->counters.registrations, regs);
        assert_int_equal(stage->sender->open_windows, windows);
        run(stage);
        assert_read(stage);
        assert_int_equal(malformed(stage), 1);
        close_recv(stage);
        stage_close(stage);
        return;
    }
    if (same) {
        assert_int_equal(malformed(stage), 0);
    }
    deliver(stage, to); /* comes once more, or is right after another: taken or not */
    abandon(stage);
}

static void messages_with_any_byte_changed_are_refused_or_fit(void **state)
{
    static const uint8_t flips[] = {0, 1, 2, 4, 8, 16, 32, 64, 128, 255, 3, 7};

    (void)state;
    for (turn_t turn = FIRST; turn < TURNS; turn++) {
        for (size_t at = 0; at < REGX_CONTROL_MAX; at++) {
            for (size_t f = 0; f < sizeof(flips); f++) {
                try_message(turn, (change_t){at, 1, flips[f], true}, turn < GOT ? 0 : 1);
            }
        }
    }
}

static void messages_with_any_field_changed_are_refused_or_fit(void **state)
{
    static const uint64_t values[] = {0,
                                      1,
                                      2,
                                      PAGE - 1,
                                      PAGE,
                                      PAGE + 1,
                                      2 * PAGE,
                                      5 * PAGE + 7,
                                      LENGTH - 1,
                                      LENGTH,
                                      LENGTH + 1,
                                      INT32_MAX,
                                      UINT64_C(1) << 31,
                                      UINT32_MAX,
                                      UINT64_C(1) << 32,
                                      INT64_MAX,
                                      UINT64_C(1) << 63,
                                      UINT64_MAX - PAGE + 1,
                                      UINT64_MAX};

    (void)state;
    for (turn_t turn = FIRST; turn < TURNS; turn++) {
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
            for (size_t at = 0; at < REGX_CONTROL_MAX; at += 4) {
                try_message(turn, (change_t){at, 4, values[v], false}, turn < GOT ? 0 : 1);
                try_message(turn, (change_t){at, 8, values[v], false}, turn < GOT ? 0 : 1);
            }
        }
    }
}

static void messages_of_another_process_are_refused(void **state)
{
    (void)state;
    for (turn_t turn = FIRST; turn < TURNS; turn++) {
        try_message(turn, (change_t){.size = 0}, 2);
        try_message(turn, (change_t){.size = 0}, 3);
        try_message(turn, (change_t){.size = 0}, UINT64_MAX);
    }
}

/* More than the CTS allows at once, or after the rest was refused. */
static void more_rkeys_than_allowed_are_refused(void **state)
{
    (void)state;
    for (int refused = 0; refused < 2; refused++) {
        stage_t *stage = stage_open();
        regx_control_t control = {0};
        uint8_t bytes[REGX_CONTROL_MAX];

        begin(stage);
        const fake_frame_t *frame = stage->sender->conns[1].head;
        assert_true(regx_control_unpack(frame->data, frame->length, &control));
        if (refused) {
            regx_control_t refusal = control;

            refusal.type = REGX_CONTROL_NACK;
            refusal.length = LENGTH;
            arrive(stage, 1, 0, bytes, regx_control_pack(&refusal, bytes));
            assert_int_equal(malformed(stage), 0);
            arrive(stage, 1, 0, bytes, regx_control_pack(&refusal, bytes));
            assert_int_equal(malformed(stage), 1);
        } else {
            while (deliver(stage, 1)) {
            }
            control.offset = DEPTH * PAGE;
        }
        arrive(stage, 1, 0, bytes, regx_control_pack(&control, bytes));
        assert_int_equal(malformed(stage), 1 + refused);
        assert_int_equal(stage->receiver->counters.registrations, refused ? 0 : DEPTH);
        abandon(stage);
    }
}

/* What is advertised, or still to be, is not granted as well; nor are chunks granted at all. */
static void a_chunk_granted_on_the_path_read_is_refused(void **state)
{
    (void)state;
    for (int chunk = 0; chunk < 2; chunk++) {
        stage_t *stage = stage_open();
        regx_control_t advertised = {0};
        uint8_t bytes[REGX_CONTROL_MAX];

        begin(stage);
        const fake_frame_t *frame = stage->sender->conns[1].head;
        assert_true(regx_control_unpack(frame->data, frame->length, &advertised));
        regx_control_t grant = {.type = chunk ? REGX_CONTROL_CTS_CHUNK : REGX_CONTROL_CTS_SLOTS,
                                .to = advertised.from,
                                .offset = 5 * PAGE,
                                .length = 1};
        if (!chunk) {
            grant.slot_count = 1;
            grant.slots[0] = (regx_slot_grant_t){0, 1};
        }
        arrive(stage, 0, 1, bytes, regx_control_pack(&grant, bytes));
        assert_int_equal(malformed(stage), 1);
        assert_int_equal(stage->sender->calls[FAKE_PUT], 0);
        run(stage);
        assert_read(stage);
        close_recv(stage);
        stage_close(stage);
    }
}

/* ---- lies in mid-transfer ---- */

/* What is in the first frame from one to the other. */
static regx_control_t next_message(const fake_t *from, unsigned to)
{
    const fake_frame_t *frame = from->conns[to].head;
    regx_control_t control = {0};

    assert_non_null(frame);
    assert_true(regx_control_unpack(frame->data, frame->length, &control));
    return control;
}

/* What an end has of the transfer. */
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

/* Tells the process that of those bytes: it counts the lie, and does nothing. */
static void lie_of(stage_t *stage, unsigned to, regx_control_t control, regx_control_type_t type,
                   uint64_t offset, uint64_t length)
{
    const fake_t *fake = to == 0 ? stage->sender : stage->receiver;
    const effects_t before = effects_at(fake, stage->dones);
    const uint64_t lies = malformed(stage);
    uint8_t bytes[REGX_CONTROL_MAX];

    control.type = type;
    control.offset = offset;
    control.length = length;
    control.slot_count = type == REGX_CONTROL_CTS_SLOTS;
    if (type == REGX_CONTROL_CTS_SLOTS) {
        control.slots[0] = (regx_slot_grant_t){0, (uint32_t)length};
    }
    arrive(stage, to, 1 - to, bytes, regx_control_pack(&control, bytes));
    if (malformed(stage) != lies + 1) {
        fail_msg("taken: type %d, offset %llu, length %llu", type, (unsigned long long)offset,
                 (unsigned long long)length);
    }
    const effects_t after = effects_at(fake, stage->dones);
    assert_memory_equal(&before, &after, sizeof(before));
}

static void refuse_registration(stage_t *stage, fake_t *at, unsigned number)
{
    stage->answer.at = at;
    stage->answer.call = FAKE_REG;
    stage->answer.number = number;
    stage->answer.status = REGX_NO_MEMORY;
}

/* What the receive cannot know of yet it has not got. */
static void an_ats_of_an_unsent_rkey_is_refused(void **state)
{
    stage_t *stage = stage_open();

    (void)state;
    stage->answer.at = stage->sender;
    stage->answer.call = FAKE_SEND;
    stage->answer.number = 2;
    stage->answer.status = REGX_AGAIN;
    begin(stage);
    const regx_control_t to = {.to = next_message(stage->sender, 1).from};
    assert_int_equal(stage->sender->open_windows, 2);
    lie_of(stage, 0, to, REGX_CONTROL_ATS, PAGE, PAGE);
    run(stage);
    assert_read(stage);
    assert_bytes(stage, LENGTH);
    assert_int_equal(malformed(stage), 1);
    close_recv(stage);
    stage_close(stage);
}

/* Once refused they do not come that way any more, nor are they refused again: those of which
 * slots are granted, and those that wait for some. The sender refuses a chunk, or the receiver
 * leaves one. */
static void nacked_bytes_are_not_taken_again(void **state)
{
    static const uint64_t lengths[] = {1, 7, SLOT, PAGE - 1, PAGE, PAGE + 1};
    fake_config_t config = standard;

    (void)state;
    config.slots = 4;
    for (unsigned i = 0; i < 2 * DEPTH; i++) {
        stage_t *stage = stage_open_both(&config, &config);

        refuse_registration(stage, i % 2 == 0 ? stage->sender : stage->receiver, 1 + i / 2);
        begin(stage);
        regx_control_t lie = next_message(stage->sender, 1);
        lie.failed = lie.permanent = false;
        while (deliver(stage, 1)) {
        }
        while (i % 2 == 1 && deliver(stage, 0)) { /* it has left one, and the sender refuses */
        }
        while (i % 2 == 1 && stage->sender->conns[1].head != NULL &&
               stage->sender->conns[1].head->pending == NULL && deliver(stage, 1)) {
        }
        for (uint64_t offset = 0; offset <= LENGTH + SLOT; offset += SLOT) {
            for (size_t l = 0; l <= sizeof(lengths) / sizeof(lengths[0]); l++) {
                const bool rest = l == sizeof(lengths) / sizeof(lengths[0]);
                const uint64_t length = rest ? LENGTH - offset : lengths[l];

                lie_of(stage, 1, lie, REGX_CONTROL_RKEY, offset, length);
                lie_of(stage, 1, lie, REGX_CONTROL_NACK, offset, length);
            }
        }
        const uint64_t lies = malformed(stage);
        run(stage);
        assert_read(stage);
        assert_bytes(stage, stage->sender->counters.bytes[REGX_PATH_read]);
        assert_int_equal(malformed(stage), lies);
        close_recv(stage);
        stage_close(stage);
    }
}

/* What is advertised is not granted as well; what is refused is granted once. */
static void grants_of_more_than_was_nacked_are_refused(void **state)
{
    enum { NACKED = 7, ALL = 2 * PAGE + NACKED };
    stage_t *stage = stage_open();

    (void)state;
    refuse_registration(stage, stage->sender, 3);
    begin_of(stage, ALL);
    const regx_control_t to = {.to = next_message(stage->sender, 1).from};
    lie_of(stage, 0, to, REGX_CONTROL_CTS_SLOTS, 0, NACKED + 1);
    lie_of(stage, 0, to, REGX_CONTROL_CTS_SLOTS, PAGE, NACKED + 1);
    lie_of(stage, 0, to, REGX_CONTROL_CTS_SLOTS, 2 * PAGE - 1, NACKED + 1);
    lie_of(stage, 0, to, REGX_CONTROL_CTS_SLOTS, 2 * PAGE, NACKED + 1);
    lie_of(stage, 0, to, REGX_CONTROL_CTS_SLOTS, ALL - 1, 2);
    lie_of(stage, 0, to, REGX_CONTROL_CTS_CHUNK, 2 * PAGE, NACKED);
    while (deliver(stage, 1)) {
    }
    while (deliver(stage, 0)) { /* granted */
    }
    assert_int_equal(stage->sender->calls[FAKE_PUT], 1);
    lie_of(stage, 0, to, REGX_CONTROL_CTS_SLOTS, 2 * PAGE, 1);
    lie_of(stage, 0, to, REGX_CONTROL_CTS_SLOTS, 0, 1);
    run(stage);
    assert_read_of(stage, ALL);
    assert_int_equal(stage->sender->counters.bytes[REGX_PATH_read], 2 * PAGE);
    assert_int_equal(stage->sender->counters.bytes[REGX_PATH_bounce], NACKED);
    assert_int_equal(malformed(stage), 8);
    close_recv(stage);
    stage_close(stage);
}

static void random_messages_to_a_read_are_refused_and_it_ends_right(void **state)
{
    stage_t *stage = stage_open();
    regx_control_t advertised = {0};
    uint64_t seed = 31;

    (void)state;
    begin(stage);
    const fake_frame_t *frame = stage->sender->conns[1].head;
    assert_true(regx_control_unpack(frame->data, frame->length, &advertised));
    for (unsigned i = 0; i < 40000; i++) {
        uint64_t words[9];
        uint8_t *bytes = (uint8_t *)words;

        for (unsigned w = 0; w < 9; w++) {
            words[w] = chance_next(&seed);
        }
        if (i % 2 == 0) { /* of the right form, for the right addressee, with absurd numbers */
            const regx_handle_t *to = i % 4 == 0 ? &advertised.to : &advertised.from;

            bytes[0] = REGX_CONTROL_VERSION;
            bytes[1] = i % 4 == 0 ? REGX_CONTROL_RKEY : REGX_CONTROL_ATS;
            bytes[2] = bytes[3] = 0;
            memcpy(bytes + 4, to, sizeof(*to));
            bytes[12] %= 3;
            memset(bytes + 13, 0, i % 4 == 0 ? 0 : 3);
            arrive(stage, i % 4 == 0, i % 4 != 0, bytes, i % 4 == 0 ? 64 : 32);
        } else {
            arrive(stage, i / 2 % 2, i / 4 % 3, bytes, chance_next(&seed) % 72 + 1);
        }
    }
    assert_int_equal(malformed(stage), 40000);
    assert_int_equal(stage->receiver->counters.registrations, 0);
    run(stage);
    assert_read(stage);
    assert_bytes(stage, LENGTH);
    close_recv(stage);
    stage_close(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_with_any_byte_changed_are_refused_or_fit),
        cmocka_unit_test(messages_with_any_field_changed_are_refused_or_fit),
        cmocka_unit_test(messages_of_another_process_are_refused),
        cmocka_unit_test(more_rkeys_than_allowed_are_refused),
        cmocka_unit_test(a_chunk_granted_on_the_path_read_is_refused),
        cmocka_unit_test(an_ats_of_an_unsent_rkey_is_refused),
        cmocka_unit_test(nacked_bytes_are_not_taken_again),
        cmocka_unit_test(grants_of_more_than_was_nacked_are_refused),
        cmocka_unit_test(random_messages_to_a_read_are_refused_and_it_ends_right),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
