/* SPDX-License-Identifier: BSD-3-Clause */
#include "../unit.h"

#include "onesided/atomic.h"

typedef struct row {
    regx_atomic_op_t op;
    uint64_t before, operand, after;
} row_t;

static const row_t rows[] = {
    {REGX_ATOMIC_ADD, UINT64_C(0x1ffffffff), 3, UINT64_C(0x200000002)},
    {REGX_ATOMIC_ADD, 5, (uint64_t)-7, (uint64_t)-2},
    {REGX_ATOMIC_AND, UINT64_C(0xff00ff00ff00ff00), UINT64_C(0x0ff00ff00ff00ff0),
     UINT64_C(0x0f000f000f000f00)},
    {REGX_ATOMIC_OR, UINT64_C(0xff00000000000001), 0x10, UINT64_C(0xff00000000000011)},
    {REGX_ATOMIC_XOR, UINT64_C(0xffffffffffffffff), UINT64_C(0x8000000080000000),
     UINT64_C(0x7fffffff7fffffff)},
    {REGX_ATOMIC_SWAP, UINT64_C(0x123456789abcdef0), 9, 9},
};

static void eight_bytes_leave_their_neighbours_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t numbers[3] = {1, rows[i].before, 2};

        assert_int_equal(regx_atomic_fetch(&numbers[1], rows[i].op, 8, rows[i].operand),
                         rows[i].before);
        assert_int_equal(numbers[1], rows[i].after);
        assert_true(numbers[0] == 1 && numbers[2] == 2);
    }
}

static void four_bytes_leave_their_neighbours_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint32_t numbers[3] = {1, (uint32_t)rows[i].before, 2};

        assert_int_equal(regx_atomic_fetch(&numbers[1], rows[i].op, 4, rows[i].operand),
                         (uint32_t)rows[i].before);
        assert_int_equal(numbers[1], (uint32_t)rows[i].after);
        assert_true(numbers[0] == 1 && numbers[2] == 2);
    }
}

static void compare_and_swap_writes_only_what_is_equal(void **state)
{
    uint64_t eight = 7;
    uint32_t four[2] = {7, 1};

    (void)state;
    assert_int_equal(regx_atomic_compare_swap(&eight, 8, 8, 9), 7);
    assert_int_equal(eight, 7);
    assert_int_equal(regx_atomic_compare_swap(&eight, 8, 7, UINT64_MAX), 7);
    assert_int_equal(eight, UINT64_MAX);
    assert_int_equal(regx_atomic_compare_swap(four, 4, UINT64_C(0x500000007), 9), 7);
    assert_int_equal(four[0], 9);
    assert_int_equal(regx_atomic_compare_swap(four, 4, 7, 3), 9);
    assert_true(four[0] == 9 && four[1] == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_bytes_leave_their_neighbours_alone),
        cmocka_unit_test(four_bytes_leave_their_neighbours_alone),
        cmocka_unit_test(compare_and_swap_writes_only_what_is_equal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
