/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The control messages: their bytes are the documented ones; whatever arrives is either refused or
 * is exactly what packing it again gives, and nothing outside it is read.
 */
#include "../unit.h"

#include <stdlib.h>

#include "rendezvous/control.h"

/* ---- bytes written by hand, from the description in control.h ---- */

typedef struct bytes {
    uint8_t at[REGX_CTS_SIZE];
    size_t length;
} bytes_t;

static void add(bytes_t *bytes, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        bytes->at[bytes->length++] = (uint8_t)(value >> (8 * i));
    }
}

static bytes_t head(uint8_t type, uint16_t grants)
{
    bytes_t bytes = {.length = 0};

    add(&bytes, 6, 1);
    add(&bytes, type, 1);
    add(&bytes, grants, 2);
    add(&bytes, 0x11223344, 4);
    add(&bytes, 0x55667788, 4);
    return bytes;
}

static void add_key(bytes_t *bytes)
{
    for (unsigned i = 0; i < REGX_KEY_SIZE; i++) {
        add(bytes, 0xa0 + i, 1);
    }
}

static regx_key_t key(void)
{
    regx_key_t key;

    for (unsigned i = 0; i < REGX_KEY_SIZE; i++) {
        key.bytes[i] = (uint8_t)(0xa0 + i);
    }
    return key;
}

static const regx_handle_t to = {.id = 0x11223344, .generation = 0x55667788};
static const regx_handle_t from = {.id = 0x99aabbcc, .generation = 0xddeeff01};
static const uint64_t offset = UINT64_C(0x0102030405060708);
static const uint64_t length = UINT64_C(0x1112131415161718);
static const uint64_t start = UINT64_C(0x5152535455565758);
static const uint64_t checksum = UINT64_C(0x6162636465666768);

/* One message of each form, and what it is. */
enum {
    CHUNK_FORM = 4,
    EXPOSED_FORM,
    GOT_FORM,
    SLOTS_FORMS,
    CHECKED_FORMS = SLOTS_FORMS + REGX_MESSAGE_SLOTS,
    CHECKED_EXPOSED_FORM = CHECKED_FORMS + 2,
    FORMS
};

typedef struct form {
    regx_control_t control;
    bytes_t bytes;
} form_t;

static form_t form_of_sender(unsigned which)
{
    form_t form = {.control = {.type = (regx_control_type_t)(REGX_CONTROL_READY + which),
                               .to = to,
                               .from = from}};

    form.bytes = head((uint8_t)(1 + which), 0);
    add(&form.bytes, from.id, 4);
    add(&form.bytes, from.generation, 4);
    if (which > 0) {
        form.control.slot = which == 1 ? 0x21222324 : 0;
        form.control.permanent = which == 3;
        form.control.offset = offset;
        form.control.length = length;
        add(&form.bytes, which == 3 ? 1 : form.control.slot, 4);
        add(&form.bytes, offset, 8);
        add(&form.bytes, length, 8);
    }
    return form;
}

static form_t form_of_chunk(void)
{
    form_t form = {.control = {.type = REGX_CONTROL_CTS_CHUNK, .to = to}};

    form.control.offset = offset;
    form.control.length = (uint32_t)length;
    form.control.start = start;
    form.control.key = key();
    form.bytes = head(7, 0);
    add(&form.bytes, (uint32_t)length, 4);
    add(&form.bytes, offset, 8);
    add(&form.bytes, start, 8);
    add_key(&form.bytes);
    return form;
}

static form_t form_of_rkey(void)
{
    form_t form = {.control = {.type = REGX_CONTROL_RKEY, .to = to, .from = from}};

    form.control.offset = offset;
    form.control.length = (uint32_t)length;
    form.control.start = start;
    form.control.key = key();
    form.bytes = head(5, 0);
    add(&form.bytes, from.id, 4);
    add(&form.bytes, from.generation, 4);
    add(&form.bytes, (uint32_t)length, 4);
    add(&form.bytes, offset, 8);
    add(&form.bytes, start, 8);
    add_key(&form.bytes);
    return form;
}

static form_t form_of_got(void)
{
    form_t form = {.control = {.type = REGX_CONTROL_ATS, .to = to}};

    form.control.unread = form.control.failed = true;
    form.control.offset = offset;
    form.control.length = length;
    form.bytes = head(8, 0);
    add(&form.bytes, 2, 4);
    add(&form.bytes, offset, 8);
    add(&form.bytes, length, 8);
    return form;
}

static form_t form_of_slots(unsigned slots)
{
    form_t form = {.control = {.type = REGX_CONTROL_CTS_SLOTS, .to = to}};

    form.control.offset = offset;
    form.control.slot_count = slots;
    form.bytes = head(6, (uint16_t)slots);
    add(&form.bytes, 0, 4);
    add(&form.bytes, offset, 8);
    for (uint32_t i = 0; i < slots; i++) {
        form.control.slots[i] = (regx_slot_grant_t){0x31323334 + i, 0x41424344 + i};
        add(&form.bytes, 0x31323334 + i, 4);
        add(&form.bytes, 0x41424344 + i, 4);
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
    if (which >= SLOTS_FORMS && which < CHECKED_FORMS) {
        return form_of_slots(which - SLOTS_FORMS + 1);
    }
    if (which == EXPOSED_FORM) {
        return form_of_rkey();
    }
    form_t form = which == CHECKED_EXPOSED_FORM
                      ? form_of_rkey()
                      : form_of_sender(which - CHECKED_FORMS + 1); /* ATP or ATP */

    form.control.has_checksum = true;
    form.control.checksum = checksum;
    add(&form.bytes, checksum, 8);
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
        assert_memory_equal(&control.to, &to, sizeof(to));
        if (control.type <= REGX_CONTROL_RKEY) {
            assert_memory_equal(&control.from, &from, sizeof(from));
        }
        if (control.type != REGX_CONTROL_READY) {
            assert_int_equal(control.offset, offset);
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
        } else if (control.type != REGX_CONTROL_READY) {
            assert_int_equal(control.length, known.control.length);
        }
        if (control.type == REGX_CONTROL_ATP_SLOT || control.type == REGX_CONTROL_ATP_CHUNK ||
            control.type == REGX_CONTROL_RKEY) {
            assert_int_equal(control.has_checksum, i >= CHECKED_FORMS);
            assert_int_equal(control.checksum, i >= CHECKED_FORMS ? checksum : 0);
        }
        if (control.type == REGX_CONTROL_CTS_CHUNK || control.type == REGX_CONTROL_RKEY) {
            assert_int_equal(control.start, start);
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

            assert_int_equal(unpack(known.bytes.at, size, &control),
                             notice       ? size == 40 || size == 48
                             : advertised ? size == 64 || size == 72
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
        static const size_t sizes[] = {20, 32, 40, 48, 56, 64, 72};
        uint64_t words[9];
        uint8_t *bytes = (uint8_t *)words;
        const size_t size = i % 2 == 0 ? sizes[chance_next(&seed) % 7]
                                       : chance_next(&seed) % (REGX_CONTROL_MAX + 1);

        for (unsigned w = 0; w < 9; w++) {
            words[w] = chance_next(&seed);
        }
        if (i % 4 == 0) { /* of these a part is understood */
            bytes[0] = 6;
            bytes[1] %= 10;
            bytes[2] %= 6;
            bytes[3] = 0;
            memset(bytes + 12, 0, 4);
        }
        understood += refused_or_understood(bytes, size);
    }
    assert_in_range(understood, 1000, 299000);
}

/* ---- the CTS ---- */

enum { CTS_READ = REGX_CTS_SLOTS + 1 + 4, CTS_TOGETHER, CTS_FORMS };

typedef struct cts_form {
    regx_cts_t cts;
    bytes_t bytes;
    size_t used; /* bytes that mean something */
} cts_form_t;

static cts_form_t cts_form(unsigned which)
{
    const bool slots = which <= REGX_CTS_SLOTS;
    const unsigned rest = which - REGX_CTS_SLOTS - 1;
    const bool read = which >= CTS_READ;
    const bool chunk = !slots && !read && rest % 2 == 1;
    const regx_path_t path = slots                   ? REGX_PATH_bounce
                             : which == CTS_READ     ? REGX_PATH_read
                             : which == CTS_TOGETHER ? REGX_PATH_together
                             : rest < 2              ? REGX_PATH_pipeline
                                                     : REGX_PATH_direct;
    const bool fallback = which % 3 == 0;
    const bool verify = which % 2 == 0;
    const bool pieces = which % 5 < 2;
    const bool suspect = which % 7 < 3;
    cts_form_t form = {.cts = {.path = path,
                               .fallback = fallback,
                               .verify = verify,
                               .pieces = pieces,
                               .suspect = suspect,
                               .recv = to,
                               .length = length}};

    form.bytes = head((uint8_t)path, (uint16_t)(slots ? which : read ? 64 : chunk));
    add(&form.bytes,
        (fallback ? 1u : 0) + (verify ? 2u : 0) + (pieces ? 4u : 0) + (suspect ? 8u : 0), 4);
    add(&form.bytes, length, 8);
    if (slots) {
        form.cts.slot_count = which;
        for (uint32_t i = 0; i < which; i++) {
            form.cts.slots[i] = (regx_slot_grant_t){0x31323334 + i, 0x41424344 + i};
            add(&form.bytes, 0x31323334 + i, 4);
            add(&form.bytes, 0x41424344 + i, 4);
        }
    }
    if (chunk) {
        form.cts.chunk_length = offset;
        form.cts.chunk_start = start;
        form.cts.key = key();
        add(&form.bytes, offset, 8);
        add(&form.bytes, start, 8);
        add_key(&form.bytes);
    }
    if (read) {
        form.cts.rkeys = 64;
        form.cts.rkey_max = offset + 1;
        add(&form.bytes, offset + 1, 8);
    }
    form.used = form.bytes.length;
    form.bytes.length = REGX_CTS_SIZE; /* the rest is zero */
    return form;
}

static bool cts_unpack(const uint8_t *bytes, regx_cts_t *cts)
{
    uint8_t *copy = malloc(REGX_CTS_SIZE + 1);
    bool good;

    assert_non_null(copy);
    memcpy(copy + 1, bytes, REGX_CTS_SIZE);
    memset(cts, 0x77, sizeof(*cts));
    good = regx_cts_unpack(copy + 1, cts);
    free(copy);
    return good;
}

/* As refused_or_understood, for the bytes that mean something. */
static bool cts_refused_or_understood(const uint8_t *bytes)
{
    uint8_t again[REGX_CTS_SIZE];
    regx_cts_t cts;
    size_t used = 24;

    if (!cts_unpack(bytes, &cts)) {
        return false;
    }
    assert_true(cts.path == REGX_PATH_bounce || cts.path == REGX_PATH_pipeline ||
                cts.path == REGX_PATH_direct || cts.path == REGX_PATH_read ||
                cts.path == REGX_PATH_together);
    if (cts.path == REGX_PATH_read || cts.path == REGX_PATH_together) {
        assert_in_range(cts.rkeys, 1, 64);
        assert_true(cts.rkey_max > 0);
        used += 8;
    } else {
        assert_int_equal(cts.rkeys, 0);
    }
    if (cts.path == REGX_PATH_bounce) {
        assert_in_range(cts.slot_count, 0, REGX_CTS_SLOTS);
        assert_int_equal(cts.chunk_length, 0);
        used += 8 * (size_t)cts.slot_count;
    } else {
        assert_int_equal(cts.slot_count, 0);
        assert_true(!regx_path_reads(cts.path) || cts.chunk_length == 0);
        used += cts.chunk_length > 0 ? 40 : 0;
    }
    regx_cts_pack(&cts, again);
    assert_memory_equal(again, bytes, used);
    return true;
}

static void the_cts_has_the_documented_bytes(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CTS_FORMS; i++) {
        const cts_form_t known = cts_form(i);
        uint8_t packed[REGX_CTS_SIZE + 8];
        regx_cts_t cts;

        memset(packed, 0x5a, sizeof(packed));
        regx_cts_pack(&known.cts, packed);
        assert_memory_equal(packed, known.bytes.at, REGX_CTS_SIZE);
        for (size_t b = REGX_CTS_SIZE; b < sizeof(packed); b++) {
            assert_int_equal(packed[b], 0x5a);
        }
        assert_true(cts_unpack(packed, &cts));
        assert_int_equal(cts.path, known.cts.path);
        assert_int_equal(cts.fallback, known.cts.fallback);
        assert_int_equal(cts.verify, known.cts.verify);
        assert_int_equal(cts.pieces, known.cts.pieces);
        assert_memory_equal(&cts.recv, &to, sizeof(to));
        assert_int_equal(cts.length, length);
        assert_int_equal(cts.slot_count, known.cts.slot_count);
        assert_int_equal(cts.suspect, known.cts.suspect);
        assert_int_equal(cts.rkeys, known.cts.rkeys);
        assert_int_equal(cts.rkey_max, known.cts.rkey_max);
        assert_memory_equal(cts.slots, known.cts.slots, sizeof(cts.slots));
        assert_int_equal(cts.chunk_length, known.cts.chunk_length);
        assert_int_equal(cts.chunk_start, known.cts.chunk_start);
        assert_memory_equal(&cts.key, &known.cts.key, sizeof(cts.key));
    }
}

static void a_cts_with_any_byte_changed_is_refused_or_understood(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CTS_FORMS; i++) {
        const cts_form_t known = cts_form(i);

        for (size_t b = 0; b < REGX_CTS_SIZE; b++) {
            for (unsigned value = 0; value < 256; value++) {
                bytes_t bytes = known.bytes;
                const bool same = bytes.at[b] == value;
                bool good;

                bytes.at[b] = (uint8_t)value;
                good = cts_refused_or_understood(bytes.at);
                if (same || (b >= 4 && b < 12) || (b >= 16 && b < known.used)) {
                    assert_true(good); /* the addressee judges */
                } else if (b == 12) {
                    assert_int_equal(good, value <= 15);
                } else if (b == 0 || (b > 12 && b < 16)) {
                    assert_false(good);
                }
            }
        }
    }
}

static void a_cts_with_an_unknown_path_or_count_is_refused(void **state)
{
    (void)state;
    for (unsigned path = 0; path < 256; path++) {
        for (unsigned count = 0; count <= UINT16_MAX; count += count < 300 ? 1 : 251) {
            cts_form_t known = cts_form(REGX_CTS_SLOTS);
            const bool reads = path == REGX_PATH_read || path == REGX_PATH_together;
            const bool writes = path == REGX_PATH_pipeline || path == REGX_PATH_direct;
            const unsigned most = path == REGX_PATH_bounce ? REGX_CTS_SLOTS
                                  : reads                  ? 64
                                  : writes                 ? 1
                                                           : 0;
            const bool known_path = most > 0;
            const unsigned fewest = reads;

            known.bytes.at[1] = (uint8_t)path;
            known.bytes.at[2] = (uint8_t)count;
            known.bytes.at[3] = (uint8_t)(count >> 8);
            assert_int_equal(cts_refused_or_understood(known.bytes.at),
                             known_path && count >= fewest && count <= most);
        }
    }
}

static void a_cts_with_an_empty_chunk_is_refused(void **state)
{
    static const struct {
        unsigned form;
        size_t at;
    } lengths[] = {{REGX_CTS_SLOTS + 2, 24}, {CTS_READ, 24}, {CTS_TOGETHER, 24}};

    (void)state;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        cts_form_t known = cts_form(lengths[i].form);

        assert_true(cts_refused_or_understood(known.bytes.at));
        memset(known.bytes.at + lengths[i].at, 0, 8);
        assert_false(cts_refused_or_understood(known.bytes.at));
    }
}

/* ---- the exposure ---- */

static bytes_t exposure_bytes(bool has_checksum)
{
    bytes_t bytes = {.length = 0};

    add(&bytes, 6, 1);
    add(&bytes, 255, 1);
    add(&bytes, 0, 2);
    add(&bytes, has_checksum, 4);
    add(&bytes, length, 8);
    add_key(&bytes);
    add(&bytes, has_checksum ? start : 0, 8);
    bytes.length = REGX_CTS_SIZE; /* the rest is zero */
    return bytes;
}

static void the_exposure_has_the_documented_bytes(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        const bytes_t bytes = exposure_bytes(i == 1);
        const regx_exposure_t exposure = {
            .length = length, .key = key(), .has_checksum = i == 1, .checksum = start};
        uint8_t packed[REGX_CTS_SIZE];
        regx_exposure_t seen;
        regx_cts_t cts;

        memset(packed, 0x77, sizeof(packed));
        regx_exposure_pack(&exposure, packed);
        assert_memory_equal(packed, bytes.at, REGX_CTS_SIZE);
        assert_true(regx_exposure_is(packed));
        assert_true(regx_exposure_unpack(packed, &seen));
        assert_int_equal(seen.length, length);
        assert_memory_equal(&seen.key, &exposure.key, sizeof(seen.key));
        assert_int_equal(seen.has_checksum, i == 1);
        assert_true(i == 0 || seen.checksum == start);
        assert_false(regx_cts_unpack(packed, &cts)); /* neither is taken for the other */
    }
}

static void a_cts_is_no_exposure(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CTS_FORMS; i++) {
        const cts_form_t form = cts_form(i);
        regx_exposure_t exposure;

        assert_false(regx_exposure_is(form.bytes.at));
        assert_false(regx_exposure_unpack(form.bytes.at, &exposure));
    }
}

static void an_exposure_that_is_malformed_is_refused(void **state)
{
    regx_exposure_t exposure;

    (void)state;
    for (unsigned at = 0; at < 8; at++) {
        for (unsigned value = 1; value < 256; value++) {
            bytes_t bytes = exposure_bytes(true);

            bytes.at[at] ^= (uint8_t)value;
            assert_int_equal(regx_exposure_unpack(bytes.at, &exposure), at == 4 && value == 1);
        }
    }
    bytes_t bytes = exposure_bytes(true);
    memset(bytes.at + 8, 0, 8); /* of no length */
    assert_false(regx_exposure_unpack(bytes.at, &exposure));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_have_the_documented_bytes),
        cmocka_unit_test(messages_of_another_length_are_refused),
        cmocka_unit_test(messages_with_any_byte_changed_are_refused_or_understood),
        cmocka_unit_test(random_messages_are_refused_or_understood),
        cmocka_unit_test(the_cts_has_the_documented_bytes),
        cmocka_unit_test(a_cts_with_any_byte_changed_is_refused_or_understood),
        cmocka_unit_test(a_cts_with_an_unknown_path_or_count_is_refused),
        cmocka_unit_test(a_cts_with_an_empty_chunk_is_refused),
        cmocka_unit_test(the_exposure_has_the_documented_bytes),
        cmocka_unit_test(a_cts_is_no_exposure),
        cmocka_unit_test(an_exposure_that_is_malformed_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
