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

regx_status_t regx_tcp_decode(const void *message, size_t length, regx_tcp_frame_t *frame)
{
    const char *at = message;
    head_t head;

    memset(frame, 0, sizeof(*frame));
    if (length < sizeof(head)) {
        return REGX_INVALID;
    }
    memcpy(&head, at, sizeof(head));
    at += sizeof(head);
    length -= sizeof(head);
    if (head.version != REGX_TCP_VERSION || head.kind < REGX_TCP_FRAME ||
        head.kind > REGX_TCP_GOODBYE) {
        return REGX_INVALID;
    }
    frame->kind = (regx_tcp_kind_t)head.kind;
    frame->tag = head.tag;
    frame->sender = le64toh(head.sender);
    frame->length = le32toh(head.length);
    if (!regx_tcp_is_put(frame->kind)) {
        if (head.target != 0 ||
            (frame->kind != REGX_TCP_FRAME && (frame->tag != 0 || frame->length != 0))) {
            return REGX_INVALID;
        }
    } else {
        const size_t put_length = decode_put(at, length, head.target, frame);

        if (put_length == 0) {
            return REGX_INVALID;
        }
        at += put_length;
        length -= put_length;
    }
    frame->data = at;
    return frame->length == length ? REGX_OK : REGX_INVALID;
}
