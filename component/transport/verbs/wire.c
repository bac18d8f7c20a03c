/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/wire.h"

#include <endian.h>
#include <string.h>

#define MTU_MOST 5 /* 4096 bytes, as verbs counts */

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
    bytes[0] = REGX_VERBS_VERSION;
    bytes[1] = address->link_layer;
    bytes[2] = address->gid_type;
    bytes[3] = address->mtu;
    put16(bytes + 4, address->lid);
    put16(bytes + 6, address->pkey);
    put32(bytes + 8, address->qpn);
    put32(bytes + 12, address->qkey);
    memcpy(bytes + 16, address->gid, REGX_VERBS_GID_SIZE);
}

regx_status_t regx_verbs_address_unpack(const void *from, size_t length,
                                        regx_verbs_address_t *address)
{
    const uint8_t *bytes = from;

    if (length != REGX_VERBS_ADDRESS_SIZE || bytes[0] != REGX_VERBS_VERSION ||
        (bytes[1] != REGX_VERBS_INFINIBAND && bytes[1] != REGX_VERBS_ETHERNET) || bytes[3] < 1 ||
        bytes[3] > MTU_MOST) {
        return REGX_INVALID;
    }
    *address = (regx_verbs_address_t){.link_layer = bytes[1],
                                      .gid_type = bytes[2],
                                      .mtu = bytes[3],
                                      .lid = get16(bytes + 4),
                                      .pkey = get16(bytes + 6),
                                      .qpn = get32(bytes + 8),
                                      .qkey = get32(bytes + 12)};
    memcpy(address->gid, bytes + 16, REGX_VERBS_GID_SIZE);
    return REGX_OK;
}

void regx_verbs_hello_pack(const regx_verbs_hello_t *hello, uint8_t bytes[REGX_VERBS_HELLO_SIZE])
{
    bytes[0] = REGX_VERBS_VERSION;
    bytes[1] = hello->flags;
    bytes[2] = hello->reads;
    bytes[3] = hello->returns;
    put32(bytes + 4, hello->qpn);
    put32(bytes + 8, hello->psn);
    put32(bytes + 12, hello->known);
    put64(bytes + 16, hello->from);
    put64(bytes + 24, hello->to);
    put64(bytes + 32, hello->pool);
    put64(bytes + 40, hello->pool_size);
    put32(bytes + 48, hello->pool_key);
    put32(bytes + 52, hello->heard);
    regx_verbs_address_pack(&hello->address, bytes + 56);
}

regx_status_t regx_verbs_hello_unpack(const void *from, size_t length, regx_verbs_hello_t *hello)
{
    const uint8_t *bytes = from;

    if (length != REGX_VERBS_HELLO_SIZE || bytes[0] != REGX_VERBS_VERSION ||
        (bytes[1] & ~REGX_VERBS_ASKS) != 0 || get32(bytes + 52) > UINT8_MAX) {
        return REGX_INVALID;
    }
    *hello = (regx_verbs_hello_t){.flags = bytes[1],
                                  .reads = bytes[2],
                                  .returns = bytes[3],
                                  .heard = bytes[52],
                                  .qpn = get32(bytes + 4),
                                  .psn = get32(bytes + 8),
                                  .known = get32(bytes + 12),
                                  .from = get64(bytes + 16),
                                  .to = get64(bytes + 24),
                                  .pool = get64(bytes + 32),
                                  .pool_size = get64(bytes + 40),
                                  .pool_key = get32(bytes + 48)};
    if (hello->qpn == 0 || hello->qpn > 0xffffff || hello->psn > 0xffffff ||
        hello->pool + hello->pool_size < hello->pool) {
        return REGX_INVALID;
    }
    return regx_verbs_address_unpack(bytes + 56, REGX_VERBS_ADDRESS_SIZE, &hello->address);
}
