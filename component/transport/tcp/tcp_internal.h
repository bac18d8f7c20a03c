/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of tcp share. From the bottom up: tcp_link.c has the sockets, tcp_strangers.c puts
 * some out, tcp_meet.c has two processes come to one, tcp_accept.c takes in who connects,
 * tcp_stream.c reads what comes by a socket, tcp_send.c sends frames and puts, tcp_conn.c connects,
 * disconnects and cleans up, tcp_progress.c drives all of it, tcp.c opens and closes.
 *
 * A connection (regx_tcp_conn_t) is this process's way to send to a peer. A link (regx_tcp_link_t)
 * is a socket, by which both send. A connection takes the link that its peer has opened, or opens
 * one. If both open one at once, that of the process with the lower id is used. A link stays as
 * long as one of the two sends by it.
 *
 * Two links between the same two processes are never wrong, for each side sends by one and reads
 * both. So a link that was asked for is not closed by who gives it up: the peer may have let it in
 * and sent by it already. It is left, which is said by a goodbye as soon as it is open, and the
 * peer closes it if nobody there sends by it.
 */
#ifndef REGX_TRANSPORT_TCP_INTERNAL_H
#define REGX_TRANSPORT_TCP_INTERNAL_H

#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/util.h"
#include "transport/arbiter.h"
#include "transport/counters.h"
#include "transport/pace.h"
#include "transport/rkey_table.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/tcp_device.h"
#include "transport/tcp/tcp_frame.h"
#include "transport/tcp/tcp_watch.h"
#include "transport/try_lock.h"

#define REGX_TCP_MESSAGE_MAX (REGX_TCP_DATA_MAX + REGX_TCP_HEAD_MAX)

/* What is asked for when nothing is known of what comes: several short messages, or the head of a
 * put and not much of its data, which is read to where it belongs. */
#define REGX_TCP_SHORT_READ 4096u
/* Room for what is read: the longest frame, and a short read behind it. */
#define REGX_TCP_STAGING (REGX_TCP_MESSAGE_MAX + REGX_TCP_SHORT_READ)

/* Between two looks at connections on which nothing came lately. */
#define REGX_TCP_IDLE_NS 5000

/* Bytes of one write: what the kernel sends at once over the loopback. A longer one leaves a rest
 * of some bytes, which travels and is read by itself. */
#define REGX_TCP_WRITE_MAX 65483u
/* What is sent while something that came is dealt with, such as grants, leaves together, if it is
 * short: frames of so many bytes at most, and so many bytes in all. A write costs microseconds. */
#define REGX_TCP_GATHERED_FRAME 512u
#define REGX_TCP_GATHERED_MAX 4096u
/* Bytes of data of one read. */
#define REGX_TCP_READ_MAX 65536u

/* How long a process that connected may send nothing before its socket may be closed. */
#define REGX_TCP_SILENT_NS INT64_C(10000000000)
/* After so many looks in a row at which a peer has not let this process in, a warning is printed.
 * Looks are counted, not time, because this process may have been outside MPI itself. */
#define REGX_TCP_NO_ANSWER_LOOKS 600u
/* After so many looks without an answer on one link the peer may be given up, if all that time
 * somebody wanted in here who could not be let in for a shortage: the two processes may be waiting
 * for each other. A peer that does not accept is tried for as long (tcp_link.c). */
#define REGX_TCP_BARRED_LOOKS 1200u
/* From one look to the next. */
#define REGX_TCP_NO_ANSWER_LOOK_NS 1000000000

/* The work of one turn: writes of puts per connection, and connections per progress. */
#define REGX_TCP_TURN_WRITES 4
#define REGX_TCP_TURN_CONNS 16

typedef struct regx_tcp_conn regx_tcp_conn_t;
typedef struct regx_tcp_link regx_tcp_link_t;

/* What there may be too little of. */
typedef enum regx_tcp_shortage {
    REGX_TCP_NO_DESCRIPTOR, /* of this process's */
    REGX_TCP_NO_FILE,       /* of the system's (fs.file-max) */
    REGX_TCP_NO_MEMORY,     /* of the kernel's, or this process's */
    REGX_TCP_NO_WATCH,      /* of epoll's (fs.epoll.max_user_watches) */
    REGX_TCP_SHORTAGES
} regx_tcp_shortage_t;

typedef struct regx_tcp {
    regx_transport_t super; /* unused: nothing is in line or closing */
    regx_transport_config_t config;
    void *own_pool; /* where the configuration gives none */

    struct sockaddr_storage at; /* where this process listens */
    socklen_t at_length;
    uint64_t host;     /* of the loopback: who else is on it; 0: another device */
    uint64_t token;    /* what a peer has to know to be let in */
    int epoll;         /* of the listener and all links; -1: none */
    int listener;      /* -1: none */
    int newcomer;      /* a socket that was accepted, and could get no link for now; -1: none */
    uint8_t *incoming; /* REGX_TCP_STAGING bytes, for what was just read */
    uint8_t *outgoing; /* REGX_TCP_MESSAGE_MAX bytes, for what is being packed */

    regx_try_lock_t try_lock; /* to all that is below */

    /* For whoever is inside. */
    regx_tcp_link_t *links;                     /* every socket but the listener */
    unsigned link_count;                        /* links that there are */
    regx_tcp_link_t *hot;                       /* on which something came last, or NULL */
    unsigned polls;                             /* of the hot link */
    bool ended;                                 /* some links did: regx_tcp_sweep frees them */
    bool shortage_reported[REGX_TCP_SHORTAGES]; /* once per process */
    regx_tcp_shortage_t short_of;               /* what there was too little of last */
    bool barred;               /* since the last look for peers that do not answer, somebody who
                                 connects could not be taken in for a shortage */
    unsigned barred_looks;     /* in a row, nobody having been taken in between */
    regx_tcp_conn_t *open;     /* every connection that has had a link */
    regx_tcp_conn_t *closing;  /* disconnected, but something waits to leave */
    regx_arbiter_t arbiter;    /* to send what is in line */
    bool broke;                /* a connection did: regx_tcp_clean_up reports it */
    bool gathering;            /* between regx_tcp_gather_begin and _end */
    regx_tcp_link_t *gathered; /* links to which something was added meanwhile */
    int events;                /* of this progress */
    regx_pace_t no_answer;     /* when to look for peers that do not answer */

    /* When progress looks at the network. */
    regx_pace_t pace;    /* after many looks in vain */
    unsigned idle;       /* looks in a row that found nothing */
    atomic_bool stirred; /* idle is to begin anew: something was sent, or the watch woke */
    regx_tcp_watch_t watch;
} regx_tcp_t;

typedef enum regx_tcp_state {
    REGX_TCP_NEW,        /* nothing was sent yet */
    REGX_TCP_CONNECTING, /* hello is not yet sent; it may have no link yet */
    REGX_TCP_OPEN,       /* hello was sent */
    REGX_TCP_BROKEN,     /* the link ended, or could not be made */
    REGX_TCP_LEAVING,    /* disconnected; goodbye is not yet sent */
    REGX_TCP_DRAINING    /* disconnected; the kernel has not taken all */
} regx_tcp_state_t;

struct regx_tcp_conn {
    regx_conn_t super;
    uint64_t pool_size; /* the peer's */
    uint64_t token;     /* what the peer wants to see before it accepts a link */
    struct sockaddr_storage at;
    socklen_t at_length;
    regx_tcp_state_t state;
    bool missed;           /* somebody tried to use it after it broke */
    bool peer_died;        /* a link ended by which it spoke */
    int error;             /* errno of what broke it; 0: the peer ended it */
    const char *why;       /* what broke it, where there is no errno; or NULL */
    unsigned unanswered;   /* looks that found that the peer has not answered */
    unsigned reopened;     /* times that a link of ours was closed instead of being let in */
    regx_tcp_link_t *link; /* NULL: none yet, or it broke */

    /* The puts in line, oldest first. piece_left: bytes of the first one's present piece that the
     * kernel has not taken. */
    regx_put_t *first;
    regx_put_t *last;
    size_t piece_left;

    regx_tcp_conn_t *next; /* in open or closing */
    regx_arbiter_entry_t entry;
};

typedef enum regx_tcp_link_state {
    REGX_TCP_LINK_CONNECTING, /* opened here; welcome has not come */
    REGX_TCP_LINK_STRANGER,   /* opened by somebody; connect has not come */
    REGX_TCP_LINK_HELD,       /* opened by a peer while this process opened one, which goes first */
    REGX_TCP_LINK_OPEN,
    REGX_TCP_LINK_ENDED /* regx_tcp_sweep frees it */
} regx_tcp_link_state_t;

/* Whether the message connect was sent by a link. */
typedef enum regx_tcp_asked {
    REGX_TCP_NOT_ASKED,
    REGX_TCP_ASKED,
    REGX_TCP_ASKED_AGAIN /* it was sent a second time (regx_tcp_urge) */
} regx_tcp_asked_t;

/* The last hello or goodbye that the peer sent. */
typedef enum regx_tcp_received {
    REGX_TCP_RECEIVED_NOTHING,
    REGX_TCP_RECEIVED_HELLO,  /* it sends by the link: if that ends, the peer died */
    REGX_TCP_RECEIVED_GOODBYE /* it sends nothing more by it */
} regx_tcp_received_t;

/* Where the data of a put goes that does not come whole. */
typedef enum regx_tcp_landing {
    REGX_TCP_LANDING_NONE,   /* no such put is being read */
    REGX_TCP_LANDING_HOLED,  /* none; but data of an earlier piece went nowhere, so that the notice
                              * of that put is refused */
    REGX_TCP_LANDING_PLACED, /* its data goes where its sender may write */
    REGX_TCP_LANDING_REFUSED /* its data goes nowhere */
} regx_tcp_landing_t;

struct regx_tcp_link {
    regx_tcp_t *tcp;
    regx_tcp_link_t *next;
    regx_tcp_conn_t *conn; /* who sends by it, or NULL */
    uint64_t peer;         /* unless it is a stranger */
    uint64_t token;        /* of a link opened here: the peer's */
    int64_t since_ns;      /* when it was made, by regx_now_ns */
    int fd;
    unsigned looks; /* in how many looks the peer had not answered it */
    regx_tcp_link_state_t state;
    regx_tcp_asked_t asked;
    regx_tcp_received_t received;
    bool ours; /* opened here, and never welcomed */
    bool left; /* nobody here sends by it again; if it is open, goodbye is or was to be said */
    bool unwritable;

    /* What was accepted and the kernel has not taken, or was not given yet: from out_at to
     * out_length of memory that is there only while there is something, and has out_room bytes. */
    uint8_t *out;
    uint32_t out_at;
    uint32_t out_length;
    uint32_t out_room;
    bool gathers; /* in tcp->gathered */
    regx_tcp_link_t *next_gathered;

    /* The beginning of a message, likewise, and how much to ask for next. */
    uint8_t *in;
    uint32_t in_length;
    uint32_t expects;

    /* The put whose data is being read. */
    regx_tcp_landing_t landing;
    size_t landed;
    regx_tcp_frame_t put;
    uint8_t notice[REGX_NOTICE_MAX];
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

/* Bytes that were accepted and have not left. */
static inline size_t regx_tcp_link_kept(const regx_tcp_link_t *link)
{
    return link->out != NULL ? link->out_length - link->out_at : 0;
}

static inline void regx_tcp_attach(regx_tcp_conn_t *conn, regx_tcp_link_t *link)
{
    conn->link = link;
    link->conn = conn;
}

static inline void regx_tcp_detach(regx_tcp_link_t *link)
{
    link->conn->link = NULL;
    link->conn = NULL;
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

/* tcp_link.c. Has epoll report a descriptor; the listener has no link. */
bool regx_tcp_watch_for(const regx_tcp_t *tcp, int operation, int fd, regx_tcp_link_t *link,
                        uint32_t events);
/* A link of that socket. NULL, with errno: there can be none, and the socket is the caller's. */
regx_tcp_link_t *regx_tcp_link_make(regx_tcp_t *tcp, int fd, regx_tcp_link_state_t state,
                                    uint32_t events);
/* Writes all or nothing; what the kernel does not take at once is kept. REGX_OK; REGX_AGAIN: there
 * is something kept already, and not after regx_tcp_link_flush has answered REGX_OK;
 * REGX_UNREACHABLE: the link has ended. */
regx_status_t regx_tcp_link_write(regx_tcp_link_t *link, struct iovec *parts, int count);
/* Writes what the kernel takes. Bytes; 0: nothing, for now or because the link has ended. Only if
 * nothing is kept. */
size_t regx_tcp_link_push(regx_tcp_link_t *link, struct iovec *parts, int count);
/* Why it did not take all: REGX_AGAIN: for now; REGX_UNREACHABLE. */
regx_status_t regx_tcp_link_why(const regx_tcp_link_t *link);
/* Keeps what is behind the first `written` bytes. REGX_OK; REGX_UNREACHABLE: no memory. */
regx_status_t regx_tcp_link_keep(regx_tcp_link_t *link, const struct iovec *parts, int count,
                                 size_t written);
/* Writes what was kept, and then what the kernel takes of one or two parts, which are parts[1] and
 * on; parts[0] is used. Bytes of the parts; 0 as regx_tcp_link_push, and something may be kept
 * still. */
size_t regx_tcp_link_push_behind(regx_tcp_link_t *link, struct iovec *parts, int count);
/* Adds to what is kept, without trying to write. false: there is no room. */
bool regx_tcp_link_add(regx_tcp_link_t *link, const struct iovec *parts, int count);
/* Writes what was kept. REGX_OK: all of it; REGX_AGAIN; REGX_UNREACHABLE. */
regx_status_t regx_tcp_link_flush(regx_tcp_link_t *link);
/* The link is of no use any more; its connection is broken, unless it may try again. If the peer
 * spoke by it and did not send goodbye, it died. It is freed by regx_tcp_sweep. */
void regx_tcp_link_end(regx_tcp_link_t *link);
/* The same; errno has the reason. */
void regx_tcp_link_fail(regx_tcp_link_t *link, int error);
/* Frees it; it is in no list any more. */
void regx_tcp_link_free(regx_tcp_link_t *link);

/* tcp_strangers.c. Closes the stranger that has been silent for longest, if there are more of them
 * than allowed and it had time enough. A peer that has not got to it makes another. */
void regx_tcp_put_out_stranger(const regx_tcp_t *tcp, unsigned allowed);
/* Whether that errno means a shortage, for now. Then that is counted,
 * once for each thing, with its purpose ("to ..." or "for ..."); and a stranger is put out. */
bool regx_tcp_is_short(regx_tcp_t *tcp, int error, const char *purpose);

/* tcp_meet.c. A peer with a lower id may hold a link of ours until one of its own is let in: asks
 * it not to wait for that. */
void regx_tcp_urge(const regx_tcp_t *tcp);
/* Gives the connection, which has none, a link: the peer's, or one that is begun to be made, which
 * may have ended at once. REGX_OK; REGX_AGAIN: there is no descriptor or no memory, for now;
 * REGX_UNREACHABLE, with conn->error. */
regx_status_t regx_tcp_link_take(regx_tcp_conn_t *conn);
/* Parts the connection from its link, which is not open. One by which nothing was asked for ends;
 * any other is left when it is open. */
void regx_tcp_link_give_up(regx_tcp_conn_t *conn);
/* A link of ours can be written for the first time, or could not be made. */
void regx_tcp_link_ask(regx_tcp_link_t *link);
/* The first message of a link, of the kind that its state expects. REGX_OK; REGX_INVALID. */
regx_status_t regx_tcp_link_greet(regx_tcp_link_t *link, const regx_tcp_frame_t *frame);
/* Frees links that have ended. Not while one is read. */
void regx_tcp_sweep(regx_tcp_t *tcp);

/* tcp_accept.c. Makes the listener; tcp->at says where, but for the port. REGX_OK;
 * REGX_UNREACHABLE, with errno. */
regx_status_t regx_tcp_listen(regx_tcp_t *tcp);
/* Takes in who has connected. Whether somebody has. */
bool regx_tcp_accept(regx_tcp_t *tcp);

/* tcp_stream.c. Reads what has come by a link, but not for ever. Whether anything has. */
bool regx_tcp_link_read(regx_tcp_link_t *link);
/* Handles a whole frame, or piece of a put. REGX_OK; REGX_INVALID: it is malformed, and was
 * dropped and counted. */
regx_status_t regx_tcp_receive(regx_tcp_t *tcp, const void *message, size_t length);

/* tcp_send.c. Sends a hello or a goodbye. Answers as regx_tcp_link_write. */
regx_status_t regx_tcp_send_empty(regx_tcp_link_t *link, regx_tcp_kind_t kind);
/* What is sent from inside deliver and done between the two leaves with the second, as far as the
 * kernel takes it, unless a put takes it along. */
void regx_tcp_gather_begin(regx_tcp_t *tcp);
void regx_tcp_gather_end(regx_tcp_t *tcp);
/* Takes all puts out of the line; completes what was taken; takes the turns of the connections that
 * wait to send. */
regx_put_t *regx_tcp_take_line(regx_tcp_conn_t *conn);
void regx_tcp_fail_line(regx_put_t *first, regx_status_t status);
void regx_tcp_take_turns(regx_tcp_t *tcp);

/* tcp_conn.c. Ends what is broken, and reports it; moves connections that are closing to their end;
 * reports, once in a while, peers that do not answer. */
void regx_tcp_clean_up(regx_tcp_t *tcp);
void regx_tcp_reap(regx_tcp_t *tcp);
void regx_tcp_look_for_answers(regx_tcp_t *tcp);

/* tcp_progress.c. Reads what has come. all: from everybody, and not only where something came
 * last. Whether anything has. */
bool regx_tcp_poll(regx_tcp_t *tcp, bool all);

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
