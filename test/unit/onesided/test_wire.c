/* SPDX-License-Identifier: BSD-3-Clause */
#include "../unit.h"

#include "onesided/wire.h"

static const regx_onesided_message_t messages[] = {
    {.type = REGX_ONESIDED_PUT, .detail = 1, .request = {1, 2}, .window = {3, 4}, .address = 5},
    {.type = REGX_ONESIDED_GET,
     .request = {1, 2},
     .window = {3, 4},
     .address = 5,
     .value = 1ull << 40},
    {.type = REGX_ONESIDED_ATOMIC,
     .detail = REGX_ONESIDED_COMPARE_SWAP,
     .size = 8,
     .request = {1, 2},
     .window = {3, 4},
     .address = 16,
     .value = UINT64_MAX - 1,
     .compare = UINT64_MAX - 2},
    {.type = REGX_ONESIDED_REPLY, .detail = 1, .request = {1, 2}, .value = UINT64_MAX},
    {.type = REGX_ONESIDED_DATA, .request = {1, 2}, .value = 1ull << 40},
};

enum { ATOMIC = 2 }; /* among them */

static const size_t count = sizeof(messages) / sizeof(messages[0]);

static bool has_data(regx_onesided_type_t type)
{
    return type == REGX_ONESIDED_PUT || type == REGX_ONESIDED_DATA;
}

static void each_message_comes_out_as_it_went_in(void **state)
{
    (void)state;
    for (size_t i = 0; i < count; i++) {
        const regx_onesided_message_t *in = &messages[i];
        uint8_t bytes[REGX_ONESIDED_HEADER + 3] = {0};
        regx_onesided_message_t out;
        const size_t more = has_data(in->type) ? 3 : 0;

        regx_onesided_pack(in, bytes);
        assert_true(regx_onesided_unpack(bytes, REGX_ONESIDED_HEADER + more, &out));
        assert_true(out.type == in->type && out.detail == in->detail && out.size == in->size);
        assert_memory_equal(&out.request, &in->request, sizeof(in->request));
        assert_memory_equal(&out.window, &in->window, sizeof(in->window));
        assert_true(out.address == in->address && out.value == in->value);
        assert_true(out.compare == in->compare);
        assert_true(out.data == bytes + REGX_ONESIDED_HEADER && out.data_length == more);
    }
}

static void a_frame_that_is_cut_or_too_long_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < count; i++) {
        uint8_t bytes[REGX_ONESIDED_HEADER + 1] = {0};
        regx_onesided_message_t out;

        regx_onesided_pack(&messages[i], bytes);
        for (size_t cut = 0; cut < REGX_ONESIDED_HEADER; cut++) {
            assert_false(regx_onesided_unpack(bytes, cut, &out));
        }
        assert_int_equal(regx_onesided_unpack(bytes, sizeof(bytes), &out),
                         has_data(messages[i].type));
    }
}

static void refuse(size_t which, size_t at, uint8_t value)
{
    uint8_t bytes[REGX_ONESIDED_HEADER];
    regx_onesided_message_t out;

    regx_onesided_pack(&messages[which], bytes);
    bytes[at] = value;
    assert_false(regx_onesided_unpack(bytes, sizeof(bytes), &out));
}

static void what_no_process_sends_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < count; i++) {
        refuse(i, 0, 1); /* another version */
        refuse(i, 1, 0); /* no such types */
        refuse(i, 1, REGX_ONESIDED_TYPES);
        refuse(i, 1, 255);
    }
    refuse(ATOMIC, 2, REGX_ONESIDED_OPS); /* no such operation */
    refuse(ATOMIC, 3, 0);                 /* numbers of no or another size */
    refuse(ATOMIC, 3, 2);
    refuse(ATOMIC, 3, 16);
    refuse(ATOMIC, 24, 20); /* not at a multiple of their size */
}

static void a_name_comes_out_as_it_went_in(void **state)
{
    const regx_onesided_name_t in = {{7, 8}, UINT64_MAX - 4, 1ull << 40};
    uint8_t bytes[REGX_ONESIDED_NAME_SIZE];
    regx_onesided_name_t out;

    (void)state;
    regx_onesided_name_pack(&in, bytes);
    assert_true(regx_onesided_name_is(bytes));
    regx_onesided_name_unpack(bytes, &out);
    assert_memory_equal(&out.handle, &in.handle, sizeof(in.handle));
    assert_true(out.base == in.base && out.length == in.length);
    bytes[1] = 0;
    assert_false(regx_onesided_name_is(bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_message_comes_out_as_it_went_in),
        cmocka_unit_test(a_frame_that_is_cut_or_too_long_is_refused),
        cmocka_unit_test(what_no_process_sends_is_refused),
        cmocka_unit_test(a_name_comes_out_as_it_went_in),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
