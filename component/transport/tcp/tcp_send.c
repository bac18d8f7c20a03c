/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The sending side of tcp: frames, and puts in line.
 *
 * UCX holds at most one message per connection that the kernel has not taken, and refuses the
 * next one. So there is nothing to queue here but puts, and those lie in memory of the caller.
 */
#include <string.h>

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

static void count_bytes(const regx_tcp_t *tcp, size_t bytes)
{
    regx_count_transport(tcp->config.counters, REGX_COUNTER_bytes_tcp, bytes);
}

regx_status_t regx_tcp_send(regx_conn_t *super, uint8_t tag, const void *header,
                            size_t header_length, regx_pack_t pack, void *pack_context,
                            size_t payload_length)
{
    regx_tcp_conn_t *conn = regx_tcp_conn_of(super);
    regx_tcp_t *tcp = regx_tcp_at(conn);
    const regx_tcp_frame_t frame = {.kind = REGX_TCP_FRAME,
                                    .tag = tag,
                                    .sender = tcp->config.self,
                                    .length = header_length + payload_length};
    regx_status_t status;

    if (frame.length > REGX_TCP_DATA_MAX) {
        return REGX_INVALID;
    }
    if (!regx_try_lock_enter(&tcp->try_lock)) {
        return REGX_AGAIN;
    }
    status = regx_tcp_ready(conn);
    if (status == REGX_OK && conn->first != NULL) {
        status = REGX_AGAIN; /* behind the puts in line */
    }
    if (status == REGX_OK) {
        status = regx_tcp_send_message(conn, &frame, header, header_length, pack, pack_context,
                                       payload_length);
    }
    regx_try_lock_leave(&tcp->try_lock);
    if (status == REGX_OK) {
        regx_tcp_stir(tcp);
        count_bytes(tcp, frame.length);
    }
    return status;
}

regx_status_t regx_tcp_send_zcopy(regx_conn_t *conn, regx_zcopy_t *zcopy)
{
    return regx_tcp_send(conn, zcopy->tag, zcopy->data, zcopy->length, NULL, NULL, 0);
}

_Static_assert(REGX_TCP_PIECE_MAX + REGX_TCP_HEAD_MAX + 5 <= 65483,
               "a piece, its head and UCT's fit one segment of the loopback");

/* Cuts what is left of a put into as few pieces as possible, of about the same length: a short last
 * one costs as many system calls as a long one. */
static size_t piece_length(size_t left)
{
    const size_t pieces = (left + REGX_TCP_PIECE_MAX - 1) / REGX_TCP_PIECE_MAX;

    return pieces <= 1 ? left : regx_min(regx_align_up(left / pieces, 64), REGX_TCP_PIECE_MAX);
}

/* Hands the next piece of a put to UCT, which may go on reading it (in_flight). */
static regx_status_t send_piece(regx_tcp_conn_t *conn, regx_put_t *put)
{
    const size_t sent = sent_of(put);
    const size_t left = put->length - sent;
    const size_t length = piece_length(left);
    regx_tcp_frame_t frame = {.kind = length == left ? REGX_TCP_LAST : REGX_TCP_PIECE,
                              .sender = regx_tcp_at(conn)->config.self,
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
    status = regx_tcp_answer(conn, ucs_status);
    if (status == REGX_OK) {
        conn->in_flight = ucs_status == UCS_INPROGRESS;
        put->scratch[SCRATCH_SENT] = (void *)(uintptr_t)(sent + length);
        put->scratch[SCRATCH_COMPLETE] = frame.kind == REGX_TCP_LAST ? put : NULL;
        count_bytes(regx_tcp_at(conn), length);
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
    regx_arbiter_add(&regx_tcp_at(conn)->arbiter, &conn->entry);
}

regx_status_t regx_tcp_put(regx_conn_t *super, regx_put_t *put)
{
    regx_tcp_conn_t *conn = regx_tcp_conn_of(super);
    regx_tcp_t *tcp = regx_tcp_at(conn);
    const uint64_t room =
        put->target == REGX_TARGET_POOL ? conn->pool_size : regx_key_length(&put->key);
    regx_status_t status;

    if (put->notice_length > REGX_NOTICE_MAX || put->offset > room ||
        put->length > room - put->offset) {
        return REGX_INVALID;
    }
    if (!regx_try_lock_enter(&tcp->try_lock)) {
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
        regx_tcp_stir(tcp);
        status = REGX_OK;
        if (conn->first != NULL || conn->in_flight || !is_complete(put)) {
            line_up(conn, put);
            status = REGX_PENDING;
        }
    }
    regx_try_lock_leave(&tcp->try_lock);
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

    while (conn->first != NULL && conn->state != REGX_TCP_BROKEN && !conn->in_flight) {
        regx_put_t *put = conn->first;

        if (is_complete(put)) {
            conn->first = put->scratch[SCRATCH_NEXT];
            regx_tcp_at(conn)->events++;
            put->done(put, REGX_OK); /* may put or send again */
        } else if (pieces++ == REGX_TCP_TURN_PIECES || send_piece(conn, put) != REGX_OK) {
            break;
        }
    }
}

void regx_tcp_take_turns(regx_tcp_t *tcp)
{
    for (int turns = 0; turns < REGX_TCP_TURN_CONNS && tcp->arbiter.first != NULL; turns++) {
        const bool last = tcp->arbiter.first == tcp->arbiter.last;
        regx_tcp_conn_t *conn =
            REGX_CONTAINER_OF(regx_arbiter_take(&tcp->arbiter), regx_tcp_conn_t, entry);

        if (regx_tcp_ready(conn) == REGX_OK) {
            take_turn(conn);
        }
        if (conn->first != NULL && conn->state != REGX_TCP_BROKEN) {
            regx_arbiter_add(&tcp->arbiter, &conn->entry);
        }
        if (last) {
            break; /* everybody had a turn */
        }
    }
}
