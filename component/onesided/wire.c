/* SPDX-License-Identifier: BSD-3-Clause */
#include "onesided/wire.h"

#include "base/little_endian.h"
#include "onesided/atomic.h"

#define VERSION 1
#define HEADER_MIN 24 /* the shortest: of an answer */

/* How long the header is; 0: there is no such type. */
static size_t header_length(unsigned type)
{
    switch (type) {
    case REGX_ONESIDED_PUT:
        return 32;
    case REGX_ONESIDED_GET:
    case REGX_ONESIDED_ATOMIC:
        return 40;
    case REGX_ONESIDED_SWAP:
        return 48;
    case REGX_ONESIDED_REPLY:
    case REGX_ONESIDED_DATA:
        return 24;
    default:
        return 0;
    }
}

static bool is_answer(unsigned type)
{
    return type == REGX_ONESIDED_REPLY || type == REGX_ONESIDED_DATA;
}

static void put_handle(uint8_t *to, regx_handle_t handle)
{
    regx_le_put(to, handle.id, 4);
    regx_le_put(to + 4, handle.generation, 4);
}

static regx_handle_t get_handle(const uint8_t *from)
{
    return (regx_handle_t){(uint32_t)regx_le_get(from, 4), (uint32_t)regx_le_get(from + 4, 4)};
}

size_t regx_onesided_pack(const regx_onesided_message_t *message,
                          uint8_t bytes[REGX_ONESIDED_HEADER_MAX])
{
    bytes[0] = VERSION;
    bytes[1] = (uint8_t)message->type;
    bytes[2] = message->detail;
    bytes[3] = message->size;
    put_handle(bytes + 4, message->request);
    if (is_answer(message->type)) {
        regx_le_put(bytes + 12, 0, 4);
        regx_le_put(bytes + 16, message->operand, 8);
        return header_length(message->type);
    }
    put_handle(bytes + 12, message->window);
    regx_le_put(bytes + 20, 0, 4);
    regx_le_put(bytes + 24, message->address, 8);
    if (message->type == REGX_ONESIDED_GET) {
        regx_le_put(bytes + 32, message->length, 8);
    } else if (message->type == REGX_ONESIDED_ATOMIC) {
        regx_le_put(bytes + 32, message->operand, 8);
    } else if (message->type == REGX_ONESIDED_SWAP) {
        regx_le_put(bytes + 32, message->compare, 8);
        regx_le_put(bytes + 40, message->operand, 8);
    }
    return header_length(message->type);
}

static bool is_number(const regx_onesided_message_t *message)
{
    return (message->size == 4 || message->size == 8) && message->address % message->size == 0;
}

static bool read_request(const uint8_t *at, regx_onesided_message_t *message)
{
    message->address = regx_le_get(at + 24, 8);
    switch (message->type) {
    case REGX_ONESIDED_PUT:
        return true;
    case REGX_ONESIDED_GET:
        message->length = regx_le_get(at + 32, 8);
        return true;
    case REGX_ONESIDED_ATOMIC:
        message->operand = regx_le_get(at + 32, 8);
        return is_number(message) && message->detail < REGX_ATOMIC_OPS;
    default:
        message->compare = regx_le_get(at + 32, 8);
        message->operand = regx_le_get(at + 40, 8);
        return is_number(message);
    }
}

bool regx_onesided_unpack(const void *bytes, size_t length, regx_onesided_message_t *message)
{
    const uint8_t *at = bytes;

    if (length < HEADER_MIN) {
        return false;
    }
    const unsigned type = at[1];
    const size_t header = header_length(type);
    const bool has_data = type == REGX_ONESIDED_PUT || type == REGX_ONESIDED_DATA;
    if (at[0] != VERSION || header == 0 || length < header || (length > header && !has_data)) {
        return false;
    }
    *message = (regx_onesided_message_t){.type = (regx_onesided_type_t)type,
                                         .detail = at[2],
                                         .size = at[3],
                                         .request = get_handle(at + 4),
                                         .window = get_handle(at + 12),
                                         .data = at + header,
                                         .data_length = length - header};
    if (is_answer(type)) {
        message->operand = regx_le_get(at + 16, 8);
        return true;
    }
    return read_request(at, message);
}
