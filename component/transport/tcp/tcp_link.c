/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The sockets of tcp: how one comes to be, how it is written, and how it ends.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/tcp/tcp_internal.h"

/* A peer whose machine is gone is noticed after so long if nothing is sent to it. If something is, the
 * kernel repeats it for as long as it thinks right (net.ipv4.tcp_retries2: a quarter of an hour). */
enum { KEEPALIVE_IDLE_S = 10, KEEPALIVE_BETWEEN_S = 2, KEEPALIVE_TIMES = 3 };
enum { ACCEPTS = 16 }; /* at once */

/* So many may say nothing for longer than that. A peer may take its time: it says connect when its
 * program calls MPI again. */
enum { SILENT_MAX = 64 };
#define SILENT_NS INT64_C(10000000000)
/* Times that a link is made anew which the peer closed before it let it in. */
enum { REOPENED_MAX = 8 };

static void set(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

static void set_options(int fd)
{
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_BETWEEN_S);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_TIMES);
}

/* The listener's events have no link. */
static bool watch_for(const regx_tcp_t *tcp, int operation, int fd, regx_tcp_link_t *link,
                      uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = link};

    return epoll_ctl(tcp->epoll, operation, fd, &event) == 0;
}

regx_status_t regx_tcp_listen(regx_tcp_t *tcp)
{
    tcp->epoll = epoll_create1(EPOLL_CLOEXEC);
    tcp->listener = socket(tcp->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (tcp->epoll < 0 || tcp->listener < 0 ||
        bind(tcp->listener, (struct sockaddr *)&tcp->at, tcp->at_length) != 0 ||
        listen(tcp->listener, SOMAXCONN) != 0 ||
        getsockname(tcp->listener, (struct sockaddr *)&tcp->at, &tcp->at_length) != 0 ||
        !watch_for(tcp, EPOLL_CTL_ADD, tcp->listener, NULL, EPOLLIN)) {
        return REGX_UNREACHABLE;
    }
    return REGX_OK;
}

/* A link of that socket, which is closed if there can be none: NULL, with errno. */
static regx_tcp_link_t *make_link(regx_tcp_t *tcp, int fd, regx_tcp_link_state_t state,
                                  uint32_t events)
{
    regx_tcp_link_t *link = calloc(1, sizeof(*link));

    if (link == NULL || !watch_for(tcp, EPOLL_CTL_ADD, fd, link, events)) {
        const int error = errno;

        free(link);
        close(fd);
        errno = error;
        return NULL;
    }
    link->tcp = tcp;
    link->fd = fd;
    link->state = state;
    link->expects = REGX_TCP_SHORT_READ;
    link->next = tcp->links;
    tcp->links = link;
    tcp->link_count++;
    return link;
}

/* What may pass: the program closes something, or the kernel finds memory. */
static bool is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM ||
           error == ENOSPC;
}

/* Said once. */
static void note_crowded(regx_tcp_t *tcp, const char *what)
{
    if (!tcp->crowded) {
        tcp->crowded = true;
        regx_transport_fall_back(&tcp->config, REGX_TRACE_CHOICE, what);
    }
}

/* Sends one of the first messages. A socket that has just been made takes it whole. */
static void say(regx_tcp_link_t *link, regx_tcp_kind_t kind, const void *data, size_t length)
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
    say(link, REGX_TCP_WELCOME, NULL, 0);
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

/* A peer with a lower id may hold a link of ours until one of its own is let in. That may be the one
 * for which there is no descriptor, because ours has the last: connect, said again, asks the peer to
 * hold it no longer. */
static void urge(const regx_tcp_t *tcp)
{
    for (regx_tcp_link_t *link = tcp->links; link != NULL; link = link->next) {
        if (link->state == REGX_TCP_LINK_CONNECTING && link->asked && !link->urged &&
            link->peer < tcp->config.self) {
            link->urged = true;
            say(link, REGX_TCP_CONNECT, &link->token, sizeof(link->token));
        }
    }
}

/* Closes the link that has said nothing for longest, if there are too many and it had time enough. A
 * peer that has not got to it makes another. */
static void put_out_a_stranger(const regx_tcp_t *tcp, int64_t now_ns)
{
    regx_tcp_link_t *oldest = NULL;
    unsigned count = 0;

    for (regx_tcp_link_t *link = tcp->links; link != NULL; link = link->next) {
        if (link->state == REGX_TCP_LINK_STRANGER) {
            oldest = link; /* the last of the list is the first that came */
            count++;
        }
    }
    if (count > SILENT_MAX && now_ns - oldest->since_ns > SILENT_NS) {
        regx_tcp_link_end(oldest);
    }
}

bool regx_tcp_accept(regx_tcp_t *tcp)
{
    int accepted = 0;

    while (accepted < ACCEPTS) {
        const int fd = accept4(tcp->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0) {
            if (is_shortage(errno)) {
                note_crowded(tcp, "tcp: no descriptor is left for a peer that connects");
                urge(tcp);
            }
            break;
        }
        set_options(fd);
        regx_tcp_link_t *link = make_link(tcp, fd, REGX_TCP_LINK_STRANGER, EPOLLIN);
        if (link != NULL) {
            link->since_ns = regx_now_ns();
            put_out_a_stranger(tcp, link->since_ns);
        }
        accepted++;
    }
    return accepted > 0;
}

static void attach(regx_tcp_conn_t *conn, regx_tcp_link_t *link)
{
    conn->link = link;
    link->conn = conn;
}

static void detach(regx_tcp_link_t *link)
{
    link->conn->link = NULL;
    link->conn = NULL;
}

static regx_status_t cannot_open(regx_tcp_conn_t *conn, int error)
{
    if (is_shortage(error)) {
        note_crowded(regx_tcp_at(conn), "tcp: no descriptor is left to connect to a peer");
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
    set_options(fd);
    const int error = connect(fd, (struct sockaddr *)&conn->at, conn->at_length) == 0 ? 0 : errno;
    regx_tcp_link_t *link = make_link(tcp, fd, REGX_TCP_LINK_CONNECTING, EPOLLIN | EPOLLOUT);
    if (link == NULL) {
        return cannot_open(conn, errno);
    }
    link->peer = conn->super.peer;
    link->token = conn->token;
    link->ours = true;
    attach(conn, link);
    if (error != 0 && error != EINPROGRESS) {
        regx_tcp_link_fail(link, error);
    }
    return REGX_OK;
}

regx_status_t regx_tcp_link_take(regx_tcp_conn_t *conn)
{
    for (regx_tcp_link_t *link = regx_tcp_at(conn)->links; link != NULL; link = link->next) {
        if (link->state == REGX_TCP_LINK_OPEN && link->peer == conn->super.peer &&
            link->conn == NULL && !link->left && !link->peer_left) {
            attach(conn, link);
            return REGX_OK;
        }
    }
    return open_link(conn);
}

void regx_tcp_link_give_up(regx_tcp_conn_t *conn)
{
    regx_tcp_link_t *link = conn->link;

    detach(link);
    link->left = true;
    if (!link->asked) {
        regx_tcp_link_end(link);
    }
    release_held(link->tcp, link->peer);
}

void regx_tcp_link_ask(regx_tcp_link_t *link)
{
    int error = 0;
    socklen_t length = sizeof(error);

    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) {
        regx_tcp_link_fail(link, error);
        return;
    }
    if (!watch_for(link->tcp, EPOLL_CTL_MOD, link->fd, link, EPOLLIN)) {
        regx_tcp_link_fail(link, errno);
        return;
    }
    link->asked = true;
    say(link, REGX_TCP_CONNECT, &link->token, sizeof(link->token));
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

/* If both are opening one, the higher id gives up its own when the lower one's has come. The lower one
 * holds the higher one's until then, so that it is not used; or until the higher one asks again. */
static void let_in(regx_tcp_link_t *link)
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
        attach(conn, link);
    }
}

regx_status_t regx_tcp_link_greet(regx_tcp_link_t *link, const regx_tcp_frame_t *frame)
{
    if (link->state == REGX_TCP_LINK_CONNECTING) {
        link->state = REGX_TCP_LINK_OPEN;
        link->ours = false;
        if (link->left) {
            say(link, REGX_TCP_GOODBYE, NULL, 0);
        }
        release_held(link->tcp, link->peer);
        return REGX_OK;
    }
    if (frame->length != sizeof(link->tcp->token) ||
        memcmp(frame->data, &link->tcp->token, sizeof(link->tcp->token)) != 0) {
        return REGX_INVALID;
    }
    link->peer = frame->sender;
    let_in(link);
    return REGX_OK;
}

/* ---- writing ---- */

/* One that is closing comes to its end by itself. */
static void note_broken(const regx_tcp_link_t *link, int error)
{
    regx_tcp_conn_t *conn = link->conn;

    if (conn != NULL && conn->state != REGX_TCP_LEAVING && conn->state != REGX_TCP_DRAINING) {
        conn->error = error != 0 ? error : conn->error;
        regx_tcp_note_broken(conn);
    }
}

size_t regx_tcp_link_push(regx_tcp_link_t *link, struct iovec *parts, int count)
{
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    const ssize_t written = sendmsg(link->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (written >= 0) {
        return (size_t)written;
    }
    if ((errno == EPIPE || errno == ECONNRESET) && link->state == REGX_TCP_LINK_OPEN) {
        link->unwritable = true; /* there may be something to read, up to a goodbye */
        note_broken(link, errno);
    } else if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS && errno != ENOMEM) {
        regx_tcp_link_fail(link, errno);
    }
    return 0;
}

regx_status_t regx_tcp_link_why(const regx_tcp_link_t *link)
{
    return link->unwritable || link->state == REGX_TCP_LINK_ENDED ? REGX_UNREACHABLE : REGX_AGAIN;
}

regx_status_t regx_tcp_link_keep(regx_tcp_link_t *link, const struct iovec *parts, int count,
                                 size_t written)
{
    size_t length = 0;

    for (int i = 0; i < count; i++) {
        length += parts[i].iov_len;
    }
    if (written == length) {
        return REGX_OK;
    }
    link->out = malloc(length - written);
    if (link->out == NULL) {
        regx_tcp_link_end(link); /* a part of it has left, or it cannot be packed again */
        return REGX_UNREACHABLE;
    }
    link->out_at = link->out_length = 0;
    for (int i = 0; i < count; i++) {
        const size_t skipped = regx_min(written, parts[i].iov_len);
        const size_t rest = parts[i].iov_len - skipped;

        if (rest > 0) {
            memcpy(link->out + link->out_length, (const char *)parts[i].iov_base + skipped, rest);
        }
        link->out_length += (uint32_t)rest;
        written -= skipped;
    }
    return REGX_OK;
}

regx_status_t regx_tcp_link_write(regx_tcp_link_t *link, struct iovec *parts, int count)
{
    const regx_status_t status = regx_tcp_link_flush(link);

    if (status != REGX_OK) {
        return status;
    }
    const size_t written = regx_tcp_link_push(link, parts, count);

    return regx_tcp_link_why(link) == REGX_UNREACHABLE
               ? REGX_UNREACHABLE
               : regx_tcp_link_keep(link, parts, count, written);
}

regx_status_t regx_tcp_link_flush(regx_tcp_link_t *link)
{
    if (regx_tcp_link_why(link) == REGX_UNREACHABLE) {
        return REGX_UNREACHABLE;
    }
    if (link->out == NULL) {
        return REGX_OK;
    }
    struct iovec part = {link->out + link->out_at, link->out_length - link->out_at};

    link->out_at += (uint32_t)regx_tcp_link_push(link, &part, 1);
    if (link->out_at < link->out_length) {
        return regx_tcp_link_why(link);
    }
    free(link->out);
    link->out = NULL;
    return REGX_OK;
}

/* ---- the end ---- */

/* The peer closed it instead of letting it in: as one of too many that said nothing, or because it
 * was short of something. Nothing was sent by it; who wants to send makes another. */
static bool was_put_out(const regx_tcp_link_t *link, int error)
{
    return link->state == REGX_TCP_LINK_CONNECTING && link->conn != NULL &&
           (error == 0 || error == ECONNRESET || error == EPIPE) &&
           link->conn->reopened++ < REOPENED_MAX;
}

/* Whoever sends to that peer loses it, by whatever link. */
static void note_death(const regx_tcp_t *tcp, uint64_t peer)
{
    for (regx_tcp_conn_t *conn = tcp->open; conn != NULL; conn = conn->next) {
        if (conn->super.peer == peer) {
            conn->peer_died = true;
            regx_tcp_note_broken(conn);
        }
    }
}

void regx_tcp_link_fail(regx_tcp_link_t *link, int error)
{
    if (was_put_out(link, error)) {
        detach(link);
    }
    link->state = REGX_TCP_LINK_ENDED;
    link->tcp->ended = true;
    note_broken(link, error);
    if (link->peer_speaks) {
        note_death(link->tcp, link->peer);
    }
}

void regx_tcp_link_end(regx_tcp_link_t *link)
{
    regx_tcp_link_fail(link, 0);
}

/* What was not read would have the kernel throw away what is still to be sent. */
static void close_socket(const regx_tcp_t *tcp, int fd)
{
    uint8_t nowhere[REGX_TCP_SHORT_READ];

    /* As long as a forked child has the descriptor, too, epoll would go on telling of it. */
    (void)watch_for(tcp, EPOLL_CTL_DEL, fd, NULL, 0);
    (void)shutdown(fd, SHUT_WR);
    for (int i = 0; i < 1024 && recv(fd, nowhere, sizeof(nowhere), MSG_DONTWAIT) > 0; i++) {
    }
    close(fd);
}

static void free_link(regx_tcp_link_t *link)
{
    regx_tcp_t *tcp = link->tcp;

    close_socket(tcp, link->fd);
    if (link->conn != NULL) {
        link->conn->link = NULL;
    }
    if (tcp->hot == link) {
        tcp->hot = NULL;
    }
    tcp->link_count--;
    if (link->ours) {
        release_held(tcp, link->peer);
    }
    free(link->out);
    free(link->in);
    free(link);
}

void regx_tcp_sweep(regx_tcp_t *tcp)
{
    while (tcp->ended) {
        regx_tcp_link_t **at = &tcp->links;

        tcp->ended = false;
        while (*at != NULL) {
            regx_tcp_link_t *link = *at;

            if (link->state == REGX_TCP_LINK_ENDED) {
                *at = link->next;
                free_link(link); /* may end others */
            } else {
                at = &link->next;
            }
        }
    }
}
