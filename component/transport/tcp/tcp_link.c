/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The sockets of tcp: how one comes to be, how it is written, and how it ends.
 */
#include <assert.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/tcp/tcp_internal.h"

/* A peer whose machine is gone is noticed after so long if nothing is sent to it. If something is,
 * the kernel repeats it for as long as it thinks right (net.ipv4.tcp_retries2: a quarter of an
 * hour). */
enum { KEEPALIVE_IDLE_S = 10, KEEPALIVE_BETWEEN_S = 2, KEEPALIVE_TIMES = 3 };
/* Times that a link is made anew which the peer closed before it let it in, or did not accept. The
 * latter takes two minutes each (net.ipv4.tcp_syn_retries), and all together about as long as the
 * kernel repeats what is sent to a peer that is gone; three seconds each where no host has that
 * address. */
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

bool regx_tcp_watch_for(const regx_tcp_t *tcp, int operation, int fd, regx_tcp_link_t *link,
                        uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = link};

    return epoll_ctl(tcp->epoll, operation, fd, &event) == 0;
}

regx_tcp_link_t *regx_tcp_link_make(regx_tcp_t *tcp, int fd, regx_tcp_link_state_t state,
                                    uint32_t events)
{
    set_options(fd);
    regx_tcp_link_t *link = calloc(1, sizeof(*link));

    if (link == NULL || !regx_tcp_watch_for(tcp, EPOLL_CTL_ADD, fd, link, events)) {
        const int error = errno;

        free(link);
        errno = error;
        return NULL;
    }
    link->tcp = tcp;
    link->since_ns = regx_now_ns();
    link->fd = fd;
    link->state = state;
    link->expects = REGX_TCP_SHORT_READ;
    link->next = tcp->links;
    tcp->links = link;
    tcp->link_count++;
    return link;
}

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
    assert(written < length && link->out == NULL);
    link->out = malloc(length - written);
    if (link->out == NULL) {
        regx_tcp_link_end(link); /* a part of it has left, or it cannot be packed again */
        return REGX_UNREACHABLE;
    }
    link->out_at = link->out_length = 0;
    link->out_room = (uint32_t)(length - written);
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

bool regx_tcp_link_add(regx_tcp_link_t *link, const struct iovec *parts, int count)
{
    size_t length = 0;

    for (int i = 0; i < count; i++) {
        length += parts[i].iov_len;
    }
    if (link->out == NULL) {
        link->out = malloc(REGX_TCP_GATHERED_MAX);
        link->out_at = link->out_length = 0;
        link->out_room = link->out != NULL ? REGX_TCP_GATHERED_MAX : 0;
    }
    assert(link->out_length <= link->out_room);
    if (length > link->out_room - link->out_length) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        if (parts[i].iov_len > 0) {
            memcpy(link->out + link->out_length, parts[i].iov_base, parts[i].iov_len);
        }
        link->out_length += (uint32_t)parts[i].iov_len;
    }
    return true;
}

/* So many bytes of what is kept have left. */
static void take_off(regx_tcp_link_t *link, size_t bytes)
{
    assert(bytes <= regx_tcp_link_kept(link));
    link->out_at += (uint32_t)bytes;
    if (link->out_at == link->out_length) {
        free(link->out);
        link->out = NULL;
    }
}

size_t regx_tcp_link_push_behind(regx_tcp_link_t *link, struct iovec *parts, int count)
{
    const size_t kept = regx_tcp_link_kept(link);

    if (kept == 0) {
        return regx_tcp_link_push(link, parts + 1, count);
    }
    parts[0] = (struct iovec){link->out + link->out_at, kept};
    const size_t written = regx_tcp_link_push(link, parts, count + 1);
    const size_t taken = regx_min(written, kept);

    take_off(link, taken);
    return written - taken;
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

    take_off(link, regx_tcp_link_push(link, &part, 1));
    return link->out != NULL ? regx_tcp_link_why(link) : REGX_OK;
}

/* ---- the end ---- */

/* The peer closed it because nothing had been sent by it for so long: this process was
 * elsewhere. */
static bool was_silent(const regx_tcp_link_t *link)
{
    return link->asked == REGX_TCP_NOT_ASKED && regx_now_ns() - link->since_ns > REGX_TCP_SILENT_NS;
}

/* The peer's kernel has answered at least once: what times out later is a machine that is gone
 * (keepalive). A socket keeps that number when it has failed. */
static bool was_answered(const regx_tcp_link_t *link)
{
    struct tcp_info info = {.tcpi_bytes_acked = 0};
    socklen_t length = sizeof(info);

    return link->asked != REGX_TCP_NOT_ASKED ||
           (getsockopt(link->fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
            info.tcpi_bytes_acked > 0);
}

/* The peer closed it instead of letting it in, or never accepted it, as one that is outside MPI
 * while many others connect. Or its host did not answer when it was asked for its hardware address:
 * a crowded network loses these questions, and the kernel asks only three times, a second apart.
 * Nothing was sent by it; who wants to send makes another. */
static bool is_tried_again(const regx_tcp_link_t *link, int error)
{
    const bool closed = error == 0 || error == ECONNRESET || error == EPIPE;
    const bool not_accepted = (error == ETIMEDOUT || error == EHOSTUNREACH) && !was_answered(link);

    if (link->state != REGX_TCP_LINK_CONNECTING || link->conn == NULL) {
        return false;
    }
    return (closed && was_silent(link)) ||
           ((closed || not_accepted) && link->conn->reopened++ < REOPENED_MAX);
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
    if (is_tried_again(link, error)) {
        regx_tcp_detach(link);
    }
    link->state = REGX_TCP_LINK_ENDED;
    link->tcp->ended = true;
    note_broken(link, error);
    if (link->received == REGX_TCP_RECEIVED_HELLO) {
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
    (void)regx_tcp_watch_for(tcp, EPOLL_CTL_DEL, fd, NULL, 0);
    (void)shutdown(fd, SHUT_WR);
    for (int i = 0; i < 1024 && recv(fd, nowhere, sizeof(nowhere), MSG_DONTWAIT) > 0; i++) {
    }
    close(fd);
}

void regx_tcp_link_free(regx_tcp_link_t *link)
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
    free(link->out);
    free(link->in);
    free(link);
}
