/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Addresses and messages of verbs: what is none is refused.
 */
#include "../../unit.h"

#include "transport/verbs/wire.h"

#define SOME_ADDRESS                                                                               \
    {                                                                                              \
        .version = REGX_VERBS_VERSION, .link_layer = REGX_VERBS_ETHERNET, .gid_type = 2, .mtu = 5, \
        .flags = REGX_VERBS_NEEDS_GRH, .network_bits = 64, .lid = 0x1234, .pkey = 0xffff,          \
        .qpn = 0x00abcdef, .qkey = 0x12345678, .gid = {                                            \
            0xfe,                                                                                  \
            0x80,                                                                                  \
            [15] = 7                                                                               \
        }                                                                                          \
    }

static const regx_verbs_address_t some_address = SOME_ADDRESS;

static const regx_cm_message_t some_message = {.version = REGX_VERBS_VERSION,
                                               .kind = REGX_CM_ACCEPT,
                                               .reads = 16,
                                               .qpn = 0x11,
                                               .psn = 0xfffffe,
                                               .from = 0x0102030405060708,
                                               .to = 0x1112131415161718,
                                               .epoch = 0x2122232425262728,
                                               .known = 0x3132333435363738,
                                               .pool = 0x7f0000001000,
                                               .pool_size = 1 << 20,
                                               .pool_key = 0xcafe,
                                               .address = SOME_ADDRESS};

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
        memcpy(bytes, &some_address, sizeof(some_address));
        bytes[wrong[i].at] = wrong[i].value;
        assert_int_equal(regx_verbs_address_read(bytes, REGX_VERBS_ADDRESS_SIZE, &address),
                         REGX_INVALID);
    }
    memcpy(bytes, &some_address, sizeof(some_address));
    for (size_t length = 0; length <= sizeof(bytes); length++) {
        assert_int_equal(regx_verbs_address_read(bytes, length, &address),
                         length == REGX_VERBS_ADDRESS_SIZE ? REGX_OK : REGX_INVALID);
    }
    assert_memory_equal(&address, &some_address, sizeof(address));
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

static void a_malformed_message_is_refused(void **state)
{
    const struct {
        size_t at;
        uint64_t value;
        size_t size;
    } wrong[] = {{0, REGX_VERBS_VERSION + 1, 1},
                 {1, 0, 1},
                 {1, REGX_CM_READY + 1, 1},
                 {3, 1, 1},
                 {offsetof(regx_cm_message_t, qpn), 0, 4},
                 {offsetof(regx_cm_message_t, qpn), 1 << 24, 4},
                 {offsetof(regx_cm_message_t, psn), 1 << 24, 4},
                 {offsetof(regx_cm_message_t, epoch), 0, 8},
                 {offsetof(regx_cm_message_t, known), 0, 8}, /* an answer to nothing */
                 {1, REGX_CM_REQUEST, 1},                    /* and yet connected to us */
                 {offsetof(regx_cm_message_t, pool), UINT64_MAX - 5, 8}, /* ends before it begins */
                 {offsetof(regx_cm_message_t, address), REGX_VERBS_VERSION + 1, 1},
                 {offsetof(regx_cm_message_t, zeros), 1, 4}};
    uint8_t bytes[REGX_CM_MESSAGE_SIZE];
    regx_cm_message_t message;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        memcpy(bytes, &some_message, sizeof(bytes));
        memcpy(bytes + wrong[i].at, &wrong[i].value, wrong[i].size);
        assert_int_equal(regx_cm_message_read(bytes, sizeof(bytes), &message), REGX_INVALID);
    }
    memcpy(bytes, &some_message, sizeof(bytes));
    assert_int_equal(regx_cm_message_read(bytes, sizeof(bytes) - 1, &message), REGX_INVALID);
    assert_int_equal(regx_cm_message_read(bytes, sizeof(bytes), &message), REGX_OK);
    assert_memory_equal(&message, &some_message, sizeof(message));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_malformed_address_is_refused),
        cmocka_unit_test(prefixes_decide_whether_ports_share_a_subnet),
        cmocka_unit_test(a_malformed_message_is_refused),
    };

    return cmocka_run_group_tests_name("verbs wire", tests, NULL, NULL);
}
