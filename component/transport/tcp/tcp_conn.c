/* SPDX-License-Identifier: BSD-3-Clause
 *
 * tcp's connections: from the peer's address to the end.
 */
#include <endian.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "transport/tcp/tcp_internal.h"

/* The address: what is below, then the IP address as the network has it. */
typedef struct address_head {
    uint8_t version;
    uint8_t ip_length; /* 4 or 16 */
    uint8_t zero[6];
    uint64_t pool_size; /* little-endian */
    uint64_t host;      /* regx_tcp_t's; compared only */
    uint64_t token;     /* likewise; sent back as it is */
    uint16_t port;      /* as the network has it */
    uint8_t zero_too[6];
} address_head_t;

enum { IPV4_LENGTH = sizeof(struct in_addr), IPV6_LENGTH = sizeof(struct in6_addr) };

_Static_assert(sizeof(address_head_t) == 40, "no gaps");

/* The parts of a socket's address. */
typedef struct place {
    void *ip;
    in_port_t *port;
    uint8_t ip_length;
} place_t;

static place_t parts_of(struct sockaddr_storage *at)
{
    if (at->ss_family == AF_INET) {
        struct sockaddr_in *ipv4 = (struct sockaddr_in *)at;

        return (place_t){&ipv4->sin_addr, &ipv4->sin_port, IPV4_LENGTH};
    }
    struct sockaddr_in6 *ipv6 = (struct sockaddr_in6 *)at;

    return (place_t){&ipv6->sin6_addr, &ipv6->sin6_port, IPV6_LENGTH};
}

size_t regx_tcp_address(regx_transport_t *transport, void *buffer)
{
    regx_tcp_t *tcp = regx_tcp_of(transport);
    const place_t place = parts_of(&tcp->at);
    const address_head_t head = {.version = REGX_TCP_VERSION,
                                 .ip_length = place.ip_length,
                                 .pool_size = htole64(tcp->super.pool_size),
                                 .host = tcp->host,
                                 .token = tcp->token,
                                 .port = *place.port};

    memcpy(buffer, &head, sizeof(head));
    memcpy((char *)buffer + sizeof(head), place.ip, place.ip_length);
    return sizeof(head) + place.ip_length;
}

static bool is_zero(const uint8_t *bytes, size_t length)
{
    static const uint8_t zero[8];

    return memcmp(bytes, zero, length) == 0;
}

regx_status_t regx_tcp_connect(regx_transport_t *transport, uint64_t peer, bool same_node,
                               const void *address, size_t length, regx_conn_t **result)
{
    regx_tcp_t *tcp = regx_tcp_of(transport);
    address_head_t head;
    regx_tcp_conn_t *conn;

    (void)same_node;
    if (length < sizeof(head)) {
        return REGX_INVALID;
    }
    memcpy(&head, address, sizeof(head));
    if (head.version != REGX_TCP_VERSION ||
        (head.ip_length != IPV4_LENGTH && head.ip_length != IPV6_LENGTH) ||
        length - sizeof(head) != head.ip_length || !is_zero(head.zero, sizeof(head.zero)) ||
        !is_zero(head.zero_too, sizeof(head.zero_too))) {
        return REGX_INVALID;
    }
    /* A loopback reaches only its own host's. */
    if (head.ip_length != parts_of(&tcp->at).ip_length || head.host != tcp->host) {
        return REGX_UNREACHABLE;
    }
    conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        return REGX_NO_MEMORY;
    }
    conn->super.transport = transport;
    conn->super.peer = peer;
    conn->super.wire = "tcp";
    conn->super.whole_max = REGX_TCP_DATA_MAX;
    conn->pool_size = le64toh(head.pool_size);
    conn->token = head.token;
    conn->at = tcp->at; /* of the same kind, and on the same device where that matters */
    conn->at_length = tcp->at_length;
    const place_t place = parts_of(&conn->at);
    memcpy(place.ip, (const char *)address + sizeof(head), place.ip_length);
    *place.port = head.port;
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

/* Parts a connection from its link. One that can still be read is. */
static void let_go(regx_tcp_conn_t *conn)
{
    if (conn->link == NULL) {
        return;
    }
    conn->link->conn = NULL;
    conn->link->left = true;
    if (conn->piece_left > 0 && !conn->link->unwritable) {
        regx_tcp_link_end(conn->link); /* the peer waits for the rest of a put */
    }
    conn->link = NULL;
}

/* Ends what is left of a broken connection. It is reported unless the peer may simply have left:
 * then it sent goodbye, or never sent anything, and nothing is due to it from here. */
static void clean_up_one(regx_tcp_conn_t *conn)
{
    regx_tcp_t *tcp = regx_tcp_at(conn);
    regx_put_t *line = regx_tcp_take_line(conn);
    const bool report = conn->missed || line != NULL || conn->peer_died;
    char what[256];

    regx_arbiter_remove(&tcp->arbiter, &conn->entry);
    let_go(conn);
    if (!report) {
        return;
    }
    leave_open(conn); /* reported once */
    tcp->events++;
    regx_tcp_fail_line(line, REGX_UNREACHABLE);
    snprintf(what, sizeof(what), "%s%s%s",
             conn->why != NULL ? conn->why : "the tcp connection is lost or was refused",
             conn->error != 0 ? ": " : "", conn->error != 0 ? strerror(conn->error) : "");
    tcp->config.events.broken(tcp->config.events.context, conn->super.peer, what);
}

static bool needs_clean_up(const regx_tcp_conn_t *conn)
{
    return conn->state == REGX_TCP_BROKEN &&
           (conn->link != NULL || conn->first != NULL || conn->missed || conn->peer_died);
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

static bool waits_for_answer(const regx_tcp_conn_t *conn)
{
    return conn->state == REGX_TCP_CONNECTING &&
           (conn->link == NULL || conn->link->state != REGX_TCP_LINK_OPEN);
}

/* Both may have opened a link with their last descriptor, and neither can accept the other's. */
static bool may_wait_for_each_other(const regx_tcp_conn_t *conn)
{
    return conn->link != NULL && conn->link->looks >= REGX_TCP_BARRED_LOOKS &&
           regx_tcp_at(conn)->barred_looks >= REGX_TCP_BARRED_LOOKS;
}

/* One at a time: with its descriptor somebody may be taken in, and the others wait on. So rather
 * one whose link ends at once. NULL: none. */
static regx_tcp_conn_t *find_deadlocked(const regx_tcp_t *tcp)
{
    regx_tcp_conn_t *found = NULL;

    for (regx_tcp_conn_t *conn = tcp->open; conn != NULL; conn = conn->next) {
        if (waits_for_answer(conn) && may_wait_for_each_other(conn) &&
            (found == NULL || (found->link->asked != REGX_TCP_NOT_ASKED &&
                               conn->link->asked == REGX_TCP_NOT_ASKED))) {
            found = conn;
        }
    }
    return found;
}

#define BARRED "it has not accepted our connection for 20 minutes, nor can we accept its: "

static void give_up(regx_tcp_conn_t *conn)
{
    static const char *const why[REGX_TCP_SHORTAGES] = {
        [REGX_TCP_NO_DESCRIPTOR] = BARRED "no descriptor is left (ulimit -n)",
        [REGX_TCP_NO_FILE] = BARRED "the system has no open file left (fs.file-max)",
        [REGX_TCP_NO_MEMORY] = BARRED "no memory is left",
        [REGX_TCP_NO_WATCH] = BARRED "no epoll watch is left (fs.epoll.max_user_watches)"};

    conn->why = why[regx_tcp_at(conn)->short_of];
    conn->missed = true; /* something is to be sent */
    regx_tcp_link_give_up(conn);
    regx_tcp_note_broken(conn);
}

void regx_tcp_look_for_answers(regx_tcp_t *tcp)
{
    const regx_transport_events_t *events = &tcp->config.events;
    regx_tcp_conn_t *deadlocked;

    if (!regx_pace_due(&tcp->no_answer)) {
        return;
    }
    tcp->barred_looks += tcp->barred;
    tcp->barred = false;
    for (regx_tcp_conn_t *conn = tcp->open; conn != NULL; conn = conn->next) {
        if (!waits_for_answer(conn)) {
            continue;
        }
        if (++conn->unanswered == REGX_TCP_NO_ANSWER_LOOKS && events->silent != NULL) {
            events->silent(events->context, conn->super.peer);
        }
        if (conn->link != NULL) {
            conn->link->looks++;
        }
    }
    deadlocked = find_deadlocked(tcp);
    if (deadlocked != NULL) {
        give_up(deadlocked);
    }
}

/* Moves a closing connection to its end: goodbye, then what the kernel has not taken. Whether it is
 * there. */
static bool has_left(regx_tcp_conn_t *conn)
{
    if (conn->link == NULL) {
        return true;
    }
    if (conn->state == REGX_TCP_LEAVING) {
        const regx_status_t status = regx_tcp_send_empty(conn->link, REGX_TCP_GOODBYE);

        if (status != REGX_OK) {
            return status != REGX_AGAIN;
        }
        conn->state = REGX_TCP_DRAINING;
    }
    return regx_tcp_link_flush(conn->link) != REGX_AGAIN;
}

void regx_tcp_reap(regx_tcp_t *tcp)
{
    regx_tcp_conn_t **at = &tcp->closing;

    while (*at != NULL) {
        regx_tcp_conn_t *conn = *at;
        regx_tcp_link_t *link = conn->link;

        if (!has_left(conn)) {
            at = &conn->next;
            continue;
        }
        *at = conn->next;
        let_go(conn);
        if (link != NULL && link->received == REGX_TCP_RECEIVED_GOODBYE) {
            regx_tcp_link_end(link);
        }
        free(conn);
    }
}

/* Whether goodbye is due to the peer when this process leaves: the link is there, even if nothing
 * was sent by it. */
static bool is_open(const regx_tcp_conn_t *conn)
{
    return conn->state == REGX_TCP_OPEN ||
           (conn->state == REGX_TCP_CONNECTING && conn->link != NULL &&
            conn->link->state == REGX_TCP_LINK_OPEN);
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
    if (is_open(conn) && conn->piece_left == 0) {
        conn->state = REGX_TCP_LEAVING;
        conn->next = tcp->closing;
        tcp->closing = conn;
        regx_tcp_use(tcp);
        regx_tcp_reap(tcp);
    } else {
        if (conn->state == REGX_TCP_CONNECTING && conn->link != NULL) {
            regx_tcp_link_give_up(conn);
        }
        let_go(conn);
        free(conn);
    }
    regx_tcp_sweep(tcp);
    regx_try_lock_leave(&tcp->try_lock);
    regx_tcp_fail_line(line, REGX_FAILED);
}

bool regx_tcp_reachable(regx_conn_t *conn)
{
    return regx_tcp_conn_of(conn)->state != REGX_TCP_BROKEN;
}
