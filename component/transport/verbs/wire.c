/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/wire.h"

#include <string.h>

#define MTU_MAX 5 /* 4096 bytes, as verbs counts */

void regx_verbs_address_pack(const regx_verbs_address_t *address,
                             uint8_t bytes[REGX_VERBS_ADDRESS_SIZE])
{
    memset(bytes, 0, REGX_VERBS_ADDRESS_SIZE);
    bytes[0] = REGX_VERBS_VERSION;
    bytes[1] = address->link_layer;
    bytes[2] = address->gid_type;
    bytes[3] = address->mtu;
    regx_le_put(bytes + 4, address->lid, 2);
    regx_le_put(bytes + 6, address->pkey, 2);
    regx_le_put(bytes + 8, address->qpn, 4);
    regx_le_put(bytes + 12, address->qkey, 4);
    memcpy(bytes + 16, address->gid, REGX_VERBS_GID_SIZE);
    bytes[32] = address->flags;
    bytes[33] = address->network_bits;
}

static bool is_address(const uint8_t *bytes)
{
    const uint8_t flags = REGX_VERBS_NEEDS_GRH | REGX_VERBS_ANY_SUBNET;

    return bytes[0] == REGX_VERBS_VERSION &&
           (bytes[1] == REGX_VERBS_INFINIBAND || bytes[1] == REGX_VERBS_ETHERNET) &&
           bytes[3] >= 1 && bytes[3] <= MTU_MAX && (bytes[32] & ~flags) == 0 &&
           bytes[33] <= 8 * REGX_VERBS_GID_SIZE && regx_le_get(bytes + 34, 2) == 0;
}

regx_status_t regx_verbs_address_unpack(const void *from, size_t length,
                                        regx_verbs_address_t *address)
{
    const uint8_t *bytes = from;

    if (length != REGX_VERBS_ADDRESS_SIZE || !is_address(bytes)) {
        return REGX_INVALID;
    }
    *address = (regx_verbs_address_t){.link_layer = bytes[1],
                                      .gid_type = bytes[2],
                                      .mtu = bytes[3],
                                      .flags = bytes[32],
                                      .network_bits = bytes[33],
                                      .lid = (uint16_t)regx_le_get(bytes + 4, 2),
                                      .pkey = (uint16_t)regx_le_get(bytes + 6, 2),
                                      .qpn = (uint32_t)regx_le_get(bytes + 8, 4),
                                      .qkey = (uint32_t)regx_le_get(bytes + 12, 4)};
    memcpy(address->gid, bytes + 16, REGX_VERBS_GID_SIZE);
    return REGX_OK;
}

bool regx_verbs_address_equals(const regx_verbs_address_t *a, const regx_verbs_address_t *b)
{
    uint8_t bytes_a[REGX_VERBS_ADDRESS_SIZE], bytes_b[REGX_VERBS_ADDRESS_SIZE];

    regx_verbs_address_pack(a, bytes_a);
    regx_verbs_address_pack(b, bytes_b);
    return memcmp(bytes_a, bytes_b, sizeof(bytes_a)) == 0;
}

static bool begin_alike(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    const unsigned whole = bits / 8, rest = bits % 8;

    return memcmp(a, b, whole) == 0 && (rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0);
}

/* InfiniBand's subnet is the first half of the GID. */
bool regx_verbs_share_subnet(const regx_verbs_address_t *a, const regx_verbs_address_t *b)
{
    const uint8_t bits = a->network_bits < b->network_bits ? a->network_bits : b->network_bits;

    return ((a->flags | b->flags) & REGX_VERBS_ANY_SUBNET) != 0 ||
           begin_alike(a->gid, b->gid, a->link_layer == REGX_VERBS_INFINIBAND ? 64 : bits);
}

void regx_cm_message_pack(const regx_cm_message_t *message, uint8_t bytes[REGX_CM_MESSAGE_SIZE])
{
    bytes[0] = REGX_VERBS_VERSION;
    bytes[1] = (uint8_t)message->kind;
    bytes[2] = message->reads;
    bytes[3] = 0;
    regx_le_put(bytes + 4, message->qpn, 4);
    regx_le_put(bytes + 8, message->psn, 4);
    regx_le_put(bytes + 12, message->pool_key, 4);
    regx_le_put(bytes + 16, message->from, 8);
    regx_le_put(bytes + 24, message->to, 8);
    regx_le_put(bytes + 32, message->pool, 8);
    regx_le_put(bytes + 40, message->pool_size, 8);
    regx_le_put(bytes + 48, message->epoch, 8);
    regx_le_put(bytes + 56, message->known, 8);
    regx_verbs_address_pack(&message->address, bytes + 64);
}

regx_status_t regx_cm_message_unpack(const void *from, size_t length, regx_cm_message_t *message)
{
    const uint8_t *bytes = from;

    if (length != REGX_CM_MESSAGE_SIZE || bytes[0] != REGX_VERBS_VERSION ||
        bytes[1] < REGX_CM_REQUEST || bytes[1] > REGX_CM_READY || bytes[3] != 0) {
        return REGX_INVALID;
    }
    *message = (regx_cm_message_t){.kind = (regx_cm_kind_t)bytes[1],
                                   .reads = bytes[2],
                                   .qpn = (uint32_t)regx_le_get(bytes + 4, 4),
                                   .psn = (uint32_t)regx_le_get(bytes + 8, 4),
                                   .pool_key = (uint32_t)regx_le_get(bytes + 12, 4),
                                   .from = regx_le_get(bytes + 16, 8),
                                   .to = regx_le_get(bytes + 24, 8),
                                   .pool = regx_le_get(bytes + 32, 8),
                                   .pool_size = regx_le_get(bytes + 40, 8),
                                   .epoch = regx_le_get(bytes + 48, 8),
                                   .known = regx_le_get(bytes + 56, 8)};
    if (message->qpn == 0 || message->qpn > 0xffffff || message->psn > 0xffffff ||
        message->epoch == 0 || (message->known == 0) != (message->kind == REGX_CM_REQUEST) ||
        message->pool + message->pool_size < message->pool) {
        return REGX_INVALID;
    }
    return regx_verbs_address_unpack(bytes + 64, REGX_VERBS_ADDRESS_SIZE, &message->address);
}
