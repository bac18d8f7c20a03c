/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The sending side of tcp: frames, and puts in line.
 *
 * UCX holds at most one message per connection that the kernel has not taken, and refuses the
 * next one. So there is nothing to queue here but puts, and those lie in memory of the caller.
 */
#include <string.h>

#include "transport/frame.h"
#include "transport/tcp/tcp_internal.h"

/* What scratch[] of a put in line holds: the next one; bytes handed on; whether the last piece
 * was (not NULL). */
enum { SCRATCH_NEXT, SCRATCH_SENT, SCRATCH_COMPLETE };

static size_t sent_of(const regx_put_t *put)
{
    return (size_t)(uintptr_t)put->scratch[SCRATCH_SENT];
}

static bool is_complete(const regx_put_t *put)
{
    return put->scratch[SCRATCH_COMPLETE] != NULL;
}

/* What UCT's answer to a message means. */
static regx_status_t answer(regx_tcp_conn_t *conn, ucs_status_t status)
{
    if (status == UCS_OK || status == UCS_INPROGRESS) {
        return REGX_OK;
    }
    if (status == UCS_ERR_NO_RESOURCE) {
        return REGX_AGAIN;
    }
    conn->missed = true;
    regx_tcp_note_broken(conn);
    return REGX_UNREACHABLE;
}

static void count_bytes(const regx_tcp_t *tcp, size_t bytes)
{
    regx_count(tcp->config->counters, &tcp->config->counters->bytes_tcp, bytes);
}

/* A frame's parts, while UCT has it packed. */
typedef struct parts {
    regx_tcp_frame_t frame;
    const void *header;
    size_t header_length;
    regx_pack_t pack;
    void *pack_context;
    size_t payload_length;
} parts_t;

static size_t pack_frame(void *to, void *context)
{
    const parts_t *parts = context;
    char *at = to;

    at += regx_tcp_encode(&parts->frame, at);
    regx_frame_fill(at, parts->header, parts->header_length, parts->pack, parts->pack_context,
                    parts->payload_length);
    return (size_t)(at - (char *)to) + parts->header_length + parts->payload_length;
}

/* Sends one message by copy, within UCX. */
static regx_status_t send_parts(regx_tcp_conn_t *conn, parts_t *parts)
{
    const ssize_t sent = uct_ep_am_bcopy(conn->ep, REGX_TCP_AM_ID, pack_frame, parts, 0);

    return answer(conn, sent < 0 ? (ucs_status_t)sent : UCS_OK);
}

regx_status_t regx_tcp_send_empty(regx_tcp_conn_t *conn, regx_tcp_kind_t kind)
{
    parts_t parts = {.frame = {.kind = kind, .sender = conn->tcp->config->self}};

    return send_parts(conn, &parts);
}

regx_status_t regx_tcp_send(regx_tcp_conn_t *conn, uint8_t tag, const void *header,
                            size_t header_length, regx_pack_t pack, void *pack_context,
                            size_t payload_length)
{
    regx_tcp_t *tcp = conn->tcp;
    parts_t parts = {.frame = {.kind = REGX_TCP_FRAME,
                               .tag = tag,
                               .sender = tcp->config->self,
                               .length = header_length + payload_length},
                     .header = header,
                     .header_length = header_length,
                     .pack = pack,
                     .pack_context = pack_context,
                     .payload_length = payload_length};
    regx_status_t status;

    if (parts.frame.length > REGX_TCP_DATA_MAX) {
        return REGX_INVALID;
    }
    if (!regx_enter(&tcp->entrance)) {
        return REGX_AGAIN;
    }
    status = regx_tcp_ready(conn);
    if (status == REGX_OK && conn->first != NULL) {
        status = REGX_AGAIN; /* behind the puts in line */
    }
    if (status == REGX_OK) {
        status = send_parts(conn, &parts);
    }
    regx_leave(&tcp->entrance);
    if (status == REGX_OK) {
        count_bytes(tcp, parts.frame.length);
    }
    return status;
}

regx_status_t regx_tcp_lend(regx_tcp_conn_t *conn, const regx_lend_t *lend)
{
    return regx_tcp_send(conn, lend->tag, lend->data, lend->length, NULL, NULL, 0);
}

void regx_tcp_piece_left(uct_completion_t *completion)
{
    regx_tcp_conn_t *conn =
        (regx_tcp_conn_t *)((char *)completion - offsetof(regx_tcp_conn_t, completion));

    conn->in_flight = false;
    if (completion->status != UCS_OK) {
        regx_tcp_note_broken(conn);
    }
}

/* Hands the next piece of a put to UCT, which may go on reading it (in_flight). */
static regx_status_t send_piece(regx_tcp_conn_t *conn, regx_put_t *put)
{
    const size_t sent = sent_of(put);
    const size_t left = put->length - sent;
    const size_t length = left < REGX_TCP_DATA_MAX ? left : REGX_TCP_DATA_MAX;
    regx_tcp_frame_t frame = {.kind = length == left ? REGX_TCP_LAST : REGX_TCP_PIECE,
                              .sender = conn->tcp->config->self,
                              .target = put->target,
                              .offset = put->offset + sent,
                              .key = put->key,
                              .length = length};
    const uct_iov_t iov = {.buffer = (char *)(uintptr_t)put->local + sent,
                           .length = length,
                           .memh = UCT_MEM_HANDLE_NULL,
                           .count = 1};
    uint8_t head[REGX_TCP_HEAD_MAX];
    ucs_status_t ucs_status;
    regx_status_t status;

    if (frame.kind == REGX_TCP_LAST) {
        frame.tag = put->tag;
        frame.notice = put->notice;
        frame.notice_length = put->notice_length;
    }
    conn->completion.count = 1;
    conn->completion.status = UCS_OK;
    ucs_status =
        uct_ep_am_zcopy(conn->ep, REGX_TCP_AM_ID, head, (unsigned)regx_tcp_encode(&frame, head),
                        &iov, length > 0 ? 1 : 0, 0, &conn->completion);
    status = answer(conn, ucs_status);
    if (status == REGX_OK) {
        conn->in_flight = ucs_status == UCS_INPROGRESS;
        put->scratch[SCRATCH_SENT] = (void *)(uintptr_t)(sent + length);
        put->scratch[SCRATCH_COMPLETE] = frame.kind == REGX_TCP_LAST ? put : NULL;
        count_bytes(conn->tcp, length);
    }
    return status;
}

static void line_up(regx_tcp_conn_t *conn, regx_put_t *put)
{
    if (conn->first == NULL) {
        conn->first = put;
    } else {
        conn->last->scratch[SCRATCH_NEXT] = put;
    }
    conn->last = put;
    regx_turn_await(&conn->tcp->turns, &conn->turn);
}

regx_status_t regx_tcp_put(regx_tcp_conn_t *conn, regx_put_t *put)
{
    const uint64_t room =
        put->target == REGX_TARGET_POOL ? conn->pool_size : regx_key_length(&put->key);
    regx_tcp_t *tcp = conn->tcp;
    regx_status_t status;

    if (put->notice_length > REGX_NOTICE_MAX || put->offset > room ||
        put->length > room - put->offset) {
        return REGX_INVALID;
    }
    if (!regx_enter(&tcp->entrance)) {
        return REGX_AGAIN;
    }
    put->scratch[SCRATCH_NEXT] = NULL;
    put->scratch[SCRATCH_SENT] = NULL;
    put->scratch[SCRATCH_COMPLETE] = NULL;
    status = regx_tcp_ready(conn);
    if (conn->first == NULL) {
        for (int i = 0;
             i < REGX_TCP_TURN_PIECES && status == REGX_OK && !conn->in_flight && !is_complete(put);
             i++) {
            status = send_piece(conn, put);
        }
    }
    if (status != REGX_UNREACHABLE) {
        status = REGX_OK;
        if (conn->first != NULL || conn->in_flight || !is_complete(put)) {
            line_up(conn, put);
            status = REGX_PENDING;
        }
    }
    regx_leave(&tcp->entrance);
    return status;
}

regx_put_t *regx_tcp_take_line(regx_tcp_conn_t *conn)
{
    regx_put_t *first = conn->first;

    conn->first = NULL;
    return first;
}

void regx_tcp_fail_line(regx_put_t *put, regx_status_t status)
{
    while (put != NULL) {
        regx_put_t *next = put->scratch[SCRATCH_NEXT];

        put->done(put, status);
        put = next;
    }
}

/* Moves the line of one connection on. */
static void take_turn(regx_tcp_conn_t *conn)
{
    int pieces = 0;

    while (conn->first != NULL && !conn->broken && !conn->in_flight) {
        regx_put_t *put = conn->first;

        if (is_complete(put)) {
            conn->first = put->scratch[SCRATCH_NEXT];
            conn->tcp->events++;
            put->done(put, REGX_OK); /* may put or send again */
        } else if (pieces++ == REGX_TCP_TURN_PIECES || send_piece(conn, put) != REGX_OK) {
            break;
        }
    }
}

static regx_tcp_conn_t *conn_of(regx_turn_t *turn)
{
    return (regx_tcp_conn_t *)((char *)turn - offsetof(regx_tcp_conn_t, turn));
}

void regx_tcp_take_turns(regx_tcp_t *tcp)
{
    for (int turns = 0; turns < REGX_TCP_TURN_CONNS && tcp->turns.first != NULL; turns++) {
        const bool last = tcp->turns.first == tcp->turns.last;
        regx_tcp_conn_t *conn = conn_of(regx_turn_take(&tcp->turns));

        if (regx_tcp_ready(conn) == REGX_OK) {
            take_turn(conn);
        }
        if (conn->first != NULL && !conn->broken) {
            regx_turn_await(&conn->tcp->turns, &conn->turn);
        }
        if (last) {
            break; /* everybody had a turn */
        }
    }
}
