/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/tcp/tcp_frame.h"

#include <string.h>

#include "base/little_endian.h"

/* Bytes that all messages have, and bytes before a put's notice. */
enum { HEAD = 16, PUT_HEAD = 56 };

enum { WIRE_POOL = 0, WIRE_REGION = 1 };

size_t regx_tcp_encode(const regx_tcp_frame_t *frame, void *buffer)
{
    uint8_t *at = buffer;

    at[0] = REGX_TCP_VERSION;
    at[1] = (uint8_t)frame->kind;
    at[2] = frame->tag;
    at[3] = WIRE_POOL;
    regx_le_put(at + 4, frame->length, 4);
    regx_le_put(at + 8, frame->sender, 8);
    if (!regx_tcp_is_put(frame->kind)) {
        return HEAD;
    }
    regx_le_put(at + 16, frame->offset, 8);
    if (frame->target == REGX_TARGET_REGION) {
        at[3] = WIRE_REGION;
        memcpy(at + 24, frame->key.bytes, REGX_KEY_SIZE);
    } else {
        memset(at + 24, 0, REGX_KEY_SIZE);
    }
    regx_le_put(at + 48, frame->notice_length, 8); /* and seven zeros */
    if (frame->notice_length > 0) {
        memcpy(at + PUT_HEAD, frame->notice, frame->notice_length);
    }
    return PUT_HEAD + frame->notice_length;
}

/* What a put has before the data. Returns its length, 0 if malformed. */
static size_t decode_put(const uint8_t *at, size_t length, regx_tcp_frame_t *frame)
{
    static const uint8_t zero[REGX_KEY_SIZE];

    if (length < PUT_HEAD) {
        return 0;
    }
    const uint8_t target = at[3];
    const uint64_t notice_length = regx_le_get(at + 48, 8); /* and seven zeros */

    frame->offset = regx_le_get(at + 16, 8);
    memcpy(frame->key.bytes, at + 24, REGX_KEY_SIZE);
    frame->notice_length = (uint8_t)notice_length;
    frame->notice = at + PUT_HEAD;
    if (target > WIRE_REGION || notice_length > REGX_NOTICE_MAX ||
        notice_length > length - PUT_HEAD ||
        (frame->kind == REGX_TCP_PIECE && (notice_length != 0 || frame->tag != 0)) ||
        (target == WIRE_POOL && memcmp(at + 24, zero, sizeof(zero)) != 0)) {
        return 0;
    }
    frame->target = target == WIRE_POOL ? REGX_TARGET_POOL : REGX_TARGET_REGION;
    return PUT_HEAD + notice_length;
}

/* Bytes of data that a message of this kind may have. */
static uint32_t longest(regx_tcp_kind_t kind)
{
    switch (kind) {
    case REGX_TCP_FRAME:
        return REGX_TCP_DATA_MAX;
    case REGX_TCP_PIECE:
    case REGX_TCP_LAST:
        return REGX_TCP_PIECE_MAX;
    case REGX_TCP_CONNECT:
        return sizeof(uint64_t);
    case REGX_TCP_HELLO:
    case REGX_TCP_GOODBYE:
    case REGX_TCP_WELCOME:
        break;
    }
    return 0;
}

/* The part that all kinds have. */
static regx_status_t decode_common(const uint8_t *at, regx_tcp_frame_t *frame)
{
    if (at[0] != REGX_TCP_VERSION || at[1] < REGX_TCP_FRAME || at[1] > REGX_TCP_WELCOME) {
        return REGX_INVALID;
    }
    frame->kind = (regx_tcp_kind_t)at[1];
    frame->tag = at[2];
    frame->length = regx_le_get(at + 4, 4);
    frame->sender = regx_le_get(at + 8, 8);
    return frame->length <= longest(frame->kind) ? REGX_OK : REGX_INVALID;
}

regx_status_t regx_tcp_measure(const void *message, size_t have, regx_tcp_frame_t *frame,
                               size_t *length)
{
    const uint8_t *at = message;

    *length = HEAD;
    if (have < HEAD) {
        return REGX_AGAIN;
    }
    if (decode_common(at, frame) != REGX_OK) {
        return REGX_INVALID;
    }
    if (!regx_tcp_is_put(frame->kind)) {
        return REGX_OK;
    }
    *length = PUT_HEAD;
    if (have < PUT_HEAD) {
        return REGX_AGAIN;
    }
    *length += at[48];
    if (at[48] > REGX_NOTICE_MAX) {
        return REGX_INVALID;
    }
    return have < *length ? REGX_AGAIN : REGX_OK;
}

regx_status_t regx_tcp_decode_head(const void *message, size_t length, regx_tcp_frame_t *frame)
{
    const uint8_t *at = message;
    size_t head = HEAD;

    memset(frame, 0, sizeof(*frame));
    if (length < HEAD || decode_common(at, frame) != REGX_OK) {
        return REGX_INVALID;
    }
    if (regx_tcp_is_put(frame->kind)) {
        head = decode_put(at, length, frame);
        if (head == 0) {
            return REGX_INVALID;
        }
    } else if (at[3] != 0 || (frame->kind != REGX_TCP_FRAME && frame->tag != 0)) {
        return REGX_INVALID;
    }
    frame->data = at + head;
    return REGX_OK;
}

regx_status_t regx_tcp_decode(const void *message, size_t length, regx_tcp_frame_t *frame)
{
    if (regx_tcp_decode_head(message, length, frame) != REGX_OK) {
        return REGX_INVALID;
    }
    const size_t head = (size_t)((const char *)frame->data - (const char *)message);

    return frame->length == length - head ? REGX_OK : REGX_INVALID;
}
