/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What every harness of the fuzzer has. A harness is one program: it plays a process of regx to
 * which a hostile peer sends what the fuzzer makes up. The sanitizers find what is read or written
 * outside of where it may be; a harness aborts where anything else is wrong that it can tell.
 *
 * The seeds are real messages, made by the component's own packing. So they need no renewing when
 * the bytes on the wire change, and a harness proves by them that it reaches what accepts.
 */
#ifndef REGX_TEST_FUZZ_H
#define REGX_TEST_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FUZZ_SEED_MAX 4096 /* bytes of a seed */

/* ---- each harness has these ---- */

/* Takes one input, and cleans up behind it. Whether something of it was accepted. */
bool fuzz_one(const uint8_t *data, size_t size);
/* Writes seed `number` to `to`, which has room for FUZZ_SEED_MAX bytes. Returns its length; 0:
 * there are no more. All of them are accepted. */
size_t fuzz_seed(unsigned number, uint8_t *to);

/* ---- input, from its start on ---- */

typedef struct fuzz_input {
    const uint8_t *at;
    size_t left;
} fuzz_input_t;

/* At most `length` bytes; they are in memory of their own size, so that reading behind them is
 * found. The caller frees it. `length` is lowered to what there is. */
uint8_t *fuzz_take(fuzz_input_t *input, size_t *length);
/* A number of so many bytes, little-endian; what is missing is zero. */
uint64_t fuzz_number(fuzz_input_t *input, size_t size);

/* Ends the program if that is not so. Not assert: the component may be built without it. */
static inline void fuzz_check(bool holds)
{
    if (!holds) {
        abort();
    }
}

#endif
