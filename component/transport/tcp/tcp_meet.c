/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How two processes come to a socket for both: who connects, who is let in, and which of two that
 * were opened at once is used.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "transport/tcp/tcp_internal.h"

/* Sends one of the first messages. A socket that has just been made takes it whole. */
static void send_first(regx_tcp_link_t *link, regx_tcp_kind_t kind, const void *data, size_t length)
{
    const regx_tcp_frame_t frame = {
        .kind = kind, .sender = link->tcp->config.self, .length = length};
    uint8_t message[REGX_TCP_HEAD_MAX];
    const size_t head = regx_tcp_encode(&frame, message);
    struct iovec parts[] = {{message, head}, {(void *)(uintptr_t)data, length}};

    if (regx_tcp_link_write(link, parts, 2) != REGX_OK || link->out != NULL) {
        regx_tcp_link_end(link);
    }
}

static void welcome(regx_tcp_link_t *link)
{
    link->state = REGX_TCP_LINK_OPEN;
    send_first(link, REGX_TCP_WELCOME, NULL, 0);
}

/* The peer's link waited for one of this process's, which has been let in or came to nothing. */
static void release_held(const regx_tcp_t *tcp, uint64_t peer)
{
    for (regx_tcp_link_t *link = tcp->links; link != NULL; link = link->next) {
        if (link->state == REGX_TCP_LINK_HELD && link->peer == peer) {
            welcome(link);
        }
    }
}

/* The peer's own link, which ours is held for, may be the one for which there is no descriptor,
 * because ours has the last. Connect, said again, asks the peer to hold ours no longer. */
void regx_tcp_urge(const regx_tcp_t *tcp)
{
    for (regx_tcp_link_t *link = tcp->links; link != NULL; link = link->next) {
        if (link->state == REGX_TCP_LINK_CONNECTING && link->asked == REGX_TCP_ASKED &&
            link->peer < tcp->config.self) {
            link->asked = REGX_TCP_ASKED_AGAIN;
            send_first(link, REGX_TCP_CONNECT, &link->token, sizeof(link->token));
        }
    }
}

#define PURPOSE "to connect to a peer"

static regx_status_t cannot_open(regx_tcp_conn_t *conn, int error)
{
    if (regx_tcp_is_short(regx_tcp_at(conn), error, PURPOSE)) {
        return REGX_AGAIN;
    }
    conn->error = error;
    return REGX_UNREACHABLE;
}

static regx_status_t open_link(regx_tcp_conn_t *conn)
{
    regx_tcp_t *tcp = regx_tcp_at(conn);
    const int fd = socket(conn->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return cannot_open(conn, errno);
    }
    /* The peer is to see no connection that comes to nothing. */
    regx_tcp_link_t *link =
        regx_tcp_link_make(tcp, fd, REGX_TCP_LINK_CONNECTING, EPOLLIN | EPOLLOUT);
    if (link == NULL) {
        const int error = errno;

        close(fd);
        return cannot_open(conn, error);
    }
    link->peer = conn->super.peer;
    link->token = conn->token;
    link->ours = true;
    regx_tcp_attach(conn, link);
    if (connect(fd, (struct sockaddr *)&conn->at, conn->at_length) == 0 || errno == EINPROGRESS) {
        return REGX_OK;
    }
    const int error = errno;

    if (regx_tcp_is_short(tcp, error, PURPOSE)) {
        regx_tcp_detach(link);
        regx_tcp_link_end(link);
        return REGX_AGAIN;
    }
    regx_tcp_link_fail(link, error);
    return REGX_OK;
}

regx_status_t regx_tcp_link_take(regx_tcp_conn_t *conn)
{
    for (regx_tcp_link_t *link = regx_tcp_at(conn)->links; link != NULL; link = link->next) {
        if (link->state == REGX_TCP_LINK_OPEN && link->peer == conn->super.peer &&
            link->conn == NULL && !link->left && link->received != REGX_TCP_RECEIVED_GOODBYE) {
            regx_tcp_attach(conn, link);
            return REGX_OK;
        }
    }
    return open_link(conn);
}

void regx_tcp_link_give_up(regx_tcp_conn_t *conn)
{
    regx_tcp_link_t *link = conn->link;

    regx_tcp_detach(link);
    link->left = true;
    if (link->asked == REGX_TCP_NOT_ASKED) {
        regx_tcp_link_end(link);
    }
    release_held(link->tcp, link->peer);
}

void regx_tcp_link_ask(regx_tcp_link_t *link)
{
    int error = 0;
    socklen_t length = sizeof(error);
    uint8_t byte;

    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0 ||
        recv(link->fd, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT) == 0) { /* already closed */
        regx_tcp_link_fail(link, error);
        return;
    }
    if (!regx_tcp_watch_for(link->tcp, EPOLL_CTL_MOD, link->fd, link, EPOLLIN)) {
        regx_tcp_link_fail(link, errno);
        return;
    }
    link->asked = REGX_TCP_ASKED;
    send_first(link, REGX_TCP_CONNECT, &link->token, sizeof(link->token));
}

/* The connection to that peer for which this process is opening a link; NULL: none. */
static regx_tcp_conn_t *find_connecting(const regx_tcp_t *tcp, uint64_t peer)
{
    regx_tcp_conn_t *conn = tcp->open;

    while (conn != NULL && (conn->super.peer != peer || conn->link == NULL ||
                            conn->link->state != REGX_TCP_LINK_CONNECTING)) {
        conn = conn->next;
    }
    return conn;
}

/* If both are opening one, the higher id gives up its own when the lower one's has come. The lower
 * one holds the higher one's until then, so that it is not used; or until the higher one asks
 * again. */
static void admit_or_hold(regx_tcp_link_t *link)
{
    regx_tcp_t *tcp = link->tcp;
    const bool self = link->peer == tcp->config.self; /* both ends are this process's */
    regx_tcp_conn_t *conn = self ? NULL : find_connecting(tcp, link->peer);

    if (conn != NULL && tcp->config.self < link->peer && link->state == REGX_TCP_LINK_STRANGER) {
        link->state = REGX_TCP_LINK_HELD;
        return;
    }
    welcome(link);
    if (conn != NULL) {
        regx_tcp_link_give_up(conn);
        regx_tcp_attach(conn, link);
    }
}

regx_status_t regx_tcp_link_greet(regx_tcp_link_t *link, const regx_tcp_frame_t *frame)
{
    if (link->state == REGX_TCP_LINK_CONNECTING) {
        link->state = REGX_TCP_LINK_OPEN;
        link->ours = false;
        if (link->left) {
            send_first(link, REGX_TCP_GOODBYE, NULL, 0);
        }
        release_held(link->tcp, link->peer);
        return REGX_OK;
    }
    if (frame->length != sizeof(link->tcp->token) ||
        memcmp(frame->data, &link->tcp->token, sizeof(link->tcp->token)) != 0) {
        return REGX_INVALID;
    }
    link->peer = frame->sender;
    admit_or_hold(link);
    return REGX_OK;
}

void regx_tcp_sweep(regx_tcp_t *tcp)
{
    while (tcp->ended) {
        regx_tcp_link_t **at = &tcp->links;

        tcp->ended = false;
        while (*at != NULL) {
            regx_tcp_link_t *link = *at;

            if (link->state == REGX_TCP_LINK_ENDED) {
                const uint64_t peer = link->peer;
                const bool ours = link->ours;

                *at = link->next;
                regx_tcp_link_free(link);
                if (ours) {
                    release_held(tcp, peer); /* may end others */
                }
            } else {
                at = &link->next;
            }
        }
    }
}
