/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An endpoint: the reliable queue pair to one peer. There is one per peer at each end, made by
 * whoever first wants to send or first hears of the other. A queue pair is used for one connection
 * only: who disconnects and comes back gets another.
 */
#ifndef REGX_VERBS_EP_H
#define REGX_VERBS_EP_H

#include <errno.h>

#include "transport/verbs/verbs.h"

/* What a work request stands for when it is done. */
typedef struct regx_work {
    enum {
        REGX_WORK_PLAIN, /* nobody waits for it */
        REGX_WORK_SLOT,
        REGX_WORK_PUT,
        REGX_WORK_ZCOPY,
        REGX_WORK_GET, /* of the segments of one, the last has the object */
        REGX_WORK_FETCH,
        REGX_WORK_PROBE /* nobody waits for it, but its end is always reported */
    } kind;
    uint32_t slot; /* SLOT, PUT, GET, FETCH; of PUT and GET REGX_SLOT_NONE if they have none */
    void *object;  /* the put, zcopy, get or fetch */
    const char *what;
} regx_work_t;

/* A request as it was posted, so that it can be posted again (restart.h). */
typedef struct regx_posted {
    uint64_t local, remote;
    uint32_t length, lkey, rkey;
    __be32 immediate;
    uint16_t opcode; /* enum ibv_wr_opcode */
    uint16_t flags;  /* IBV_SEND_INLINE, or 0 */
} regx_posted_t;

typedef enum regx_ep_state {
    REGX_EP_CONNECTING, /* the peer's queue pair is not known */
    REGX_EP_CONNECTED,  /* ours is connected to the peer's; the peer's may not be to ours yet */
    REGX_EP_READY,      /* both are connected */
    REGX_EP_RESTING,    /* the queue pair failed, and is to be replaced (restart.h) */
    REGX_EP_BROKEN
} regx_ep_state_t;

/* Our direction. */
typedef enum regx_ep_local {
    REGX_EP_OPEN,
    REGX_EP_CLOSING, /* disconnected: a goodbye follows what was accepted */
    REGX_EP_CLOSED   /* the goodbye was posted */
} regx_ep_local_t;

/* The peer's direction. */
typedef enum regx_ep_remote {
    REGX_EP_REMOTE_OPEN,
    REGX_EP_REMOTE_CLOSED,         /* the peer sent goodbye */
    REGX_EP_REMOTE_CLOSED_FOR_ROOM /* likewise; but it still wants what we accepted for it */
} regx_ep_remote_t;

/* Whether callers are notified that an endpoint broke. */
typedef enum regx_ep_report {
    REGX_EP_NOT_REPORTED,
    REGX_EP_REPORT_DUE, /* somebody wants something of it that cannot be had */
    REGX_EP_REPORTED
} regx_ep_report_t;

struct regx_ep {
    regx_verbs_t *verbs;
    uint64_t peer;
    regx_verbs_conn_t *conn; /* NULL: nobody here has asked for this peer */
    regx_ep_state_t state;
    regx_ep_local_t local;
    regx_ep_remote_t remote;
    bool retires;  /* both ends close it, and may come back: bound.h */
    uint64_t used; /* when it last sent or heard something, as regx_verbs.uses counts; or 0 */
    regx_ep_report_t report;
    char what[160]; /* what broke it, or the queue pair that is replaced */
    struct ibv_qp *qp;
    uint32_t qpn;      /* the queue pair's number */
    struct ibv_ah *ah; /* to the peer's UD queue pair */
    regx_verbs_address_t address;
    uint64_t epoch; /* of this queue pair: greater than that of any before it in this process */
    uint64_t born;  /* epoch of the first queue pair of this connection */
    uint32_t psn;
    uint32_t inline_max;

    /* Of the peer, once connected. */
    uint64_t peer_epoch;
    uint64_t peer_born; /* epoch of its first queue pair of this connection; 0: not known */
    uint32_t peer_qpn;
    uint64_t peer_pool;
    uint64_t peer_pool_size;
    uint32_t peer_pool_key;

    /* Work requests under way, in order: those numbered [done, posted). */
    uint32_t depth;
    regx_work_t *works; /* a ring of `depth` */
    uint64_t posted, done;
    /* What posting them again takes; NULL: that is not wanted. */
    regx_posted_t *requests; /* a ring of `depth` */
    uint8_t *carried;  /* inline data of frames: a ring of `depth` x REGX_VERBS_INLINE bytes */
    uint64_t numbered; /* how many requests were posted that take a receive of the peer */
    uint64_t handled;  /* how many such requests of the peer's were handled here */
    uint64_t handled_before; /* what `handled` was when this queue pair was made */
    bool restarts;           /* the queue pair is being replaced */
    int64_t restart_until;   /* when the endpoint breaks if it is not ready by then */
    int64_t ready_at;        /* when it was ready again last */
    uint32_t renewals;       /* of the limit, with nothing completed since the first */
    uint64_t restart_done, restart_posted; /* `done` and `posted`, when it was ready again last */
    uint64_t goodbye;                      /* CLOSED: `posted`, when our goodbye was the last */
    uint32_t unsignaled;                   /* requests since the last one that reports its end */
    uint32_t unsignaled_slots;             /* slots that those requests hold */
    uint32_t slots;                        /* slots that all requests under way hold */

    /* Puts in line, oldest first; the first may have been posted in part. */
    regx_put_t *first, *last;
    /* Gets, likewise. The device would hold up all that comes behind a READ beyond reads_max, so no
     * more are posted. */
    regx_get_t *first_get, *last_get;
    uint8_t reads_max, reads;
    regx_arbiter_entry_t entry; /* to post what is in line */

    /* A frame that arrives in segments. */
    uint8_t *gathered; /* REGX_VERBS_ZCOPY_MAX bytes, or NULL */
    size_t gathered_length;
    bool discards; /* segments of a frame were lost: what follows here is no frame */

    /* The end. */
    bool last_taken;     /* the device takes no more from the shared receive queue for it */
    int64_t rests_since; /* when the queue pair was driven to error; 0: it was not */

    /* Keepalive. */
    uint64_t seen; /* `posted`, when it was last looked at */
    int64_t seen_at;

    /* Connection management: cm_queue.h. */
    bool answer_due;
    unsigned asked;
    int64_t ask_next; /* when to ask again, in nanoseconds */

    regx_link_t link, broken_link, leaving_link, asking_link, due_link, restart_link;
    regx_ep_t *next_by_peer, *next_by_qpn;
};

regx_ep_t *regx_ep_find(const regx_verbs_t *verbs, uint64_t peer);
regx_ep_t *regx_ep_find_qpn(regx_verbs_t *verbs, uint32_t qpn);

/* Whether an error is a lack of memory, which may pass. */
static inline bool regx_is_scarce(int error)
{
    return error == ENOMEM || error == EAGAIN;
}
/* A new endpoint, which then owns the route; also on failure. route_error: why there is no route;
 * else 0. The endpoint is broken, with a report due, if the device refuses it or the route, or if
 * there are too many peers. NULL: no memory now, here or for the device. Of the latter the report
 * tells; a device that has had no memory for a minute refuses. */
regx_ep_t *regx_ep_new(regx_verbs_t *verbs, uint64_t peer, const regx_verbs_address_t *address,
                       struct ibv_ah *route, int route_error);
/* Makes another queue pair for an endpoint that has one: `made` is the endpoint with it, and owns
 * it. false: there is no memory now, and the endpoint is as before; or the device refuses, and it
 * is broken, with a report due. */
bool regx_ep_make_another(regx_ep_t *ep, regx_ep_t *made);
/* Gives the endpoint that queue pair; it is connecting then. Its own one is destroyed. */
void regx_ep_take_another(regx_ep_t *ep, const regx_ep_t *made);
/* Gives an endpoint that is connected, and has posted nothing, another queue pair, and begins a new
 * connection with it. false: as above. */
bool regx_ep_begin_anew(regx_ep_t *ep);
/* Connects the queue pair to the peer's; the kernel may wait as for a route (qp.h). false: the
 * device refuses; the endpoint is then broken, with no report due, or rests to be restarted. */
bool regx_ep_connect(regx_ep_t *ep, const regx_cm_message_t *message);

/* Breaks an endpoint, with what it was doing and why ("RDMA WRITE", "transport retry counter
 * exceeded"); cleanup.h does the rest. The first reason stays. */
void regx_ep_break(regx_ep_t *ep, const char *what, const char *why);
/* Likewise, where somebody wants something of the endpoint that cannot be had. */
void regx_ep_break_wanted(regx_ep_t *ep, const char *what, const char *why);
/* Somebody wants something of a broken endpoint. */
void regx_ep_want_report(regx_ep_t *ep);
/* Likewise, all of them; all that are not ready, because nothing can be asked any more. */
void regx_eps_break(regx_verbs_t *verbs, const char *what, const char *why);
void regx_eps_break_unready(regx_verbs_t *verbs, const char *why);

/* The queue pair has failed: it is replaced if it can be (restart.h), else the endpoint breaks. */
void regx_ep_fail(regx_ep_t *ep, const char *what, const char *why);
/* Whether the queue pair is being replaced. */
static inline bool regx_ep_restarts(const regx_ep_t *ep)
{
    return ep->restarts;
}

/* Takes the endpoint out of the table by queue pair number: completions of it are not heeded. */
void regx_ep_forget_qpn(regx_ep_t *ep);
/* Frees an endpoint whose queue pair is destroyed and which is in no list of others. */
void regx_ep_free(regx_ep_t *ep);

/* Whether every request has completed. Behind a goodbye come only keepalives; the
 * peer may have ended its queue pair when they arrive. */
static inline bool regx_ep_is_done(const regx_ep_t *ep)
{
    const uint64_t end = ep->local == REGX_EP_CLOSED ? ep->goodbye : ep->posted;

    return ep->done >= end || ep->state != REGX_EP_READY;
}

#endif
