/* SPDX-License-Identifier: BSD-3-Clause */
#include "onesided/wire.h"

#include <endian.h>
#include <string.h>

#include "onesided/atomic.h"

#define VERSION 1

typedef struct head {
    uint8_t version, type, detail, size;
    uint32_t request, request_generation;
    uint32_t window, window_generation; /* of an answer, zero and half of the number */
    uint32_t zero;
} head_t;

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

static void put_number(uint8_t *to, uint64_t value)
{
    value = htole64(value);
    memcpy(to, &value, sizeof(value));
}

static uint64_t get_number(const uint8_t *from)
{
    uint64_t value;

    memcpy(&value, from, sizeof(value));
    return le64toh(value);
}

size_t regx_onesided_pack(const regx_onesided_message_t *message,
                          uint8_t bytes[REGX_ONESIDED_HEADER_MAX])
{
    const head_t head = {.version = VERSION,
                         .type = (uint8_t)message->type,
                         .detail = message->detail,
                         .size = message->size,
                         .request = htole32(message->request.id),
                         .request_generation = htole32(message->request.generation),
                         .window = htole32(message->window.id),
                         .window_generation = htole32(message->window.generation)};

    memcpy(bytes, &head, sizeof(head));
    if (is_answer(message->type)) {
        memset(bytes + 12, 0, 4);
        put_number(bytes + 16, message->operand);
        return header_length(message->type);
    }
    put_number(bytes + 24, message->address);
    if (message->type == REGX_ONESIDED_GET) {
        put_number(bytes + 32, message->length);
    } else if (message->type == REGX_ONESIDED_ATOMIC) {
        put_number(bytes + 32, message->operand);
    } else if (message->type == REGX_ONESIDED_SWAP) {
        put_number(bytes + 32, message->compare);
        put_number(bytes + 40, message->operand);
    }
    return header_length(message->type);
}

static bool is_number(const regx_onesided_message_t *message)
{
    return (message->size == 4 || message->size == 8) && message->address % message->size == 0;
}

static bool read_request(const uint8_t *at, regx_onesided_message_t *message)
{
    message->address = get_number(at + 24);
    switch (message->type) {
    case REGX_ONESIDED_PUT:
        return true;
    case REGX_ONESIDED_GET:
        message->length = get_number(at + 32);
        return true;
    case REGX_ONESIDED_ATOMIC:
        message->operand = get_number(at + 32);
        return is_number(message) && message->detail < REGX_ATOMIC_OPS;
    default:
        message->compare = get_number(at + 32);
        message->operand = get_number(at + 40);
        return is_number(message);
    }
}

bool regx_onesided_unpack(const void *bytes, size_t length, regx_onesided_message_t *message)
{
    const uint8_t *at = bytes;
    head_t head;

    if (length < sizeof(head)) {
        return false;
    }
    memcpy(&head, at, sizeof(head));
    const size_t header = header_length(head.type);
    const bool has_data = head.type == REGX_ONESIDED_PUT || head.type == REGX_ONESIDED_DATA;
    if (head.version != VERSION || header == 0 || length < header ||
        (length > header && !has_data)) {
        return false;
    }
    *message = (regx_onesided_message_t){
        .type = (regx_onesided_type_t)head.type,
        .detail = head.detail,
        .size = head.size,
        .request = {le32toh(head.request), le32toh(head.request_generation)},
        .window = {le32toh(head.window), le32toh(head.window_generation)},
        .data = at + header,
        .data_length = length - header};
    if (is_answer(head.type)) {
        message->operand = get_number(at + 16);
        return true;
    }
    return read_request(at, message);
}
