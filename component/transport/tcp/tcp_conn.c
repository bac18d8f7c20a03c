/* SPDX-License-Identifier: BSD-3-Clause
 *
 * tcp's connections: from the peer's address to the end.
 *
 * An endpoint of UCT is made at the first use and never inside UCX's progress: there UCX may be
 * reading from the very socket that a new endpoint to the same peer takes over (1.13 then crashes,
 * read in its source).
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "transport/tcp/tcp_internal.h"

/* The address: what is below, then UCT's device address and its interface address. */
typedef struct address_head {
    uint8_t version;
    uint8_t device_length;
    uint8_t iface_length;
    uint8_t zero[5];
    uint64_t pool_size; /* little-endian */
} address_head_t;

size_t regx_tcp_address(regx_tcp_t *tcp, void *buffer, size_t capacity)
{
    const address_head_t head = {.version = REGX_TCP_VERSION,
                                 .device_length = tcp->device_address.length,
                                 .iface_length = tcp->iface_address.length,
                                 .pool_size = htole64(tcp->pool_size)};
    uint8_t *at = buffer;

    if (sizeof(head) + head.device_length + head.iface_length > capacity) {
        return 0;
    }
    memcpy(at, &head, sizeof(head));
    at += sizeof(head);
    memcpy(at, tcp->device_address.bytes, head.device_length);
    at += head.device_length;
    memcpy(at, tcp->iface_address.bytes, head.iface_length);
    return sizeof(head) + head.device_length + head.iface_length;
}

regx_status_t regx_tcp_connect(regx_tcp_t *tcp, uint64_t peer, const void *address, size_t length,
                               regx_tcp_conn_t **result)
{
    static const uint8_t zero[sizeof(((address_head_t *)NULL)->zero)];
    const uint8_t *at = address;
    address_head_t head;
    regx_tcp_conn_t *conn;

    if (length < sizeof(head)) {
        return REGX_INVALID;
    }
    memcpy(&head, at, sizeof(head));
    at += sizeof(head);
    if (head.version != REGX_TCP_VERSION || memcmp(head.zero, zero, sizeof(zero)) != 0 ||
        length - sizeof(head) != (size_t)head.device_length + head.iface_length) {
        return REGX_INVALID;
    }
    /* Addresses of one kind (IPv4, IPv6, loopback) have one length; UCX does not check it. */
    if (head.device_length != tcp->device_address.length ||
        head.iface_length != tcp->iface_address.length) {
        return REGX_UNREACHABLE;
    }
    conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        return REGX_NO_MEMORY;
    }
    conn->tcp = tcp;
    conn->peer = peer;
    conn->pool_size = le64toh(head.pool_size);
    memcpy(conn->device_address.bytes, at, head.device_length);
    memcpy(conn->iface_address.bytes, at + head.device_length, head.iface_length);
    if (!uct_iface_is_reachable(tcp->iface, (const void *)conn->device_address.bytes,
                                (const void *)conn->iface_address.bytes)) {
        free(conn);
        return REGX_UNREACHABLE;
    }
    *result = conn;
    return REGX_OK;
}

/* UCT's callback when a closing connection has nothing left to send. */
static ucs_status_t drained(uct_pending_req_t *request)
{
    regx_tcp_conn_t *conn = (regx_tcp_conn_t *)((char *)request - offsetof(regx_tcp_conn_t, drain));

    conn->drained = true;
    return UCS_OK;
}

static void forget_drain(uct_pending_req_t *request, void *context)
{
    (void)request, (void)context;
}

static ucs_status_t make_endpoint(regx_tcp_conn_t *conn)
{
    const uct_ep_params_t params = {.field_mask = UCT_EP_PARAM_FIELD_IFACE |
                                                  UCT_EP_PARAM_FIELD_DEV_ADDR |
                                                  UCT_EP_PARAM_FIELD_IFACE_ADDR,
                                    .iface = conn->tcp->iface,
                                    .dev_addr = (const void *)conn->device_address.bytes,
                                    .iface_addr = (const void *)conn->iface_address.bytes};
    ucs_status_t status = uct_ep_create(&params, &conn->ep);

    if (status != UCS_OK) {
        conn->ep = NULL;
    }
    return status;
}

regx_status_t regx_tcp_ready(regx_tcp_conn_t *conn)
{
    regx_tcp_t *tcp = conn->tcp;

    if (conn->broken) {
        conn->missed = true;
        tcp->broke = true;
        return REGX_UNREACHABLE;
    }
    if (conn->greeted) {
        return REGX_OK;
    }
    if (conn->ep == NULL) {
        if (tcp->receiving) {
            regx_turn_await(&conn->tcp->turns, &conn->turn);
            return REGX_AGAIN;
        }
        conn->completion.func = regx_tcp_piece_left;
        conn->drain.func = drained;
        conn->next = tcp->open;
        tcp->open = conn;
        atomic_store_explicit(&tcp->in_use, true, memory_order_relaxed);
        if (make_endpoint(conn) != UCS_OK) {
            conn->missed = true;
            regx_tcp_note_broken(conn);
            return REGX_UNREACHABLE;
        }
    }
    const regx_status_t status = regx_tcp_send_empty(conn, REGX_TCP_HELLO);
    conn->greeted = status == REGX_OK;
    return status;
}

/* Takes the connection out of the open ones, if it is there. */
static void leave_open(regx_tcp_conn_t *conn)
{
    regx_tcp_conn_t **at = &conn->tcp->open;

    while (*at != NULL && *at != conn) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        *at = conn->next;
    }
}

void regx_tcp_note_broken(regx_tcp_conn_t *conn)
{
    conn->broken = true;
    conn->tcp->broke = true;
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
            conn->drained = true;
        }
    }
    return UCS_OK;
}

static size_t find_talker(const regx_tcp_t *tcp, uint64_t peer)
{
    size_t at = 0;

    while (at < tcp->talker_count && tcp->talkers[at] != peer) {
        at++;
    }
    return at;
}

regx_status_t regx_tcp_note_hello(regx_tcp_t *tcp, uint64_t sender)
{
    if (find_talker(tcp, sender) < tcp->talker_count) {
        return REGX_OK;
    }
    if (tcp->talker_count == tcp->talker_room) {
        const size_t room = tcp->talker_room == 0 ? 16 : tcp->talker_room * 2;
        uint64_t *talkers =
            room > REGX_TCP_TALKERS_MAX ? NULL : realloc(tcp->talkers, room * sizeof(*talkers));

        if (talkers == NULL) {
            return REGX_INVALID;
        }
        tcp->talkers = talkers;
        tcp->talker_room = room;
    }
    tcp->talkers[tcp->talker_count++] = sender;
    return REGX_OK;
}

regx_status_t regx_tcp_note_goodbye(regx_tcp_t *tcp, uint64_t sender)
{
    const size_t at = find_talker(tcp, sender);

    if (at == tcp->talker_count) {
        return REGX_INVALID;
    }
    tcp->talkers[at] = tcp->talkers[--tcp->talker_count];
    return REGX_OK;
}

/* Ends what is left of a broken connection. It is told of unless the peer may simply have left:
 * then it said goodbye, or never said anything, and nobody here wants anything of it. */
static void mourn_one(regx_tcp_conn_t *conn)
{
    regx_tcp_t *tcp = conn->tcp;
    regx_put_t *line = regx_tcp_take_line(conn);
    const size_t talker = find_talker(tcp, conn->peer);
    const bool tell = conn->missed || line != NULL || talker < tcp->talker_count;

    regx_turn_lose(&conn->tcp->turns, &conn->turn);
    if (conn->ep != NULL) {
        uct_ep_destroy(conn->ep); /* from here on it reads nothing of the puts */
        conn->ep = NULL;
    }
    if (!tell) {
        return;
    }
    leave_open(conn); /* told once */
    if (talker < tcp->talker_count) {
        regx_tcp_note_goodbye(tcp, conn->peer);
    }
    tcp->events++;
    regx_tcp_fail_line(line, REGX_UNREACHABLE);
    tcp->config->events.broken(tcp->config->events.context, conn->peer,
                               "the tcp connection is lost or was refused");
}

void regx_tcp_mourn(regx_tcp_t *tcp)
{
    while (tcp->broke) {
        regx_tcp_conn_t *conn = tcp->open;

        while (conn != NULL &&
               !(conn->broken && (conn->ep != NULL || conn->first != NULL || conn->missed))) {
            conn = conn->next;
        }
        if (conn != NULL) {
            mourn_one(conn);
        } else {
            tcp->broke = false;
        }
    }
}

/* Moves a closing connection to its end: goodbye, then the end of what UCX still holds. Whether
 * it is there. */
static bool part(regx_tcp_conn_t *conn)
{
    if (conn->drained || conn->draining) {
        return conn->drained;
    }
    if (!conn->parted) {
        const regx_status_t status = regx_tcp_send_empty(conn, REGX_TCP_GOODBYE);

        if (status != REGX_OK) {
            return status != REGX_AGAIN;
        }
        conn->parted = true;
    }
    conn->draining = uct_ep_pending_add(conn->ep, &conn->drain, 0) == UCS_OK;
    return !conn->draining;
}

static void end_closing(regx_tcp_conn_t *conn)
{
    uct_ep_pending_purge(conn->ep, forget_drain, NULL);
    uct_ep_destroy(conn->ep);
    free(conn);
}

void regx_tcp_disconnect(regx_tcp_conn_t *conn)
{
    regx_tcp_t *tcp = conn->tcp;
    regx_put_t *line;

    regx_enter_wait(&tcp->entrance);
    leave_open(conn);
    regx_turn_lose(&conn->tcp->turns, &conn->turn);
    line = regx_tcp_take_line(conn);
    if (conn->ep != NULL && conn->greeted && !conn->broken && !conn->in_flight) {
        conn->next = tcp->closing;
        tcp->closing = conn;
        regx_tcp_reap(tcp);
    } else {
        if (conn->ep != NULL) {
            uct_ep_destroy(conn->ep); /* no frame waits in it, or a put is torn anyway */
        }
        free(conn);
    }
    regx_leave(&tcp->entrance);
    regx_tcp_fail_line(line, REGX_FAILED);
}

bool regx_tcp_reachable(const regx_tcp_conn_t *conn)
{
    return !conn->broken;
}

void regx_tcp_reap(regx_tcp_t *tcp)
{
    regx_tcp_conn_t **at = &tcp->closing;

    while (*at != NULL) {
        regx_tcp_conn_t *conn = *at;

        if (part(conn)) {
            *at = conn->next;
            end_closing(conn);
        } else {
            at = &conn->next;
        }
    }
}
