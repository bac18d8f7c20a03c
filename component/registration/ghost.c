/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/ghost.h"

#include <string.h>

static uint64_t mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

bool regx_ghost_seen(regx_ghost_t *ghost, uintptr_t start, uintptr_t end)
{
    const uint64_t hash = mix(mix(start) + end) | 1; /* 0 is an empty place */
    uint64_t *set = ghost->seen[(hash >> 32) % REGX_GHOST_SETS];
    unsigned at = 0;

    while (at < REGX_GHOST_WAYS - 1 && set[at] != hash) {
        at++;
    }
    const bool seen = set[at] == hash;

    memmove(set + 1, set, at * sizeof(*set));
    set[0] = hash;
    return seen;
}
