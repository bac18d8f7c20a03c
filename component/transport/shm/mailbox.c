/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/mailbox.h"

#include <string.h>

#include "transport/frame.h"

#define PUBLISH_LINES (REGX_MAILBOX_LINES / 4)
/* Of a payload so much is fetched while Open MPI looks for the request that it belongs to. */
#define FETCHED 1024u

_Static_assert(sizeof(regx_mailbox_line_t) == 64, "a line is one cache line");
_Static_assert(8 * REGX_MAILBOX_MAX <= 3 * REGX_MAILBOX_PAYLOAD_MIN,
               "every frame has room in an empty ring");

static uint32_t lap_of(uint64_t line)
{
    return (uint32_t)(line / REGX_MAILBOX_LINES) + 1;
}

/* Payload is laid out in whole cache lines. */
static uint64_t padded(size_t length)
{
    return ((uint64_t)length + 63) & ~(uint64_t)63;
}

/* Where in a ring, a power of two, a position of its stream lies. */
static uint64_t offset_in_ring(uint64_t position, uint32_t ring)
{
    return position & (ring - 1);
}

void regx_mailbox_out_init(regx_mailbox_out_t *out, regx_mailbox_memory_t *memory, uint32_t ring)
{
    *out = (regx_mailbox_out_t){.memory = memory, .ring = ring};
}

void regx_mailbox_in_init(regx_mailbox_in_t *in, regx_mailbox_memory_t *memory, uint32_t ring)
{
    memset(in, 0, sizeof(*in));
    in->memory = memory;
    in->ring = ring;
    in->next = &memory->lines[0];
    in->lap = lap_of(0);
}

static bool has_lines(regx_mailbox_out_t *out, uint32_t count)
{
    if (out->line + count - out->consumed_lines <= REGX_MAILBOX_LINES) {
        return true;
    }
    out->consumed_lines = atomic_load_explicit(&out->memory->consumed.lines, memory_order_acquire);
    return out->line + count - out->consumed_lines <= REGX_MAILBOX_LINES;
}

bool regx_mailbox_ready(regx_mailbox_out_t *out)
{
    return has_lines(out, 1);
}

/* Where in the payload stream `length` contiguous bytes start, or UINT64_MAX if there is no room.
 */
static uint64_t payload_room(regx_mailbox_out_t *out, size_t length)
{
    const uint64_t at = offset_in_ring(out->payload, out->ring);
    const uint64_t skip = at + padded(length) > out->ring ? out->ring - at : 0;
    const uint64_t end = out->payload + skip + padded(length);

    if (end - out->consumed_payload > out->ring) {
        out->consumed_payload =
            atomic_load_explicit(&out->memory->consumed.payload, memory_order_acquire);
        if (end - out->consumed_payload > out->ring) {
            return UINT64_MAX;
        }
    }
    return out->payload + skip;
}

static regx_mailbox_line_t *next_line(regx_mailbox_out_t *out)
{
    return &out->memory->lines[out->line % REGX_MAILBOX_LINES];
}

static uint32_t lines_of(size_t length)
{
    return length <= REGX_MAILBOX_INLINE
               ? 1
               : 1 + (uint32_t)((length - REGX_MAILBOX_INLINE + REGX_MAILBOX_MORE - 1) /
                                REGX_MAILBOX_MORE);
}

/* Where line `number` of the ring has its bytes if it goes on another one's frame. */
static uint8_t *more_of(regx_mailbox_memory_t *memory, uint64_t number)
{
    return (uint8_t *)&memory->lines[number % REGX_MAILBOX_LINES] + sizeof(uint32_t);
}

/* Makes a frame of `count` lines, now filled, visible to the poller: the first line last. */
static void publish(regx_mailbox_out_t *out, uint32_t count)
{
    for (uint64_t line = out->line + count - 1; line > out->line; line--) {
        atomic_store_explicit(&out->memory->lines[line % REGX_MAILBOX_LINES].sequence, lap_of(line),
                              memory_order_relaxed);
    }
    atomic_store_explicit(&next_line(out)->sequence, lap_of(out->line), memory_order_release);
    out->line += count;
}

/* Fills the lines from the next one on. */
static void fill_span(regx_mailbox_out_t *out, const void *header, size_t header_length,
                      regx_pack_t pack, void *pack_context, size_t payload_length)
{
    uint8_t bytes[REGX_MAILBOX_SPAN];
    const size_t length = header_length + payload_length;
    uint64_t line = out->line;

    regx_frame_fill(bytes, header, header_length, pack, pack_context, payload_length);
    memcpy(next_line(out)->data, bytes, REGX_MAILBOX_INLINE);
    for (size_t at = REGX_MAILBOX_INLINE; at < length; at += REGX_MAILBOX_MORE) {
        const size_t left = length - at;

        memcpy(more_of(out->memory, ++line), bytes + at,
               left < REGX_MAILBOX_MORE ? left : REGX_MAILBOX_MORE);
    }
}

regx_status_t regx_mailbox_post(regx_mailbox_out_t *out, uint8_t tag, const void *header,
                                size_t header_length, regx_pack_t pack, void *pack_context,
                                size_t payload_length)
{
    const size_t length = header_length + payload_length;
    const uint32_t count = length <= REGX_MAILBOX_SPAN ? lines_of(length) : 1;
    uint64_t position;

    if (length > REGX_MAILBOX_MAX) {
        return REGX_INVALID;
    }
    if (!has_lines(out, count)) {
        return REGX_AGAIN;
    }
    regx_mailbox_line_t *line = next_line(out);
    if (length <= REGX_MAILBOX_INLINE) {
        regx_frame_fill(line->data, header, header_length, pack, pack_context, payload_length);
        line->kind = REGX_FRAME_INLINE;
    } else if (length <= REGX_MAILBOX_SPAN) {
        fill_span(out, header, header_length, pack, pack_context, payload_length);
        line->kind = REGX_FRAME_SPAN;
    } else {
        position = payload_room(out, length);
        if (position == UINT64_MAX) {
            return REGX_AGAIN;
        }
        regx_frame_fill(out->memory->payload + offset_in_ring(position, out->ring), header,
                        header_length, pack, pack_context, payload_length);
        memcpy(line->data, &position, sizeof(position));
        line->kind = REGX_FRAME_PAYLOAD;
        out->payload = position + padded(length);
    }
    line->length = (uint16_t)length;
    line->tag = tag;
    publish(out, count);
    return REGX_OK;
}

regx_status_t regx_mailbox_post_zcopy(regx_mailbox_out_t *out, uint8_t tag, uint64_t offset,
                                      uint32_t length, uint32_t token, uint32_t lap)
{
    if (!regx_mailbox_ready(out)) {
        return REGX_AGAIN;
    }
    regx_mailbox_line_t *line = next_line(out);
    memcpy(line->data, &offset, sizeof(offset));
    memcpy(line->data + 8, &length, sizeof(length));
    memcpy(line->data + 12, &token, sizeof(token));
    memcpy(line->data + 16, &lap, sizeof(lap));
    line->kind = REGX_FRAME_ZCOPY;
    line->length = 0;
    line->tag = tag;
    publish(out, 1);
    return REGX_OK;
}

bool regx_mailbox_returned(const regx_mailbox_out_t *out, uint32_t token, uint32_t lap)
{
    return atomic_load_explicit(&out->memory->returned[token], memory_order_acquire) == lap;
}

static void fetch(const uint8_t *data, size_t length)
{
    for (size_t at = 0; at < length && at < FETCHED; at += 64) {
        __builtin_prefetch(data + at);
    }
}

static regx_status_t peek_payload(regx_mailbox_in_t *in, const regx_mailbox_line_t *line,
                                  regx_frame_t *frame)
{
    uint64_t position;

    memcpy(&position, line->data, sizeof(position));
    const uint64_t at = offset_in_ring(position, in->ring);
    if (frame->length > REGX_MAILBOX_MAX || position % 64 != 0 ||
        position - in->payload > in->ring || at + padded(frame->length) > in->ring) {
        return REGX_INVALID;
    }
    fetch(in->memory->payload + at, frame->length);
    frame->data = in->memory->payload + at;
    frame->offset = position;
    return REGX_OK;
}

static regx_status_t peek_span(regx_mailbox_in_t *in, const regx_mailbox_line_t *line,
                               regx_frame_t *frame)
{
    uint64_t number = in->line;

    if (frame->length <= REGX_MAILBOX_INLINE || frame->length > REGX_MAILBOX_SPAN) {
        return REGX_INVALID;
    }
    memcpy(in->gathered, line->data, REGX_MAILBOX_INLINE);
    for (size_t at = REGX_MAILBOX_INLINE; at < frame->length; at += REGX_MAILBOX_MORE) {
        memcpy(in->gathered + at, more_of(in->memory, ++number), REGX_MAILBOX_MORE);
    }
    frame->data = in->gathered;
    frame->lines = lines_of(frame->length);
    return REGX_OK;
}

static regx_status_t peek_zcopy(const regx_mailbox_line_t *line, regx_frame_t *frame)
{
    memcpy(&frame->offset, line->data, sizeof(frame->offset));
    memcpy(&frame->length, line->data + 8, sizeof(frame->length));
    memcpy(&frame->token, line->data + 12, sizeof(frame->token));
    memcpy(&frame->lap, line->data + 16, sizeof(frame->lap));
    return frame->token < REGX_MAILBOX_ZCOPIES ? REGX_OK : REGX_INVALID;
}

regx_status_t regx_mailbox_peek(regx_mailbox_in_t *in, regx_frame_t *frame)
{
    const regx_mailbox_line_t *line = in->next;

    if (!regx_mailbox_has(in)) {
        return REGX_AGAIN;
    }
    /* While this frame is handled, perhaps for microseconds, the next line travels. */
    __builtin_prefetch(&in->memory->lines[(in->line + 1) % REGX_MAILBOX_LINES]);
    frame->tag = line->tag;
    frame->length = line->length;
    frame->lines = 1;
    frame->kind = (regx_frame_kind_t)line->kind;
    switch (frame->kind) {
    case REGX_FRAME_INLINE:
        frame->data = line->data;
        return frame->length <= REGX_MAILBOX_INLINE ? REGX_OK : REGX_INVALID;
    case REGX_FRAME_PAYLOAD:
        return peek_payload(in, line, frame);
    case REGX_FRAME_SPAN:
        return peek_span(in, line, frame);
    case REGX_FRAME_ZCOPY:
        return peek_zcopy(line, frame);
    default:
        return REGX_INVALID;
    }
}

void regx_mailbox_pop(regx_mailbox_in_t *in, const regx_frame_t *frame)
{
    if (frame->kind == REGX_FRAME_PAYLOAD) {
        in->payload = frame->offset + padded(frame->length);
        if (in->payload - in->published_payload >= in->ring / 4) {
            in->published_payload = in->payload;
            atomic_store_explicit(&in->memory->consumed.payload, in->payload, memory_order_release);
        }
    }
    in->line += frame->lines;
    in->next = &in->memory->lines[in->line % REGX_MAILBOX_LINES];
    in->lap = lap_of(in->line);
    if (in->line - in->published_lines >= PUBLISH_LINES) {
        in->published_lines = in->line;
        atomic_store_explicit(&in->memory->consumed.lines, in->line, memory_order_release);
    }
}

void regx_mailbox_skip(regx_mailbox_in_t *in)
{
    const regx_frame_t nothing = {.kind = REGX_FRAME_INLINE, .lines = 1};

    regx_mailbox_pop(in, &nothing);
}

void regx_mailbox_return(regx_mailbox_in_t *in, uint32_t token, uint32_t lap)
{
    atomic_store_explicit(&in->memory->returned[token], lap, memory_order_release);
}
