/* SPDX-License-Identifier: BSD-3-Clause
 *
 * tcp's connections: from the peer's address to the end.
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

_Static_assert(sizeof(address_head_t) + 2 * REGX_TCP_UCT_ADDRESS_MAX <= REGX_ADDRESS_MAX,
               "it fits");

size_t regx_tcp_address(regx_transport_t *transport, void *buffer)
{
    const regx_tcp_t *tcp = regx_tcp_of(transport);
    const address_head_t head = {.version = REGX_TCP_VERSION,
                                 .device_length = tcp->device_address.length,
                                 .iface_length = tcp->iface_address.length,
                                 .pool_size = htole64(tcp->super.pool_size)};
    uint8_t *at = buffer;

    memcpy(at, &head, sizeof(head));
    at += sizeof(head);
    memcpy(at, tcp->device_address.bytes, head.device_length);
    at += head.device_length;
    memcpy(at, tcp->iface_address.bytes, head.iface_length);
    return sizeof(head) + head.device_length + head.iface_length;
}

regx_status_t regx_tcp_connect(regx_transport_t *transport, uint64_t peer, bool same_node,
                               const void *address, size_t length, regx_conn_t **result)
{
    regx_tcp_t *tcp = regx_tcp_of(transport);
    static const uint8_t zero[sizeof(((address_head_t *)NULL)->zero)];
    const uint8_t *at = address;
    address_head_t head;
    regx_tcp_conn_t *conn;

    (void)same_node;
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
    conn->super.transport = transport;
    conn->super.peer = peer;
    conn->super.wire = "tcp";
    conn->pool_size = le64toh(head.pool_size);
    memcpy(conn->device_address.bytes, at, head.device_length);
    memcpy(conn->iface_address.bytes, at + head.device_length, head.iface_length);
    if (!uct_iface_is_reachable(tcp->iface, (const void *)conn->device_address.bytes,
                                (const void *)conn->iface_address.bytes)) {
        free(conn);
        return REGX_UNREACHABLE;
    }
    *result = &conn->super;
    return REGX_OK;
}

/* Takes the connection out of the open ones, if it is there. */
static void leave_open(regx_tcp_conn_t *conn)
{
    regx_tcp_conn_t **at = &regx_tcp_at(conn)->open;

    while (*at != NULL && *at != conn) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        *at = conn->next;
    }
}

/* Ends what is left of a broken connection. It is told of unless the peer may simply have left:
 * then it said goodbye, or never said anything, and nobody here wants anything of it. */
static void clean_up_one(regx_tcp_conn_t *conn)
{
    regx_tcp_t *tcp = regx_tcp_at(conn);
    regx_put_t *line = regx_tcp_take_line(conn);
    const bool died = regx_tcp_talkers_has(&tcp->talkers, conn->super.peer);
    const bool tell = conn->missed || line != NULL || died;

    regx_arbiter_remove(&tcp->arbiter, &conn->entry);
    if (conn->ep != NULL) {
        uct_ep_destroy(conn->ep); /* from here on it reads nothing of the puts */
        conn->ep = NULL;
    }
    if (!tell) {
        return;
    }
    leave_open(conn); /* told once */
    if (died) {
        regx_tcp_talkers_remove(&tcp->talkers, conn->super.peer);
    }
    tcp->events++;
    regx_tcp_fail_line(line, REGX_UNREACHABLE);
    tcp->config.events.broken(tcp->config.events.context, conn->super.peer,
                              "the tcp connection is lost or was refused");
}

static bool needs_clean_up(const regx_tcp_conn_t *conn)
{
    return conn->state == REGX_TCP_BROKEN &&
           (conn->ep != NULL || conn->first != NULL || conn->missed);
}

void regx_tcp_clean_up(regx_tcp_t *tcp)
{
    while (tcp->broke) {
        regx_tcp_conn_t *conn = tcp->open;

        while (conn != NULL && !needs_clean_up(conn)) {
            conn = conn->next;
        }
        if (conn != NULL) {
            clean_up_one(conn);
        } else {
            tcp->broke = false;
        }
    }
}

/* Moves a closing connection to its end: goodbye, then the end of what UCX still holds. Whether
 * it is there. */
static bool has_left(regx_tcp_conn_t *conn)
{
    if (conn->state == REGX_TCP_LEAVING) {
        const regx_status_t status = regx_tcp_send_empty(conn, REGX_TCP_GOODBYE);

        if (status != REGX_OK) {
            return status != REGX_AGAIN;
        }
        conn->state = REGX_TCP_DRAINING;
        return uct_ep_pending_add(conn->ep, &conn->drain, 0) != UCS_OK; /* UCX holds nothing */
    }
    return conn->state != REGX_TCP_DRAINING;
}

static void forget_drain(uct_pending_req_t *request, void *context)
{
    (void)request, (void)context;
}

void regx_tcp_reap(regx_tcp_t *tcp)
{
    regx_tcp_conn_t **at = &tcp->closing;

    while (*at != NULL) {
        regx_tcp_conn_t *conn = *at;

        if (!has_left(conn)) {
            at = &conn->next;
            continue;
        }
        *at = conn->next;
        uct_ep_pending_purge(conn->ep, forget_drain, NULL);
        uct_ep_destroy(conn->ep);
        free(conn);
    }
}

void regx_tcp_disconnect(regx_conn_t *super)
{
    regx_tcp_conn_t *conn = regx_tcp_conn_of(super);
    regx_tcp_t *tcp = regx_tcp_at(conn);
    regx_put_t *line;

    regx_try_lock_wait(&tcp->try_lock);
    leave_open(conn);
    regx_arbiter_remove(&tcp->arbiter, &conn->entry);
    line = regx_tcp_take_line(conn);
    if (conn->state == REGX_TCP_OPEN && !conn->in_flight) {
        conn->state = REGX_TCP_LEAVING;
        conn->next = tcp->closing;
        tcp->closing = conn;
        regx_tcp_use(tcp);
        regx_tcp_reap(tcp);
    } else {
        if (conn->ep != NULL) {
            uct_ep_destroy(conn->ep); /* no frame waits in it, or a put is torn anyway */
        }
        free(conn);
    }
    regx_try_lock_leave(&tcp->try_lock);
    regx_tcp_fail_line(line, REGX_FAILED);
}

bool regx_tcp_reachable(regx_conn_t *conn)
{
    return regx_tcp_conn_of(conn)->state != REGX_TCP_BROKEN;
}
