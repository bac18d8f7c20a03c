/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The control messages: their bytes are the documented ones; whatever arrives is either refused or
 * is exactly what packing it again gives, and nothing outside it is read.
 */
#include "control_bytes.h"

#include <stdlib.h>

/* One message of each form, and what it is. */
enum {
    CHUNK_FORM = 4,
    EXPOSED_FORM,
    GOT_FORM,
    REVOKED_FORM,
    REVOKE_FORM,
    ARRIVED_FORM,
    RESUME_FORM,
    SLOTS_FORMS,
    CHECKED_FORMS = SLOTS_FORMS + REGX_MESSAGE_SLOTS,
    CHECKED_EXPOSED_FORM = CHECKED_FORMS + 2,
    CHECKED_ARRIVED_FORM,
    FORMS
};

typedef struct form {
    regx_control_t control;
    bytes_t bytes;
} form_t;

static form_t form_of_sender(unsigned which)
{
    form_t form = {.control = {.type = (regx_control_type_t)(REGX_CONTROL_READY + which),
                               .to = control_to,
                               .from = control_from}};

    form.bytes = bytes_head((uint8_t)(1 + which), 0);
    bytes_add(&form.bytes, control_from.id, 4);
    bytes_add(&form.bytes, control_from.generation, 4);
    if (which > 0) {
        form.control.slot = which == 1 ? 0x21222324 : 0;
        form.control.permanent = which == 3;
        form.control.offset = A_OFFSET;
        form.control.length = A_LENGTH;
        bytes_add(&form.bytes, which == 3 ? 1 : form.control.slot, 4);
        bytes_add(&form.bytes, A_OFFSET, 8);
        bytes_add(&form.bytes, A_LENGTH, 8);
    }
    return form;
}

static form_t form_of_chunk(void)
{
    form_t form = {.control = {.type = REGX_CONTROL_CTS_CHUNK, .to = control_to}};

    form.control.offset = A_OFFSET;
    form.control.length = (uint32_t)A_LENGTH;
    form.control.start = A_START;
    form.control.key = control_key();
    form.bytes = bytes_head(8, 0);
    bytes_add(&form.bytes, (uint32_t)A_LENGTH, 4);
    bytes_add(&form.bytes, A_OFFSET, 8);
    bytes_add(&form.bytes, A_START, 8);
    bytes_add_key(&form.bytes);
    return form;
}

static form_t form_of_rkey(void)
{
    form_t form = {.control = {.type = REGX_CONTROL_RKEY, .to = control_to, .from = control_from}};

    form.control.offset = A_OFFSET;
    form.control.length = (uint32_t)A_LENGTH;
    form.control.start = A_START;
    form.control.key = control_key();
    form.bytes = bytes_head(5, 0);
    bytes_add(&form.bytes, control_from.id, 4);
    bytes_add(&form.bytes, control_from.generation, 4);
    bytes_add(&form.bytes, (uint32_t)A_LENGTH, 4);
    bytes_add(&form.bytes, A_OFFSET, 8);
    bytes_add(&form.bytes, A_START, 8);
    bytes_add_key(&form.bytes);
    return form;
}

static form_t form_of_got(void)
{
    form_t form = {.control = {.type = REGX_CONTROL_ATS, .to = control_to}};

    form.control.unread = form.control.failed = true;
    form.control.offset = A_OFFSET;
    form.control.length = A_LENGTH;
    form.bytes = bytes_head(9, 0);
    bytes_add(&form.bytes, 2, 4);
    bytes_add(&form.bytes, A_OFFSET, 8);
    bytes_add(&form.bytes, A_LENGTH, 8);
    return form;
}

static form_t form_of_revoked(void)
{
    form_t form = {
        .control = {.type = REGX_CONTROL_REVOKED, .to = control_to, .from = control_from}};

    form.control.offset = A_OFFSET;
    form.bytes = bytes_head(6, 0);
    bytes_add(&form.bytes, control_from.id, 4);
    bytes_add(&form.bytes, control_from.generation, 4);
    bytes_add(&form.bytes, 0, 4);
    bytes_add(&form.bytes, A_OFFSET, 8);
    return form;
}

static form_t form_of_agreement(regx_control_type_t type)
{
    form_t form = {.control = {.type = type, .to = control_to}};

    form.control.offset = A_OFFSET;
    form.bytes = bytes_head((uint8_t)(type == REGX_CONTROL_REVOKE    ? 10
                                      : type == REGX_CONTROL_ARRIVED ? 11
                                                                     : 12),
                            0);
    bytes_add(&form.bytes, 0, 4);
    bytes_add(&form.bytes, A_OFFSET, 8);
    return form;
}

static form_t form_of_slots(unsigned slots)
{
    form_t form = {.control = {.type = REGX_CONTROL_CTS_SLOTS, .to = control_to}};

    form.control.offset = A_OFFSET;
    form.control.slot_count = slots;
    form.bytes = bytes_head(7, (uint16_t)slots);
    bytes_add(&form.bytes, 0, 4);
    bytes_add(&form.bytes, A_OFFSET, 8);
    for (uint32_t i = 0; i < slots; i++) {
        form.control.slots[i] = (regx_slot_grant_t){0x31323334 + i, 0x41424344 + i};
        bytes_add(&form.bytes, 0x31323334 + i, 4);
        bytes_add(&form.bytes, 0x41424344 + i, 4);
    }
    return form;
}

static form_t form(unsigned which)
{
    if (which < CHUNK_FORM) {
        return form_of_sender(which);
    }
    if (which == CHUNK_FORM) {
        return form_of_chunk();
    }
    if (which == GOT_FORM) {
        return form_of_got();
    }
    if (which == REVOKED_FORM) {
        return form_of_revoked();
    }
    if (which == REVOKE_FORM || which == ARRIVED_FORM) {
        return form_of_agreement(which == REVOKE_FORM ? REGX_CONTROL_REVOKE : REGX_CONTROL_ARRIVED);
    }
    if (which == RESUME_FORM) {
        return form_of_agreement(REGX_CONTROL_RESUME);
    }
    if (which >= SLOTS_FORMS && which < CHECKED_FORMS) {
        return form_of_slots(which - SLOTS_FORMS + 1);
    }
    if (which == EXPOSED_FORM) {
        return form_of_rkey();
    }
    form_t form = which == CHECKED_EXPOSED_FORM ? form_of_rkey()
                  : which == CHECKED_ARRIVED_FORM
                      ? form_of_agreement(REGX_CONTROL_ARRIVED)
                      : form_of_sender(which - CHECKED_FORMS + 1); /* ATP or ATP */

    form.control.has_checksum = true;
    form.control.checksum = A_CHECKSUM;
    bytes_add(&form.bytes, A_CHECKSUM, 8);
    return form;
}

/* Unpacks a copy that has nothing behind it, so that reading past its end is found. */
static bool unpack(const uint8_t *bytes, size_t size, regx_control_t *control)
{
    uint8_t *copy = malloc(size + 1);
    bool good;

    assert_non_null(copy);
    memcpy(copy + 1, bytes, size); /* and at an odd address */
    memset(control, 0x77, sizeof(*control));
    good = regx_control_unpack(copy + 1, size, control);
    free(copy);
    return good;
}

/* Asserts that the bytes are refused, or understood in full: packed again they are the same. */
static bool refused_or_understood(const uint8_t *bytes, size_t size)
{
    uint8_t again[REGX_CONTROL_MAX];
    regx_control_t control;

    if (!unpack(bytes, size, &control)) {
        return false;
    }
    assert_int_equal(regx_control_pack(&control, again), size);
    assert_memory_equal(again, bytes, size);
    return true;
}

static bool has_length(regx_control_type_t type)
{
    return type != REGX_CONTROL_READY && type != REGX_CONTROL_REVOKED &&
           type != REGX_CONTROL_REVOKE && type != REGX_CONTROL_ARRIVED &&
           type != REGX_CONTROL_RESUME;
}

static void messages_have_the_documented_bytes(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FORMS; i++) {
        const form_t known = form(i);
        uint8_t packed[REGX_CONTROL_MAX + 8];
        regx_control_t control;

        memset(packed, 0x5a, sizeof(packed));
        assert_int_equal(regx_control_pack(&known.control, packed), known.bytes.length);
        assert_memory_equal(packed, known.bytes.at, known.bytes.length);
        for (size_t b = known.bytes.length; b < sizeof(packed); b++) {
            assert_int_equal(packed[b], 0x5a);
        }
        assert_true(unpack(known.bytes.at, known.bytes.length, &control));
        assert_int_equal(control.type, known.control.type);
        assert_memory_equal(&control.to, &control_to, sizeof(control_to));
        if (regx_control_from_sender(control.type)) {
            assert_memory_equal(&control.from, &control_from, sizeof(control_from));
        }
        if (control.type != REGX_CONTROL_READY) {
            assert_int_equal(control.offset, A_OFFSET);
        }
        if (control.type == REGX_CONTROL_ATP_SLOT) {
            assert_int_equal(control.slot, 0x21222324);
        }
        if (control.type == REGX_CONTROL_NACK) {
            assert_true(control.permanent);
        }
        if (control.type == REGX_CONTROL_ATS) {
            assert_true(control.unread && control.failed);
        }
        if (control.type == REGX_CONTROL_CTS_SLOTS) {
            assert_int_equal(control.slot_count, known.control.slot_count);
            assert_memory_equal(control.slots, known.control.slots,
                                control.slot_count * sizeof(control.slots[0]));
        } else if (has_length(control.type)) {
            assert_int_equal(control.length, known.control.length);
        }
        if (control.type == REGX_CONTROL_ATP_SLOT || control.type == REGX_CONTROL_ATP_CHUNK ||
            control.type == REGX_CONTROL_RKEY || control.type == REGX_CONTROL_ARRIVED) {
            assert_int_equal(control.has_checksum, i >= CHECKED_FORMS);
            assert_int_equal(control.checksum, i >= CHECKED_FORMS ? A_CHECKSUM : 0);
        }
        if (control.type == REGX_CONTROL_CTS_CHUNK || control.type == REGX_CONTROL_RKEY) {
            assert_int_equal(control.start, A_START);
            assert_memory_equal(&control.key, &known.control.key, sizeof(control.key));
        }
    }
}

/* What has a checksum has two: it may be missing. */
static void messages_of_another_length_are_refused(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FORMS; i++) {
        const form_t known = form(i);

        for (size_t size = 0; size <= REGX_CTS_SIZE; size++) {
            regx_control_t control;

            const bool notice = known.control.type == REGX_CONTROL_ATP_SLOT ||
                                known.control.type == REGX_CONTROL_ATP_CHUNK;

            const bool advertised = known.control.type == REGX_CONTROL_RKEY;
            const bool arrived = known.control.type == REGX_CONTROL_ARRIVED;

            assert_int_equal(unpack(known.bytes.at, size, &control),
                             notice       ? size == 40 || size == 48
                             : advertised ? size == 64 || size == 72
                             : arrived    ? size == 24 || size == 32
                                          : size == known.bytes.length);
        }
    }
}

/* Whether byte `b` of a form may be anything but what it is: numbers that only the addressee can
 * judge. */
static bool is_free(const form_t *form, size_t b)
{
    const bool from_receiver = form->control.type >= REGX_CONTROL_CTS_SLOTS;
    const bool has_slot = form->control.type == REGX_CONTROL_ATP_SLOT;

    if (from_receiver) {
        return (b >= 4 && b < 12) || b >= (form->control.type == REGX_CONTROL_CTS_CHUNK ? 12 : 16);
    }
    return (b >= 4 && b < 20) || b >= 24 ||
           ((has_slot || form->control.type == REGX_CONTROL_RKEY) && b >= 20);
}

static bool shares_length(regx_control_type_t type)
{
    return type == REGX_CONTROL_ATS || !has_length(type);
}

static void messages_with_any_byte_changed_are_refused_or_understood(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FORMS; i++) {
        const form_t known = form(i);

        for (size_t b = 0; b < known.bytes.length; b++) {
            for (unsigned value = 0; value < 256; value++) {
                bytes_t bytes = known.bytes;
                const bool same = bytes.at[b] == value;
                bool good;

                bytes.at[b] = (uint8_t)value;
                good = refused_or_understood(bytes.at, bytes.length);
                if (is_free(&known, b) || same) {
                    assert_true(good);
                } else if (b == 1 && shares_length(known.control.type)) {
                    continue; /* it may be another one, which was understood */
                } else if (b == 1) {
                    /* The three types of this form differ in what else they may hold. */
                    const bool three = known.control.type >= REGX_CONTROL_ATP_SLOT &&
                                       known.control.type <= REGX_CONTROL_NACK;
                    const uint32_t field = bytes.at[20] + bytes.at[21];
                    const bool checked = i >= CHECKED_FORMS;

                    assert_int_equal(
                        good, three && (value == REGX_CONTROL_ATP_SLOT ||
                                        (value == REGX_CONTROL_ATP_CHUNK && field == 0) ||
                                        (value == REGX_CONTROL_NACK && field < 3 && !checked)));
                } else if (b == 20 && known.control.type == REGX_CONTROL_NACK) {
                    assert_int_equal(good, value <= 2);
                } else if (b == 12 && known.control.type == REGX_CONTROL_ATS) {
                    assert_int_equal(good, value <= 2);
                } else {
                    assert_false(good);
                }
            }
        }
    }
}

static void random_messages_are_refused_or_understood(void **state)
{
    uint64_t seed = 17;
    unsigned understood = 0;

    (void)state;
    for (unsigned i = 0; i < 300000; i++) {
        static const size_t sizes[] = {20, 24, 32, 40, 48, 56, 64, 72};
        uint64_t words[9];
        uint8_t *bytes = (uint8_t *)words;
        const size_t size = i % 2 == 0 ? sizes[chance_next(&seed) % 8]
                                       : chance_next(&seed) % (REGX_CONTROL_MAX + 1);

        for (unsigned w = 0; w < 9; w++) {
            words[w] = chance_next(&seed);
        }
        if (i % 4 == 0) { /* of these a part is understood */
            bytes[0] = REGX_CONTROL_VERSION;
            bytes[1] %= REGX_CONTROL_RESUME + 1;
            bytes[2] %= 6;
            bytes[3] = 0;
            memset(bytes + 12, 0, 4);
        }
        understood += refused_or_understood(bytes, size);
    }
    assert_in_range(understood, 1000, 299000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_have_the_documented_bytes),
        cmocka_unit_test(messages_of_another_length_are_refused),
        cmocka_unit_test(messages_with_any_byte_changed_are_refused_or_understood),
        cmocka_unit_test(random_messages_are_refused_or_understood),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
