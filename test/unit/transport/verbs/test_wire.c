/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Addresses, messages and keys of verbs as bytes.
 */
#include "../../unit.h"

#include "transport/verbs/wire.h"

static const regx_verbs_address_t some_address = {.link_layer = REGX_VERBS_ETHERNET,
                                                  .gid_type = 2,
                                                  .mtu = 5,
                                                  .flags = REGX_VERBS_NEEDS_GRH,
                                                  .network_bits = 64,
                                                  .lid = 0x1234,
                                                  .pkey = 0xffff,
                                                  .qpn = 0x00abcdef,
                                                  .qkey = 0x12345678,
                                                  .gid = {0xfe, 0x80, [15] = 7}};

static const regx_cm_message_t some_message = {.kind = REGX_CM_ACCEPT,
                                               .reads = 16,
                                               .qpn = 0x11,
                                               .psn = 0xfffffe,
                                               .from = 0x0102030405060708,
                                               .to = 0x1112131415161718,
                                               .epoch = 0x2122232425262728,
                                               .known = 0x3132333435363738,
                                               .pool = 0x7f0000001000,
                                               .pool_size = 1 << 20,
                                               .pool_key = 0x99,
                                               .address = some_address};

static void a_packed_address_is_unpacked_unchanged(void **state)
{
    uint8_t bytes[REGX_VERBS_ADDRESS_SIZE];
    regx_verbs_address_t address;

    (void)state;
    regx_verbs_address_pack(&some_address, bytes);
    assert_int_equal(regx_verbs_address_unpack(bytes, sizeof(bytes), &address), REGX_OK);
    assert_int_equal(address.flags, some_address.flags);
    assert_int_equal(address.network_bits, some_address.network_bits);
    assert_int_equal(address.qkey, some_address.qkey);
    assert_memory_equal(address.gid, some_address.gid, sizeof(address.gid));
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
static void a_malformed_address_is_refused(void **state)
{
    const struct {
        size_t at;
        uint8_t value;
    } wrong[] = {{0, 0},  {0, REGX_VERBS_VERSION + 1},
                 {1, 0},  {1, 3},
                 {3, 0},  {3, 6},
                 {32, 4}, {33, 129},
                 {34, 1}, {35, 1}};
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

static bool share(const uint8_t a[4], const uint8_t b[4], uint8_t bits_a, uint8_t bits_b)
{
    regx_verbs_address_t here = {.link_layer = REGX_VERBS_ETHERNET, .network_bits = bits_a};
    regx_verbs_address_t there = {.link_layer = REGX_VERBS_ETHERNET, .network_bits = bits_b};

    memcpy(here.gid + 12, a, 4);
    memcpy(there.gid + 12, b, 4);
    assert_int_equal(regx_verbs_share_subnet(&here, &there),
                     regx_verbs_share_subnet(&there, &here));
    return regx_verbs_share_subnet(&here, &there);
}

static void prefixes_decide_whether_ports_share_a_subnet(void **state)
{
    const uint8_t a[] = {10, 1, 6, 1}, b[] = {10, 1, 7, 1}, c[] = {10, 1, 8, 1};
    regx_verbs_address_t here = some_address, there = some_address;

    (void)state;
    assert_true(share(a, b, 96 + 23, 96 + 23));
    assert_false(share(a, c, 96 + 23, 96 + 23));
    assert_false(share(a, b, 96 + 24, 96 + 24));
    assert_true(share(a, b, 96 + 23, 96 + 24)); /* the wider one holds */
    assert_true(share(a, c, 0, 96 + 24));       /* one of them is not known */
    here.link_layer = there.link_layer = REGX_VERBS_INFINIBAND;
    there.gid[15]++; /* another port */
    assert_true(regx_verbs_share_subnet(&here, &there));
    there.gid[7]++;
    assert_false(regx_verbs_share_subnet(&here, &there));
    there.flags |= REGX_VERBS_ANY_SUBNET;
    assert_true(regx_verbs_share_subnet(&here, &there));
}

static void a_packed_message_is_unpacked_unchanged(void **state)
{
    uint8_t bytes[REGX_CM_MESSAGE_SIZE];
    regx_cm_message_t message;

    (void)state;
    regx_cm_message_pack(&some_message, bytes);
    assert_int_equal(regx_cm_message_unpack(bytes, sizeof(bytes), &message), REGX_OK);
    assert_int_equal(message.kind, some_message.kind);
    assert_int_equal(message.reads, some_message.reads);
    assert_true(message.epoch == some_message.epoch && message.known == some_message.known);
    assert_int_equal(message.qpn, some_message.qpn);
    assert_int_equal(message.psn, some_message.psn);
    assert_true(message.from == some_message.from && message.to == some_message.to);
    assert_true(message.pool == some_message.pool && message.pool_size == some_message.pool_size);
    assert_int_equal(message.pool_key, some_message.pool_key);
    assert_memory_equal(message.address.gid, some_address.gid, sizeof(some_address.gid));
}

static void refuse_message(regx_cm_message_t message, size_t at, uint8_t value)
{
    uint8_t bytes[REGX_CM_MESSAGE_SIZE];

    regx_cm_message_pack(&message, bytes);
    if (at < sizeof(bytes)) {
        bytes[at] = value;
    }
    assert_int_equal(regx_cm_message_unpack(bytes, sizeof(bytes), &message), REGX_INVALID);
}

static void a_malformed_message_is_refused(void **state)
{
    regx_cm_message_t message = some_message;
    uint8_t bytes[REGX_CM_MESSAGE_SIZE];

    (void)state;
    refuse_message(message, 0, REGX_VERBS_VERSION + 1);
    refuse_message(message, 1, 0);
    refuse_message(message, 1, 4);
    refuse_message(message, 3, 1);
    refuse_message(message, 64, 10); /* the address in it */
    message.qpn = 0;
    refuse_message(message, SIZE_MAX, 0);
    message.qpn = 1 << 24;
    refuse_message(message, SIZE_MAX, 0);
    message = some_message;
    message.epoch = 0;
    refuse_message(message, SIZE_MAX, 0);
    message = some_message;
    message.kind = REGX_CM_REQUEST; /* and yet connected to us */
    refuse_message(message, SIZE_MAX, 0);
    message.kind = REGX_CM_READY;
    message.known = 0;
    refuse_message(message, SIZE_MAX, 0);
    message = some_message;
    message.psn = 1 << 24;
    refuse_message(message, SIZE_MAX, 0);
    message = some_message;
    message.pool = UINT64_MAX - 5; /* it would end before it begins */
    refuse_message(message, SIZE_MAX, 0);
    regx_cm_message_pack(&some_message, bytes);
    assert_int_equal(regx_cm_message_unpack(bytes, sizeof(bytes) - 1, &message), REGX_INVALID);
}

static void a_packed_key_is_unpacked_unchanged(void **state)
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
        cmocka_unit_test(a_packed_address_is_unpacked_unchanged),
        cmocka_unit_test(address_is_little_endian),
        cmocka_unit_test(a_malformed_address_is_refused),
        cmocka_unit_test(a_packed_message_is_unpacked_unchanged),
        cmocka_unit_test(prefixes_decide_whether_ports_share_a_subnet),
        cmocka_unit_test(a_malformed_message_is_refused),
        cmocka_unit_test(a_packed_key_is_unpacked_unchanged),
    };

    return cmocka_run_group_tests_name("verbs wire", tests, NULL, NULL);
}
