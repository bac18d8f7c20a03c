/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of tcp's links: two processes over the loopback. Both are in this process and this
 * thread, so it is the test that says who does what first. What hangs, the watchdog ends
 * (unit/tap).
 */
#ifndef REGX_TEST_TCP_ENDS_H
#define REGX_TEST_TCP_ENDS_H

#include "../../unit.h"

#include "transport/tcp/tcp_internal.h"

enum { LOW = 1, HIGH = 2, TAG = 5, POOL = 1 << 16 };

enum { PACKED = 1000 };

typedef struct end {
    regx_counters_t counters;
    regx_rkey_table_t rkeys;
    regx_transport_t *transport;
    regx_tcp_t *tcp;
    regx_conn_t *conn;
    uint64_t peer;
    unsigned received, sent, broken, silent;
    char what[256];  /* it was told when the connection broke */
    unsigned packed; /* frames; their data is what a convertor gives, once */
    bool packs;      /* the peer's frames are these */
} end_t;

/* Opens the loopback. */
void open_end(end_t *end, uint64_t self);
void close_end(end_t *end);
/* Prepares the path to the other. */
void connect_to(end_t *from, const end_t *to);
void disconnect(end_t *end);
/* The same of both. When they close, nothing is left of their links. */
void open_both(end_t *low, end_t *high);
void close_both(end_t *low, end_t *high);
/* Likewise, but the first has disconnected. */
void close_after(end_t *gone, end_t *other);

/* Tries to send the next frame, which is numbered. Both check what is delivered. */
bool send_one(end_t *end);
void progress(end_t *low, end_t *high);
/* Until each has `count` frames of the other. */
void exchange(end_t *low, end_t *high, unsigned count);
/* What should not come has the time to: both look again and again. */
void settle(end_t *low, end_t *high);
/* Until each has so many links; and they stay. */
void check_links(end_t *low, end_t *high, unsigned count);

static inline regx_tcp_conn_t *conn_of(const end_t *end)
{
    return regx_tcp_conn_of(end->conn);
}

static inline regx_tcp_link_t *link_of(const end_t *end)
{
    return conn_of(end)->link;
}

/* Until the kernel says so of a link. */
void wait_for(const regx_tcp_link_t *link, short events);
/* Opens a link and says connect by it; nothing that comes is read. */
void ask(end_t *end);
/* Looks at one end alone until it has sent so many frames by its newest link, once that is open. */
void send_when_let_in(end_t *end, unsigned count);
/* The link that an end has accepted, alone, and that has said connect. */
regx_tcp_link_t *accept_one(const end_t *end);
/* Both open one; that of the higher id waits at the lower one, whose own waits to be accepted. */
void hold(end_t *low, end_t *high);
/* A stranger's socket; -1: refused, with errno. */
int connect_raw(const struct sockaddr_storage *at);

#endif
