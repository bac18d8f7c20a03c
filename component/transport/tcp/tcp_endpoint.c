/* SPDX-License-Identifier: BSD-3-Clause
 *
 * tcp's endpoints of UCT.
 *
 * One is made at the first use of a connection, and never inside UCX's progress: there UCX may be
 * reading from the very socket that a new endpoint to the same peer takes over (1.13 then crashes,
 * read in its source).
 */
#include "transport/tcp/tcp_internal.h"

/* UCT's callback when the piece in flight has left, or never will. */
static void piece_left(uct_completion_t *completion)
{
    regx_tcp_conn_t *conn = REGX_CONTAINER_OF(completion, regx_tcp_conn_t, completion);

    conn->in_flight = false;
    if (completion->status != UCS_OK) {
        regx_tcp_note_broken(conn);
    }
}

/* UCT's callback when a closing connection has nothing left to send. */
static ucs_status_t drained(uct_pending_req_t *request)
{
    REGX_CONTAINER_OF(request, regx_tcp_conn_t, drain)->state = REGX_TCP_DRAINED;
    return UCS_OK;
}

static regx_status_t make_endpoint(regx_tcp_conn_t *conn)
{
    const uct_ep_params_t params = {.field_mask = UCT_EP_PARAM_FIELD_IFACE |
                                                  UCT_EP_PARAM_FIELD_DEV_ADDR |
                                                  UCT_EP_PARAM_FIELD_IFACE_ADDR,
                                    .iface = regx_tcp_at(conn)->iface,
                                    .dev_addr = (const void *)conn->device_address.bytes,
                                    .iface_addr = (const void *)conn->iface_address.bytes};

    conn->completion.func = piece_left;
    conn->drain.func = drained;
    if (uct_ep_create(&params, &conn->ep) == UCS_OK) {
        conn->state = REGX_TCP_CONNECTING;
        return REGX_OK;
    }
    conn->ep = NULL;
    conn->missed = true;
    regx_tcp_note_broken(conn);
    return REGX_UNREACHABLE;
}

regx_status_t regx_tcp_ready(regx_tcp_conn_t *conn)
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
        if (tcp->receiving) {
            regx_arbiter_add(&tcp->arbiter, &conn->entry);
            return REGX_AGAIN;
        }
        conn->next = tcp->open;
        tcp->open = conn;
        if (make_endpoint(conn) != REGX_OK) {
            return REGX_UNREACHABLE;
        }
    }
    status = regx_tcp_send_empty(conn, REGX_TCP_HELLO);
    if (status == REGX_OK) {
        conn->state = REGX_TCP_OPEN;
    }
    return status;
}

ucs_status_t regx_tcp_endpoint_broke(void *context, uct_ep_h ep, ucs_status_t status)
{
    regx_tcp_t *tcp = context;

    (void)status;
    for (regx_tcp_conn_t *conn = tcp->open; conn != NULL; conn = conn->next) {
        if (conn->ep == ep) {
            regx_tcp_note_broken(conn);
        }
    }
    for (regx_tcp_conn_t *conn = tcp->closing; conn != NULL; conn = conn->next) {
        if (conn->ep == ep) {
            conn->state = REGX_TCP_DRAINED;
        }
    }
    return UCS_OK;
}
