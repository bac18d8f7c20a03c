/* SPDX-License-Identifier: BSD-3-Clause */
#include "../unit.h"

#include "onesided/atomic.h"
#include "onesided/wire.h"

static const regx_onesided_message_t messages[] = {
    {.type = REGX_ONESIDED_PUT, .detail = 1, .request = {1, 2}, .window = {3, 4}, .address = 5},
    {.type = REGX_ONESIDED_GET,
     .request = {1, 2},
     .window = {3, 4},
     .address = 5,
     .length = 1ull << 40},
    {.type = REGX_ONESIDED_ATOMIC,
     .detail = REGX_ATOMIC_XOR,
     .size = 4,
     .request = {1, 2},
     .window = {3, 4},
     .address = 12,
     .operand = UINT64_MAX - 1},
    {.type = REGX_ONESIDED_SWAP,
     .size = 8,
     .request = {1, 2},
     .window = {3, 4},
     .address = 16,
     .operand = 6,
     .compare = 7},
    {.type = REGX_ONESIDED_REPLY, .detail = 1, .request = {1, 2}, .operand = UINT64_MAX},
    {.type = REGX_ONESIDED_DATA, .request = {1, 2}, .operand = 1ull << 40},
};

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
        uint8_t bytes[REGX_ONESIDED_HEADER_MAX + 3] = {0};
        regx_onesided_message_t out;
        const size_t length = regx_onesided_pack(in, bytes);
        const size_t more = has_data(in->type) ? 3 : 0;

        assert_true(length <= REGX_ONESIDED_HEADER_MAX);
        assert_true(regx_onesided_unpack(bytes, length + more, &out));
        assert_true(out.type == in->type && out.detail == in->detail && out.size == in->size);
        assert_memory_equal(&out.request, &in->request, sizeof(in->request));
        assert_true(out.address == in->address && out.length == in->length);
        assert_true(out.operand == in->operand && out.compare == in->compare);
        assert_true(out.data == bytes + length && out.data_length == more);
        if (in->type < REGX_ONESIDED_REPLY) {
            assert_memory_equal(&out.window, &in->window, sizeof(in->window));
        }
    }
}

static void a_frame_that_is_cut_or_too_long_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < count; i++) {
        uint8_t bytes[REGX_ONESIDED_HEADER_MAX + 1] = {0};
        regx_onesided_message_t out;
        const size_t length = regx_onesided_pack(&messages[i], bytes);

        for (size_t cut = 0; cut < length; cut++) {
            assert_false(regx_onesided_unpack(bytes, cut, &out));
        }
        assert_int_equal(regx_onesided_unpack(bytes, length + 1, &out), has_data(messages[i].type));
    }
}

static void refuse(size_t which, size_t at, uint8_t value)
{
    uint8_t bytes[REGX_ONESIDED_HEADER_MAX];
    regx_onesided_message_t out;
    const size_t length = regx_onesided_pack(&messages[which], bytes);

    bytes[at] = value;
    assert_false(regx_onesided_unpack(bytes, length, &out));
}

static void what_no_process_sends_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < count; i++) {
        refuse(i, 0, 2); /* another version */
        refuse(i, 1, 0); /* no such types */
        refuse(i, 1, 7);
        refuse(i, 1, 255);
    }
    refuse(2, 2, REGX_ATOMIC_OPS); /* no such operation */
    refuse(2, 3, 0);               /* numbers of no or another size */
    refuse(2, 3, 2);
    refuse(3, 3, 16);
    refuse(2, 24, 13); /* not at a multiple of their size */
    refuse(3, 24, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_message_comes_out_as_it_went_in),
        cmocka_unit_test(a_frame_that_is_cut_or_too_long_is_refused),
        cmocka_unit_test(what_no_process_sends_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
