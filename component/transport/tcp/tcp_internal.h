/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of tcp share: tcp.c opens, closes and locks, tcp_conn.c makes and ends
 * connections, tcp_send.c sends, tcp_progress.c receives and drives all of it.
 */
#ifndef REGX_TRANSPORT_TCP_INTERNAL_H
#define REGX_TRANSPORT_TCP_INTERNAL_H

#include <stdatomic.h>
#include <ucs/async/async_fwd.h>
#include <uct/api/uct.h>

#include "transport/entrance.h"
#include "transport/pace.h"
#include "transport/turns.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/tcp_frame.h"

#define REGX_TCP_AM_ID 1
#define REGX_TCP_DATA_MAX 65536 /* bytes of data in one message of UCT */
#define REGX_TCP_MESSAGE_MAX (REGX_TCP_DATA_MAX + REGX_TCP_HEAD_MAX)
#define REGX_TCP_UCT_ADDRESS_MAX 64 /* bytes of each part of UCT's address */

#define REGX_TCP_TALKERS_MAX 65536 /* peers that said hello and not yet goodbye */

/* Between two looks at connections on which nothing came lately. */
#define REGX_TCP_IDLE_NS 5000

/* The work of one turn: pieces of puts per connection, and connections per progress. */
#define REGX_TCP_TURN_PIECES 4
#define REGX_TCP_TURN_CONNS 16

typedef struct regx_tcp_uct_address {
    uint8_t length;
    uint8_t bytes[REGX_TCP_UCT_ADDRESS_MAX];
} regx_tcp_uct_address_t;

struct regx_tcp {
    const regx_transport_config_t *config;
    regx_rkey_table_t *rkeys;
    uint8_t *pool;
    size_t pool_size;

    ucs_async_context_t *async;
    uct_md_h md;
    uct_worker_h worker; /* tcp's own: nothing else is on it */
    uct_iface_h iface;
    char device[UCT_DEVICE_NAME_MAX];
    regx_tcp_uct_address_t device_address;
    regx_tcp_uct_address_t iface_address;

    regx_entrance_t entrance; /* to UCX */

    /* For whoever is inside. */
    bool receiving;           /* inside UCX's progress: endpoints must not come or go */
    regx_tcp_conn_t *open;    /* every connection with an endpoint */
    regx_tcp_conn_t *closing; /* disconnected, but UCX still holds a frame */
    regx_turns_t turns;       /* to send what is in line, or to get an endpoint */
    bool broke;               /* mourn has something to do */
    int events;               /* of this progress */

    uint64_t *talkers; /* ids of peers that said hello and not yet goodbye */
    size_t talker_count;
    size_t talker_room;

    /* When progress looks at the network. */
    _Atomic bool in_use; /* a connection was made or a message came */
    regx_pace_t pace;    /* for a wire in use on which nothing came lately */
    unsigned polls;
    unsigned idle; /* polls in a row that found nothing */
};

struct regx_tcp_conn {
    regx_tcp_t *tcp;
    uint64_t peer;
    uint64_t pool_size; /* the peer's */
    regx_tcp_uct_address_t device_address;
    regx_tcp_uct_address_t iface_address;
    uct_ep_h ep;  /* NULL before the first use, and after it broke */
    bool greeted; /* hello was said */
    bool broken;
    bool missed; /* somebody tried to use it after it broke */

    /* The puts in line, oldest first. in_flight: UCX still reads a piece of the first one. */
    regx_put_t *first;
    regx_put_t *last;
    bool in_flight;
    uct_completion_t completion;

    /* While closing: goodbye was said; UCX was asked to tell when all has left; it has. */
    bool parted;
    bool draining;
    bool drained;
    uct_pending_req_t drain;

    regx_tcp_conn_t *next; /* in open or closing */
    regx_turn_t turn;
};

/* The following are called inside the entrance. */

/* Sees to it that the connection can be used. REGX_OK; REGX_AGAIN: it gets its endpoint in the
 * next turn of progress; REGX_UNREACHABLE. */
regx_status_t regx_tcp_ready(regx_tcp_conn_t *conn);
/* Takes note that the connection is lost; progress does the rest. */
void regx_tcp_note_broken(regx_tcp_conn_t *conn);

/* Sends a message without data, hello or goodbye. REGX_OK, REGX_AGAIN, REGX_UNREACHABLE. */
regx_status_t regx_tcp_send_empty(regx_tcp_conn_t *conn, regx_tcp_kind_t kind);
/* A hello or goodbye came. REGX_INVALID: too many, or a goodbye from nobody. */
regx_status_t regx_tcp_note_hello(regx_tcp_t *tcp, uint64_t sender);
regx_status_t regx_tcp_note_goodbye(regx_tcp_t *tcp, uint64_t sender);

/* Takes all puts out of the line, and completes what was taken. */
regx_put_t *regx_tcp_take_line(regx_tcp_conn_t *conn);
void regx_tcp_fail_line(regx_put_t *first, regx_status_t status);
/* UCT's callback when the piece in flight has left, or never will. */
void regx_tcp_piece_left(uct_completion_t *completion);

/* Parts of progress, outside of UCX's. Turns: puts and endpoints that wait. Mourn: ends what is
 * broken, and tells. Reap: moves connections that are closing to their end. */
void regx_tcp_take_turns(regx_tcp_t *tcp);
void regx_tcp_mourn(regx_tcp_t *tcp);
void regx_tcp_reap(regx_tcp_t *tcp);

/* UCT's handlers of arriving messages and of broken endpoints; the first argument is the tcp. */
ucs_status_t regx_tcp_receive(void *context, void *message, size_t length, unsigned flags);
ucs_status_t regx_tcp_endpoint_broke(void *context, uct_ep_h ep, ucs_status_t status);

#endif
