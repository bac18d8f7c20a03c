/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/ghost.h"

#include <string.h>

static uint64_t mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

static uint64_t hash_of(uintptr_t start, uintptr_t end)
{
    return mix(mix(start) + end) | 1; /* 0 is an empty place */
}

static uint64_t *set_of(regx_ghost_t *ghost, uint64_t hash)
{
    return ghost->seen[(hash >> 32) % REGX_GHOST_SETS];
}

void regx_ghost_fetch(regx_ghost_t *ghost, uintptr_t start, uintptr_t end)
{
    __builtin_prefetch(set_of(ghost, hash_of(start, end)), 1);
}

bool regx_ghost_seen(regx_ghost_t *ghost, uintptr_t start, uintptr_t end)
{
    const uint64_t hash = hash_of(start, end);
    uint64_t *set = set_of(ghost, hash);
    unsigned at = 0;

    while (at < REGX_GHOST_WAYS - 1 && set[at] != hash) {
        at++;
    }
    const bool seen = set[at] == hash;

    memmove(set + 1, set, at * sizeof(*set));
    set[0] = hash;
    return seen;
}
