/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of tcp share. From the bottom up: tcp_message.c hands single messages to UCX,
 * tcp_endpoint.c makes endpoints, tcp_send.c sends frames and puts, tcp_conn.c connects,
 * disconnects and cleans up, tcp_progress.c receives and drives all of it, tcp.c opens and closes.
 */
#ifndef REGX_TRANSPORT_TCP_INTERNAL_H
#define REGX_TRANSPORT_TCP_INTERNAL_H

#include <stdatomic.h>
#include <ucs/async/async_fwd.h>
#include <uct/api/uct.h>

#include "base/util.h"
#include "transport/arbiter.h"
#include "transport/catalog.h"
#include "transport/pace.h"
#include "transport/rkey_table.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/tcp_frame.h"
#include "transport/tcp/tcp_talkers.h"
#include "transport/tcp/tcp_watch.h"
#include "transport/try_lock.h"

#define REGX_TCP_AM_ID 1
#define REGX_TCP_DATA_MAX 65536 /* bytes of data in one message of UCT */
#define REGX_TCP_MESSAGE_MAX (REGX_TCP_DATA_MAX + REGX_TCP_HEAD_MAX)
/* Bytes of data in one piece of a put. With both headers it fits what the kernel sends at once over
 * the loopback (65483 bytes). A longer piece leaves a rest of some bytes, which travels and is read
 * by itself: at 64 KiB that costs half of the bandwidth. */
#define REGX_TCP_PIECE_MAX 65344u
#define REGX_TCP_UCT_ADDRESS_MAX 64 /* bytes of each part of UCT's address */

/* Between two looks at connections on which nothing came lately, and between two for newcomers. */
#define REGX_TCP_IDLE_NS 5000
#define REGX_TCP_NEWCOMERS_NS 100000

/* The work of one turn: pieces of puts per connection, and connections per progress. */
#define REGX_TCP_TURN_PIECES 4
#define REGX_TCP_TURN_CONNS 16

typedef struct regx_tcp_uct_address {
    uint8_t length;
    uint8_t bytes[REGX_TCP_UCT_ADDRESS_MAX];
} regx_tcp_uct_address_t;

typedef struct regx_tcp_conn regx_tcp_conn_t;

typedef struct regx_tcp {
    regx_transport_t super; /* unused: nothing is in line or closing */
    regx_transport_config_t config;
    void *own_pool; /* where the configuration gives none */

    ucs_async_context_t *async;
    uct_md_h md;
    uct_worker_h worker; /* tcp's own: nothing else is on it */
    uct_iface_h iface;
    char device[UCT_DEVICE_NAME_MAX];
    regx_tcp_uct_address_t device_address;
    regx_tcp_uct_address_t iface_address;

    regx_try_lock_t try_lock; /* to UCX */

    /* For whoever is inside. */
    bool receiving;           /* inside UCX's progress: endpoints must not come or go */
    regx_tcp_conn_t *open;    /* every connection with an endpoint */
    regx_tcp_conn_t *closing; /* disconnected, but UCX still holds a frame */
    regx_arbiter_t arbiter;   /* to send what is in line, or to get an endpoint */
    bool broke;               /* regx_tcp_clean_up has something to do */
    int events;               /* of this progress */
    regx_tcp_talkers_t talkers;

    /* When progress looks at the network. */
    regx_pace_t pace;      /* after many looks in vain */
    regx_pace_t newcomers; /* which UCX looks for by itself */
    unsigned idle;         /* looks in a row that found nothing */
    atomic_bool stirred;   /* idle is to begin anew: something was sent, or the watch woke */
    regx_tcp_watch_t watch;
    int events_fd;   /* of UCX, for the watch; -1: none */
    int listener_fd; /* likewise */
} regx_tcp_t;

typedef enum regx_tcp_state {
    REGX_TCP_NEW,        /* no endpoint: nothing was sent yet */
    REGX_TCP_CONNECTING, /* it has an endpoint; hello is not yet said */
    REGX_TCP_OPEN,       /* hello was said */
    REGX_TCP_BROKEN,     /* the endpoint broke, or could not be made */
    REGX_TCP_LEAVING,    /* disconnected; goodbye is not yet said */
    REGX_TCP_DRAINING,   /* disconnected; UCX tells when all has left */
    REGX_TCP_DRAINED
} regx_tcp_state_t;

struct regx_tcp_conn {
    regx_conn_t super;
    uint64_t pool_size; /* the peer's */
    regx_tcp_uct_address_t device_address;
    regx_tcp_uct_address_t iface_address;
    regx_tcp_state_t state;
    bool missed; /* somebody tried to use it after it broke */
    uct_ep_h ep; /* NULL before the first use, and after it broke */
    uct_pending_req_t drain;

    /* The puts in line, oldest first. in_flight: UCX still reads a piece of the first one. */
    regx_put_t *first;
    regx_put_t *last;
    bool in_flight;
    uct_completion_t completion;

    regx_tcp_conn_t *next; /* in open or closing */
    regx_arbiter_entry_t entry;
};

static inline regx_tcp_t *regx_tcp_of(regx_transport_t *transport)
{
    return REGX_CONTAINER_OF(transport, regx_tcp_t, super);
}

static inline regx_tcp_conn_t *regx_tcp_conn_of(regx_conn_t *conn)
{
    return REGX_CONTAINER_OF(conn, regx_tcp_conn_t, super);
}

/* The transport of a connection. */
static inline regx_tcp_t *regx_tcp_at(const regx_tcp_conn_t *conn)
{
    return regx_tcp_of(conn->super.transport);
}

/* Something was accepted: progress looks closely for what it brings about. Any thread. */
static inline void regx_tcp_stir(regx_tcp_t *tcp)
{
    atomic_store_explicit(&tcp->stirred, true, memory_order_relaxed);
}

/* Something is wanted: progress goes on. Any thread. */
static inline void regx_tcp_use(regx_tcp_t *tcp)
{
    if (atomic_load_explicit(&tcp->super.unused, memory_order_relaxed)) {
        atomic_store_explicit(&tcp->super.unused, false, memory_order_relaxed);
        regx_tcp_stir(tcp);
    }
}

/* Takes note that the connection is lost; progress does the rest. */
static inline void regx_tcp_note_broken(regx_tcp_conn_t *conn)
{
    conn->state = REGX_TCP_BROKEN;
    regx_tcp_at(conn)->broke = true;
}

/* ---- inside the try-lock ---- */

/* tcp_message.c. What UCT's answer to a message means: REGX_OK, REGX_AGAIN, REGX_UNREACHABLE. */
regx_status_t regx_tcp_answer(regx_tcp_conn_t *conn, ucs_status_t status);
/* Sends one message, whose data is header and payload, by copy. Answers as regx_tcp_answer. */
regx_status_t regx_tcp_send_message(regx_tcp_conn_t *conn, const regx_tcp_frame_t *frame,
                                    const void *header, size_t header_length, regx_pack_t pack,
                                    void *pack_context, size_t payload_length);
/* Sends a hello or a goodbye. */
regx_status_t regx_tcp_send_empty(regx_tcp_conn_t *conn, regx_tcp_kind_t kind);

/* tcp_endpoint.c. Sees to it that the connection can be used. REGX_OK; REGX_AGAIN: it gets its
 * endpoint in the next turn of progress; REGX_UNREACHABLE. */
regx_status_t regx_tcp_ready(regx_tcp_conn_t *conn);

/* tcp_send.c. Takes all puts out of the line; completes what was taken; takes the turns of the
 * connections that wait to send. */
regx_put_t *regx_tcp_take_line(regx_tcp_conn_t *conn);
void regx_tcp_fail_line(regx_put_t *first, regx_status_t status);
void regx_tcp_take_turns(regx_tcp_t *tcp);

/* tcp_conn.c. Ends what is broken, and tells; moves connections that are closing to their end. */
void regx_tcp_clean_up(regx_tcp_t *tcp);
void regx_tcp_reap(regx_tcp_t *tcp);

/* UCX's handlers of arriving messages (tcp_progress.c) and of broken endpoints (tcp_endpoint.c).
 * The first argument is the transport. */
ucs_status_t regx_tcp_receive(void *context, void *message, size_t length, unsigned flags);
ucs_status_t regx_tcp_endpoint_broke(void *context, uct_ep_h ep, ucs_status_t status);

/* ---- operations, as in transport.h ---- */

size_t regx_tcp_address(regx_transport_t *transport, void *buffer);
regx_status_t regx_tcp_connect(regx_transport_t *transport, uint64_t peer, bool same_node,
                               const void *address, size_t length, regx_conn_t **conn);
void regx_tcp_disconnect(regx_conn_t *conn);
bool regx_tcp_reachable(regx_conn_t *conn);
regx_status_t regx_tcp_send(regx_conn_t *conn, uint8_t tag, const void *header,
                            size_t header_length, regx_pack_t pack, void *pack_context,
                            size_t payload_length);
regx_status_t regx_tcp_send_zcopy(regx_conn_t *conn, regx_zcopy_t *zcopy);
regx_status_t regx_tcp_put(regx_conn_t *conn, regx_put_t *put);
int regx_tcp_progress(regx_transport_t *transport);

#endif
