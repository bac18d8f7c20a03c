/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How memory of a process is named to a neighbour: by its address, which the kernel's copy needs.
 *
 * Nothing is registered, and no key is ever taken back: a neighbour is trusted as far as the kernel
 * trusts a process of the same user. What was staged (stage.h) is named besides.
 */
#ifndef REGX_TRANSPORT_SHM_KEY_H
#define REGX_TRANSPORT_SHM_KEY_H

#include <string.h>

#include "base/handle_table.h"
#include "transport/transport.h"

typedef struct regx_shm_key { /* sent as it is */
    uint64_t address;
    uint64_t length;
    regx_handle_t stage;
} regx_shm_key_t;

_Static_assert(sizeof(regx_shm_key_t) == REGX_KEY_SIZE, "the key has no room to spare");

static inline regx_shm_key_t regx_shm_key_unpack(const regx_key_t *packed)
{
    regx_shm_key_t key;

    memcpy(&key, packed->bytes, sizeof(key));
    return key;
}

static inline void regx_shm_key_pack(regx_shm_key_t key, regx_key_t *packed)
{
    memcpy(packed->bytes, &key, sizeof(key));
}

/* regx_transport_ops_t.expose */
static inline void regx_shm_expose(const void *base, size_t length, regx_key_t *key)
{
    regx_shm_key_pack((regx_shm_key_t){(uintptr_t)base, length, {.id = UINT32_MAX}}, key);
}

#endif
