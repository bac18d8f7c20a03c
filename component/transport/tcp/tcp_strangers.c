/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Strangers: processes that connected and have not yet identified themselves. A peer may be slow:
 * it says connect when its program calls MPI again. So strangers are kept, but not where there is
 * not enough for all.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "transport/tcp/tcp_internal.h"

/* It has sent something that was not yet read: this process was elsewhere. */
static bool has_unread_data(const regx_tcp_link_t *link)
{
    uint8_t byte;

    return recv(link->fd, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT) > 0;
}

void regx_tcp_put_out_stranger(const regx_tcp_t *tcp, unsigned allowed)
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
        !has_unread_data(oldest)) {
        regx_tcp_link_end(oldest);
    }
}

/* What an errno says there is not enough of; REGX_TCP_SHORTAGES: it says something else. */
static regx_tcp_shortage_t shortage_of(int error)
{
    switch (error) {
    case EMFILE:
        return REGX_TCP_NO_DESCRIPTOR;
    case ENFILE:
        return REGX_TCP_NO_FILE;
    case ENOBUFS:
    case ENOMEM:
        return REGX_TCP_NO_MEMORY;
    case ENOSPC:
        return REGX_TCP_NO_WATCH;
    default:
        return REGX_TCP_SHORTAGES;
    }
}

bool regx_tcp_is_short(regx_tcp_t *tcp, int error, const char *purpose)
{
    static const char *const names[REGX_TCP_SHORTAGES] = {[REGX_TCP_NO_DESCRIPTOR] = "descriptor",
                                                          [REGX_TCP_NO_FILE] = "open file",
                                                          [REGX_TCP_NO_MEMORY] = "memory",
                                                          [REGX_TCP_NO_WATCH] = "epoll watch"};
    const regx_tcp_shortage_t shortage = shortage_of(error);
    char text[REGX_REASON_LENGTH];

    if (shortage == REGX_TCP_SHORTAGES) {
        return false;
    }
    tcp->short_of = shortage;
    /* The program may close something, or the kernel find memory. */
    if (!tcp->shortage_reported[shortage]) {
        tcp->shortage_reported[shortage] = true;
        snprintf(text, sizeof(text), "tcp: no %s is left %s", names[shortage], purpose);
        regx_transport_fall_back(&tcp->config, REGX_TRACE_CHOICE, text);
    }
    regx_tcp_put_out_stranger(tcp, 0);
    return true;
}
