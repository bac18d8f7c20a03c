/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/wire.h"

#include <endian.h>
#include <string.h>

#define MTU_MAX 5 /* 4096 bytes, as verbs counts */

static void put16(uint8_t *at, uint16_t value)
{
    const uint16_t little = htole16(value);

    memcpy(at, &little, sizeof(little));
}

static void put32(uint8_t *at, uint32_t value)
{
    const uint32_t little = htole32(value);

    memcpy(at, &little, sizeof(little));
}

static void put64(uint8_t *at, uint64_t value)
{
    const uint64_t little = htole64(value);

    memcpy(at, &little, sizeof(little));
}

static uint16_t get16(const uint8_t *at)
{
    uint16_t little;

    memcpy(&little, at, sizeof(little));
    return le16toh(little);
}

static uint32_t get32(const uint8_t *at)
{
    uint32_t little;

    memcpy(&little, at, sizeof(little));
    return le32toh(little);
}

static uint64_t get64(const uint8_t *at)
{
    uint64_t little;

    memcpy(&little, at, sizeof(little));
    return le64toh(little);
}

void regx_verbs_address_pack(const regx_verbs_address_t *address,
                             uint8_t bytes[REGX_VERBS_ADDRESS_SIZE])
{
    memset(bytes, 0, REGX_VERBS_ADDRESS_SIZE);
    bytes[0] = REGX_VERBS_VERSION;
    bytes[1] = address->link_layer;
    bytes[2] = address->gid_type;
    bytes[3] = address->mtu;
    put16(bytes + 4, address->lid);
    put16(bytes + 6, address->pkey);
    put32(bytes + 8, address->qpn);
    put32(bytes + 12, address->qkey);
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
           bytes[33] <= 8 * REGX_VERBS_GID_SIZE && get16(bytes + 34) == 0;
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
                                      .lid = get16(bytes + 4),
                                      .pkey = get16(bytes + 6),
                                      .qpn = get32(bytes + 8),
                                      .qkey = get32(bytes + 12)};
    memcpy(address->gid, bytes + 16, REGX_VERBS_GID_SIZE);
    return REGX_OK;
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
    put32(bytes + 4, message->qpn);
    put32(bytes + 8, message->psn);
    put32(bytes + 12, message->pool_key);
    put64(bytes + 16, message->from);
    put64(bytes + 24, message->to);
    put64(bytes + 32, message->pool);
    put64(bytes + 40, message->pool_size);
    put64(bytes + 48, message->epoch);
    put64(bytes + 56, message->known);
    put64(bytes + 64, message->born);
    put64(bytes + 72, message->with);
    put64(bytes + 80, message->heard);
    regx_verbs_address_pack(&message->address, bytes + 88);
}

regx_status_t regx_cm_message_unpack(const void *from, size_t length, regx_cm_message_t *message)
{
    const uint8_t *bytes = from;

    if (length != REGX_CM_MESSAGE_SIZE || bytes[0] != REGX_VERBS_VERSION ||
        bytes[1] < REGX_CM_REQUEST || bytes[1] > REGX_CM_RENEW || bytes[3] != 0) {
        return REGX_INVALID;
    }
    *message = (regx_cm_message_t){.kind = (regx_cm_kind_t)bytes[1],
                                   .reads = bytes[2],
                                   .qpn = get32(bytes + 4),
                                   .psn = get32(bytes + 8),
                                   .pool_key = get32(bytes + 12),
                                   .from = get64(bytes + 16),
                                   .to = get64(bytes + 24),
                                   .pool = get64(bytes + 32),
                                   .pool_size = get64(bytes + 40),
                                   .epoch = get64(bytes + 48),
                                   .known = get64(bytes + 56),
                                   .born = get64(bytes + 64),
                                   .with = get64(bytes + 72),
                                   .heard = get64(bytes + 80)};
    if (message->qpn == 0 || message->qpn > 0xffffff || message->psn > 0xffffff ||
        message->born == 0 || message->born > message->epoch ||
        message->pool + message->pool_size < message->pool) {
        return REGX_INVALID;
    }
    return regx_verbs_address_unpack(bytes + 88, REGX_VERBS_ADDRESS_SIZE, &message->address);
}
