/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The CTS: its bytes are the documented ones; one that is malformed is refused, and nothing outside
 * it is read.
 */
#include "control_bytes.h"

#include <stdlib.h>

#include "rendezvous/engine.h"
#include "rendezvous/send.h"
#include "rendezvous/strategy.h"

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
    const bool revocable = which % 4 < 2;
    const bool optimistic = which % 6 < 3;
    cts_form_t form = {.cts = {.path = path,
                               .grants = slots  ? REGX_GRANTS_SLOTS
                                         : read ? REGX_GRANTS_RKEYS
                                                : REGX_GRANTS_CHUNK,
                               .fallback = fallback,
                               .verify = verify,
                               .pieces = pieces,
                               .suspect = suspect,
                               .revocable = revocable,
                               .optimistic = optimistic,
                               .recv = control_to,
                               .length = A_LENGTH}};

    form.bytes = bytes_head((uint8_t)path, (uint16_t)(slots ? which : read ? 64 : chunk));
    bytes_add(&form.bytes,
              (fallback ? 1u : 0) + (verify ? 2u : 0) + (pieces ? 4u : 0) + (suspect ? 8u : 0) +
                  (revocable ? 16u : 0) + (optimistic ? 32u : 0),
              4);
    bytes_add(&form.bytes, A_LENGTH, 8);
    if (slots) {
        form.cts.slot_count = which;
        for (uint32_t i = 0; i < which; i++) {
            form.cts.slots[i] = (regx_slot_grant_t){0x31323334 + i, 0x41424344 + i};
            bytes_add(&form.bytes, 0x31323334 + i, 4);
            bytes_add(&form.bytes, 0x41424344 + i, 4);
        }
    }
    if (chunk) {
        form.cts.chunk_length = A_OFFSET;
        form.cts.chunk_start = A_START;
        form.cts.key = control_key();
        bytes_add(&form.bytes, A_OFFSET, 8);
        bytes_add(&form.bytes, A_START, 8);
        bytes_add_key(&form.bytes);
    }
    if (read) {
        form.cts.rkeys = 64;
        form.cts.rkey_max = A_OFFSET + 1;
        bytes_add(&form.bytes, A_OFFSET + 1, 8);
    }
    form.used = form.bytes.length;
    form.bytes.length = REGX_CTS_SIZE; /* the rest is zero */
    return form;
}

static bool cts_unpack(const uint8_t *bytes, regx_cts_t *cts)
{
    static regx_rndv_t rndv; /* of which only the protocols matter */
    uint8_t *copy = malloc(REGX_CTS_SIZE + 1);
    bool good;

    assert_non_null(copy);
    memcpy(copy + 1, bytes, REGX_CTS_SIZE);
    memset(cts, 0x77, sizeof(*cts));
    if (rndv.protocols[REGX_PATH_bounce] == NULL) {
        regx_strategy_protocols(rndv.protocols);
    }
    good = regx_send_read_cts(&rndv, copy + 1, cts);
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
                cts.path == REGX_PATH_together || cts.path == REGX_PATH_remap);
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
        assert_true(cts.grants == REGX_GRANTS_CHUNK || cts.chunk_length == 0);
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
        assert_int_equal(cts.grants, known.cts.grants);
        assert_int_equal(cts.fallback, known.cts.fallback);
        assert_int_equal(cts.verify, known.cts.verify);
        assert_int_equal(cts.pieces, known.cts.pieces);
        assert_memory_equal(&cts.recv, &control_to, sizeof(control_to));
        assert_int_equal(cts.length, A_LENGTH);
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
                    assert_int_equal(good, value <= 63);
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
            const bool writes =
                path == REGX_PATH_pipeline || path == REGX_PATH_direct || path == REGX_PATH_remap;
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

static void a_cts_is_no_exposure(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CTS_FORMS; i++) {
        const cts_form_t form = cts_form(i);
        regx_exposure_t exposure;

        assert_false(regx_exposure_is(form.bytes.at)); /* neither is taken for the other */
        assert_false(regx_exposure_unpack(form.bytes.at, &exposure));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cts_has_the_documented_bytes),
        cmocka_unit_test(a_cts_with_any_byte_changed_is_refused_or_understood),
        cmocka_unit_test(a_cts_with_an_unknown_path_or_count_is_refused),
        cmocka_unit_test(a_cts_with_an_empty_chunk_is_refused),
        cmocka_unit_test(a_cts_is_no_exposure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
