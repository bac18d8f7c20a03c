/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages that are wrong: what a test does to one.
 */
#ifndef REGX_TEST_MUTATE_H
#define REGX_TEST_MUTATE_H

#include "unit.h"

typedef struct change { /* `size` bytes from `at` on become, or are flipped by, value */
    size_t at, size;
    uint64_t value;
    bool flip;
} change_t;

static inline void mutate(uint8_t *bytes, size_t size, const change_t *change)
{
    for (size_t i = 0; i < change->size && change->at + i < size; i++) {
        const uint8_t value = (uint8_t)(change->value >> (8 * i));

        bytes[change->at + i] = change->flip ? bytes[change->at + i] ^ value : value;
    }
}

#endif
