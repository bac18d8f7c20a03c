/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Numbers in messages: the lowest byte first, at any address. With a constant size it is one
 * instruction where the processor is little-endian.
 */
#ifndef REGX_BASE_LITTLE_ENDIAN_H
#define REGX_BASE_LITTLE_ENDIAN_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

/* Writes the lower `size` bytes of `value`; at most 8. */
static inline void regx_le_put(uint8_t *to, uint64_t value, unsigned size)
{
    const uint64_t little = htole64(value);

    memcpy(to, &little, size);
}

static inline uint64_t regx_le_get(const uint8_t *from, unsigned size)
{
    uint64_t little = 0;

    memcpy(&little, from, size);
    return le64toh(little);
}

#endif
