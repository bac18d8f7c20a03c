/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The send and messages that are wrong: a CTS, grants.
 */
#include "../mutate.h"
#include "send_stage.h"

#include "rendezvous/send.h"

/* ---- a CTS that is wrong ---- */

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

/* Opens a send with a changed CTS: it ends at once and is counted, or does what it was told as
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
    const bool sound = regx_send_read_cts(stage->sender->rndv, bytes, &cts) && cts_is_sound(&cts);
    stage->recv = cts.recv;
    stage->suspect = cts.suspect;
    stage->any_target = true;
    regx_rndv_send_open(stage->sender->rndv, &stage->sender->peers[1], stage->sent.base, LENGTH,
                        copy, done, stage);
    free(copy);
    assert_int_equal(malformed(stage), !sound);
    if (!sound) {
        assert_int_equal(stage->dones, 1);
        assert_int_equal(stage->status, REGX_INVALID);
        assert_int_equal(stage->calls[FAKE_PUT] + stage->calls[FAKE_SEND], 0);
    }
    run(stage);
    regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[1]);
    stage_close(stage);
}

static void a_cts_with_any_byte_changed_is_refused_or_fits(void **state)
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

static void a_cts_with_any_field_changed_is_refused_or_fits(void **state)
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
    regx_cts_t cts = {.path = REGX_PATH_bounce, .recv = stage->recv};

    (void)state;
    stage->sent.length = 0;
    open_send(stage, &cts);
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_INVALID);
    stage->sent.length = LENGTH;
    stage_close(stage);
}

/* ---- grants that are wrong ---- */

enum { FIRST = 2 * SLOT }; /* bytes granted and sent before */

/* Whether a message can be a grant of the stage's transfer; `chunks`: whose path has chunks. */
static bool grant_is_sound(const stage_t *stage, const regx_control_t *control, bool chunks)
{
    uint64_t offset = control->offset;
    uint64_t left = LENGTH - FIRST;

    if (control->to.id != stage->send.id || control->to.generation != stage->send.generation) {
        return false;
    }
    if (control->type == REGX_CONTROL_CTS_CHUNK) {
        return chunks && control->length > 0 && control->length <= left && offset <= LENGTH &&
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
    return control->type == REGX_CONTROL_CTS_SLOTS;
}

/* Sends a changed grant in the middle of a transfer. If it cannot be one it is counted and has no
 * effect: the transfer is then served as if nothing had been, and ends well. */
static void try_grant(bool chunk, change_t change, uint64_t sender)
{
    stage_t *stage = stage_open();
    const regx_cts_t cts =
        chunk ? cts_of(stage, REGX_PATH_pipeline, 0, FIRST) : cts_of(stage, REGX_PATH_bounce, 2, 0);
    uint8_t bytes[REGX_CONTROL_MAX];
    regx_control_t control = {.type = 0};

    open_send(stage, &cts);
    run(stage);
    assert_true(stage->started);
    control = (regx_control_t){.type = chunk ? REGX_CONTROL_CTS_CHUNK : REGX_CONTROL_CTS_SLOTS,
                               .to = stage->send,
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
                       grant_is_sound(stage, &control, chunk);

    stage->any_target = sound;
    fake_arrive(stage->sender, sender, bytes, size);
    assert_int_equal(malformed(stage), !sound);
    if (sound) { /* it does what it was told; the rule and the fake check where */
        run(stage);
        regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[1]);
    } else {
        assert_int_equal(stage->calls[FAKE_PUT], chunk ? 1 : 2);
        grant_slots(stage, FIRST, LENGTH - FIRST);
        assert_sent(stage);
        assert_int_equal(malformed(stage), 1);
    }
    stage_close(stage);
}

static void grants_with_any_byte_changed_are_refused_or_fit(void **state)
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

static void grants_with_any_field_changed_are_refused_or_fit(void **state)
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

static void grants_of_another_process_are_refused(void **state)
{
    (void)state;
    for (int chunk = 0; chunk < 2; chunk++) {
        try_grant(chunk, (change_t){.size = 0}, 2);
        try_grant(chunk, (change_t){.size = 0}, 0);
        try_grant(chunk, (change_t){.size = 0}, UINT64_MAX);
    }
}

/* The receiver chose bounce: it has no chunk to grant. */
static void a_chunk_granted_on_the_path_bounce_is_refused(void **state)
{
    stage_t *stage = stage_open();
    const regx_cts_t cts = cts_of(stage, REGX_PATH_bounce, 2, 0);

    (void)state;
    open_send(stage, &cts);
    run(stage);
    grant_chunk(stage, FIRST, PAGE);
    assert_int_equal(malformed(stage), 1);
    assert_int_equal(stage->calls[FAKE_PUT], 2);
    grant_slots(stage, FIRST, LENGTH - FIRST);
    assert_sent(stage);
    stage_close(stage);
}

/* More grants than anyone may give at once are refused, and those that were taken are done. */
static void a_flood_of_grants_is_bounded(void **state)
{
    stage_t *stage = stage_open();
    const regx_cts_t cts = cts_of(stage, REGX_PATH_bounce, 0, 0);

    (void)state;
    stage->any_target = true;
    open_send(stage, &cts);
    run(stage);
    stage->puts = REGX_AGAIN;
    for (uint64_t offset = 0; offset < 1000; offset++) {
        const regx_control_t control = {.type = REGX_CONTROL_CTS_SLOTS,
                                        .to = stage->send,
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
static void more_bytes_than_are_left_are_refused(void **state)
{
    (void)state;
    for (int used = 0; used < 2; used++) {
        stage_t *stage = stage_open();
        const regx_cts_t cts = cts_of(stage, REGX_PATH_pipeline, 0, PAGE);

        open_send(stage, &cts);
        run(stage);
        stage->puts = used ? REGX_OK : REGX_AGAIN;
        grant_chunk(stage, PAGE, LENGTH - 2 * PAGE);
        run(stage);
        const regx_control_t again = {.type = REGX_CONTROL_CTS_SLOTS,
                                      .to = stage->send,
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

static void messages_to_a_send_that_is_done_are_refused(void **state)
{
    (void)state;
    for (int failed = 0; failed < 2; failed++) {
        stage_t *stage = stage_open();
        const regx_control_t late = {
            .type = REGX_CONTROL_CTS_SLOTS, .offset = 0, .slot_count = 1, .slots = {{0, SLOT}}};

        stage->answer[FAKE_PUT].at = failed ? 5 : 0;
        stage->answer[FAKE_PUT].status = REGX_FAILED;
        whole_transfer(stage, false);
        assert_int_equal(stage->dones, 1);
        const uint64_t before = malformed(stage); /* grants that the failed one did not need */
        regx_control_t control = late;
        control.to = stage->send;
        tell(stage, &control); /* the rule asserts that there is no put */
        assert_int_equal(malformed(stage), before + 1);
        stage_close(stage);
    }
}

/* Of slots on the path bounce, of slots and chunks on the path pipeline. */
static void refuse_random_messages(bool chunks)
{
    stage_t *stage = stage_open();
    const regx_cts_t cts = chunks ? cts_of(stage, REGX_PATH_pipeline, 0, FIRST)
                                  : cts_of(stage, REGX_PATH_bounce, 2, 0);
    uint64_t seed = 29;

    open_send(stage, &cts);
    run(stage);
    for (unsigned i = 0; i < 50000; i++) {
        uint64_t words[8];
        uint8_t *bytes = (uint8_t *)words;

        for (unsigned w = 0; w < 8; w++) {
            words[w] = chance_next(&seed);
        }
        if (i % 2 == 0) { /* of the right form, for the right send, with absurd numbers */
            bytes[0] = REGX_CONTROL_VERSION;
            bytes[1] = i % 4 == 0 ? REGX_CONTROL_CTS_SLOTS : REGX_CONTROL_CTS_CHUNK;
            bytes[2] = i % 4 == 0 ? 4 : 0;
            bytes[3] = 0;
            memcpy(bytes + 4, &stage->send, 8);
            if (i % 4 == 0) { /* CTS_SLOTS is zero there, CTS_CHUNK has its length */
                memset(bytes + 12, 0, 4);
            }
            fake_arrive(stage->sender, 1, bytes, 56);
        } else {
            fake_arrive(stage->sender, i / 2 % 3, bytes, chance_next(&seed) % 64 + 1);
        }
    }
    assert_int_equal(malformed(stage), 50000);
    assert_int_equal(stage->calls[FAKE_PUT], chunks ? 1 : 2);
    grant_slots(stage, FIRST, LENGTH - FIRST);
    assert_sent(stage);
    stage_close(stage);
}

static void random_messages_to_a_send_are_refused_and_it_ends_right(void **state)
{
    (void)state;
    refuse_random_messages(false);
    refuse_random_messages(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cts_with_any_byte_changed_is_refused_or_fits),
        cmocka_unit_test(a_cts_with_any_field_changed_is_refused_or_fits),
        cmocka_unit_test(a_message_of_no_bytes_is_refused),
        cmocka_unit_test(grants_with_any_byte_changed_are_refused_or_fit),
        cmocka_unit_test(grants_with_any_field_changed_are_refused_or_fit),
        cmocka_unit_test(a_chunk_granted_on_the_path_bounce_is_refused),
        cmocka_unit_test(grants_of_another_process_are_refused),
        cmocka_unit_test(a_flood_of_grants_is_bounded),
        cmocka_unit_test(more_bytes_than_are_left_are_refused),
        cmocka_unit_test(messages_to_a_send_that_is_done_are_refused),
        cmocka_unit_test(random_messages_to_a_send_are_refused_and_it_ends_right),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
