/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The listener of tcp, and strangers: those who have connected and have not yet said who they are.
 */
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/tcp/tcp_internal.h"

enum { ACCEPTS = 16 }; /* at once */

/* So many may say nothing for longer than REGX_TCP_SILENT_NS, and none where there is not enough for
 * all. A peer may take its time: it says connect when its program calls MPI again. */
enum { SILENT_MAX = 64 };

regx_status_t regx_tcp_listen(regx_tcp_t *tcp)
{
    tcp->epoll = epoll_create1(EPOLL_CLOEXEC);
    tcp->listener = socket(tcp->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (tcp->epoll < 0 || tcp->listener < 0 ||
        bind(tcp->listener, (struct sockaddr *)&tcp->at, tcp->at_length) != 0 ||
        listen(tcp->listener, SOMAXCONN) != 0 ||
        getsockname(tcp->listener, (struct sockaddr *)&tcp->at, &tcp->at_length) != 0 ||
        !regx_tcp_watch_for(tcp, EPOLL_CTL_ADD, tcp->listener, NULL, EPOLLIN)) {
        return REGX_UNREACHABLE;
    }
    return REGX_OK;
}

/* It has said something that was not yet read: this process was elsewhere. */
static bool has_spoken(const regx_tcp_link_t *link)
{
    uint8_t byte;

    return recv(link->fd, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* Closes the link that has said nothing for longest, if there are more than may do so and it had time
 * enough. A peer that has not got to it makes another. */
static void put_out_a_stranger(const regx_tcp_t *tcp, unsigned allowed)
{
    regx_tcp_link_t *oldest = NULL;
    unsigned count = 0;

    for (regx_tcp_link_t *link = tcp->links; link != NULL; link = link->next) {
        if (link->state == REGX_TCP_LINK_STRANGER) {
            oldest = link; /* the last of the list is the first that came */
            count++;
        }
    }
    if (count > allowed && regx_now_ns() - oldest->since_ns > REGX_TCP_SILENT_NS &&
        !has_spoken(oldest)) {
        regx_tcp_link_end(oldest);
    }
}

bool regx_tcp_is_short(regx_tcp_t *tcp, int error, const char *what)
{
    /* The program may close something, or the kernel find memory. */
    if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM &&
        error != ENOSPC) {
        return false;
    }
    if (!tcp->crowded) {
        tcp->crowded = true;
        regx_transport_fall_back(&tcp->config, REGX_TRACE_CHOICE, what);
    }
    put_out_a_stranger(tcp, 0);
    return true;
}

/* accept4, without a descriptor to give, does not look whether anybody does. If poll cannot tell,
 * somebody may. */
static bool somebody_waits(const regx_tcp_t *tcp)
{
    struct pollfd listener = {.fd = tcp->listener, .events = POLLIN};

    return tcp->newcomer >= 0 || poll(&listener, 1, 0) != 0;
}

static void cannot_take_in(regx_tcp_t *tcp, int error)
{
    if (!somebody_waits(tcp)) {
        return;
    }
    if (regx_tcp_is_short(tcp, error, "tcp: no descriptor is left for a peer that connects")) {
        regx_tcp_urge(tcp);
    } else if (tcp->newcomer >= 0) {
        close(tcp->newcomer);
        tcp->newcomer = -1;
    }
}

/* Takes in one who has connected. Once accepted it is kept, even if there can be no link for now: if
 * it were closed, the peer would try again at once, and not for ever. */
static bool take_one_in(regx_tcp_t *tcp)
{
    regx_tcp_link_t *link = NULL;

    if (tcp->newcomer < 0) {
        tcp->newcomer = accept4(tcp->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    }
    if (tcp->newcomer >= 0) {
        link = regx_tcp_link_make(tcp, tcp->newcomer, REGX_TCP_LINK_STRANGER, EPOLLIN);
    }
    if (link == NULL) {
        cannot_take_in(tcp, errno);
        return false;
    }
    tcp->newcomer = -1;
    put_out_a_stranger(tcp, SILENT_MAX);
    return true;
}

bool regx_tcp_accept(regx_tcp_t *tcp)
{
    int accepted = 0;

    while (accepted < ACCEPTS && take_one_in(tcp)) {
        accepted++;
    }
    return accepted > 0;
}
