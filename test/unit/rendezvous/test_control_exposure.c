/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The exposure: its bytes are the documented ones, and one that is malformed is refused.
 */
#include "control_bytes.h"

static bytes_t exposure_bytes(bool has_checksum)
{
    bytes_t bytes = {.length = 0};

    bytes_add(&bytes, 9, 1);
    bytes_add(&bytes, 255, 1);
    bytes_add(&bytes, 0, 2);
    bytes_add(&bytes, has_checksum, 4);
    bytes_add(&bytes, A_LENGTH, 8);
    bytes_add_key(&bytes);
    bytes_add(&bytes, A_START + 7, 8);
    bytes_add(&bytes, has_checksum ? A_START : 0, 8);
    bytes.length = REGX_CTS_SIZE; /* the rest is zero */
    return bytes;
}

static void the_exposure_has_the_documented_bytes(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        const bytes_t bytes = exposure_bytes(i == 1);
        const regx_exposure_t exposure = {.length = A_LENGTH,
                                          .key = control_key(),
                                          .start = A_START + 7,
                                          .has_checksum = i == 1,
                                          .checksum = A_START};
        uint8_t packed[REGX_CTS_SIZE];
        regx_exposure_t seen;

        memset(packed, 0x77, sizeof(packed));
        regx_exposure_pack(&exposure, packed);
        assert_memory_equal(packed, bytes.at, REGX_CTS_SIZE);
        assert_true(regx_exposure_is(packed));
        assert_true(regx_exposure_unpack(packed, &seen));
        assert_int_equal(seen.length, A_LENGTH);
        assert_memory_equal(&seen.key, &exposure.key, sizeof(seen.key));
        assert_true(seen.start == A_START + 7);
        assert_int_equal(seen.has_checksum, i == 1);
        assert_true(i == 0 || seen.checksum == A_START);
        assert_true(regx_cts_path(packed) >= REGX_PATH_COUNT); /* it is no CTS */
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
        cmocka_unit_test(the_exposure_has_the_documented_bytes),
        cmocka_unit_test(an_exposure_that_is_malformed_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
