/* SPDX-License-Identifier: BSD-3-Clause */
#include "onesided/wire.h"

#include <string.h>

#include "base/little_endian.h"

#define NAME_VERSION 3
#define NAME_KIND 254
#define VERSION 2

static void put_handle(uint8_t *to, regx_handle_t handle)
{
    regx_le_put(to, handle.id, 4);
    regx_le_put(to + 4, handle.generation, 4);
}

static regx_handle_t get_handle(const uint8_t *from)
{
    return (regx_handle_t){(uint32_t)regx_le_get(from, 4), (uint32_t)regx_le_get(from + 4, 4)};
}

void regx_onesided_name_pack(const regx_onesided_name_t *name,
                             uint8_t bytes[REGX_ONESIDED_NAME_SIZE])
{
    memset(bytes, 0, REGX_ONESIDED_NAME_SIZE);
    bytes[0] = NAME_VERSION;
    bytes[1] = NAME_KIND;
    put_handle(bytes + 4, name->handle);
    regx_le_put(bytes + 16, name->base, 8);
    regx_le_put(bytes + 24, name->length, 8);
}

bool regx_onesided_name_is(const uint8_t bytes[REGX_ONESIDED_NAME_SIZE])
{
    return bytes[0] == NAME_VERSION && bytes[1] == NAME_KIND;
}

void regx_onesided_name_unpack(const uint8_t bytes[REGX_ONESIDED_NAME_SIZE],
                               regx_onesided_name_t *name)
{
    name->handle = get_handle(bytes + 4);
    name->base = regx_le_get(bytes + 16, 8);
    name->length = regx_le_get(bytes + 24, 8);
}

void regx_onesided_pack(const regx_onesided_message_t *message, uint8_t bytes[REGX_ONESIDED_HEADER])
{
    memset(bytes, 0, REGX_ONESIDED_HEADER);
    bytes[0] = VERSION;
    bytes[1] = (uint8_t)message->type;
    bytes[2] = message->detail;
    bytes[3] = message->size;
    put_handle(bytes + 4, message->request);
    put_handle(bytes + 12, message->window);
    regx_le_put(bytes + 24, message->address, 8);
    regx_le_put(bytes + 32, message->value, 8);
    regx_le_put(bytes + 40, message->compare, 8);
}

static bool has_data(const regx_onesided_message_t *message)
{
    return message->type == REGX_ONESIDED_PUT || message->type == REGX_ONESIDED_DATA;
}

static bool is_operation(const regx_onesided_message_t *message)
{
    return (message->size == 4 || message->size == 8) && message->address % message->size == 0 &&
           message->detail < REGX_ONESIDED_OPS;
}

bool regx_onesided_unpack(const void *bytes, size_t length, regx_onesided_message_t *message)
{
    const uint8_t *at = bytes;

    if (length < REGX_ONESIDED_HEADER || at[0] != VERSION || at[1] < REGX_ONESIDED_PUT ||
        at[1] >= REGX_ONESIDED_TYPES) {
        return false;
    }
    *message = (regx_onesided_message_t){.type = (regx_onesided_type_t)at[1],
                                         .detail = at[2],
                                         .size = at[3],
                                         .request = get_handle(at + 4),
                                         .window = get_handle(at + 12),
                                         .address = regx_le_get(at + 24, 8),
                                         .value = regx_le_get(at + 32, 8),
                                         .compare = regx_le_get(at + 40, 8),
                                         .data = at + REGX_ONESIDED_HEADER,
                                         .data_length = length - REGX_ONESIDED_HEADER};
    if (message->type == REGX_ONESIDED_ATOMIC && message->size == 4) {
        message->value = (uint32_t)message->value;
        message->compare = (uint32_t)message->compare;
    }
    return (message->data_length == 0 || has_data(message)) &&
           (message->type != REGX_ONESIDED_ATOMIC || is_operation(message));
}
