/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a peer names registered memory: where it begins, its length, and the device's remote key,
 * little-endian. Written in a key_t, which the other rooms carry unread.
 */
#ifndef REGX_VERBS_KEY_H
#define REGX_VERBS_KEY_H

#include "base/little_endian.h"
#include "transport/transport.h"

typedef struct regx_verbs_key {
    uint64_t base;
    uint64_t length;
    uint32_t rkey;
} regx_verbs_key_t;

_Static_assert(REGX_KEY_SIZE >= 20, "a key fits");

static inline regx_key_t regx_verbs_key_pack(const regx_verbs_key_t *key)
{
    regx_key_t packed = {{0}};

    regx_le_put(packed.bytes, key->base, 8);
    regx_le_put(packed.bytes + 8, key->length, 8);
    regx_le_put(packed.bytes + 16, key->rkey, 4);
    return packed;
}

static inline regx_verbs_key_t regx_verbs_key_unpack(const regx_key_t *packed)
{
    return (regx_verbs_key_t){.base = regx_le_get(packed->bytes, 8),
                              .length = regx_le_get(packed->bytes + 8, 8),
                              .rkey = (uint32_t)regx_le_get(packed->bytes + 16, 4)};
}

#endif
