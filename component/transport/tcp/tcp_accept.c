/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The listener of tcp: who connects is taken in, as a stranger.
 */
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "transport/tcp/tcp_internal.h"

enum { ACCEPTS = 16 }; /* at once */

enum { SILENT_MAX = 64 }; /* so many may be silent for longer than REGX_TCP_SILENT_NS */

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

/* accept4, without a descriptor to give, does not look whether anybody does. If poll does not know,
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
    if (regx_tcp_is_short(tcp, error, "for a peer that connects")) {
        tcp->barred = true;
        regx_tcp_urge(tcp);
    } else if (tcp->newcomer >= 0) {
        close(tcp->newcomer);
        tcp->newcomer = -1;
    }
}

/* Takes in one who has connected. Once accepted it is kept, even if there can be no link for now:
 * if it were closed, the peer would try again at once, and not for ever. */
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
    tcp->barred = false;
    tcp->barred_looks = 0;
    regx_tcp_put_out_stranger(tcp, SILENT_MAX);
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
