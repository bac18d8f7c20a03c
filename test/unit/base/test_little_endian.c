/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Numbers in messages: which byte lies where, and that no other byte is touched.
 */
#include "../unit.h"

#include "base/little_endian.h"

#define VALUE UINT64_C(0xf8e7d6c5b4a39281)

static const uint8_t wire[] = {0x81, 0x92, 0xa3, 0xb4, 0xc5, 0xd6, 0xe7, 0xf8};

static void the_lowest_byte_goes_first_and_no_more_is_written(void **state)
{
    (void)state;
    for (unsigned size = 0; size <= 8; size++) {
        uint8_t bytes[12];

        memset(bytes, 0x5a, sizeof(bytes));
        regx_le_put(bytes + 1, VALUE, size); /* an odd address */
        assert_memory_equal(bytes + 1, wire, size);
        assert_int_equal(bytes[0], 0x5a);
        for (size_t i = 1 + size; i < sizeof(bytes); i++) {
            assert_int_equal(bytes[i], 0x5a);
        }
    }
}

static void what_is_read_has_no_more_bytes_than_were_asked_for(void **state)
{
    (void)state;
    for (unsigned size = 0; size <= 8; size++) {
        uint8_t bytes[12];

        memset(bytes, 0xff, sizeof(bytes));
        memcpy(bytes + 1, wire, size);
        assert_int_equal(regx_le_get(bytes + 1, size),
                         size == 8 ? VALUE : VALUE & ((UINT64_C(1) << 8 * size) - 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_byte_goes_first_and_no_more_is_written),
        cmocka_unit_test(what_is_read_has_no_more_bytes_than_were_asked_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
