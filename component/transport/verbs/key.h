/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a peer names registered memory: where it begins, its length, and the device's remote key,
 * little-endian. Written in a key_t, which the other rooms carry unread.
 */
#ifndef REGX_VERBS_KEY_H
#define REGX_VERBS_KEY_H

#include <endian.h>
#include <string.h>

#include "transport/transport.h"

typedef struct regx_verbs_key {
    uint64_t base;
    uint64_t length;
    uint32_t rkey;
} regx_verbs_key_t;

_Static_assert(REGX_KEY_SIZE >= 20, "a key fits");

static inline regx_key_t regx_verbs_key_pack(const regx_verbs_key_t *key)
{
    const uint64_t numbers[2] = {htole64(key->base), htole64(key->length)};
    const uint32_t rkey = htole32(key->rkey);
    regx_key_t packed = {{0}};

    memcpy(packed.bytes, numbers, sizeof(numbers));
    memcpy(packed.bytes + sizeof(numbers), &rkey, sizeof(rkey));
    return packed;
}

static inline regx_verbs_key_t regx_verbs_key_unpack(const regx_key_t *packed)
{
    uint64_t numbers[2];
    uint32_t rkey;

    memcpy(numbers, packed->bytes, sizeof(numbers));
    memcpy(&rkey, packed->bytes + sizeof(numbers), sizeof(rkey));
    return (regx_verbs_key_t){le64toh(numbers[0]), le64toh(numbers[1]), le32toh(rkey)};
}

#endif
