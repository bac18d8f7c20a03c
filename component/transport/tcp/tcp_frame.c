/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/tcp/tcp_frame.h"

#include <endian.h>
#include <string.h>

typedef struct head {
    uint8_t version;
    uint8_t kind;
    uint8_t tag;
    uint8_t target;
    uint32_t length;
    uint64_t sender;
} head_t;

typedef struct put_head {
    uint64_t offset;
    regx_key_t key;
    uint8_t notice_length;
    uint8_t zero[7];
} put_head_t;

_Static_assert(sizeof(head_t) == 16 && sizeof(put_head_t) == 40, "as described in tcp_frame.h");

enum { WIRE_POOL = 0, WIRE_REGION = 1 };

size_t regx_tcp_encode(const regx_tcp_frame_t *frame, void *buffer)
{
    char *at = buffer;
    head_t head = {.version = REGX_TCP_VERSION,
                   .kind = (uint8_t)frame->kind,
                   .tag = frame->tag,
                   .length = htole32((uint32_t)frame->length),
                   .sender = htole64(frame->sender)};

    if (!regx_tcp_is_put(frame->kind)) {
        memcpy(at, &head, sizeof(head));
        return sizeof(head);
    }

    put_head_t put = {.offset = htole64(frame->offset), .notice_length = frame->notice_length};

    if (frame->target == REGX_TARGET_REGION) {
        head.target = WIRE_REGION;
        put.key = frame->key;
    }
    memcpy(at, &head, sizeof(head));
    memcpy(at + sizeof(head), &put, sizeof(put));
    if (frame->notice_length > 0) {
        memcpy(at + sizeof(head) + sizeof(put), frame->notice, frame->notice_length);
    }
    return sizeof(head) + sizeof(put) + frame->notice_length;
}

/* The part of a put between the common head and the data. Returns its length, 0 if malformed. */
static size_t decode_put(const char *at, size_t length, uint8_t target, regx_tcp_frame_t *frame)
{
    static const uint8_t zero[REGX_KEY_SIZE];
    put_head_t put;

    if (length < sizeof(put)) {
        return 0;
    }
    memcpy(&put, at, sizeof(put));
    frame->offset = le64toh(put.offset);
    frame->key = put.key;
    frame->notice_length = put.notice_length;
    frame->notice = at + sizeof(put);
    if (target > WIRE_REGION || memcmp(put.zero, zero, sizeof(put.zero)) != 0 ||
        put.notice_length > REGX_NOTICE_MAX || put.notice_length > length - sizeof(put) ||
        (frame->kind == REGX_TCP_PIECE && (put.notice_length != 0 || frame->tag != 0)) ||
        (target == WIRE_POOL && memcmp(put.key.bytes, zero, sizeof(zero)) != 0)) {
        return 0;
    }
    frame->target = target == WIRE_POOL ? REGX_TARGET_POOL : REGX_TARGET_REGION;
    return sizeof(put) + put.notice_length;
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
static regx_status_t decode_common(const char *at, regx_tcp_frame_t *frame, uint8_t *target)
{
    head_t head;

    memcpy(&head, at, sizeof(head));
    if (head.version != REGX_TCP_VERSION || head.kind < REGX_TCP_FRAME ||
        head.kind > REGX_TCP_WELCOME) {
        return REGX_INVALID;
    }
    frame->kind = (regx_tcp_kind_t)head.kind;
    frame->tag = head.tag;
    frame->sender = le64toh(head.sender);
    frame->length = le32toh(head.length);
    *target = head.target;
    return frame->length <= longest(frame->kind) ? REGX_OK : REGX_INVALID;
}

regx_status_t regx_tcp_measure(const void *message, size_t have, regx_tcp_frame_t *frame,
                               size_t *length)
{
    const char *at = message;
    put_head_t put;
    uint8_t target;

    *length = sizeof(head_t);
    if (have < sizeof(head_t)) {
        return REGX_AGAIN;
    }
    if (decode_common(at, frame, &target) != REGX_OK) {
        return REGX_INVALID;
    }
    if (!regx_tcp_is_put(frame->kind)) {
        return REGX_OK;
    }
    *length += sizeof(put);
    if (have < *length) {
        return REGX_AGAIN;
    }
    memcpy(&put, at + sizeof(head_t), sizeof(put));
    *length += put.notice_length;
    if (put.notice_length > REGX_NOTICE_MAX) {
        return REGX_INVALID;
    }
    return have < *length ? REGX_AGAIN : REGX_OK;
}

regx_status_t regx_tcp_decode_head(const void *message, size_t length, regx_tcp_frame_t *frame)
{
    const char *at = message;
    uint8_t target;

    memset(frame, 0, sizeof(*frame));
    if (length < sizeof(head_t) || decode_common(at, frame, &target) != REGX_OK) {
        return REGX_INVALID;
    }
    at += sizeof(head_t);
    length -= sizeof(head_t);
    if (!regx_tcp_is_put(frame->kind)) {
        if (target != 0 || (frame->kind != REGX_TCP_FRAME && frame->tag != 0)) {
            return REGX_INVALID;
        }
    } else {
        const size_t put_length = decode_put(at, length, target, frame);

        if (put_length == 0) {
            return REGX_INVALID;
        }
        at += put_length;
    }
    frame->data = at;
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
