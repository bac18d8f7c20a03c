/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An endpoint: the reliable queue pair to one peer. There is one per peer at each end. A queue pair
 * is used for one connection only: a peer that disconnects and comes back gets another. cm.h draws
 * how an endpoint begins and ends.
 */
#ifndef REGX_VERBS_EP_H
#define REGX_VERBS_EP_H

#include "transport/verbs/verbs.h"

/* What a work request stands for when it is done. */
typedef struct regx_work {
    enum {
        REGX_WORK_PLAIN, /* nobody waits for it */
        REGX_WORK_SLOT,
        REGX_WORK_PUT,
        REGX_WORK_ZCOPY,
        REGX_WORK_GET,  /* of the segments of one, the last has the object */
        REGX_WORK_PROBE /* nobody waits for it, but its end is always reported */
    } kind;
    uint32_t slot; /* SLOT, PUT; of PUT REGX_SLOT_NONE if it has none */
    void *object;  /* the put, zcopy or get */
    const char *what;
} regx_work_t;

typedef enum regx_ep_state { /* see cm.h */
                             REGX_EP_ASKING,
                             REGX_EP_ACCEPTED,
                             REGX_EP_READY,
                             REGX_EP_LEAVING,
                             REGX_EP_LEFT,
                             REGX_EP_BROKEN
} regx_ep_state_t;

/* Work requests under way, in order: those numbered [done, posted). */
typedef struct regx_sq {
    uint32_t depth;
    regx_work_t *works; /* a ring of `depth` */
    uint64_t posted, done;
    uint32_t unsignaled;       /* requests since the last one that reports its end */
    uint32_t unsignaled_slots; /* slots that those requests hold */
    uint32_t slots;            /* slots that all requests under way hold */
} regx_sq_t;

struct regx_ep {
    regx_verbs_t *verbs;
    uint64_t peer;
    regx_verbs_conn_t *conn; /* NULL: nobody here has asked for this peer */
    regx_ep_state_t state;
    bool leaves;    /* we leave: as soon as it is READY, or has ended */
    bool peer_left; /* the peer sent goodbye */
    bool reported;  /* callers were notified that it broke */
    char what[160]; /* what broke it */
    struct ibv_qp *qp;
    uint32_t qpn; /* the queue pair's number */
    uint32_t psn;
    uint32_t inline_max;
    uint64_t epoch; /* greater than that of any before it in this process */
    regx_verbs_address_t address;
    struct { /* of the peer, from ACCEPTED on */
        uint64_t epoch, pool, pool_size;
        uint32_t qpn, pool_key;
    } theirs;
    struct { /* datagrams: see cm.c */
        unsigned asked;
        int64_t ask_next; /* when to ask again, in nanoseconds */
        regx_link_t asking, due;
    } cm;
    regx_sq_t sq;
    /* Puts in line, oldest first; the first may have been posted in part. */
    struct {
        regx_put_t *first, *last;
    } puts;
    /* Gets, likewise. The device would hold up all that comes behind a READ beyond `max`, so no
     * more are posted. */
    struct {
        regx_get_t *first, *last;
        uint8_t max, posted;
    } gets;
    regx_arbiter_entry_t entry; /* to post what is in line */
    struct {                    /* a frame that arrives in segments */
        uint8_t *memory;        /* REGX_VERBS_ZCOPY_MAX bytes, or NULL */
        size_t length;
        bool discards; /* segments of a frame were lost: what follows here is no frame */
    } gathered;
    struct {             /* of a queue pair that is driven to error */
        bool last_taken; /* the device takes no more from the shared receive queue for it */
        int64_t since;   /* when it was; 0: it was not */
    } rest;
    regx_link_t link, ending;
    struct {
        regx_ep_t *by_peer, *by_qpn;
    } next; /* in the buckets of regx_verbs_table_t */
};

/* Finds out what queue pairs the device makes: can.inline_max and can.depth. REGX_OK;
 * REGX_UNREACHABLE: none, or none that holds the longest frame; `error` holds one line. If the
 * device has no memory at the moment, nothing is found out and it is REGX_OK: requests carry no
 * data inline then. */
regx_status_t regx_qp_probe(regx_verbs_t *verbs, char *error, size_t error_size);
/* The route to the process that published an address. Owned by the caller; NULL: see errno, which
 * is not 0. On RoCE the kernel asks the network for the peer's hardware address, unless it knows
 * it, and waits for the answer up to a second (measured with Linux 7.2: 1.0 s for a host that is
 * not there). Nothing in verbs goes on without. So the thread that first sends to a peer, or the
 * one in progress that accepts its request, may wait so long, once for each peer. */
struct ibv_ah *regx_qp_route(const regx_verbs_t *verbs, const regx_verbs_address_t *address);

/* Whether an error is a lack of memory, which may pass. */
bool regx_is_scarce(int error);
/* A new endpoint, ASKING. It is BROKEN if the device refuses, or if there are too many peers. NULL:
 * no memory now, here or for the device; a device that has had none for a minute refuses. */
regx_ep_t *regx_ep_new(regx_verbs_t *verbs, uint64_t peer, const regx_verbs_address_t *address);
/* Connects the queue pair to the peer's; the kernel may wait as for a route. 0, or the error. */
int regx_ep_connect(regx_ep_t *ep, const regx_cm_message_t *message);
regx_ep_t *regx_ep_find(const regx_verbs_t *verbs, uint64_t peer);
regx_ep_t *regx_ep_find_qpn(regx_verbs_t *verbs, uint32_t qpn);

/* The endpoint can take a step towards its end. */
static inline void regx_ep_set_ending(regx_ep_t *ep)
{
    regx_list_set(&ep->verbs->ending, &ep->ending, true);
}
/* Breaks an endpoint, with what it was doing and why ("RDMA WRITE", "transport retry counter
 * exceeded"); cm.c does the rest. The first reason stays. */
void regx_ep_break(regx_ep_t *ep, const char *what, const char *why);
/* Likewise, all of them. */
void regx_eps_break(regx_verbs_t *verbs, const char *what, const char *why);

/* Takes it out of the table by queue pair number: completions of it are not heeded. */
void regx_ep_forget_qpn(regx_ep_t *ep);
/* Frees an endpoint whose queue pair is destroyed and which is in no list of others. */
void regx_ep_free(regx_ep_t *ep);

/* Work requests and their completion: tx.c. Requests report their end only where somebody waits for
 * it, and one in half of what fits. What does not report is never more than half of all, and never
 * holds more than a quarter of the first slots, so that the rest always comes back. An endpoint
 * that gets no slot asks what became of its own. */

/* Whether so many requests may be posted. */
static inline bool regx_tx_has_room(const regx_ep_t *ep, uint64_t requests)
{
    const regx_verbs_t *verbs = ep->verbs;

    return ep->sq.posted - ep->sq.done + requests <= ep->sq.depth &&
           verbs->requests.outstanding + requests <= verbs->requests.max;
}
/* Whether what is in line may be posted. */
static inline bool regx_tx_is_open(const regx_ep_t *ep)
{
    return ep->state == REGX_EP_READY || ep->state == REGX_EP_LEAVING;
}
/* Posts requests with one ring of the doorbell. There is room. REGX_OK; REGX_UNREACHABLE: the
 * device refuses, which breaks the endpoint. */
regx_status_t regx_tx_post(regx_ep_t *ep, struct ibv_send_wr *requests, const regx_work_t *works,
                           unsigned count);
/* A segment of a frame, as a request. */
struct ibv_send_wr regx_tx_segment(regx_verbs_segment_t kind, uint8_t tag, struct ibv_sge *data);
/* Posts a frame of at most inline_max bytes, which the request carries itself. There is room. */
regx_status_t regx_tx_post_inline(regx_ep_t *ep, regx_verbs_segment_t kind, uint8_t tag,
                                  const void *data, size_t length);
/* Posts a goodbye, behind all that was accepted. REGX_OK, REGX_AGAIN, REGX_UNREACHABLE. */
regx_status_t regx_tx_post_goodbye(regx_ep_t *ep);

/* A slot for the endpoint, or REGX_SLOT_NONE; given back when the request is done that holds it. */
uint32_t regx_tx_take_slot(regx_ep_t *ep);

/* Whether a put, get or zcopy of the endpoint is under way or in line. */
bool regx_tx_touches(const regx_ep_t *ep);
/* The work requests up to that number, itself included, are done. */
void regx_tx_done(regx_ep_t *ep, uint64_t number);
/* Ends all of the endpoint's work with REGX_FAILED. The queue pair is gone. */
void regx_tx_fail(regx_ep_t *ep);

/* What a put or a get that waits in line keeps in its scratch words. */
typedef struct __attribute__((may_alias)) regx_in_line {
    void *next;    /* the put or get behind it; or NULL */
    size_t posted; /* bytes of it */
} regx_in_line_t;
_Static_assert(sizeof(regx_in_line_t) <= sizeof(((regx_put_t *)0)->scratch) &&
                   sizeof(regx_in_line_t) <= sizeof(((regx_get_t *)0)->scratch),
               "a place in line fits");
static inline regx_in_line_t *regx_put_in_line(regx_put_t *put)
{
    return (regx_in_line_t *)(void *)put->scratch;
}
static inline regx_in_line_t *regx_get_in_line(regx_get_t *get)
{
    return (regx_in_line_t *)(void *)get->scratch;
}

/* Post what is in line, as far as there is room; of puts a bounded amount. */
void regx_put_take_turn(regx_ep_t *ep);
void regx_get_take_turn(regx_ep_t *ep);

#endif
