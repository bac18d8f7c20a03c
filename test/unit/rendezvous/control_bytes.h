/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of control messages, the CTS and the exposure: their bytes written by hand, from
 * the description in control.h, and the values that they carry.
 */
#ifndef REGX_TEST_CONTROL_BYTES_H
#define REGX_TEST_CONTROL_BYTES_H

#include "../unit.h"

#include "rendezvous/control.h"

typedef struct bytes {
    uint8_t at[REGX_CTS_SIZE];
    size_t length;
} bytes_t;

/* Appends the lowest `size` bytes of the value. */
void bytes_add(bytes_t *bytes, uint64_t value, size_t size);
/* Begins a message to control_to. */
bytes_t bytes_head(uint8_t type, uint16_t grants);
/* Appends control_key. */
void bytes_add_key(bytes_t *bytes);

extern const regx_handle_t control_to, control_from;
regx_key_t control_key(void);

/* In each of these every byte differs from the others. */
#define A_OFFSET UINT64_C(0x0102030405060708)
#define A_LENGTH UINT64_C(0x1112131415161718)
#define A_START UINT64_C(0x5152535455565758)
#define A_CHECKSUM UINT64_C(0x6162636465666768)

#endif
