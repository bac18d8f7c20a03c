/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Handing single messages to UCX by copy, within UCX's memory.
 */
#include "transport/frame.h"
#include "transport/tcp/tcp_internal.h"

regx_status_t regx_tcp_answer(regx_tcp_conn_t *conn, ucs_status_t status)
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

/* A message's parts, while UCT has it packed. */
typedef struct parts {
    const regx_tcp_frame_t *frame;
    const void *header;
    size_t header_length;
    regx_pack_t pack;
    void *pack_context;
    size_t payload_length;
} parts_t;

static size_t pack_parts(void *to, void *context)
{
    const parts_t *parts = context;
    char *at = to;

    at += regx_tcp_encode(parts->frame, at);
    regx_frame_fill(at, parts->header, parts->header_length, parts->pack, parts->pack_context,
                    parts->payload_length);
    return (size_t)(at - (char *)to) + parts->header_length + parts->payload_length;
}

regx_status_t regx_tcp_send_message(regx_tcp_conn_t *conn, const regx_tcp_frame_t *frame,
                                    const void *header, size_t header_length, regx_pack_t pack,
                                    void *pack_context, size_t payload_length)
{
    parts_t parts = {.frame = frame,
                     .header = header,
                     .header_length = header_length,
                     .pack = pack,
                     .pack_context = pack_context,
                     .payload_length = payload_length};
    const ssize_t sent = uct_ep_am_bcopy(conn->ep, REGX_TCP_AM_ID, pack_parts, &parts, 0);

    return regx_tcp_answer(conn, sent < 0 ? (ucs_status_t)sent : UCS_OK);
}

regx_status_t regx_tcp_send_empty(regx_tcp_conn_t *conn, regx_tcp_kind_t kind)
{
    const regx_tcp_frame_t frame = {.kind = kind, .sender = regx_tcp_at(conn)->config.self};

    return regx_tcp_send_message(conn, &frame, NULL, 0, NULL, NULL, 0);
}
