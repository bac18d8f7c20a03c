/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Addresses, hellos and keys of verbs as bytes.
 */
#include "../../unit.h"

#include "transport/verbs/key.h"
#include "transport/verbs/wire.h"

static const regx_verbs_address_t some_address = {.link_layer = REGX_VERBS_ETHERNET,
                                                  .gid_type = 2,
                                                  .mtu = 5,
                                                  .lid = 0x1234,
                                                  .pkey = 0xffff,
                                                  .qpn = 0x00abcdef,
                                                  .qkey = 0x12345678,
                                                  .gid = {0xfe, 0x80, [15] = 7}};

static const regx_verbs_hello_t some_hello = {.flags = REGX_VERBS_ASKS,
                                              .reads = 16,
                                              .qpn = 0x11,
                                              .psn = 0xfffffe,
                                              .known = 0x22,
                                              .from = 0x0102030405060708,
                                              .to = 0x1112131415161718,
                                              .pool = 0x7f0000001000,
                                              .pool_size = 1 << 20,
                                              .pool_key = 0x99,
                                              .address = some_address};

static void address_comes_back(void **state)
{
    uint8_t bytes[REGX_VERBS_ADDRESS_SIZE];
    regx_verbs_address_t address;

    (void)state;
    regx_verbs_address_pack(&some_address, bytes);
    assert_int_equal(regx_verbs_address_unpack(bytes, sizeof(bytes), &address), REGX_OK);
    assert_memory_equal(&address, &some_address, sizeof(address));
}

static void address_is_little_endian(void **state)
{
    uint8_t bytes[REGX_VERBS_ADDRESS_SIZE];

    (void)state;
    regx_verbs_address_pack(&some_address, bytes);
    assert_int_equal(bytes[0], REGX_VERBS_VERSION);
    assert_int_equal(bytes[4], 0x34);
    assert_int_equal(bytes[8], 0xef);
    assert_int_equal(bytes[12], 0x78);
}

/* Each of these bytes has values that mean nothing. */
static void malformed_address(void **state)
{
    const struct {
        size_t at;
        uint8_t value;
    } wrong[] = {{0, 0}, {0, REGX_VERBS_VERSION + 1}, {1, 0}, {1, 3}, {3, 0}, {3, 6}};
    uint8_t bytes[REGX_VERBS_ADDRESS_SIZE + 1] = {0};
    regx_verbs_address_t address;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        regx_verbs_address_pack(&some_address, bytes);
        bytes[wrong[i].at] = wrong[i].value;
        assert_int_equal(regx_verbs_address_unpack(bytes, REGX_VERBS_ADDRESS_SIZE, &address),
                         REGX_INVALID);
    }
    regx_verbs_address_pack(&some_address, bytes);
    for (size_t length = 0; length <= sizeof(bytes); length++) {
        assert_int_equal(regx_verbs_address_unpack(bytes, length, &address),
                         length == REGX_VERBS_ADDRESS_SIZE ? REGX_OK : REGX_INVALID);
    }
}

static void hello_comes_back(void **state)
{
    uint8_t bytes[REGX_VERBS_HELLO_SIZE];
    regx_verbs_hello_t hello;

    (void)state;
    regx_verbs_hello_pack(&some_hello, bytes);
    assert_int_equal(regx_verbs_hello_unpack(bytes, sizeof(bytes), &hello), REGX_OK);
    assert_int_equal(hello.flags, some_hello.flags);
    assert_int_equal(hello.reads, some_hello.reads);
    assert_int_equal(hello.returns, some_hello.returns);
    assert_int_equal(hello.heard, some_hello.heard);
    assert_int_equal(hello.qpn, some_hello.qpn);
    assert_int_equal(hello.psn, some_hello.psn);
    assert_int_equal(hello.known, some_hello.known);
    assert_true(hello.from == some_hello.from && hello.to == some_hello.to);
    assert_true(hello.pool == some_hello.pool && hello.pool_size == some_hello.pool_size);
    assert_int_equal(hello.pool_key, some_hello.pool_key);
    assert_memory_equal(&hello.address, &some_address, sizeof(some_address));
}

static void refuse_hello(regx_verbs_hello_t hello, size_t at, uint8_t value)
{
    uint8_t bytes[REGX_VERBS_HELLO_SIZE];

    regx_verbs_hello_pack(&hello, bytes);
    if (at < sizeof(bytes)) {
        bytes[at] = value;
    }
    assert_int_equal(regx_verbs_hello_unpack(bytes, sizeof(bytes), &hello), REGX_INVALID);
}

static void malformed_hello(void **state)
{
    regx_verbs_hello_t hello = some_hello;
    uint8_t bytes[REGX_VERBS_HELLO_SIZE];

    (void)state;
    refuse_hello(hello, 0, REGX_VERBS_VERSION + 1);
    refuse_hello(hello, 1, 2);
    refuse_hello(hello, 53, 1);
    refuse_hello(hello, 56, 9); /* the address in it */
    hello.qpn = 0;
    refuse_hello(hello, SIZE_MAX, 0);
    hello.qpn = 1 << 24;
    refuse_hello(hello, SIZE_MAX, 0);
    hello = some_hello;
    hello.psn = 1 << 24;
    refuse_hello(hello, SIZE_MAX, 0);
    hello = some_hello;
    hello.pool = UINT64_MAX - 5; /* it would end before it begins */
    refuse_hello(hello, SIZE_MAX, 0);
    regx_verbs_hello_pack(&some_hello, bytes);
    assert_int_equal(regx_verbs_hello_unpack(bytes, sizeof(bytes) - 1, &hello), REGX_INVALID);
}

static void key_comes_back(void **state)
{
    const regx_verbs_key_t key = {0x7f1122334455, 0x10000, 0xabcd};
    const regx_key_t packed = regx_verbs_key_pack(&key);
    const regx_verbs_key_t back = regx_verbs_key_unpack(&packed);

    (void)state;
    assert_true(back.base == key.base && back.length == key.length && back.rkey == key.rkey);
    assert_int_equal(packed.bytes[0], 0x55);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(address_comes_back), cmocka_unit_test(address_is_little_endian),
        cmocka_unit_test(malformed_address),  cmocka_unit_test(hello_comes_back),
        cmocka_unit_test(malformed_hello),    cmocka_unit_test(key_comes_back),
    };

    return cmocka_run_group_tests_name("verbs wire", tests, NULL, NULL);
}
