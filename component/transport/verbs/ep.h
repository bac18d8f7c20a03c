/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An endpoint: the reliable queue pair to one peer. There is one per peer at each end. A queue pair
 * is used for one connection only: a peer that disconnects and comes back gets another.
 *
 * Connection management: how an endpoint begins and ends. Messages are datagrams over one UD queue
 * pair per port, which the peer's address names. They get lost, and a peer that computes answers
 * only when it calls MPI again, which may be in an hour.
 *
 *      A sends something first                      B
 *      ASKING     --- REQUEST: my queue pair is a -->  connects its b to a
 *                 <-- ACCEPT: b, connected to a ---    ACCEPTED
 *      READY      --- READY: a, connected to b ---->   READY
 *
 *             | caller   | REQUEST      | ACCEPT       | READY, | goodbye | goodbyes | it fails
 *             | sends    |              |              | frame  |         | done     |
 *   ----------+----------+--------------+--------------+--------+---------+----------+---------
 *   (none)    | ASKING   | ACCEPTED     | ASKING (4)   | -      | -       | -        | -
 *   ASKING    | (1)      | ACCEPTED     | READY (3)    | -      | -       | -        | BROKEN
 *   ACCEPTED  | (1)      | (2)          | READY (3)    | READY  | -       | -        | BROKEN
 *   READY     | posted   | -            | (3)          | -      | LEAVING | -        | BROKEN
 *   LEAVING   | AGAIN    | -            | (3)          | -      | LEAVING | LEFT     | BROKEN
 *   LEFT      | AGAIN    | -            | (3)          | -      | LEFT    | (none)   | BROKEN
 *   BROKEN    | (5)      | -            | -            | -      | -       | -        | -
 *
 *   (1) It asks: its message, REQUEST or ACCEPT, goes again and again until the state changes:
 *       after 20 ms, then ever longer up to 1.3 s, at random within a quarter of that, so that the
 *       questions of many processes do not come at once. After some ten minutes callers are told
 *       that the peer is silent. Sends answer REGX_AGAIN.
 *   (2) ACCEPT again, as the first was lost. A message of a newer queue pair of the peer's: what
 *       ours is connected to is no more, and nothing was sent by it. A new endpoint, which is
 *       ASKING, takes its place and hears a REQUEST or ACCEPT. The caller's next send finds it.
 *   (3) Answers READY, each time: the peer is ACCEPTED until it hears so.
 *   (4) The peer is connected to a queue pair of ours that is no more: it took a late REQUEST for
 *       a new one. A new endpoint answers REQUEST: see (2). So does one that is ASKING.
 *   (5) REGX_UNREACHABLE, once the event `broken` was delivered.
 *
 * Crossing requests: both are ASKING, both become ACCEPTED by the other's REQUEST, and READY by the
 * other's ACCEPT. As there is one queue pair per peer, neither order nor repetition changes the
 * outcome.
 *
 * Epochs. Every queue pair has one, greater than that of those before it in its process. A message
 * names the sender's, and the receiver's that the sender is connected to. So what comes late, of a
 * queue pair that is no more, is recognised: in the table, a message counts as ACCEPT or READY for
 * an endpoint that is not ASKING only if both epochs are right.
 *
 * The end. An endpoint that its caller disconnects, or that hears goodbye, is LEAVING: what was
 * accepted is posted, and then goodbye. It is LEFT until all of that has completed and the peer's
 * goodbye has come; probes find out whether the peer died meanwhile (cq.c), which ends it, too. A
 * caller that has not disconnected gets a new endpoint with its next send.
 * Where the device has no queue pair for another peer, the oldest idle endpoint is evicted: it goes
 * the same way, at both ends, but nobody has disconnected. So it is reported if it breaks before the
 * peer is known to have all.
 * Before it is READY an endpoint that its caller disconnects stays, without asking, and leaves when
 * it becomes READY. When the transport closes, peers are not waited for: what was accepted
 * completes, and goodbye, unless the peer has left.
 *
 * A BROKEN endpoint is reported, first of all: a caller that hears of a failed put alone may try
 * the same memory in another way. Not so one that leaves, or whose peer has left: it ends in
 * silence. When the queue pair has come to rest it is destroyed, and what was under way ends with
 * REGX_FAILED. The endpoint stays until its caller disconnects, so that the caller does not ask a
 * lost peer again.
 *
 * Identity. The source of a datagram, which the device fills in, must be the address that the
 * message gives; where the peer's published address is known here, it must be that.
 */
#ifndef REGX_VERBS_EP_H
#define REGX_VERBS_EP_H

#include "transport/verbs/verbs.h"

/* What a work request stands for when it is done. */
typedef struct regx_verbs_work {
    enum {
        REGX_WORK_PLAIN,
        REGX_WORK_READ, /* a segment of a get */
        REGX_WORK_PROBE /* its end is always reported */
    } kind;
    regx_verbs_slot_t *slot; /* that it is sent from, or NULL */
    regx_pending_t *ends;    /* the put, zcopy or get of which it is the last request, or NULL */
    const char *what;        /* it does, for people */
} regx_verbs_work_t;

typedef enum regx_ep_state { /* see above */
                             REGX_EP_ASKING,
                             REGX_EP_ACCEPTED,
                             REGX_EP_READY,
                             REGX_EP_LEAVING,
                             REGX_EP_LEFT,
                             REGX_EP_BROKEN
} regx_ep_state_t;

/* Work requests under way, in order: those numbered [done, posted). */
typedef struct regx_sq {
    regx_verbs_work_t works[REGX_VERBS_DEPTH]; /* a ring, of which can.depth are used */
    uint64_t posted, done;
    uint64_t goodbye;    /* posted, when the goodbye was; 0: it was not */
    uint64_t seen;       /* what was posted when idle endpoints were looked for */
    uint32_t unsignaled; /* requests since the last one that reports its end */
    uint32_t slots;      /* that requests under way hold */
} regx_sq_t;

struct regx_ep {
    regx_verbs_t *verbs;
    uint64_t peer;
    regx_verbs_conn_t *conn; /* NULL: no caller here has asked for this peer */
    regx_ep_state_t state;
    bool leaves;    /* we leave: as soon as it is READY, or has ended */
    bool peer_left; /* the peer sent goodbye */
    bool evicted;   /* it ends since we, or the peer, need its queue pair for another */
    bool reported;  /* callers were notified that it broke */
    char what[256]; /* what broke it */
    struct ibv_qp *qp;
    uint32_t qpn; /* the queue pair's number */
    uint32_t psn;
    uint64_t epoch; /* greater than that of any before it in this process */
    regx_verbs_address_t address;
    regx_cm_message_t theirs; /* that its route was made by; from ACCEPTED on it is connected */
    struct {                  /* datagrams: see datagram.c */
        bool asks;            /* the message of its state goes again and again */
        unsigned asked;
        unsigned unrouted;        /* times, one after the other, that the network told no route */
        struct regx_route *route; /* to the peer, while it is asked or answered; or NULL */
        int64_t next;             /* when to send it */
        regx_link_t waiting;
    } cm;
    regx_sq_t sq;
    regx_link_t puts; /* in line; the first may have been posted in part */
    /* Gets. The device would hold up all that comes behind a READ beyond `max`, so no
     * more are posted. */
    struct {
        regx_link_t line;
        uint8_t max, posted;
    } gets;
    regx_link_t turn;    /* in `turns`, to post what is in line */
    struct {             /* of a queue pair that is driven to error */
        bool last_taken; /* the device takes no more from the shared receive queue for it */
        int64_t since;   /* when it was; 0: it was not */
    } rest;
    regx_link_t link, ending;
    regx_link_t by_peer, by_qpn; /* in the buckets of regx_verbs_table_t */
};

/* Finds out what requests carry inline: can.inline_max. REGX_OK; REGX_UNREACHABLE: the device makes
 * no queue pair; `error` holds one line. If it has no memory at the moment, nothing is found out and
 * it is REGX_OK: requests carry no data inline then. */
regx_status_t regx_qp_probe(regx_verbs_t *verbs, regx_error_t error);
/* The route to the process that published an address. Owned by the caller; NULL: see errno, which
 * is not 0. On RoCE the kernel asks the network for the peer's hardware address, unless it knows
 * it, and waits for the answer up to a second (measured with Linux 7.2: 1.0 s for a host that is
 * not there). Nothing in verbs goes on without. So the thread in progress may wait so long, once for
 * each peer. */
struct ibv_ah *regx_qp_route(regx_verbs_t *verbs, const regx_verbs_address_t *address);
/* Whether the route to a peer that was refused with that error is worth another try: memory may be
 * free again, and the kernel's question or the answer may have been lost. For the latter so many
 * times only, as each may take a second. */
bool regx_ep_may_route_later(regx_ep_t *ep, int error);

/* A new endpoint, ASKING. It is BROKEN if the device refuses, or if there are too many peers. NULL:
 * no memory now, here or for the device; a device that has had none for a minute refuses. */
regx_ep_t *regx_ep_new(regx_verbs_t *verbs, uint64_t peer, const regx_verbs_address_t *address);
/* Connects the queue pair to the peer's; the kernel may wait as for a route. 0, or the error. After
 * an error for which regx_ep_may_route_later is true it may be called again, unless it has set `theirs`: the
 * queue pair has its route then, and is not given another. */
int regx_ep_connect(regx_ep_t *ep, const regx_cm_message_t *message);
regx_ep_t *regx_ep_find(regx_verbs_t *verbs, uint64_t peer);
regx_ep_t *regx_ep_find_qpn(regx_verbs_t *verbs, uint32_t qpn);

/* The endpoint can take a step towards its end. */
static inline void regx_ep_set_ending(regx_ep_t *ep)
{
    regx_list_set(&ep->verbs->ending, &ep->ending, true);
}
/* Breaks an endpoint, with what it was doing and why ("RDMA WRITE", "transport retry counter
 * exceeded"); cm.c does the rest. The first reason stays. */
void regx_ep_break(regx_ep_t *ep, const char *what, const char *why);
/* The same for all up to that state. */
void regx_eps_break(regx_verbs_t *verbs, regx_ep_state_t last, const char *what, const char *why);

/* Frees an endpoint whose queue pair is destroyed and which is in no list of others. */
void regx_ep_free(regx_ep_t *ep);

#define REGX_VERBS_SENDING "SEND"
#define REGX_VERBS_WRITING "RDMA WRITE"

/* Work requests and their completion. Requests report their end only where something waits for it
 * or they hold a slot, and one in half of what fits. What does not report is never more than half of
 * all. */

/* Whether the end of a request under way is going to be reported. */
static inline bool regx_sq_awaits_report(const regx_ep_t *ep)
{
    return ep->sq.posted - ep->sq.done > ep->sq.unsignaled;
}
/* The last quarter of all requests is for endpoints that await no report, one request each: so those
 * whose peers do not read leave some for the others. */
static inline bool regx_sq_only_reserve_is_left(const regx_verbs_t *verbs)
{
    return verbs->requests.max - verbs->requests.outstanding <= verbs->requests.max / 4;
}
/* Whether a request may be posted. */
static inline bool regx_sq_has_room(const regx_ep_t *ep)
{
    const regx_verbs_t *verbs = ep->verbs;

    if (ep->sq.posted - ep->sq.done >= verbs->can.depth ||
        (verbs->port.away != NULL && !verbs->closing)) {
        return false;
    }
    return !regx_sq_only_reserve_is_left(verbs) ||
           (!regx_sq_awaits_report(ep) && verbs->requests.outstanding < verbs->requests.max);
}
/* Whether what is in line may be posted. */
static inline bool regx_sq_is_open(const regx_ep_t *ep)
{
    return ep->state == REGX_EP_READY || ep->state == REGX_EP_LEAVING;
}
/* Posts a request. There is room. The device may refuse, which breaks the endpoint and is
 * REGX_UNREACHABLE. */
regx_status_t regx_sq_post(regx_ep_t *ep, struct ibv_send_wr *request,
                           const regx_verbs_work_t *work);
/* A SEND of that kind as a request. */
struct ibv_send_wr regx_sq_frame(regx_verbs_kind_t kind, uint8_t tag, struct ibv_sge *data);
/* A write of no bytes, whose end is reported: whether the peer's device still answers. There is
 * room. */
void regx_sq_probe(regx_ep_t *ep);
/* Posts a goodbye, behind all that was accepted. REGX_OK, REGX_AGAIN, REGX_UNREACHABLE. */
regx_status_t regx_sq_post_goodbye(regx_ep_t *ep);

/* Whether a put, get or zcopy of the endpoint is under way or in line. */
bool regx_sq_touches(const regx_ep_t *ep);
/* The work requests up to that number, itself included, are done. */
void regx_sq_done(regx_ep_t *ep, uint64_t number);
/* Ends all of the endpoint's work with REGX_FAILED. The queue pair is gone. */
void regx_sq_fail(regx_ep_t *ep);

static inline bool regx_ep_has_line(const regx_ep_t *ep)
{
    return !regx_list_empty(&ep->puts) || !regx_list_empty(&ep->gets.line);
}
/* What could not be posted waits for its turn. */
void regx_verbs_wait_if_left(regx_ep_t *ep);
/* Post what is in line, as far as there is room; of puts a bounded amount. */
void regx_verbs_put_take_turn(regx_ep_t *ep);
void regx_verbs_get_take_turn(regx_ep_t *ep);

/* Connection management: cm.c. */

/* The connection's endpoint, made and asked for if need be. REGX_OK: conn->ep can be used;
 * REGX_AGAIN; REGX_UNREACHABLE: it broke, and callers were notified. */
regx_status_t regx_cm_make_ready(regx_verbs_conn_t *conn);
static inline regx_status_t regx_cm_ready(regx_verbs_conn_t *conn)
{
    const regx_ep_t *ep = conn->ep;

    return ep != NULL && ep->state == REGX_EP_READY ? REGX_OK : regx_cm_make_ready(conn);
}
/* Whether the peer may still answer, as far as is known: it has not been asked in vain for some ten
 * minutes, or some seconds after its goodbye. */
bool regx_cm_may_answer(regx_conn_t *conn);

/* A datagram arrived. */
void regx_cm_receive(regx_verbs_t *verbs, const struct ibv_wc *wc);
/* A frame arrived: the peer's queue pair is connected to ours. */
void regx_cm_heard(regx_ep_t *ep);
/* The peer sent goodbye: it leaves, or another took its queue pair. */
void regx_cm_left(regx_ep_t *ep, regx_verbs_goodbye_t how);
/* We leave. */
void regx_cm_leave(regx_ep_t *ep);
/* Begins to end an idle endpoint, if there is one, so that its queue pair can be used for another
 * peer. Its caller gets a new one with its next send. */
void regx_cm_evict(regx_verbs_t *verbs);
/* Moves endpoints on that end. `empty`: the completion queue was, after the last look at the device. */
void regx_cm_end(regx_verbs_t *verbs, bool empty);

/* Datagrams, and the queue of endpoints that wait to send one: datagram.c. First come, first
 * served: an endpoint that asked in vain goes to the end, and a question for which there was no room
 * does not count. */
/* Makes the UD queue pair. REGX_OK; REGX_UNREACHABLE, REGX_NO_MEMORY: `error` holds one line. */
regx_status_t regx_cm_open(regx_verbs_t *verbs, regx_error_t error);
/* Endpoints have ended. */
void regx_cm_close(regx_verbs_t *verbs);
/* Has progress send the message of the endpoint's state: once, or again and again until
 * regx_cm_stop. */
void regx_cm_answer(regx_ep_t *ep);
void regx_cm_ask(regx_ep_t *ep);
static inline void regx_cm_stop(regx_ep_t *ep)
{
    ep->cm.asks = false;
    regx_list_remove(&ep->cm.waiting);
}
/* Gives back the route that is kept for the next message. */
void regx_cm_forget_route(regx_ep_t *ep);
/* Sends what is due, as far as there is room, and unless the port is away. */
void regx_cm_send_due(regx_verbs_t *verbs);
/* The oldest datagram has gone, or failed. */
void regx_cm_sent(regx_verbs_t *verbs);

#endif
