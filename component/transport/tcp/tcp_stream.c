/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The receiving side of tcp: from the bytes of a link to messages.
 *
 * Short messages are read several at once and looked at where they were read. The data of a put is
 * read to where it belongs, but for its first bytes, which come with its head. The key is checked
 * anew before each read, under the lock of the rkey table.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/copy.h"
#include "transport/tcp/tcp_internal.h"

enum { READS = 4 }; /* of one link in one turn */

/* Writes a piece to where its sender may write. REGX_OK; REGX_INVALID. */
static regx_status_t write_piece(regx_tcp_t *tcp, const regx_tcp_frame_t *frame, uint64_t offset,
                                 size_t length, regx_rkey_fill_t fill, void *context)
{
    if (frame->target == REGX_TARGET_REGION) {
        return regx_rkey_table_fill(tcp->config.rkeys, &frame->key, offset, length, fill, context);
    }
    if (offset > tcp->super.pool_size || length > tcp->super.pool_size - offset) {
        return REGX_INVALID;
    }
    fill(context, (char *)tcp->super.pool_memory + offset, length);
    return REGX_OK;
}

static void copy(void *data, void *to, size_t length)
{
    if (length > 0) {
        regx_copy(to, data, length);
    }
}

static void deliver_notice(regx_tcp_t *tcp, const regx_tcp_frame_t *frame)
{
    const regx_transport_events_t *events = &tcp->config.events;

    events->deliver(events->context, frame->sender, frame->tag, frame->notice,
                    frame->notice_length);
}

/* Does what a message asks for. REGX_OK; REGX_INVALID: it is refused. */
static regx_status_t accept_frame(regx_tcp_t *tcp, const regx_tcp_frame_t *frame)
{
    const regx_transport_events_t *events = &tcp->config.events;
    regx_status_t status = REGX_OK;

    switch (frame->kind) {
    case REGX_TCP_FRAME:
        events->deliver(events->context, frame->sender, frame->tag, frame->data, frame->length);
        break;
    case REGX_TCP_PIECE:
    case REGX_TCP_LAST:
        status = write_piece(tcp, frame, frame->offset, frame->length, copy,
                             (void *)(uintptr_t)frame->data);
        if (status == REGX_OK && frame->kind == REGX_TCP_LAST) {
            deliver_notice(tcp, frame);
        }
        break;
    case REGX_TCP_HELLO:
    case REGX_TCP_GOODBYE:
    case REGX_TCP_CONNECT:
    case REGX_TCP_WELCOME:
        status = REGX_INVALID;
        break;
    }
    return status;
}

static void count_malformed(regx_tcp_t *tcp)
{
    regx_count(tcp->config.counters, &tcp->config.counters->malformed, 1);
}

regx_status_t regx_tcp_receive(regx_tcp_t *tcp, const void *message, size_t length)
{
    regx_tcp_frame_t frame;

    tcp->events++;
    if (regx_tcp_decode(message, length, &frame) != REGX_OK ||
        accept_frame(tcp, &frame) != REGX_OK) {
        count_malformed(tcp);
        return REGX_INVALID;
    }
    return REGX_OK;
}

/* ---- puts whose data has not all come ---- */

static size_t missing(const regx_tcp_link_t *link)
{
    return link->put.length - link->landed;
}

/* So many bytes of data have come. After the last one the put is done. */
static void advance(regx_tcp_link_t *link, size_t bytes)
{
    link->landed += bytes;
    if (missing(link) > 0) {
        return;
    }
    const bool refused = link->landing == REGX_TCP_LANDING_REFUSED;

    link->landing = refused && link->put.kind == REGX_TCP_PIECE ? REGX_TCP_LANDING_HOLED
                                                                : REGX_TCP_LANDING_NONE;
    link->expects = REGX_TCP_SHORT_READ;
    link->tcp->events++;
    if (refused) {
        count_malformed(link->tcp);
    } else if (link->put.kind == REGX_TCP_LAST) {
        deliver_notice(link->tcp, &link->put);
    }
}

/* Data that has been read elsewhere goes to its place. */
static void place(regx_tcp_link_t *link, const uint8_t *data, size_t length)
{
    if (link->landing == REGX_TCP_LANDING_PLACED &&
        write_piece(link->tcp, &link->put, link->put.offset + link->landed, length, copy,
                    (void *)(uintptr_t)data) != REGX_OK) {
        link->landing = REGX_TCP_LANDING_REFUSED;
    }
    advance(link, length);
}

static void write_nothing(void *context, void *to, size_t length)
{
    (void)context, (void)to, (void)length;
}

/* Begins with a put, of whose data so much is there. */
static void begin_put(regx_tcp_link_t *link, const uint8_t *message, size_t head, size_t there)
{
    const bool refused = regx_tcp_decode_head(message, head, &link->put) != REGX_OK ||
                         link->landing == REGX_TCP_LANDING_HOLED ||
                         write_piece(link->tcp, &link->put, link->put.offset, link->put.length,
                                     write_nothing, NULL) != REGX_OK; /* all of it is inside */

    link->landing = refused ? REGX_TCP_LANDING_REFUSED : REGX_TCP_LANDING_PLACED;
    link->landed = 0;
    if (!refused && link->put.notice_length > 0) {
        memcpy(link->notice, link->put.notice, link->put.notice_length);
    }
    link->put.notice = link->notice;
    place(link, message + head, there);
}

/* A read of data to its place, and behind the last byte of it into the transport's own memory. */
typedef struct landing_read {
    regx_tcp_link_t *link;
    ssize_t bytes;
    int error;
} landing_read_t;

static void read_to(void *context, void *to, size_t length)
{
    landing_read_t *reading = context;
    regx_tcp_link_t *link = reading->link;
    struct iovec parts[] = {{to, length}, {link->tcp->incoming, REGX_TCP_SHORT_READ}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = length == missing(link) ? 2 : 1};

    reading->bytes = recvmsg(link->fd, &message, MSG_DONTWAIT);
    reading->error = errno;
}

/* ---- bytes ---- */

/* A malformed frame of a link. */
static void end_malformed(regx_tcp_link_t *link)
{
    count_malformed(link->tcp);
    regx_tcp_link_end(link);
}

/* After nothing was read. */
static void look_why(regx_tcp_link_t *link, ssize_t bytes, int error)
{
    if (bytes == 0 || (error != EAGAIN && error != EINTR && error != ENOMEM && error != ENOBUFS)) {
        regx_tcp_link_fail(link, bytes == 0 ? 0 : error);
    }
}

/* Connect may come again until the other has read the welcome. */
static bool connect_may_repeat(const regx_tcp_link_t *link)
{
    return link->asked == REGX_TCP_NOT_ASKED && link->received == REGX_TCP_RECEIVED_NOTHING;
}

/* Whether the link may say such a thing now. */
static bool is_expected(const regx_tcp_link_t *link, const regx_tcp_frame_t *frame)
{
    switch (link->state) {
    case REGX_TCP_LINK_CONNECTING:
        return frame->kind == REGX_TCP_WELCOME && frame->sender == link->peer;
    case REGX_TCP_LINK_STRANGER:
        return frame->kind == REGX_TCP_CONNECT;
    case REGX_TCP_LINK_HELD:
        return frame->kind == REGX_TCP_CONNECT && frame->sender == link->peer;
    case REGX_TCP_LINK_OPEN:
        return frame->sender == link->peer;
    case REGX_TCP_LINK_ENDED:
        break;
    }
    return false;
}

/* A hello or a goodbye. Nothing comes behind a goodbye. One may come without a hello: of who let go
 * of the link before it sent anything. */
static void take_hello_or_goodbye(regx_tcp_link_t *link, const uint8_t *message, size_t length)
{
    regx_tcp_frame_t frame;

    link->tcp->events++;
    if (link->received == REGX_TCP_RECEIVED_GOODBYE ||
        regx_tcp_decode(message, length, &frame) != REGX_OK) {
        count_malformed(link->tcp);
        return;
    }
    link->received =
        frame.kind == REGX_TCP_HELLO ? REGX_TCP_RECEIVED_HELLO : REGX_TCP_RECEIVED_GOODBYE;
}

/* The notice of a put, a piece of which was refused, is not delivered. */
static void take_piece(regx_tcp_link_t *link, const uint8_t *message, size_t length,
                       regx_tcp_kind_t kind)
{
    const bool holed = link->landing == REGX_TCP_LANDING_HOLED;

    link->landing = REGX_TCP_LANDING_NONE;
    if (holed) {
        count_malformed(link->tcp);
    }
    if ((holed || regx_tcp_receive(link->tcp, message, length) != REGX_OK) &&
        kind == REGX_TCP_PIECE) {
        link->landing = REGX_TCP_LANDING_HOLED;
    }
}

/* Handles one whole frame. */
static void take_message(regx_tcp_link_t *link, const uint8_t *message, size_t length,
                         const regx_tcp_frame_t *frame)
{
    if (link->state != REGX_TCP_LINK_OPEN) {
        if (regx_tcp_link_greet(link, frame) != REGX_OK) {
            end_malformed(link);
        }
        return;
    }
    if (frame->kind == REGX_TCP_HELLO || frame->kind == REGX_TCP_GOODBYE) {
        take_hello_or_goodbye(link, message, length);
    } else if (regx_tcp_is_put(frame->kind)) {
        take_piece(link, message, length, frame->kind);
    } else if (frame->kind != REGX_TCP_CONNECT || !connect_may_repeat(link)) {
        (void)regx_tcp_receive(link->tcp, message, length);
    }
}

/* Takes messages from the front of what was read; returns how many bytes they had. */
static size_t take_messages(regx_tcp_link_t *link, const uint8_t *bytes, size_t length)
{
    size_t at = 0;

    link->expects = REGX_TCP_SHORT_READ;
    while (at < length && link->state != REGX_TCP_LINK_ENDED) {
        const size_t have = length - at;
        regx_tcp_frame_t frame;
        size_t head;
        const regx_status_t status = regx_tcp_measure(bytes + at, have, &frame, &head);

        if (status == REGX_AGAIN) {
            break;
        }
        if (status != REGX_OK || !is_expected(link, &frame)) {
            end_malformed(link);
        } else if (have >= head + frame.length) {
            frame.data = bytes + at + head;
            take_message(link, bytes + at, head + frame.length, &frame);
            at += head + frame.length;
            link->expects = frame.kind == REGX_TCP_FRAME && frame.length > REGX_TCP_SHORT_READ
                                ? REGX_TCP_STAGING
                                : REGX_TCP_SHORT_READ;
        } else if (regx_tcp_is_put(frame.kind)) {
            begin_put(link, bytes + at, head, have - head);
            at = length;
        } else {
            link->expects = (uint32_t)(head + frame.length - have) + REGX_TCP_SHORT_READ;
            break;
        }
    }
    return at;
}

/* Takes what was read, and keeps the beginning of a message. */
static void take(regx_tcp_link_t *link, const uint8_t *bytes, size_t length)
{
    const size_t taken = take_messages(link, bytes, length);

    link->in_length = 0;
    if (taken == length || link->state == REGX_TCP_LINK_ENDED) {
        return;
    }
    link->in = malloc(length - taken);
    if (link->in == NULL) {
        regx_tcp_link_end(link);
        return;
    }
    memcpy(link->in, bytes + taken, length - taken);
    link->in_length = (uint32_t)(length - taken);
}

/* Whether there may be more. */
static bool read_messages(regx_tcp_link_t *link, bool *moved)
{
    uint8_t *incoming = link->tcp->incoming;
    const size_t before = link->in_length;
    const size_t asked = regx_min(link->expects, REGX_TCP_STAGING - before);
    const ssize_t bytes = recv(link->fd, incoming + before, asked, MSG_DONTWAIT);

    if (bytes <= 0) {
        look_why(link, bytes, errno);
        return false;
    }
    if (before > 0) {
        memcpy(incoming, link->in, before);
        free(link->in);
        link->in = NULL;
    }
    *moved = true;
    take(link, incoming, before + (size_t)bytes);
    return (size_t)bytes == asked;
}

/* The same, of the data of a put that is refused. */
static bool read_nowhere(regx_tcp_link_t *link, bool *moved)
{
    const size_t asked = regx_min(missing(link), REGX_TCP_STAGING);
    const ssize_t bytes = recv(link->fd, link->tcp->incoming, asked, MSG_DONTWAIT);

    if (bytes <= 0) {
        look_why(link, bytes, errno);
        return false;
    }
    *moved = true;
    advance(link, (size_t)bytes);
    return (size_t)bytes == asked;
}

/* The same, of the data of any other. */
static bool read_data(regx_tcp_link_t *link, bool *moved)
{
    const size_t asked = regx_min(missing(link), REGX_TCP_READ_MAX);
    landing_read_t reading = {.link = link};

    if (write_piece(link->tcp, &link->put, link->put.offset + link->landed, asked, read_to,
                    &reading) != REGX_OK ||
        (reading.bytes < 0 && reading.error == EFAULT)) { /* the memory is gone */
        link->landing = REGX_TCP_LANDING_REFUSED;
        return true;
    }
    if (reading.bytes <= 0) {
        look_why(link, reading.bytes, reading.error);
        return false;
    }
    const size_t bytes = (size_t)reading.bytes, data = regx_min(bytes, asked);

    *moved = true;
    advance(link, data);
    if (bytes > data) {
        take(link, link->tcp->incoming, bytes - data);
    }
    return bytes >= asked;
}

static bool read_on(regx_tcp_link_t *link, bool *moved)
{
    switch (link->landing) {
    case REGX_TCP_LANDING_PLACED:
        return read_data(link, moved);
    case REGX_TCP_LANDING_REFUSED:
        return read_nowhere(link, moved);
    default:
        return read_messages(link, moved);
    }
}

bool regx_tcp_link_read(regx_tcp_link_t *link)
{
    bool moved = false, more = true;

    regx_tcp_gather_begin(link->tcp);
    for (int i = 0; i < READS && more && link->state != REGX_TCP_LINK_ENDED; i++) {
        more = read_on(link, &moved);
    }
    regx_tcp_gather_end(link->tcp);
    if (link->received == REGX_TCP_RECEIVED_GOODBYE && link->conn == NULL &&
        link->state == REGX_TCP_LINK_OPEN) {
        regx_tcp_link_end(link); /* nobody sends by it any more */
    }
    return moved;
}
