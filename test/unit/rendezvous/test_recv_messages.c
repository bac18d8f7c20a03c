/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The receive and messages that are wrong: they have the effect of what they say, if that can be,
 * or none.
 */
#include "../mutate.h"
#include "recv_stage.h"

static bool same_name(regx_handle_t one, regx_handle_t other)
{
    return one.id == other.id && one.generation == other.generation;
}

/* The grant that the message answers, or -1. */
static int answered(const transfer_t *transfer, const regx_control_t *control)
{
    for (unsigned i = 0; i < transfer->count; i++) {
        const grant_t *grant = &transfer->grants[i];

        if (grant->offset != control->offset || grant->length != control->length) {
            continue;
        }
        if (grant->chunk
                ? control->type == REGX_CONTROL_ATP_CHUNK || control->type == REGX_CONTROL_NACK
                : control->type == REGX_CONTROL_ATP_SLOT && control->slot == grant->slot) {
            return (int)i;
        }
    }
    return -1;
}

/* Asserts that of a buffer of 0x11 only what the message said was copied out is changed (and what
 * the send itself wrote to chunks). */
static void assert_untouched(const transfer_t *transfer, const regx_control_t *copied)
{
    const bool chunks = transfer->chunk_grants > 0;

    for (size_t i = 0; i < transfer->received.length; i++) {
        const bool out =
            copied != NULL && i >= copied->offset && i - copied->offset < copied->length;
        const bool in_chunk = chunks && transfer->map[i] == 1;

        if (transfer->received.base[i] !=
            (out || in_chunk ? unit_stamp(transfer->stream, i) : 0x11)) {
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
    transfer_t *transfer = transfer_open(stage, 0, 0, 6 * PAGE + 7);
    regx_control_t control = {.type = 0};
    uint8_t bytes[REGX_CONTROL_MAX];

    if (started) {
        start(stage, transfer);
        hear_all(stage);
    }
    assert_true(transfer->count > 0);
    for (unsigned i = 0; i < transfer->count; i++) {
        write_grant(transfer, &transfer->grants[i]);
    }
    const regx_control_t right = notice_of(transfer, &transfer->grants[0], type);
    const size_t size = regx_control_pack(&right, bytes);
    mutate(bytes, size, &change);

    const bool form = regx_control_unpack(bytes, size, &control);
    const bool addressed = form && control.type <= REGX_CONTROL_RKEY &&
                           same_name(control.to, transfer->to) && sender == transfer->sender->id &&
                           (!started || same_name(control.from, transfer->from));
    const bool checked = control.has_checksum || !config->verify ||
                         control.type == REGX_CONTROL_READY || control.type == REGX_CONTROL_NACK;
    const int grant = addressed && checked && control.type != REGX_CONTROL_READY
                          ? answered(transfer, &control)
                          : -1;
    const bool sound = addressed && (control.type == REGX_CONTROL_READY || grant >= 0);

    fake_arrive(stage->receiver, sender, bytes, size);
    assert_int_equal(malformed(stage), !sound);
    assert_untouched(transfer,
                     grant >= 0 && control.type == REGX_CONTROL_ATP_SLOT ? &control : NULL);
    /* Its checksum is the one thing that may be wrong in a notice that is taken. */
    const bool corrupted =
        grant >= 0 && control.has_checksum &&
        control.checksum != notice_of(transfer, &transfer->grants[grant], control.type).checksum;
    assert_int_equal(stage->receiver->mismatches, corrupted);
    if (sound && !same_name(control.from, transfer->from)) {
        /* The first to speak is the send; the one of this test is now a stranger. */
        transfer_close(stage, transfer);
        stage->senders[0]->deliver = ignore;
        hear_all(stage);
        stage_close(stage);
        return;
    }
    transfer->started |= sound;
    if (grant >= 0) {
        drop_grant(transfer, (unsigned)grant, control.type != REGX_CONTROL_NACK);
    }
    transfer_finish(stage, transfer);
    assert_int_equal(malformed(stage), !sound);
    stage_close(stage);
}

typedef struct answer {
    const fake_config_t *config;
    regx_control_type_t type;
    size_t length;
} answer_t;

static const answer_t answers[] = {{&bounce, REGX_CONTROL_READY, 20},
                                   {&bounce, REGX_CONTROL_ATP_SLOT, 40},
                                   {&pipeline, REGX_CONTROL_READY, 20},
                                   {&pipeline, REGX_CONTROL_ATP_CHUNK, 40},
                                   {&pipeline, REGX_CONTROL_NACK, 40},
                                   {&direct, REGX_CONTROL_ATP_CHUNK, 40},
                                   {&verified_bounce, REGX_CONTROL_ATP_SLOT, 48},
                                   {&verified_pipeline, REGX_CONTROL_ATP_CHUNK, 48}};

enum { ANSWERS = sizeof(answers) / sizeof(answers[0]) };

static void messages_with_any_byte_changed_are_refused_or_fit(void **state)
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

static void messages_with_any_field_changed_are_refused_or_fit(void **state)
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

static void acknowledgements_of_another_process_are_refused(void **state)
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

static void a_repeated_acknowledgement_is_refused(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 3; c++) {
        stage_t *stage = stage_open(*configs[c]);
        transfer_t *transfer = transfer_open(stage, 0, 0, 6 * PAGE);
        const grant_t grant = transfer->grants[0];
        const regx_control_type_t type =
            grant.chunk ? REGX_CONTROL_ATP_CHUNK : REGX_CONTROL_ATP_SLOT;
        const regx_control_t again = notice_of(transfer, &grant, type);

        serve(stage, transfer, 0);
        for (unsigned i = 1; i <= 3; i++) {
            tell(stage, transfer, &again);
            assert_int_equal(malformed(stage), i);
        }
        transfer_finish(stage, transfer);
        stage_close(stage);
    }
}

/* A message that is refused does not start the receive. */
static void a_refused_message_does_not_start_a_receive(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 3; c++) {
        stage_t *stage = stage_open(*configs[c]);
        transfer_t *transfer = transfer_open(stage, 0, 0, 6 * PAGE);
        regx_control_t wrong =
            notice_of(transfer, &transfer->grants[0],
                      transfer->grants[0].chunk ? REGX_CONTROL_ATP_CHUNK : REGX_CONTROL_ATP_SLOT);

        wrong.from.generation++;
        wrong.length--;
        tell(stage, transfer, &wrong);
        assert_int_equal(malformed(stage), 1);
        transfer_finish(stage, transfer);
        assert_int_equal(malformed(stage), 1);
        stage_close(stage);
    }
}

static void a_slot_of_another_receive_is_refused(void **state)
{
    stage_t *stage = stage_open(bounce);
    transfer_t *one = transfer_open(stage, 0, 0, 3000);
    transfer_t *other = transfer_open(stage, 1, 0, 3000);

    (void)state;
    assert_true(one->count > 0 && other->count > 0);
    regx_control_t control = notice_of(one, &one->grants[0], REGX_CONTROL_ATP_SLOT);
    control.slot = other->grants[0].slot; /* same offset and length, same process */
    write_grant(one, &one->grants[0]);
    write_grant(other, &other->grants[0]);
    tell(stage, one, &control);
    assert_int_equal(malformed(stage), 1);
    assert_untouched(one, NULL);
    assert_untouched(other, NULL);
    transfer_finish(stage, one);
    transfer_finish(stage, other);
    stage_close(stage);
}

static void random_messages_to_a_receive_are_refused(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline, &direct};
    uint64_t seed = 23;

    (void)state;
    for (size_t c = 0; c < 3; c++) {
        stage_t *stage = stage_open(*configs[c]);
        transfer_t *transfer = transfer_open(stage, 0, 0, 6 * PAGE);

        start(stage, transfer);
        hear_all(stage);
        for (unsigned i = 0; i < transfer->count; i++) {
            write_grant(transfer, &transfer->grants[i]);
        }
        for (unsigned i = 0; i < 20000; i++) {
            uint64_t words[8];
            uint8_t *bytes = (uint8_t *)words;

            for (unsigned w = 0; w < 8; w++) {
                words[w] = chance_next(&seed);
            }
            if (i % 2 == 0) { /* of the right form, for the right receive */
                bytes[0] = REGX_CONTROL_VERSION;
                bytes[1] = (uint8_t)(2 + bytes[1] % 3);
                bytes[2] = bytes[3] = 0;
                memcpy(bytes + 4, &transfer->to, 8);
                memcpy(bytes + 12, &transfer->from, 8);
                memset(bytes + 20, 0, 4);
                fake_arrive(stage->receiver, 1, bytes, 40);
            } else {
                fake_arrive(stage->receiver, 1 + i / 2 % 2, bytes, chance_next(&seed) % 64 + 1);
            }
        }
        assert_int_equal(malformed(stage), 20000);
        assert_untouched(transfer, NULL);
        transfer_finish(stage, transfer);
        stage_close(stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_with_any_byte_changed_are_refused_or_fit),
        cmocka_unit_test(messages_with_any_field_changed_are_refused_or_fit),
        cmocka_unit_test(acknowledgements_of_another_process_are_refused),
        cmocka_unit_test(a_repeated_acknowledgement_is_refused),
        cmocka_unit_test(a_refused_message_does_not_start_a_receive),
        cmocka_unit_test(a_slot_of_another_receive_is_refused),
        cmocka_unit_test(random_messages_to_a_receive_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
