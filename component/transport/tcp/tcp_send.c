/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The sending side of tcp: frames, and puts in line.
 *
 * A link keeps at most one message that the kernel has not taken, and refuses the next one. So
 * there is nothing to queue here but puts, and those lie in memory of the caller.
 */
#include <assert.h>
#include <string.h>

#include "transport/tcp/tcp_internal.h"

/* What scratch[] of a put in line holds: the next one; bytes handed on; whether the last piece
 * was begun (not NULL). */
enum { SCRATCH_NEXT, SCRATCH_SENT, SCRATCH_LAST };

static size_t sent_of(const regx_put_t *put)
{
    return (size_t)(uintptr_t)put->scratch[SCRATCH_SENT];
}

/* Of the first put in line, or one that is not yet in it. */
static bool is_complete(const regx_tcp_conn_t *conn, const regx_put_t *put)
{
    return put->scratch[SCRATCH_LAST] != NULL && conn->piece_left == 0;
}

static void count_bytes(const regx_tcp_t *tcp, size_t bytes)
{
    regx_count_transport(tcp->config.counters, REGX_COUNTER_bytes_tcp, bytes);
}

regx_status_t regx_tcp_send_empty(regx_tcp_link_t *link, regx_tcp_kind_t kind)
{
    const regx_tcp_frame_t frame = {.kind = kind, .sender = link->tcp->config.self};
    uint8_t head[REGX_TCP_HEAD_MAX];
    struct iovec part = {head, regx_tcp_encode(&frame, head)};

    return regx_tcp_link_write(link, &part, 1);
}

/* What a link's answer means for its connection. */
static regx_status_t answer(regx_tcp_conn_t *conn, regx_status_t status)
{
    if (status == REGX_UNREACHABLE) {
        conn->missed = true;
        regx_tcp_note_broken(conn);
    }
    return status;
}

/* Sees to it that the connection can be used. REGX_OK; REGX_AGAIN: soon; REGX_UNREACHABLE. */
static regx_status_t make_ready(regx_tcp_conn_t *conn)
{
    regx_tcp_t *tcp = regx_tcp_at(conn);
    regx_status_t status;

    regx_tcp_use(tcp);
    if (conn->state == REGX_TCP_OPEN) {
        return REGX_OK;
    }
    if (conn->state == REGX_TCP_BROKEN) {
        conn->missed = true;
        tcp->broke = true;
        return REGX_UNREACHABLE;
    }
    if (conn->state == REGX_TCP_NEW) {
        conn->state = REGX_TCP_CONNECTING;
        conn->next = tcp->open;
        tcp->open = conn;
    }
    if (conn->link == NULL) {
        status = answer(conn, regx_tcp_link_take(conn));
        if (status != REGX_OK) {
            return status;
        }
    }
    /* A link may have ended at once, and is tried again. */
    if (conn->link == NULL || conn->link->state != REGX_TCP_LINK_OPEN) {
        return REGX_AGAIN;
    }
    status = answer(conn, regx_tcp_send_empty(conn->link, REGX_TCP_HELLO));
    if (status == REGX_OK) {
        conn->state = REGX_TCP_OPEN;
    }
    return status;
}

/* What the link has kept leaves in progress. */
static void see_to_the_rest(regx_tcp_conn_t *conn)
{
    if (conn->link->out != NULL) {
        regx_arbiter_add(&regx_tcp_at(conn)->arbiter, &conn->entry);
    }
}

/* ---- what is sent from inside deliver and done ---- */

/* Whether a frame of so many bytes is to wait for others. */
static bool may_gather(const regx_tcp_conn_t *conn, size_t length)
{
    const regx_tcp_link_t *link = conn->link;

    return regx_tcp_at(conn)->gathering && length <= REGX_TCP_GATHERED_FRAME &&
           (link->out == NULL || REGX_TCP_HEAD_MAX + length <= link->out_room - link->out_length);
}

/* Adds it to what leaves by that link when gathering ends. false: there is no memory. */
static bool gather(regx_tcp_conn_t *conn, const struct iovec *parts, int count)
{
    regx_tcp_t *tcp = regx_tcp_at(conn);
    regx_tcp_link_t *link = conn->link;

    if (!regx_tcp_link_add(link, parts, count)) {
        return false;
    }
    if (!link->gathers) {
        link->gathers = true;
        link->next_gathered = tcp->gathered;
        tcp->gathered = link;
    }
    return true;
}

void regx_tcp_gather_begin(regx_tcp_t *tcp)
{
    tcp->gathering = true;
}

void regx_tcp_gather_end(regx_tcp_t *tcp)
{
    tcp->gathering = false;
    while (tcp->gathered != NULL) {
        regx_tcp_link_t *link = tcp->gathered;

        tcp->gathered = link->next_gathered;
        link->gathers = false;
        if (link->conn != NULL && answer(link->conn, regx_tcp_link_flush(link)) == REGX_AGAIN) {
            see_to_the_rest(link->conn);
        }
    }
}

/* ---- frames ---- */

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
    status = make_ready(conn);
    if (status == REGX_OK && conn->first != NULL) {
        status = REGX_AGAIN; /* behind the puts in line */
    }
    const bool gathers = status == REGX_OK && may_gather(conn, frame.length);
    if (status == REGX_OK && !gathers) {
        status = answer(conn, regx_tcp_link_flush(conn->link));
    }
    if (status == REGX_OK) {
        const size_t head = regx_tcp_encode(&frame, tcp->outgoing);
        struct iovec parts[] = {{tcp->outgoing, head + header_length},
                                {pack_context, payload_length}};
        const int count = payload_length > 0 ? 2 : 1;

        if (header_length > 0) {
            memcpy(tcp->outgoing + head, header, header_length);
        }
        if (pack != NULL && payload_length > 0) {
            parts[1].iov_base = tcp->outgoing + head + header_length;
            pack(pack_context, parts[1].iov_base, payload_length);
        }
        if (!gathers || !gather(conn, parts, count)) {
            status = answer(conn, regx_tcp_link_write(conn->link, parts, count));
            if (status == REGX_OK) {
                see_to_the_rest(conn);
            }
        }
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
    return regx_tcp_send(conn, zcopy->tag, NULL, 0, NULL, (void *)(uintptr_t)zcopy->data,
                         zcopy->length);
}

/* ---- puts ---- */

/* Writes on with the present piece of a put. REGX_OK: as much as was tried; REGX_AGAIN;
 * REGX_UNREACHABLE. */
static regx_status_t write_rest(regx_tcp_conn_t *conn, regx_put_t *put)
{
    const size_t length = regx_min(conn->piece_left, REGX_TCP_WRITE_MAX);
    struct iovec part = {(char *)(uintptr_t)put->local + sent_of(put), length};
    const size_t written = regx_tcp_link_push(conn->link, &part, 1);

    assert(written <= conn->piece_left);
    conn->piece_left -= written;
    put->scratch[SCRATCH_SENT] = (void *)(uintptr_t)(sent_of(put) + written);
    return written == length ? REGX_OK : REGX_AGAIN;
}

/* The beginning of the next piece of a put, behind what was gathered: its head, and what the kernel
 * takes of its data. The whole head counts as taken: the link keeps what is left of it. */
static regx_status_t begin_piece(regx_tcp_conn_t *conn, regx_put_t *put)
{
    const size_t sent = sent_of(put);
    const size_t left = put->length - sent;
    const size_t length = regx_min(left, REGX_TCP_PIECE_MAX);
    regx_tcp_frame_t frame = {.kind = length == left ? REGX_TCP_LAST : REGX_TCP_PIECE,
                              .sender = regx_tcp_at(conn)->config.self,
                              .target = put->target,
                              .offset = put->offset + sent,
                              .key = put->key,
                              .length = length};
    uint8_t head[REGX_TCP_HEAD_MAX];
    struct iovec parts[3]; /* the first is for what was gathered */

    if (frame.kind == REGX_TCP_LAST) {
        frame.tag = put->tag;
        frame.notice = put->notice;
        frame.notice_length = put->notice_length;
    }
    parts[1] = (struct iovec){head, regx_tcp_encode(&frame, head)};
    const size_t before = regx_tcp_link_kept(conn->link) + parts[1].iov_len;
    assert(before <= REGX_TCP_WRITE_MAX);
    parts[2] = (struct iovec){(char *)(uintptr_t)put->local + sent,
                              regx_min(length, REGX_TCP_WRITE_MAX - before)};
    const size_t wanted = parts[1].iov_len + parts[2].iov_len;
    const size_t written = regx_tcp_link_push_behind(conn->link, parts, 2);
    if (written == 0) {
        return REGX_AGAIN;
    }
    const size_t data = written > parts[1].iov_len ? written - parts[1].iov_len : 0;
    if (data == 0 && regx_tcp_link_keep(conn->link, &parts[1], 1, written) != REGX_OK) {
        return REGX_UNREACHABLE;
    }
    conn->piece_left = length - data;
    put->scratch[SCRATCH_SENT] = (void *)(uintptr_t)(sent + data);
    put->scratch[SCRATCH_LAST] = frame.kind == REGX_TCP_LAST ? put : NULL;
    count_bytes(regx_tcp_at(conn), length);
    return written == wanted ? REGX_OK : REGX_AGAIN;
}

/* Moves the first put on by a write. REGX_OK: the kernel takes more; REGX_AGAIN;
 * REGX_UNREACHABLE. */
static regx_status_t move_on(regx_tcp_conn_t *conn, regx_put_t *put)
{
    const bool begins =
        conn->piece_left == 0 && regx_tcp_link_kept(conn->link) <= REGX_TCP_GATHERED_MAX;
    regx_status_t status = regx_tcp_link_why(conn->link);

    if (status != REGX_UNREACHABLE) {
        status = begins ? REGX_OK : regx_tcp_link_flush(conn->link);
    }
    if (status == REGX_OK) {
        status = conn->piece_left > 0 ? write_rest(conn, put) : begin_piece(conn, put);
    }
    return answer(conn, status == REGX_AGAIN ? regx_tcp_link_why(conn->link) : status);
}

static void enqueue(regx_tcp_conn_t *conn, regx_put_t *put)
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
    put->scratch[SCRATCH_LAST] = NULL;
    status = make_ready(conn);
    if (conn->first == NULL) {
        for (int i = 0; i < REGX_TCP_TURN_WRITES && status == REGX_OK && !is_complete(conn, put);
             i++) {
            status = move_on(conn, put);
        }
    }
    if (status != REGX_UNREACHABLE) {
        regx_tcp_stir(tcp);
        status = REGX_OK;
        if (conn->first != NULL || !is_complete(conn, put)) {
            enqueue(conn, put);
            status = REGX_PENDING;
        } else {
            see_to_the_rest(conn);
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
    int writes = 0;

    while (conn->first != NULL && conn->state != REGX_TCP_BROKEN) {
        regx_put_t *put = conn->first;

        if (is_complete(conn, put)) {
            conn->first = put->scratch[SCRATCH_NEXT];
            regx_tcp_at(conn)->events++;
            put->done(put, REGX_OK); /* may put or send again */
        } else if (writes++ == REGX_TCP_TURN_WRITES || move_on(conn, put) != REGX_OK) {
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

        if (make_ready(conn) == REGX_OK &&
            answer(conn, regx_tcp_link_flush(conn->link)) == REGX_OK) {
            regx_tcp_gather_begin(tcp);
            take_turn(conn);
            regx_tcp_gather_end(tcp);
        }
        if (conn->state != REGX_TCP_BROKEN &&
            (conn->first != NULL || (conn->link != NULL && conn->link->out != NULL))) {
            regx_arbiter_add(&tcp->arbiter, &conn->entry);
        }
        if (last) {
            break; /* everybody had a turn */
        }
    }
}
