/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/checksum.h"

#include "base/little_endian.h"

/* XXH64's primes. */
#define P1 UINT64_C(0x9e3779b185ebca87)
#define P2 UINT64_C(0xc2b2ae3d27d4eb4f)
#define P3 UINT64_C(0x165667b19e3779f9)
#define P4 UINT64_C(0x85ebca77c2b2ae63)
#define P5 UINT64_C(0x27d4eb2f165667c5)

static inline uint64_t rotate(uint64_t value, unsigned bits)
{
    return value << bits | value >> (64 - bits);
}

static inline uint64_t mixed(uint64_t lane, uint64_t word)
{
    return rotate(lane + word * P2, 31) * P1;
}

static inline uint64_t merged(uint64_t sum, uint64_t lane)
{
    return (sum ^ mixed(0, lane)) * P1 + P4;
}

/* Four lanes, so that four multiplications are under way at a time. */
static uint64_t sum_blocks(const uint8_t **at, const uint8_t *end)
{
    uint64_t a = P1 + P2, b = P2, c = 0, d = 0 - P1;

    for (; end - *at >= 32; *at += 32) {
        a = mixed(a, regx_le_get(*at, 8));
        b = mixed(b, regx_le_get(*at + 8, 8));
        c = mixed(c, regx_le_get(*at + 16, 8));
        d = mixed(d, regx_le_get(*at + 24, 8));
    }
    const uint64_t sum = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
    return merged(merged(merged(merged(sum, a), b), c), d);
}

uint64_t regx_checksum(const void *data, size_t length)
{
    const uint8_t *at = data;
    const uint8_t *end = at + length;
    uint64_t sum = (length >= 32 ? sum_blocks(&at, end) : P5) + length;

    for (; end - at >= 8; at += 8) {
        sum = rotate(sum ^ mixed(0, regx_le_get(at, 8)), 27) * P1 + P4;
    }
    if (end - at >= 4) {
        sum = rotate(sum ^ regx_le_get(at, 4) * P1, 23) * P2 + P3;
        at += 4;
    }
    for (; at < end; at++) {
        sum = rotate(sum ^ *at * P5, 11) * P1;
    }
    sum = (sum ^ sum >> 33) * P2;
    sum = (sum ^ sum >> 29) * P3;
    return sum ^ sum >> 32;
}
