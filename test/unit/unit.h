/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What every unit test needs: cmocka (whose header wants others first) and a few helpers.
 */
#ifndef REGX_TEST_UNIT_H
#define REGX_TEST_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../chance.h"

/* cmocka hands each test a state, and callbacks get what their callers have: few use all of it. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
/* cmocka 2 wants asserts by names that 1 does not have. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* Seconds after which a test that hangs is ended (alarm): no busy machine makes one take so long.
 * Less than what ends its program (test/units.py). */
enum { UNIT_PATIENCE = 600 };

/* The eight bytes of the stream named `stream` in which `position` lies: content that no other stream
 * has there. */
static inline uint64_t unit_stamps(uint64_t stream, size_t position)
{
    uint64_t state = stream * UINT64_C(0x2545f4914f6cdd1d) + position / 8;

    return chance_next(&state);
}

/* The byte at that position. */
static inline uint8_t unit_stamp(uint64_t stream, size_t position)
{
    return (uint8_t)(unit_stamps(stream, position) >> (8 * (position % 8)));
}

/* What the stream has from there on. */
static inline void unit_fill(uint8_t *to, size_t length, uint64_t stream, size_t position)
{
    size_t i = 0;

    while (i < length && (position + i) % 8 != 0) {
        to[i] = unit_stamp(stream, position + i);
        i++;
    }
    for (; i + 8 <= length; i += 8) {
        const uint64_t stamps = unit_stamps(stream, position + i);

        memcpy(to + i, &stamps, sizeof(stamps));
    }
    for (; i < length; i++) {
        to[i] = unit_stamp(stream, position + i);
    }
}

/* Whether it is how the stream begins. */
static inline bool unit_is_filled(const uint8_t *data, size_t length, uint64_t stream)
{
    uint64_t wrong = 0;
    size_t i = 0;

    for (; i + 8 <= length; i += 8) {
        uint64_t stamps;

        memcpy(&stamps, data + i, sizeof(stamps));
        wrong |= stamps ^ unit_stamps(stream, i);
    }
    for (; i < length; i++) {
        wrong |= (uint64_t)(data[i] ^ unit_stamp(stream, i));
    }
    return wrong == 0;
}

#endif
