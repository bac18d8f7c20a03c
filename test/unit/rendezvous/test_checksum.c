/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The checksum: it is XXH64, and every byte counts, wherever the data lies.
 */
#include "../unit.h"

#include <stdlib.h>

#include "rendezvous/checksum.h"

enum { LENGTH = 300 };

/* From XXH64's description and its Python binding's. */
static void known_values_are_those_of_xxh64(void **state)
{
    static const struct {
        const char *text;
        uint64_t sum;
    } known[] = {{"", UINT64_C(0xef46db3751d8e999)},
                 {"a", UINT64_C(0xd24ec4f1a98c6e5b)},
                 {"abc", UINT64_C(0x44bc2cf5ad770999)},
                 {"Nobody inspects the spammish repetition", UINT64_C(0xfbcea83c8a378bf1)}};

    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        assert_true(regx_checksum(known[i].text, strlen(known[i].text)) == known[i].sum);
    }
}

/* Copies that have nothing around them, so that reading outside is found. */
static void bytes_around_do_not_count(void **state)
{
    uint8_t data[LENGTH];

    (void)state;
    for (size_t i = 0; i < LENGTH; i++) {
        data[i] = unit_stamp(5, i);
    }
    for (size_t length = 0; length <= LENGTH; length++) {
        uint8_t *copy = malloc(length + 1);

        assert_non_null(copy);
        memcpy(copy + 1, data, length); /* and at an odd address */
        assert_true(regx_checksum(copy + 1, length) == regx_checksum(data, length));
        free(copy);
    }
}

static void every_bit_and_the_length_count(void **state)
{
    uint8_t data[LENGTH];

    (void)state;
    memset(data, 0, sizeof(data)); /* what a page that is not there yet would hold */
    for (size_t length = 1; length <= LENGTH; length++) {
        const uint64_t sum = regx_checksum(data, length);

        assert_true(sum != regx_checksum(data, length - 1));
        for (size_t bit = 0; bit < 8 * length; bit += length < 80 ? 1 : 7) {
            data[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_true(sum != regx_checksum(data, length));
            data[bit / 8] = 0;
        }
    }
}

/* Two blocks that changed places, and a bit that changed in both. */
static void the_order_of_bytes_counts(void **state)
{
    uint8_t data[4 * 32];

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = unit_stamp(6, i);
    }
    const uint64_t sum = regx_checksum(data, sizeof(data));
    for (size_t size = 8; size <= 32; size *= 2) {
        for (size_t at = 0; at + 2 * size <= sizeof(data); at += size) {
            uint8_t other[sizeof(data)];

            memcpy(other, data, sizeof(data));
            memcpy(other + at, data + at + size, size);
            memcpy(other + at + size, data + at, size);
            assert_true(sum != regx_checksum(other, sizeof(other)));
            memcpy(other, data, sizeof(data));
            other[at + 7] ^= 0x80;
            other[at + size + 7] ^= 0x80;
            assert_true(sum != regx_checksum(other, sizeof(other)));
        }
    }
    data[39] ^= 0x80; /* the highest bit of the same lane in two blocks */
    data[71] ^= 0x80;
    assert_true(sum != regx_checksum(data, sizeof(data)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values_are_those_of_xxh64),
        cmocka_unit_test(bytes_around_do_not_count),
        cmocka_unit_test(every_bit_and_the_length_count),
        cmocka_unit_test(the_order_of_bytes_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
