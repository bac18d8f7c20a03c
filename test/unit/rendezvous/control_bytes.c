/* SPDX-License-Identifier: BSD-3-Clause */
#include "control_bytes.h"

const regx_handle_t control_to = {.id = 0x11223344, .generation = 0x55667788};
const regx_handle_t control_from = {.id = 0x99aabbcc, .generation = 0xddeeff01};

void bytes_add(bytes_t *bytes, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        bytes->at[bytes->length++] = (uint8_t)(value >> (8 * i));
    }
}

bytes_t bytes_head(uint8_t type, uint16_t grants)
{
    bytes_t bytes = {.length = 0};

    bytes_add(&bytes, 9, 1);
    bytes_add(&bytes, type, 1);
    bytes_add(&bytes, grants, 2);
    bytes_add(&bytes, control_to.id, 4);
    bytes_add(&bytes, control_to.generation, 4);
    return bytes;
}

regx_key_t control_key(void)
{
    regx_key_t key;

    for (unsigned i = 0; i < REGX_KEY_SIZE; i++) {
        key.bytes[i] = (uint8_t)(0xa0 + i);
    }
    return key;
}

void bytes_add_key(bytes_t *bytes)
{
    const regx_key_t key = control_key();

    for (unsigned i = 0; i < REGX_KEY_SIZE; i++) {
        bytes_add(bytes, key.bytes[i], 1);
    }
}
